"""Compositional zero-shot metrics: pure functions and the registered metric."""
from .answers import (
    Answers,
    ClassRow,
    Outcomes,
    abstaining,
    accuracies,
    by_class,
    class_tables,
    reduce_answers,
)
from .calibration import Calibration, expected_calibration_error, probabilities
from .chosen import (
    PREFERENCES,
    Chosen,
    asked_calibration,
    chosen_for,
    chosen_meta,
    read_chosen,
)
from .curve import Curve, czsl_curve, exact_metrics, standard_curve, standard_metrics
from .feasibility import (
    WORLDS,
    PairGroups,
    feasibility_scores,
    feasible_pairs,
    head_feasibility,
    phase_worlds,
    threshold_candidates,
    world_candidates,
)
from .metrics import CZSLMetric, PredictionMetric
from .reduction import Margins, reduce_scores
from .score_matrix import calculate
from .score_space import log_scores

__all__ = [
    'Answers', 'CZSLMetric', 'Calibration', 'Chosen', 'ClassRow', 'Curve', 'Margins',
    'Outcomes', 'PREFERENCES', 'PairGroups', 'PredictionMetric', 'WORLDS', 'abstaining',
    'accuracies', 'asked_calibration', 'by_class', 'calculate', 'chosen_for', 'chosen_meta',
    'class_tables', 'czsl_curve', 'exact_metrics', 'expected_calibration_error',
    'feasibility_scores', 'feasible_pairs', 'head_feasibility', 'log_scores', 'phase_worlds',
    'probabilities', 'read_chosen', 'reduce_answers', 'reduce_scores', 'standard_curve',
    'standard_metrics', 'threshold_candidates', 'world_candidates'
]
