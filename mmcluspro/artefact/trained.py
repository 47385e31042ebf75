"""The trained model: what training leaves, and everything that is asked of it afterwards."""
from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.runner.checkpoint import load_state_dict
from mmpretrain.structures import DataSample
from torch import Tensor

from mmcluspro.datasets import CompositionSpace, CZSLDataset
from mmcluspro.errors import FileError, sentence_of
from mmcluspro.evaluation import (
    WORLDS,
    Calibration,
    Chosen,
    asked_calibration,
    probabilities,
    read_chosen,
    world_candidates,
)
from mmcluspro.models import Candidates
from mmcluspro.models.candidates import Pair, check_pairs, cross
from mmcluspro.models.classifier import CompositionalClassifier
from mmcluspro.models.peft import merge, unmerge
from mmcluspro.models.structures import Features, Scores, Texts
from mmcluspro.models.text import WordTableText
from mmcluspro.registry import MODELS
from mmcluspro.utils.device import find_device, reader_threads
from mmcluspro.utils.digest import file_digest
from mmcluspro.utils.download import find_kept
from mmcluspro.utils.progress import Progress

from .familiar import Familiar
from .images import Item, Preprocessor, list_images
from .load import CheckpointFile, read_checkpoint
from .pairs import read_pairs
from .phases import phase_dataset
from .results import Prediction, Predictions, Row, as_sample, rank
from .spec import Refusal, describe, import_modules
from .towers import build_model, given_weights, predicting

if TYPE_CHECKING:
    from .search import Found

Pairs = Sequence[Pair] | str | Path
MAX_ADDED = 1000  # new words that the text side keeps between calls
UNFIT = ('Give the file as training wrote it; if its description is not that of its weights, give '
         'your config with --config FILE (config=…).')


