"""Describes the model in each checkpoint, as plain data."""
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmcluspro.datasets.names import RULES
from mmcluspro.description import Refusal, describe
from mmcluspro.models.state import training_only_prefixes
from mmcluspro.registry import HOOKS

from .parts import unwrap


@HOOKS.register_module()
class DescriptionHook(Hook):
    """Writes a description of the model to ``meta.description``, from which prediction builds it.

    Classes of other packages are described by their names; prediction then needs ``--import`` or
    ``--config``. The config is also saved, as text for people.
    """

    def __init__(self) -> None:
        self._warned = False

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Adds the description to the file, and which weights only training needs."""
        model = unwrap(runner.model)
        checkpoint['meta']['training_only'] = list(training_only_prefixes(model))
        try:
            checkpoint['meta']['description'] = describe(_spelled_out(runner))
        except Refusal as refusal:
            if not self._warned:
                runner.logger.warning(
                    f'The checkpoints cannot describe their model: {refusal}. Prediction from '
                    'them needs the config file: --config FILE.')
            self._warned = True


def _spelled_out(runner: Runner) -> dict[str, Any]:
    """The config; where names are made readable by a function, with its results."""
    config = runner.cfg.to_dict()
    text = config.get('model', {}).get('head', {}).get('text', {})
    encoder = getattr(unwrap(runner.model).head, 'text', None)
    readable = text.get('readable') if isinstance(text, dict) else None
    if encoder is not None and readable is not None and (
            callable(readable) or isinstance(readable, str) and readable not in RULES):
        text['readable'] = {name: encoder.readable(name)
                            for name in (*encoder.attributes, *encoder.objects)}
    return config
