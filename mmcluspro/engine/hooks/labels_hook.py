"""Checks that data, model and checkpoint belong together."""
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmcluspro.artefact.trained_on import TrainedOn
from mmcluspro.registry import HOOKS

from .parts import is_resuming, unwrap


@HOOKS.register_module()
class LabelsHook(Hook):
    """Refuses what does not belong together, and warns of tests on what was learnt.

    - Training data or a checkpoint whose labels are not those of the model are refused.
    - A run is resumed with the training list of its checkpoint only: others could have test images
      of now among those of before.
    - ``test`` and ``load_from`` warn if images or unseen pairs of the evaluation were in the
      training of the checkpoint, which keeps a record (:mod:`mmcluspro.artefact.trained_on`).
    """

    priority = 'ABOVE_NORMAL'

    def __init__(self) -> None:
        self._loaded: TrainedOn | None = None   # of the checkpoint that was loaded last
        self._trained: TrainedOn | None = None  # of the run
        self._earlier: TrainedOn | None = None  # of the checkpoint that the run started from
        self._warned: set[str] = set()

    def before_train(self, runner: Runner) -> None:
        """Compares the labels of the training set with those of the model."""
        data, model = runner.train_dataloader.dataset.space, unwrap(runner.model).space
        same = ((data.attributes, data.objects) == (model.attributes, model.objects)
                and data.train_pairs.equal(model.train_pairs))
        if not same:
            raise ValueError(
                f'The training set has {data}, the model {model}: model.space and '
                'train_dataloader.dataset in the config must name the same data.')
        self._earlier = self._loaded
        for phase in ('val', 'test'):  # now, not after hours of training
            if self._loaded is not None and getattr(runner, f'_{phase}_loop') is not None:
                self._warn(runner, phase)

    def before_val_epoch(self, runner: Runner) -> None:
        """Warns if the images or unseen pairs have been learnt."""
        self._warn(runner, 'val')

    def before_test_epoch(self, runner: Runner) -> None:
        """Warns if the images or unseen pairs have been learnt."""
        self._warn(runner, 'test')

    def _warn(self, runner: Runner, phase: str) -> None:
        held_out = getattr(getattr(runner, f'_{phase}_loop'), 'held_out', False)
        if self._loaded is None or held_out or phase in self._warned:
            return
        self._warned.add(phase)
        learnt = self._loaded.overlap(getattr(runner, f'{phase}_dataloader').dataset)
        if learnt:
            runner.logger.warning(
                f'The checkpoint was trained on {learnt} of the {phase} data: the numbers will be '
                'too good. Use the split that it was trained with.')

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Adds what the weights were trained on. Called on the first rank only."""
        self._own(runner).after(self._earlier).write(checkpoint['meta'])

    def _own(self, runner: Runner) -> TrainedOn:
        if self._trained is None:
            self._trained = TrainedOn.of(runner.train_dataloader.dataset)
        return self._trained

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Compares labels and training data of the checkpoint with those of now."""
        self._loaded = None
        saved = checkpoint.get('meta', {}).get('dataset_meta', {}).get('space')
        if saved is None:
            return
        space = unwrap(runner.model).space
        names = tuple(saved['attributes']), tuple(saved['objects'])
        if names != (space.attributes, space.objects):
            raise ValueError(
                f'The checkpoint was trained on {len(names[0])} attributes and {len(names[1])} '
                f'objects that differ from those of model.space ({len(space.attributes)} and '
                f'{len(space.objects)}). Use the config that it was trained with.')
        self._loaded = TrainedOn.read(checkpoint['meta'])
        if is_resuming(runner) and self._loaded is not None:
            self._loaded.require_same(self._own(runner))
