"""Compositional zero-shot metrics.

:func:`calculate` and the curves need NumPy only, and are all that importing this package imports.
The registered metrics and what prepares them are imported when they are first used.
"""
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .curve import Curve, czsl_curve, exact_metrics, standard_curve, standard_metrics
from .intervals import intervals
from .margins import Margins, PairGroups, calculate, reduce_scores

if TYPE_CHECKING:
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
    from .feasibility import (
        WORLDS,
        Evaluation,
        feasibility_scores,
        feasible_pairs,
        head_feasibility,
        phase_worlds,
        threshold_candidates,
        world_candidates,
    )
    from .metric import CZSLMetric
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
    from .ranking import RetrievalMetric, retrieval
    from .tensors import log_scores

__all__ = ['CZSLMetric', 'Evaluation', 'PredictionMetric', 'RetrievalMetric', 'calculate',
           'czsl_curve', 'exact_metrics', 'probabilities', 'reduce_scores', 'standard_metrics']

PLACES = dict(
    calibration=('PREFERENCES', 'Calibration', 'Chosen', 'asked_calibration', 'chosen_meta',
                 'expected_calibration_error', 'probabilities', 'read_chosen'),
    feasibility=('WORLDS', 'Evaluation', 'feasibility_scores', 'feasible_pairs',
                 'head_feasibility', 'phase_worlds', 'threshold_candidates', 'world_candidates'),
    metric=('CZSLMetric', ),
    prediction=('Answers', 'ClassRow', 'Outcomes', 'PredictionMetric', 'abstaining', 'accuracies',
                'by_class', 'class_tables', 'reduce_answers'),
    ranking=('RetrievalMetric', 'retrieval'),
    tensors=('log_scores', ))


def __getattr__(name: str) -> Any:
    for module, names in PLACES.items():
        if name in names:
            return getattr(import_module(f'{__name__}.{module}'), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
