"""Tests a model as ``mmcluspro predict`` will use it, and says which classes are worst."""
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmcluspro.datasets import CompositionSpace
from mmcluspro.engine.hooks import CalibrationHook
from mmcluspro.engine.hooks.parts import unwrap
from mmcluspro.evaluation import Chosen, PredictionMetric
from mmcluspro.registry import HOOKS

from .class_tables import write_tables
from .run_files import show_picture


@HOOKS.register_module()
class PredictionHook(Hook):
    """Adds :class:`PredictionMetric` to the test, and leaves its tables in the work folder.

    ``test_pairs.csv``, ``test_attributes.csv``, ``test_objects.csv`` and ``test_classes.png``, the
    worst classes first.
    """

    priority = 'LOW'  # after CandidatesHook, which says which pairs the model scores

    def before_test(self, runner: Runner) -> None:
        """Adds the metric, unless the config has one."""
        metrics = runner.test_evaluator.metrics
        if not any(isinstance(metric, PredictionMetric) for metric in metrics):
            metrics.append(PredictionMetric())

    def before_test_epoch(self, runner: Runner) -> None:
        """Lets the model score the pairs of all phases, too."""
        model = unwrap(runner.model)
        known = model.head.known_candidates
        model.answer_from({**(model.worlds or {'closed': known}), 'known': known})
        space = CompositionSpace(known.attributes, known.objects, known.pairs.cpu(),
                                 known.seen.cpu())
        hook = next((hook for hook in runner.hooks if isinstance(hook, CalibrationHook)), None)
        chosen = Chosen() if hook is None else hook.chosen.get('closed', Chosen())
        for metric in self._metrics(runner):
            metric.set_space(space, model.head.link)
            metric.set_chosen(chosen)

    def after_test_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Writes the tables and the picture."""
        for metric in self._metrics(runner):
            if runner.rank == 0 and metric.tables:
                path = write_tables(metric.tables, runner.work_dir)
                show_picture(runner.visualizer, path.stem, path, runner.iter)
                runner.logger.info(f'Accuracy by class, worst first: {path}, and test_pairs.csv, '
                                   'test_attributes.csv and test_objects.csv beside it')

    def _metrics(self, runner: Runner) -> list[Any]:
        return [metric for metric in runner.test_evaluator.metrics
                if isinstance(metric, PredictionMetric)]
