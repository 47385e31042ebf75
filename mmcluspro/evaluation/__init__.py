"""Compositional zero-shot metrics: pure functions and the registered metric."""
from .curve import Curve, czsl_curve, exact_metrics, standard_curve, standard_metrics
from .feasibility import PairGroups, feasibility_scores, threshold_candidates
from .metrics import CZSLMetric
from .reduction import Margins, reduce_scores
from .score_matrix import calculate

__all__ = [
    'CZSLMetric', 'Curve', 'Margins', 'PairGroups', 'calculate', 'czsl_curve', 'exact_metrics',
    'feasibility_scores', 'reduce_scores', 'standard_curve', 'standard_metrics',
    'threshold_candidates'
]