@dataclass(eq=False)
class TrainedModel:
    """A network with all that is needed to use it: it is the same wherever it is read.

    Training writes it into checkpoints. Prediction, test, demo, pictures, reports, export and
    publishing read it.

    Args:
        network (CompositionalClassifier): In eval mode.
        spec (Mapping): The network, the preparation of its pictures and its data as plain data
            (:mod:`mmcluspro.artefact.spec`); empty where plain data cannot say it.
        chosen (Mapping[str, Chosen]): By world, what validation chose. Defaults to nothing.
        config (Config, optional): The user's own config, for what ``spec`` cannot say. Defaults
            to None.
        name (str): What messages call it, usually the file. Defaults to 'The model'.
        background (str | Sequence[int], optional): Colour behind transparent pictures, such as
            'white' or (255, 255, 255); 'none' drops transparency. Defaults to None: as in
            training, white unless the config says otherwise.
        facts (Mapping): Field ``meta`` of the file that it was loaded from. Defaults to nothing.
        familiar (Familiar, optional): How training pictures look. Defaults to None: not known.

    Examples:
        >>> model = TrainedModel.load('work_dirs/run/best_czsl_auc_epoch_16.pth')  # doctest: +SKIP
        >>> for answer in model.stream('photos/'):  # doctest: +SKIP
        ...     print(answer.image, answer.best)
    """
    network: CompositionalClassifier
    spec: Mapping[str, Any]
    chosen: Mapping[str, Chosen] = field(default_factory=dict)
    config: Config | None = None
    name: str = 'The model'
    background: str | Sequence[int] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    familiar: Familiar | None = None
    _known: dict[str, Candidates] = field(default_factory=dict, init=False, repr=False)
    _folded: bool = field(default=False, init=False, repr=False)

    @classmethod
    def of(cls, network: CompositionalClassifier, config: Config,
           chosen: Mapping[str, Chosen] | None = None, **fields: Any) -> TrainedModel:
        """A network and the config that it was built from.

        Args:
            network (CompositionalClassifier): The network.
            config (Config): Described as far as plain data can.
            chosen (Mapping[str, Chosen], optional): What validation chose. Defaults to nothing.
            **fields: The other fields.
        """
        try:
            spec = describe(config)
        except Refusal:
            spec = {}
        return cls(network, spec, chosen or {}, config, **fields)

    @classmethod
    def load(cls, path: str | Path, device: str | torch.device | None = None,
             config: Config | None = None, imports: Sequence[str] = (),
             weights: str | Path | Mapping[str, str | Path] | None = None,
             background: str | Sequence[int] | None = None) -> TrainedModel:
        """Builds the model of a file from the file alone.

        The file contains only data: tensors, and a description with a closed schema
        (:mod:`mmcluspro.artefact.spec`). No code from it is executed. It can name only classes of
        this package, and no path or address to open.

        Args:
            path (str | Path): File or address of a checkpoint that training wrote, a folder of
                :meth:`save`, ``'hf-hub:user/name'`` (``@revision``), or ``'cluspro_shapes'``, a
                small model of drawings that comes with the package.
            device (str | torch.device, optional): Defaults to None: a GPU if there is one.
            config (Config, optional): Your own config, which is built instead of the description,
                for parts that the description cannot name. Defaults to None.
            imports (Sequence[str]): Your modules whose classes the description may name. Defaults
                to ().
            weights (str | Path | Mapping, optional): Weights of the frozen towers, if training
                read them from local files: one file for both, or a dict with 'backbone', 'text'
                and 'words'. Defaults to None.
            background (str | Sequence[int], optional): As in the class. Defaults to None.
        """
        device = find_device(device)
        modules, files = import_modules(imports), given_weights(weights)
        file = read_checkpoint(path)
        space = file.space()
        own: dict[str, Any] = dict(name=file.name, background=background, facts=file.meta,
                                   familiar=file.familiar())
        if config is None:
            for part, digest in file.towers().items():
                if part not in files and (kept := find_kept(digest)):
                    files[part] = str(kept)
            spec = file.spec(modules)
            network = build_model(spec['model'], space, file.state, file.name, files)
            _compare_tokenizer(file, files)
            found = cls(network, spec, read_chosen(file.meta), **own)
        else:
            found = cls.of(_build_config(config, space, file), config, read_chosen(file.meta),
                           **own)
        _fill(found.network, file)
        text = getattr(found.network.head, 'text', None)
        if isinstance(text, WordTableText) and text.path is None:
            text.keep(file.words())
        found.network.to(device).eval()
        return found

    def save(self, path: str | Path, standalone: bool = False,
             numbers: Mapping[str, float] | None = None, licence: str | None = None) -> Path:
        """Writes what prediction needs to a safetensors file, which :meth:`load` reads.

        Args:
            path (str | Path): The file; it ends with .safetensors. Or a folder, which exists or
                ends with '/': it gets ``model.safetensors`` and a model card, ``README.md``.
            standalone (bool): Put the frozen towers into the file, in half precision, so that
                other machines need nothing else. Defaults to False.
            numbers (Mapping[str, float], optional): For the card, such as the result of
                :func:`mmcluspro.test`. Defaults to None.
            licence (str, optional): For the card, as the Hub names it: 'apache-2.0'. Defaults to
                None.

        Returns:
            Path: The file or the folder.
        """
        from .save import save
        return save(self, path, standalone, numbers, licence)

    def push_to_hub(self, name: str, standalone: bool = False,
                    numbers: Mapping[str, float] | None = None, licence: str | None = None,
                    private: bool = False) -> str:
        """Uploads the folder of :meth:`save`; ``load('hf-hub:user/name')`` reads it.

        Args:
            name (str): 'user/name'; the repository is made if it does not exist.
            private (bool): If it is made, only its owner can read it. Defaults to False.

        Returns:
            str: Address of the model.
        """
        from .hub import push
        return push(self, name, standalone, numbers, licence, private)

    def weights(self) -> dict[str, Tensor]:
        """The weights as training left them, without frozen towers that come from elsewhere."""
        self.network.head.text.restore()  # words of earlier calls
        return self.network.state_dict()

    @cached_property
    def space(self) -> CompositionSpace:
        """The pairs of all phases: what can be answered in the closed world."""
        known = self.network.head.known_candidates
        return CompositionSpace(known.attributes, known.objects, known.pairs.cpu(),
                                known.seen.cpu())

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the pairs, as in mmpretrain's inferencers."""
        return tuple(f'{self.space.attributes[attr]} {self.space.objects[obj]}'
                     for attr, obj in self.space.pairs.tolist())

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        return self.network.head.device

    @property
    def size(self) -> int | None:
        """Side of the pictures that the image tower was made for; None if it does not say."""
        size = getattr(getattr(self.network.backbone, 'visual', None), 'image_size', None)
        return size[0] if isinstance(size, (tuple, list)) else size

    @cached_property
    def prepare(self) -> Preprocessor:
        """Prepares pictures as the test of the training did."""
        return Preprocessor(self.spec, self.size, self.config, self.background)

    def dataset(self, phase: str, config: Config | None = None, **options: Any) -> CZSLDataset:
        """The images of a phase, prepared as in a test: without augmentation, even in training.

        Args:
            phase (str): 'train', 'val' or 'test'.
            config (Config, optional): The user's own config, whose datasets are built instead of
                the one that ``spec`` names. Defaults to None.
            **options: Fields of the dataset, such as ``data_root``.
        """
        return phase_dataset(self.network, self.spec, phase,
                             self.config if config is None else config, **options)

    def predict(self, inputs: Any, pairs: Pairs | None = None, top_k: int = 5,
                threshold: float | None = None, world: str = 'closed', batch_size: int = 32,
                **options: Any) -> Predictions:
        """Returns all answers of :meth:`stream`, whose arguments it has, in a list."""
        return Predictions(self.stream(inputs, pairs, top_k, threshold, world, batch_size,
                                       **options))

    def samples(self, inputs: Any, pairs: Pairs | None = None, world: str = 'closed',
                **options: Any) -> list[DataSample]:
        """The answers as mmpretrain's ``DataSample``, see :func:`~.ranking.as_sample`.

        Args:
            inputs: As in :meth:`stream`, like all other arguments.
        """
        candidates = self.candidates(pairs, world, options.get('attributes'),
                                     options.get('objects'))
        return [as_sample(answer, candidates) for answer in self.stream(
            inputs, pairs, len(candidates), world=world, **options)]

    def stream(self, inputs: Any, pairs: Pairs | None = None, top_k: int = 5,
               threshold: float | None = None, world: str = 'closed', batch_size: int = 32, *,
               attributes: Sequence[str] | None = None, objects: Sequence[str] | None = None,
               workers: int | None = None, progress: bool | None = None, prefer: str = 'balanced',
               seen_bias: float | None = None, channels: str = 'BGR') -> Iterator[Prediction]:
        """Yields the answers one by one, while the next images are read.

        Args:
            inputs: As in :func:`~.images.list_images`: paths, folders, patterns,
                PIL images, arrays, or a list of these.
            pairs (Sequence | str | Path, optional): Pairs of names to choose from, known or new, or
                a file of them (:func:`~.pair_file.read_pairs`). Defaults to None: the
                pairs of ``world``.
            top_k (int): Number of pairs, attributes and objects to return. Defaults to 5.
            threshold (float, optional): Abstain below this probability. Defaults to None: never.
            world (str): 'closed': the pairs of the data the model was trained on; 'open': all
                feasible pairs of its attributes and objects. Defaults to 'closed'.
            batch_size (int): Defaults to 32.
            attributes (Sequence[str], optional): Choose from all pairs of these and ``objects``.
            objects (Sequence[str], optional): As ``attributes``. If only one of the two is given,
                the model's own names are used for the other.
            workers (int, optional): Threads that read images; 0 reads between the batches.
                Defaults to None: up to 2, as many as there are free cores beside the one that
                computes.
            progress (bool, optional): Show a line with the time left on stderr. Defaults to None:
                only for more than one batch.
            prefer (str): Which pairs matter more, 'seen' or 'unseen'. Defaults to 'balanced':
                the bias with the best harmonic mean on validation.
            seen_bias (float, optional): Subtract this from the log scores of seen pairs, instead of
                ``prefer``. Defaults to None.
            channels (str): Order of the colours of arrays, 'BGR' or 'RGB'. Defaults to 'BGR', as
                mmcv and mmpretrain have them.

        Yields:
            Prediction: In the order of the images. If an image cannot be read, ``error`` is set.
        """
        workers = reader_threads(self.device) if workers is None else workers
        for name, number, least in (('top_k', top_k, 1), ('batch_size', batch_size, 1),
                                    ('workers', workers, 0)):
            if not isinstance(number, int) or number < least:
                raise ValueError(f'{name} must be an integer of at least {least}, got {number!r}.')
        if threshold is not None and not 0 <= threshold <= 1:
            raise ValueError(f'threshold is a probability between 0 and 1, got {threshold!r}.')
        items = list_images(inputs, channels)
        self.prepare  # noqa: B018  that it cannot be built is said now
        candidates = self.candidates(pairs, world, attributes, objects)
        calibration = self.calibration(world, prefer, seen_bias)
        shown = len(items) > batch_size if progress is None else progress
        bar = Progress('predicting', len(items), silent=not shown)
        return self._answers(items, candidates, calibration, top_k, threshold, batch_size,
                             workers, bar)

    def scores(self, inputs: Any, pairs: Sequence[Pair] | None = None, world: str = 'closed',
               batch_size: int = 32, *, workers: int | None = None, prefer: str = 'balanced',
               seen_bias: float | None = None, channels: str = 'BGR') -> Tensor:
        """How probable pairs are among all pairs of a world.

        Args:
            inputs: As in :meth:`stream`, like the other arguments.
            pairs (Sequence, optional): The pairs to ask for, known or new: each takes part beside
                the pairs of the world. Defaults to None: all of the world.

        Returns:
            Tensor: Shape (N, P), in the order of ``pairs``.
        """
        chances = self.chances(pairs, world, prefer, seen_bias)
        found = []
        self.forget_adaptation()
        workers = reader_threads(self.device) if workers is None else workers
        with ThreadPoolExecutor(workers) if workers else nullcontext() as pool:
            for chunk, read in self._read(list_images(inputs, channels), batch_size, pool):
                for item, (_, error) in zip(chunk, read):
                    if error is not None:
                        raise ValueError(f'{item.name} cannot be read: {error}')
                found.append(chances(self.features([image for image, _ in read])))
        return torch.cat(found)

    def chances(self, pairs: Sequence[Pair] | None = None, world: str = 'closed',
                prefer: str = 'balanced', seen_bias: float | None = None
                ) -> Callable[[Features], Tensor]:
        """A function from features to what :meth:`scores` returns, whose arguments these are."""
        candidates, columns = self.candidates(world=world), None
        if pairs is not None:
            candidates, columns = self._beside(candidates, check_pairs(pairs))
        calibration = self.calibration(world, prefer, seen_bias)

        def run(feats: Features) -> Tensor:
            found = probabilities(self.score(feats, candidates).pair, candidates.seen,
                                  calibration, self.network.head.link, candidates.feasible)
            return (found if columns is None else found[:, columns]).cpu()
        return run

    def search(self, words: str | Pair, inputs: Any, top_k: int = 10,
               progress: bool | None = None) -> list[Found]:
        """The photographs that show an attribute–object pair, most probable first.

        Their features are kept by their content in torch's folder, so that another search over
        the same photographs reads the files only to see whether they have changed.

        Args:
            words (str | tuple[str, str]): Such as ``'suede boots'`` or ``('black', 'sports
                shoes')``; new words are allowed.
            inputs: Files, folders or patterns, as in :meth:`stream`.
            top_k (int): Defaults to 10.
            progress (bool, optional): As in :meth:`stream`.
        """
        from .search import search
        return search(self, words, inputs, top_k, progress=progress)

    def _beside(self, world: Candidates, pairs: Sequence[Pair]) -> tuple[Candidates, list[int]]:
        """The feasible pairs of a world and others, and the columns of these."""
        said = self.network.head.text.readable
        feasible = range(len(world)) if world.feasible is None else world.feasible.nonzero()[:, 0]
        rows = world.pairs[torch.as_tensor(feasible, device=world.pairs.device)].tolist()
        names = [(world.attributes[attr], world.objects[obj]) for attr, obj in rows]
        every = {tuple(map(said, pair)): pair for pair in (*pairs, *names)}
        found = self._named(list(every.values()))
        place = {(said(found.attributes[attr]), said(found.objects[obj])): row
                 for row, (attr, obj) in enumerate(found.pairs.tolist())}
        return found, [place[said(attr), said(obj)] for attr, obj in pairs]

    def candidates(self, pairs: Pairs | None = None, world: str = 'closed',
                   attributes: Sequence[str] | None = None,
                   objects: Sequence[str] | None = None) -> Candidates:
        """The pairs to choose from; arguments as in :meth:`stream`."""
        if world not in WORLDS:
            raise ValueError(f"world must be 'closed' or 'open', got {world!r}.")
        listed = attributes is not None or objects is not None
        if pairs is not None and listed:
            raise ValueError('Give either pairs, or attributes and objects, not both.')
        if (pairs is not None or listed) and world == 'open':
            raise ValueError("world='open' means all pairs of the model: leave it out where pairs, "
                             'attributes or objects are given.')
        if listed:
            pairs = cross(attributes, objects, self.space)
        if isinstance(pairs, (str, Path)):
            pairs = read_pairs(pairs)
        if pairs is not None:
            return self._named(pairs)
        if world not in self._known:
            self._known[world] = world_candidates(
                self.network.head, self.space, world, self.chosen_for('open').threshold
            ).to(self.device)
        return self._known[world]

    def _named(self, pairs: Sequence[Pair]) -> Candidates:
        text, space = self.network.head.text, self.space
        added = (len(text.attributes) - len(space.attributes)
                 + len(text.objects) - len(space.objects))
        if added > MAX_ADDED:  # words of earlier calls: memory stays the same over any number
            text.restore()
        return Candidates.from_names(text, space, pairs).to(self.device)

    def chosen_for(self, world: str) -> Chosen:
        """What validation chose for a world; all None if it chose nothing."""
        return self.chosen.get(world, Chosen())

    def calibration(self, world: str = 'closed', prefer: str = 'balanced',
                    seen_bias: float | None = None, warn: bool = True) -> Calibration:
        """What turns scores into probabilities.

        Args:
            world (str): As in :meth:`stream`, like ``prefer`` and ``seen_bias``.
            warn (bool): Warn if validation chose nothing. Defaults to True.
        """
        found = asked_calibration(self.chosen_for(world), world, prefer, seen_bias)
        if found is None and warn:
            warnings.warn(
                f'{self.name} holds no calibration for the {world} world: the probabilities '
                'are those of Eq. 13, and pairs seen in training are favoured. The checkpoint '
                'best_*.pth of a training with validation holds it.', stacklevel=3)
        return found or Calibration()

    @torch.no_grad()
    def texts(self, candidates: Candidates) -> Texts:
        """Text features of candidates."""
        return self.network.head.texts(candidates.renewed(self.network.head.text))

    def features(self, inputs: Sequence[Tensor]) -> Features:
        """Features of a batch of pictures of :attr:`prepare`, each (3, H, W), uint8.

        The first call folds LoRA into the weights and freezes the network.
        """
        if not self._folded:
            merge(self.network.backbone, keep=False)
            self.network.requires_grad_(False)
            self._folded = True
        with torch.inference_mode():
            batch = self.network.data_preprocessor(dict(inputs=list(inputs)))['inputs']
            return self.network.extract_feat(batch)

    def unfold(self) -> None:
        """Takes LoRA out of the weights again, to within rounding."""
        unmerge(self.network.backbone)
        self._folded = False

    def forget_adaptation(self) -> None:
        """Resets what a head learned from the images that it predicted.

        Each call of :meth:`stream` and :meth:`scores` starts with it, so the same images get the
        same answers. :meth:`score` and :meth:`answer` keep the current state.
        """
        self.network.head.forget_adaptation()

    @torch.inference_mode()
    def score(self, feats: Features, candidates: Candidates) -> Scores:
        """Scores features of :meth:`features` with the model's head.

        Args:
            feats (Features): Of B images.
            candidates (Candidates): The pairs.
        """
        head = self.network.head
        head.adapt(feats)
        # Another call may have made the text side forget the words of these pairs.
        return head.score(feats, candidates.renewed(head.text))

    @torch.inference_mode()
    def answer(self, scores: Scores, candidates: Candidates, calibration: Calibration,
               top_k: int = 5) -> Iterator[Row]:
        """Best pairs, attributes and objects of each image.

        Args:
            scores (Scores): Of :meth:`score`.
            candidates (Candidates): The same.
            calibration (Calibration): Of :meth:`calibration`.
            top_k (int): How many of each. Defaults to 5.
        """
        return rank(scores, candidates, calibration, self.network.head.link, top_k)

    def _answers(self, items: list[Item], candidates: Candidates, calibration: Calibration,
                 top_k: int, threshold: float | None, batch_size: int, workers: int,
                 bar: Progress) -> Iterator[Prediction]:
        self.forget_adaptation()
        with bar, ThreadPoolExecutor(workers) if workers else nullcontext() as pool:
            for chunk, read in self._read(items, batch_size, pool):
                inputs = [image for image, _ in read if image is not None]
                rows = iter(self.answer(self.score(self.features(inputs), candidates), candidates,
                                        calibration, top_k) if inputs else ())
                bar.add(len(chunk))
                for item, (_, error) in zip(chunk, read):
                    if error is None:
                        yield Prediction.of(item.name, next(rows), threshold)
                    else:
                        yield Prediction(item.name, error=error)

    def _read(self, items: list[Item], size: int, pool: Any) -> Iterator[tuple[list, list]]:
        """Batches of items and the images that were read, while the next batch is being read."""
        left = iter(items)
        chunks = iter(lambda: list(islice(left, size)), [])
        if pool is None:
            yield from ((chunk, list(map(self.prepare, chunk))) for chunk in chunks)
            return
        waiting = [(chunk, pool.map(self.prepare, chunk)) for chunk in islice(chunks, 2)]
        while waiting:
            chunk, read = waiting.pop(0)
            yield chunk, list(read)
            waiting += [(more, pool.map(self.prepare, more)) for more in islice(chunks, 1)]


