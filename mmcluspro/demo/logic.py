"""Computes what the page shows: lists of pairs, answers for an image, their ranking with a bias."""
from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from difflib import get_close_matches
from threading import Lock
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import functional as F

from mmcluspro.artefact import NameScore, PairScore, Prediction, TrainedModel
from mmcluspro.artefact.images import Item
from mmcluspro.artefact.pairs import HEADER, Pair, cells_of, quoted
from mmcluspro.artefact.pairs import parse_pairs as read_lines
from mmcluspro.models import Candidates
from mmcluspro.models.heads import CompositionHead
from mmcluspro.models.structures import Features, Scores
from mmcluspro.visualization.prototypes import PrototypeImages

MAX_PAIRS = 50_000  # more would keep the page waiting for its text features
MAX_TEXT = 5_000_000  # characters of a box; more is not even divided into lines
# Threads that decode pictures, which bounds their memory: each keeps some of what it once needed.
DECODERS = 2
TOP_PAIRS, TOP_NAMES, TOP_PROTOTYPES = 8, 5, 5
STRANGE = ('This picture looks unlike those the model was trained on: the answer may mean nothing.')
DRAWINGS_ONLY = (' Its tiny CLIP has seen only drawings of the package; for photographs train with '
                 'another image tower (docs/real_photos.md).')


def parse_names(text: str, what: str) -> list[str]:
    """Names of a text box, one per line or with commas between them, perhaps in double quotes.

    Args:
        text (str): What the user wrote.
        what (str): 'attribute' or 'object', for the messages.
    """
    names: list[str] = []
    for number, line in enumerate(_bounded(text).splitlines(), 1):
        try:
            names += filter(None, cells_of(line, ','))
        except ValueError as error:
            raise ValueError(f'In the list of {what}s, line {number}: {error}, got '
                             f'{_short(line)}.') from None
    if not names:
        raise ValueError(f'The list of {what}s is empty. Write at least one {what}.')
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f'In the list of {what}s, {_listed(twice)} occurs more than once. Leave '
                         'the repetition out.')
    return names


def parse_pairs(text: str, bare: bool = False) -> list[Pair]:
    """Pairs of a text box, as :func:`mmcluspro.artefact.pairs.parse_pairs` reads them."""
    pairs = read_lines(_bounded(text), bare=bare)
    if len(pairs) > MAX_PAIRS:
        raise ValueError(_too_many(len(pairs)))
    return pairs


def cross_pairs(attributes: Sequence[str], objects: Sequence[str]) -> list[Pair]:
    """All pairs of the names of two text boxes."""
    if len(attributes) * len(objects) > MAX_PAIRS:
        raise ValueError(_too_many(len(attributes) * len(objects)))
    return [(attribute, obj) for attribute in attributes for obj in objects]


def name_text(names: Iterable[str]) -> str:
    """Text that :func:`parse_names` reads as these names."""
    return '\n'.join(map(quoted, names))


def pair_text(pairs: Iterable[Pair]) -> str:
    """Text that :func:`parse_pairs` reads as these pairs."""
    found = list(pairs)
    header = [HEADER] if found and tuple(map(str.lower, found[0])) == HEADER else []
    return '\n'.join(
        (', ' if re.search(r'[\s"]', ''.join(words)) else ' ').join(words)
        for words in (tuple(map(quoted, pair)) for pair in header + found))


def _bounded(text: str | None) -> str:
    if text is not None and len(text) > MAX_TEXT:
        raise ValueError(f'The list has {len(text):,} characters; the page takes up to '
                         f'{MAX_TEXT:,}. Shorten it.')
    return text or ''


def _too_many(count: int) -> str:
    return f'These are {count:,} pairs; the page takes up to {MAX_PAIRS:,}. Shorten the lists.'


def _short(text: str, length: int = 60) -> str:
    return f'"{text if len(text) <= length else text[:length] + "…"}"'


def _listed(names: Sequence[str]) -> str:
    return ', '.join(_short(name) for name in names[:3])


class NearPrototype(NamedTuple):
    """Number ``place`` (from 1) of the ``size`` prototypes of a primitive, ``row`` of the bank."""
    name: str
    place: int
    size: int
    cosine: float
    row: int = 0


