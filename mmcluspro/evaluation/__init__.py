"""Compositional zero-shot metrics: pure functions and the registered metric."""
from .calibration import (
    PREFERENCES,
    Calibration,
    Chosen,
    asked_calibration,
    chosen_meta,
    expected_calibration_error,
    probabilities,
    read_chosen,
)
from .curve import Curve, czsl_curve, exact_metrics, standard_curve, standard_metrics
from .feasibility import (
    WORLDS,
    Evaluation,
    PairGroups,
    feasibility_scores,
    feasible_pairs,
    head_feasibility,
    phase_worlds,
    threshold_candidates,
    world_candidates,
)
from .margins import Margins, log_scores, reduce_scores
from .metric import CZSLMetric, calculate
from .prediction import (
    Answers,
    ClassRow,
    Outcomes,
    PredictionMetric,
    abstaining,
    accuracies,
    by_class,
    class_tables,
    reduce_answers,
)

__all__ = [
    'Answers', 'CZSLMetric', 'Calibration', 'Chosen', 'ClassRow', 'Curve', 'Evaluation', 'Margins',
    'Outcomes', 'PREFERENCES', 'PairGroups', 'PredictionMetric', 'WORLDS', 'abstaining',
    'accuracies', 'asked_calibration', 'by_class', 'calculate', 'chosen_meta',
    'class_tables', 'czsl_curve', 'exact_metrics', 'expected_calibration_error',
    'feasibility_scores', 'feasible_pairs', 'head_feasibility', 'log_scores', 'phase_worlds',
    'probabilities', 'read_chosen', 'reduce_answers', 'reduce_scores', 'standard_curve',
    'standard_metrics', 'threshold_candidates', 'world_candidates'
]
