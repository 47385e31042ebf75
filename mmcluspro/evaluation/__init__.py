"""Compositional zero-shot metrics: pure functions and the registered metric."""
from .calibration import Calibration, expected_calibration_error, probabilities
from .chosen import Chosen, chosen_for, chosen_meta, read_chosen
from .curve import Curve, czsl_curve, exact_metrics, standard_curve, standard_metrics
from .feasibility import (
    PairGroups,
    feasibility_scores,
    feasible_pairs,
    head_feasibility,
    threshold_candidates,
)
from .metrics import CZSLMetric
from .reduction import Margins, reduce_scores
from .score_matrix import calculate
from .score_space import log_scores
from .worlds import WORLDS, phase_worlds, world_candidates

__all__ = [
    'CZSLMetric', 'Calibration', 'Chosen', 'Curve', 'Margins', 'PairGroups', 'WORLDS',
    'calculate', 'chosen_for', 'chosen_meta', 'czsl_curve', 'exact_metrics',
    'expected_calibration_error', 'feasibility_scores', 'feasible_pairs', 'head_feasibility',
    'log_scores', 'phase_worlds',
    'probabilities', 'read_chosen', 'reduce_scores', 'standard_curve', 'standard_metrics',
    'threshold_candidates', 'world_candidates'
]