def nearest_prototypes(feature: Tensor, prototypes: Tensor, offsets: Tensor,
                       names: Sequence[str], count: int) -> list[NearPrototype]:
    """Prototypes of all primitives by their cosine to a feature, nearest first.

    Args:
        feature (Tensor): f_a or f_o of Eq. 1, shape (D,).
        prototypes (Tensor): Shape (P, D).
        offsets (Tensor): ``prototypes[offsets[c]:offsets[c + 1]]`` belong to primitive ``c``,
            shape (C + 1,).
        names (Sequence[str]): C names.
        count (int): How many to return at most.
    """
    cosine = F.normalize(prototypes.float(), dim=1) @ F.normalize(feature.float(), dim=0)
    best = cosine.topk(min(count, len(cosine)))
    owners = (offsets[1:, None] <= best.indices).sum(dim=0).tolist()
    starts, sizes = offsets.tolist(), offsets.diff().tolist()
    return [NearPrototype(names[owner], row - starts[owner] + 1, sizes[owner], value, row)
            for owner, row, value in zip(owners, best.indices.tolist(), best.values.tolist())]


def prototypes_of(head: CompositionHead, feats: Features,
                  count: int) -> dict[str, list[NearPrototype]]:
    """The nearest prototypes of one image by branch; empty for a model without prototypes.

    Args:
        head (CompositionHead): The model's head.
        feats (Features): Of one image.
        count (int): How many of each branch.
    """
    names = dict(attr=head.space.attributes, obj=head.space.objects)
    return {
        branch: nearest_prototypes(feats.primitives[branch][0], bank.prototypes, bank.offsets,
                                   names[branch], count)
        for branch, bank in head.prototypes.items() if branch in feats.primitives
    }


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


class FileAnswer(NamedTuple):
    """The prediction for one of several files, and what to say about the picture."""
    prediction: Prediction
    notes: list[str]


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
        self.strange = STRANGE + (DRAWINGS_ONLY if knows_drawings_only(model.spec) else '')
        self.calibrated = model.chosen_for('closed').calibration is not None
        self.calibration = model.calibration(warn=False)
        self._lock = Lock()  # the text side grows by the words of a request
        self._decoders = ThreadPoolExecutor(DECODERS, 'decoder')

    def known_pairs(self) -> list[Pair]:
        """The pairs of the model's data."""
        space = self.model.space
        return [(space.attributes[a], space.objects[o]) for a, o in space.pairs.tolist()]

    def read(self, path: str) -> Tensor:
        """An image file as the model gets it, shape (3, H, W), uint8.

        Raises:
            ValueError: It is no picture; in words for the page.
        """
        image, error = self._read(Item(path, path))
        if error is not None:
            raise ValueError(f'This file cannot be read as a picture: {error.replace(path, "it")}. '
                             'Choose a picture, such as a PNG, JPEG or WebP file.')
        return image

    def answer(self, image: Tensor, pairs: Sequence[Pair]) -> Answer:
        """Scores of an image.

        Args:
            image (Tensor): Of :meth:`read`.
            pairs (Sequence): Names to choose from, known or new.
        """
        with self._lock:
            candidates = self._candidates(pairs)
            self.model.forget_adaptation()  # of earlier visitors
            feats = self.model.features([image])
            scores = self.model.score(feats, candidates)
        return Answer(candidates, scores,
                      prototypes_of(self.model.network.head, feats, TOP_PROTOTYPES),
                      [*self._remarks(image), *self._new_names(candidates)])

    def predictions(self, files: Sequence[Item], pairs: Sequence[Pair] | None = None,
                    top_k: int = 3) -> list[FileAnswer]:
        """Answers for several files, as ``mmcluspro predict`` gives them.

        Args:
            files (Sequence[Item]): Names to show, and paths.
            pairs (Sequence, optional): Names to choose from. Defaults to None: the known ones.
            top_k (int): Pairs of each. Defaults to 3.
        """
        found = []
        for item in files:
            image, error = self._read(item)
            if error is not None:
                found.append(FileAnswer(Prediction(item.name, error=error), []))
                continue
            with self._lock:
                candidates = self._candidates(self.known_pairs() if pairs is None else pairs)
                self.model.forget_adaptation()
                scores = self.model.score(self.model.features([image]), candidates)
                row = next(self.model.answer(scores, candidates, self.calibration, top_k))
            found.append(FileAnswer(Prediction.of(item.name, row), self._remarks(image)))
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

    def _remarks(self, image: Tensor) -> list[str]:
        familiar = self.model.familiar
        return [self.strange] if familiar is not None and familiar.is_strange(image) else []

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


def knows_drawings_only(spec: Mapping[str, Any]) -> bool:
    """Whether the image tower of a model is the tiny CLIP of the package.

    Args:
        spec (Mapping): Of a model.
    """
    backbone = (spec.get('model') or {}).get('backbone') or {}
    return backbone.get('pretrained') == 'tiny_clip'
