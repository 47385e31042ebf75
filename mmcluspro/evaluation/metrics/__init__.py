"""Metrics in mmengine's registry."""
from .czsl_metric import CZSLMetric

__all__ = ['CZSLMetric']
