"""What a checkpoint says of its model and its training data, and whether they belong together."""
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmcluspro.artefact import TrainedModel
from mmcluspro.artefact.familiar import Familiar
from mmcluspro.artefact.save import word_vectors
from mmcluspro.artefact.spec import Refusal, describe
from mmcluspro.artefact.trained_on import TrainedOn
from mmcluspro.datasets.names import RULES
from mmcluspro.errors import reason_of
from mmcluspro.models.state import training_only_prefixes
from mmcluspro.registry import HOOKS
from mmcluspro.utils.digest import file_digest
from mmcluspro.utils.download import keep_file

from .console import weight_files
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
    """SHA-256 of the files that frozen towers came from, by the part of the model.

    That of the tokenizer is only written down: what it means depends on its name and its neighbour.
    """
    files = weight_files(runner.cfg.get('model') or {})
    try:
        return {part: file_digest(file, 'sha256') if part == 'tokenizer' else keep_file(file)
                for part, file in files.items()}
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
