"""Checks that data, model and checkpoint have the same labels."""
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmcluspro.registry import HOOKS

from .parts import unwrap


@HOOKS.register_module()
class LabelsHook(Hook):
    """Refuses training data or a checkpoint whose labels are not those of the model."""

    priority = 'ABOVE_NORMAL'

    def before_train(self, runner: Runner) -> None:
        """Compares the labels of the training set with those of the model."""
        data, model = runner.train_dataloader.dataset.space, unwrap(runner.model).space
        same = ((data.attributes, data.objects) == (model.attributes, model.objects)
                and data.train_pairs.equal(model.train_pairs))
        if not same:
            raise ValueError(
                f'The training set has {data}, the model {model}: model.space and '
                'train_dataloader.dataset in the config must name the same data.')

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Compares the labels of the checkpoint with those of the model."""
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
