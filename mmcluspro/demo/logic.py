"""Computes the answers of the page: for an image and a list of pairs, ranked with a bias."""
from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from difflib import get_close_matches
from threading import Lock
from typing import Any

import numpy as np
from torch import Tensor

from mmcluspro.artefact import NameScore, PairScore, Prediction, TrainedModel
from mmcluspro.artefact.images import Item
from mmcluspro.artefact.prototype_images import PrototypeImages
from mmcluspro.models import Candidates
from mmcluspro.models.candidates import Pair
from mmcluspro.models.structures import Scores

from .nearest import NearPrototype, prototypes_of

SIDE, RING, NEAR = 48, 4, 40  # pixels, pixels, steps of brightness
# Threads that decode pictures, which bounds their memory: each keeps some of what it once needed.
DECODERS = 2
QUIET, DARKEST, BRIGHTEST = 0.75, 50, 205
NOT_DRAWN = ('This does not look like a drawing of the package. The model of this page was built '
             'on the tiny CLIP, which has seen only such drawings: about photographs its answers '
             'mean little. For photographs train with another image tower (docs/real_photos.md).')


def knows_drawings_only(spec: Mapping[str, Any]) -> bool:
    """Whether the image tower of a model is the tiny CLIP of the package.

    Args:
        spec (Mapping): Of a model.
    """
    backbone = (spec.get('model') or {}).get('backbone') or {}
    return backbone.get('pretrained') == 'tiny_clip'


def looks_drawn(image: Tensor) -> bool:
    """Whether a picture has the plain, middle-toned background of our drawings.

    Of photographs, product shots have a white border, and others a border of many colours.

    Args:
        image (Tensor): As the model gets it, BGR, shape (3, H, W), uint8.
    """
    pixels = image.permute(1, 2, 0).numpy().astype(np.float32)
    width = max(1, round(RING * min(pixels.shape[:2]) / SIDE))
    inner = np.zeros(pixels.shape[:2], bool)
    inner[width:-width, width:-width] = True
    border = pixels[~inner]
    middle = np.median(border, axis=0)
    quiet = (np.abs(border - middle).max(axis=1) < NEAR).mean()
    return bool(quiet >= QUIET and DARKEST <= middle.mean() <= BRIGHTEST)


TOP_PAIRS, TOP_NAMES, TOP_PROTOTYPES = 8, 5, 5


@dataclass
class Answer:
    """Scores of one image, from which the bias slider ranks again without the model.

    Attributes:
        candidates (Candidates): The P pairs.
        scores (Scores): Of the head.
        prototypes (dict): Nearest prototypes by branch.
        notes (list[str]): Messages for the user.
    """
    candidates: Candidates
    scores: Scores
    prototypes: dict[str, list[NearPrototype]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Ranking:
    """The best pairs, attributes and objects, best first."""
    pairs: tuple[PairScore, ...]
    attributes: tuple[NameScore, ...]
    objects: tuple[NameScore, ...]


class Classifier:
    """Answers the page, one request at a time.

    Args:
        model (TrainedModel): The model.
        images (PrototypeImages, optional): Training images nearest to the prototypes; those of
            another model are not shown. Defaults to None.
    """

    def __init__(self, model: TrainedModel, images: PrototypeImages | None = None) -> None:
        self.model = model
        self.images = images if images is not None and images.fits(
            model.network.head.prototypes) else None
        self.drawings_only = knows_drawings_only(model.spec)
        self.calibrated = model.chosen_for('closed').calibration is not None
        self.calibration = model.calibration(warn=False)
        self._lock = Lock()  # the text side grows by the words of a request
        self._decoders = ThreadPoolExecutor(DECODERS, 'decoder')

    def known_pairs(self) -> list[Pair]:
        """The pairs of the model's data."""
        space = self.model.space
        return [(space.attributes[a], space.objects[o]) for a, o in space.pairs.tolist()]

    def answer(self, path: str, pairs: Sequence[Pair]) -> Answer:
        """Scores of an image file.

        Args:
            path (str): The file.
            pairs (Sequence): Names to choose from, known or new.
        """
        image, error = self._read(Item(path, path))
        if error is not None:
            raise ValueError(f'This file cannot be read as a picture: {error}. Choose a picture, '
                             'such as a PNG, JPEG or WebP file.')
        with self._lock:
            candidates = self._candidates(pairs)
            self.model.forget_adaptation()  # of earlier visitors
            feats = self.model.features([image])
            scores = self.model.score(feats, candidates)
        head = self.model.network.head
        notes = [NOT_DRAWN] if self.drawings_only and not looks_drawn(image) else []
        return Answer(candidates, scores, prototypes_of(head, feats, TOP_PROTOTYPES),
                      [*notes, *self._new_names(candidates)])

    def predictions(self, files: Sequence[Item], pairs: Sequence[Pair] | None = None,
                    seen_bias: float | None = None, top_k: int = 3) -> list[Prediction]:
        """Answers for several files, as ``mmcluspro predict`` gives them.

        Args:
            files (Sequence[Item]): Names to show, and paths.
            pairs (Sequence, optional): Names to choose from. Defaults to None: the known ones.
            seen_bias (float, optional): Defaults to None: what validation chose.
            top_k (int): Pairs of each. Defaults to 3.
        """
        calibration = self.calibration if seen_bias is None else self.calibration._replace(
            seen_bias=float(seen_bias))
        found = []
        for item in files:
            image, error = self._read(item)
            if error is not None:
                found.append(Prediction(item.name, error=error))
                continue
            with self._lock:
                candidates = self._candidates(self.known_pairs() if pairs is None else pairs)
                self.model.forget_adaptation()
                scores = self.model.score(self.model.features([image]), candidates)
                row = next(self.model.answer(scores, candidates, calibration, top_k))
            found.append(Prediction.of(item.name, row))
        return found

    def ranking(self, answer: Answer, seen_bias: float) -> Ranking:
        """The best of an answer.

        Args:
            answer (Answer): Of :meth:`answer`.
            seen_bias (float): Subtracted from the log scores of seen pairs.
        """
        calibration = self.calibration._replace(seen_bias=float(seen_bias))
        pairs, attributes, objects = next(self.model.answer(
            answer.scores, answer.candidates, calibration, TOP_PAIRS))
        return Ranking(pairs, attributes[:TOP_NAMES], objects[:TOP_NAMES])

    def _read(self, item: Item) -> tuple[Any, str | None]:
        return self._decoders.submit(self.model.prepare, item).result()

    def _candidates(self, pairs: Sequence[Pair]) -> Candidates:
        text = self.model.network.head.text
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # _new_names says it on the page
            try:
                return self.model.candidates(pairs)
            except ValueError:
                # Long words of earlier visitors take room from these: once more without them.
                text.restore()
                return self.model.candidates(pairs)

    def _new_names(self, candidates: Candidates) -> list[str]:
        space = self.model.space
        notes = []
        for what, names, known in (('attribute', candidates.attributes, space.attributes),
                                   ('object', candidates.objects, space.objects)):
            own = set(known)
            new = [name for name in names if name not in own]
            if new:
                shown = ', '.join(f'“{name}”{_meant(name, known)}' for name in new[:5])
                more = f' and {len(new) - 5} more' if len(new) > 5 else ''
                notes.append(f'Not in the training data, so only the name is used: {what} '
                             f'{shown}{more}.')
        return notes


def _meant(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f' (did you mean “{close[0]}”?)' if close else ''
