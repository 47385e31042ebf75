"""Compositional zero-shot metrics: pure functions and the registered metric."""
from .calibration import Calibration, expected_calibration_error, probabilities
from .curve import Curve, czsl_curve, exact_metrics, standard_curve, standard_metrics
from .feasibility import PairGroups, feasibility_scores, threshold_candidates
from .metrics import CZSLMetric
from .reduction import Margins, reduce_scores
from .score_matrix import calculate

__all__ = [
    'CZSLMetric', 'Calibration', 'Curve', 'Margins', 'PairGroups', 'calculate', 'czsl_curve',
    'exact_metrics', 'expected_calibration_error', 'feasibility_scores', 'probabilities',
    'reduce_scores', 'standard_curve', 'standard_metrics', 'threshold_candidates'
]