def _compare_tokenizer(file: CheckpointFile, files: Mapping[str, str]) -> None:
    """Warns about another tokenizer file: nothing else would show that words are read otherwise."""
    expected, given = file.towers().get('tokenizer'), files.get('tokenizer')
    if expected and given and file_digest(given, 'sha256') != expected:
        warnings.warn(f'{given} is not the tokenizer file that {file.name} was trained with, whose '
                      f'SHA-256 is {expected}: if it reads words otherwise, the answers are wrong.',
                      stacklevel=3)


def _fill(network: CompositionalClassifier, file: CheckpointFile) -> None:
    """Loads the weights of a file."""
    try:
        load_state_dict(network, predicting(file.state, network), strict=False, logger='silent')
    except FileError:
        raise
    except (ValueError, RuntimeError, TypeError) as error:
        raise FileError(file.name, sentence_of(error), UNFIT, 'state_dict') from error


def _build_config(cfg: Config, space: CompositionSpace, file: CheckpointFile) -> Any:
    """Builds the user's own config, with the saved labels in the place of the data folder."""
    if not cfg.get('model', {}).get('head'):
        raise ValueError(f'The config for {file.name} has no field model with a head.')
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        # mmpretrain writes defaults into what it is given.
        return MODELS.build(dict(deepcopy(cfg.model), space=space.to_dict()))
