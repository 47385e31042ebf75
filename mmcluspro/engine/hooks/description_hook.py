"""Describes the model in each checkpoint, as plain data."""
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmcluspro.artefact import TrainedModel
from mmcluspro.artefact.familiar import Familiar
from mmcluspro.artefact.save import word_vectors
from mmcluspro.artefact.spec import Refusal, describe
from mmcluspro.datasets.names import RULES
from mmcluspro.errors import reason_of
from mmcluspro.models.state import training_only_prefixes
from mmcluspro.registry import HOOKS
from mmcluspro.utils.download import keep_file

from .console_text import weight_files
from .parts import unwrap


@HOOKS.register_module()
class DescriptionHook(Hook):
    """Writes a description of the model to ``meta.description``, from which prediction builds it.

    Classes of other packages are described by their names; prediction then needs ``--import`` or
    ``--config``. The config is also saved, as text for people.

    Files of frozen towers are kept on this machine (:mod:`mmcluspro.utils.download`), and
    ``meta.towers`` has their SHA-256, by which prediction finds them. ``meta.word_vectors`` holds
    common words, if the text side has ``keep_words``. ``meta.familiar`` says how training pictures
    look (:mod:`mmcluspro.artefact.familiar`).
    """

    def __init__(self) -> None:
        self._warned = False
        self._fixed: dict[str, Any] | None = None

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Adds the description to the file, and which weights only training needs."""
        model = unwrap(runner.model)
        checkpoint['meta']['training_only'] = list(training_only_prefixes(model))
        if self._fixed is None:
            self._fixed = dict(towers=_keep_towers(runner), word_vectors=word_vectors(model),
                               familiar=_familiar(runner))
        checkpoint['meta'].update({name: part for name, part in self._fixed.items() if part})
        try:
            checkpoint['meta']['description'] = describe(_spelled_out(runner))
        except Refusal as refusal:
            checkpoint['meta']['no_description'] = str(refusal)
            if not self._warned:
                runner.logger.warning(
                    f'The checkpoints cannot describe their model: {refusal}. Prediction from '
                    'them needs the config file: --config FILE.')
            self._warned = True


def _keep_towers(runner: Runner) -> dict[str, str]:
    """SHA-256 of the files that frozen towers came from, by the part of the model."""
    files = weight_files(runner.cfg.get('model') or {})
    try:
        return {part: keep_file(file) for part, file in files.items()}
    except OSError as error:
        given = ' '.join(f'{part}={file}' for part, file in files.items())
        runner.logger.warning(f'The frozen weights cannot be kept on this machine '
                              f'({reason_of(error)}): predict with --weights {given}.')
        return {}


def _familiar(runner: Runner) -> dict[str, Any]:
    """How training pictures look; nothing where they cannot be prepared as prediction does."""
    if runner.train_loop is None or runner.val_loop is None:
        return {}
    try:
        prepare = TrainedModel.of(unwrap(runner.model), runner.cfg).prepare
    except ValueError:
        return {}
    found = Familiar.of(prepare, runner.train_dataloader.dataset, runner.val_dataloader.dataset)
    return found.to_meta() if found else {}


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
