"""Predicts the attribute and the object of images, from a checkpoint alone."""
from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from torch import Tensor

from mmcluspro.evaluation import (
    WORLDS,
    Calibration,
    asked_calibration,
    chosen_for,
    world_candidates,
)
from mmcluspro.models import Candidates, Features, Scores
from mmcluspro.models.candidates import Pair, cross
from mmcluspro.models.peft import merge
from mmcluspro.utils.device import find_device
from mmcluspro.utils.progress import Progress

from .images import Item, Preprocessor, list_images
from .model import load_model
from .pair_file import read_pairs
from .ranking import Row, as_sample, rank
from .result import Prediction, Predictions

Pairs = Sequence[Pair] | str | Path
MAX_ADDED = 1000  # new words that the text side keeps between calls


class CZSLInferencer:
    """Predicts the attribute and the object of images.

    Args:
        checkpoint (str | Path): A file that training wrote; nothing else is needed.
        device (str | torch.device, optional): Defaults to None: a GPU if there is one.
        config (str | Path | Config, optional): As in :func:`load_model`. Defaults to None.
        imports (Sequence[str]): As in :func:`load_model`. Defaults to ().
        weights (str | Path | Mapping, optional): As in :func:`load_model`. Defaults to None.
        background (str | Sequence[int], optional): Colour behind transparent pictures, such as
            'white' or (255, 255, 255); 'none' drops transparency. Defaults to None: as in
            training, white unless the config says otherwise.

    Attributes:
        classes (tuple[str]): Names of the pairs, as in mmpretrain's inferencers.

    Calls follow mmpretrain's inferencers: ``inputs``, ``batch_size``, ``return_datasamples``.

    Examples:
        >>> from mmcluspro import CZSLInferencer
        >>> inferencer = CZSLInferencer('work_dirs/run/best_czsl_auc_epoch_16.pth')
        >>> for answer in inferencer.stream('photos/'):
        ...     print(answer.image, answer.best)
    """

    def __init__(self, checkpoint: str | Path, device: str | torch.device | None = None,
                 config: str | Path | Config | None = None, imports: Sequence[str] = (),
                 weights: str | Path | Mapping[str, str | Path] | None = None,
                 background: str | Sequence[int] | None = None) -> None:
        self.device = find_device(device)
        self.checkpoint = str(checkpoint)
        self.model: Any = load_model(checkpoint, 'cpu', config, imports, weights)
        merge(self.model.backbone, keep=False)
        self.model.requires_grad_(False).to(self.device)
        self.space = self.model.space
        size = getattr(getattr(self.model.backbone, 'visual', None), 'image_size', None)
        self.size: int | None = size[0] if isinstance(size, (tuple, list)) else size
        self.classes = tuple(f'{self.space.attributes[attr]} {self.space.objects[obj]}'
                             for attr, obj in self.space.pairs.tolist())
        self.preprocess = Preprocessor(self.model.description, self.size, self.model.cfg,
                                       background)
        self._known: dict[str, Candidates] = {}

    def __call__(self, inputs: Any, pairs: Pairs | None = None, top_k: int = 5,
                 threshold: float | None = None, world: str = 'closed', batch_size: int = 32,
                 return_datasamples: bool = False, **options: Any) -> Any:
        """Returns all answers of :meth:`stream` in a list.

        Args:
            inputs: As in :meth:`stream`, like all other arguments.
            return_datasamples (bool): Return mmpretrain's ``DataSample`` instead of
                :class:`Prediction`, see :func:`~mmcluspro.apis.ranking.as_sample`. Defaults to
                False.

        Returns:
            Predictions | list[DataSample]: In the order of the images.
        """
        if return_datasamples:
            candidates = self.candidates(pairs, world, options.get('attributes'),
                                         options.get('objects'))
            answers = self.stream(inputs, pairs, len(candidates), threshold, world, batch_size,
                                  **options)
            return [as_sample(answer, candidates) for answer in answers]
        return Predictions(self.stream(inputs, pairs, top_k, threshold, world, batch_size,
                                       **options))

    def stream(self, inputs: Any, pairs: Pairs | None = None, top_k: int = 5,
               threshold: float | None = None, world: str = 'closed', batch_size: int = 32, *,
               attributes: Sequence[str] | None = None, objects: Sequence[str] | None = None,
               workers: int = 2, progress: bool | None = None, prefer: str = 'balanced',
               seen_bias: float | None = None, channels: str = 'BGR') -> Iterator[Prediction]:
        """Yields the answers one by one, while the next images are read.

        Args:
            inputs: As in :func:`~mmcluspro.apis.images.list_images`: paths, folders, patterns,
                PIL images, arrays, or a list of these.
            pairs (Sequence | str | Path, optional): Pairs of names to choose from, known or new, or
                a file of them (:func:`~mmcluspro.apis.pair_file.read_pairs`). Defaults to None: the
                pairs of ``world``.
            top_k (int): Number of pairs, attributes and objects to return. Defaults to 5.
            threshold (float, optional): Abstain below this probability. Defaults to None: never.
            world (str): 'closed': the pairs of the data the model was trained on; 'open': all
                feasible pairs of its attributes and objects. Defaults to 'closed'.
            batch_size (int): Defaults to 32.
            attributes (Sequence[str], optional): Choose from all pairs of these and ``objects``.
            objects (Sequence[str], optional): As ``attributes``. If only one of the two is given,
                the model's own names are used for the other.
            workers (int): Threads that read images. Defaults to 2; 0 reads between the batches.
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
        for name, number, least in (('top_k', top_k, 1), ('batch_size', batch_size, 1),
                                    ('workers', workers, 0)):
            if not isinstance(number, int) or number < least:
                raise ValueError(f'{name} must be an integer of at least {least}, got {number!r}.')
        if threshold is not None and not 0 <= threshold <= 1:
            raise ValueError(f'threshold is a probability between 0 and 1, got {threshold!r}.')
        items = list_images(inputs, channels)
        candidates = self.candidates(pairs, world, attributes, objects)
        calibration = self.calibration(world, prefer, seen_bias)
        shown = len(items) > batch_size if progress is None else progress
        bar = Progress('predicting', len(items), silent=not shown)
        return self._answers(items, candidates, calibration, top_k, threshold, batch_size,
                             workers, bar)

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
            threshold = chosen_for(self.model.meta, 'open').threshold
            self._known[world] = world_candidates(
                self.model.head, self.space, world, threshold).to(self.device)
        return self._known[world]

    def _named(self, pairs: Sequence[Pair]) -> Candidates:
        text, space = self.model.head.text, self.space
        added = (len(text.attributes) - len(space.attributes)
                 + len(text.objects) - len(space.objects))
        if added > MAX_ADDED:  # words of earlier calls: memory stays the same over any number
            text.restore()
        return Candidates.from_names(text, space, pairs).to(self.device)

    def calibration(self, world: str = 'closed', prefer: str = 'balanced',
                    seen_bias: float | None = None) -> Calibration:
        """Calibration from validation, or none with a warning; arguments as in :meth:`stream`."""
        found = asked_calibration(self.model.meta, world, prefer, seen_bias)
        if found is None:
            warnings.warn(
                f'{self.checkpoint} holds no calibration for the {world} world: the probabilities '
                'are those of Eq. 13, and pairs seen in training are favoured. The checkpoint '
                'best_*.pth of a training with validation holds it.', stacklevel=3)
            return Calibration()
        return found

    @torch.inference_mode()
    def features(self, inputs: Sequence[Tensor]) -> Features:
        """Features of a batch of :class:`Preprocessor` images, each (3, H, W), uint8."""
        batch = self.model.data_preprocessor(dict(inputs=list(inputs)))['inputs']
        return self.model.extract_feat(batch)

    def forget_adaptation(self) -> None:
        """Resets what a head learned from the images that it predicted.

        Each call and stream starts with it, so the same images get the same answers. :meth:`score`
        and :meth:`rank` keep the current state.
        """
        self.model.head.forget_adaptation()

    @torch.inference_mode()
    def score(self, feats: Features, candidates: Candidates) -> Scores:
        """Scores features of :meth:`features` with the model's head.

        Args:
            feats (Features): Of B images.
            candidates (Candidates): The pairs.
        """
        self.model.head.adapt(feats)
        # Another call may have made the text side forget the words of these pairs.
        return self.model.head.score(feats, candidates.renewed(self.model.head.text))

    def _answers(self, items: list[Item], candidates: Candidates, calibration: Calibration,
                 top_k: int, threshold: float | None, batch_size: int, workers: int,
                 bar: Progress) -> Iterator[Prediction]:
        self.forget_adaptation()
        with bar, ThreadPoolExecutor(workers) if workers else nullcontext() as pool:
            for chunk, read in self._read(items, batch_size, pool):
                inputs = [image for image, _ in read if image is not None]
                rows = iter(self.rank(inputs, candidates, calibration, top_k) if inputs else ())
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
            yield from ((chunk, list(map(self.preprocess, chunk))) for chunk in chunks)
            return
        waiting = [(chunk, pool.map(self.preprocess, chunk)) for chunk in islice(chunks, 2)]
        while waiting:
            chunk, read = waiting.pop(0)
            yield chunk, list(read)
            waiting += [(more, pool.map(self.preprocess, more)) for more in islice(chunks, 1)]

    @torch.inference_mode()
    def rank(self, inputs: Sequence[Tensor], candidates: Candidates, calibration: Calibration,
             top_k: int) -> Iterator[Row]:
        """Best pairs, attributes and objects of a batch, see :mod:`~mmcluspro.apis.ranking`."""
        scores = self.score(self.features(inputs), candidates)
        return rank(scores, candidates, calibration, self.model.head.link, top_k)


def predict(checkpoint: str | Path, inputs: Any, **options: Any) -> Predictions:
    """Loads a checkpoint and predicts the attribute and the object of images.

    For several calls, create a :class:`CZSLInferencer`, which loads the checkpoint once.

    Args:
        checkpoint (str | Path): A file that training wrote.
        inputs: Images, as in :meth:`CZSLInferencer.stream`.
        **options: Arguments of :class:`CZSLInferencer` (``device``, ``config``, ``imports``,
            ``weights``, ``background``) and of :meth:`CZSLInferencer.stream`.

    Examples:
        >>> import mmcluspro
        >>> mmcluspro.predict('best_czsl_auc_epoch_16.pth', 'photos/', top_k=1).to_frame()
    """
    own = {name: options.pop(name) for name in ('device', 'config', 'imports', 'weights',
                                                'background') if name in options}
    return CZSLInferencer(checkpoint, **own)(inputs, **options)
