"""Metrics in mmengine's registry."""
from .czsl_metric import CZSLMetric
from .prediction_metric import PredictionMetric

__all__ = ['CZSLMetric', 'PredictionMetric']
