"""Words → photographs, over features that are stored and kept up to date by content."""
from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mmcluspro.features.kept import KeptFeatures
from mmcluspro.models.structures import Features
from mmcluspro.utils.digest import arrays_digest
from mmcluspro.utils.progress import Progress

from .images import Item, list_images
from .pairs import Pair, parse_pairs
from .trained import TrainedModel


class Found(NamedTuple):
    """A photograph that was found.

    Attributes:
        image (str): Its path.
        probability (float): Of the pair that was searched, among all pairs of the model.
    """
    image: str
    probability: float


def search(model: TrainedModel, words: str | Pair, folder: Any, top_k: int = 10,
           batch_size: int = 32, progress: bool | None = None) -> list[Found]:
    """The photographs that a pair is most probable for, see :meth:`TrainedModel.search`."""
    pair = read_query(model, words) if isinstance(words, str) else words
    if top_k < 1:
        raise ValueError(f'top_k must be at least 1, got {top_k}.')
    files = [item.name for item in list_images(folder)]
    shown = len(files) > batch_size if progress is None else progress
    found: list[Found] = []
    chances = model.chances([pair])
    model.forget_adaptation()
    for names, feats in indexed(model, files, batch_size, shown):
        found += map(Found, names, chances(feats)[:, 0].tolist())
    return sorted(found, key=lambda photo: -photo.probability)[:top_k]


def read_query(model: TrainedModel, words: str) -> Pair:
    """Attribute and object of a text such as ``suede boots`` or ``black, sports shoes``.

    Without a comma, the names of the model say where the attribute ends; of new words, the first
    one is the attribute.
    """
    text = ' '.join(words.split())
    if not any(sign in text for sign in ',;"'):
        space, readable = model.space, model.network.head.text.readable
        known = [{form.lower(): name for name in names for form in (readable(name), name)}
                 for names in (space.attributes, space.objects)]
        parts = text.split(' ')
        splits = [(' '.join(parts[:end]), ' '.join(parts[end:])) for end in range(1, len(parts))]
        if not splits:
            raise ValueError(f'{words!r} is one word: give an attribute and an object, such as '
                             f'"{space.attributes[0]} {space.objects[0]}".')
        attribute, obj = max(splits, key=lambda split: (
            (split[1].lower() in known[1]) + (split[0].lower() in known[0]),
            split[1].lower() in known[1], -len(split[0].split(' '))))
        return known[0].get(attribute.lower(), attribute), known[1].get(obj.lower(), obj)
    pairs = parse_pairs(words, 'words, line ', bare=True)
    if len(pairs) != 1:
        raise ValueError(f'{words!r} is {len(pairs)} pairs: search one at a time.')
    return pairs[0]


def indexed(model: TrainedModel, files: Sequence[str], batch_size: int = 32,
            progress: bool = True) -> Iterator[tuple[list[str], Features]]:
    """Features of photographs in their order; only those of new photographs are computed.

    They are kept in torch's folder by the content of the photograph, for this model and this
    preparation. Features with tokens, which some heads read, are computed each time.

    Args:
        model (TrainedModel): The model.
        files (Sequence[str]): Photographs; one that cannot be read is left out with a warning.
        batch_size (int): Defaults to 32.
        progress (bool): Show the time left. Defaults to True.

    Yields:
        tuple: Names of a batch, and its features.
    """
    digest = arrays_digest({key: weight.detach().float().cpu().numpy()
                            for key, weight in model.weights().items()})
    config = {} if model.config is None else model.config
    kept = KeptFeatures(dict(backbone=model.spec.get('model') or config.get('model'), pool=None,
                             fingerprint=digest, preprocessor=None,
                             pipeline=model.prepare.facts))
    left = iter(files)
    with Progress('indexing', len(files), silent=not progress) as bar:
        while names := list(islice(left, batch_size)):
            keys, rows = kept.find(names)
            new = [place for place, row in enumerate(rows) if row is None]
            bar.skip(len(names) - len(new))
            read = _read(model, {place: names[place] for place in new})
            if read:
                feats = model.features(list(read.values()))
                if feats.tokens is not None or feats.extra or len(
                        {part.shape for part in feats.paths.values()}) > 1:
                    yield [names[place] for place in read], feats
                    continue
                table = np.stack([part.float().cpu().numpy() for part in feats.paths.values()], 1)
                kept.add([keys[place] for place in read], table)
                for place, row in zip(read, table):
                    rows[place] = row
            bar.add(len(new))
            there = {name: row for name, row in zip(names, rows) if row is not None}
            if there:
                stacked = torch.from_numpy(np.stack(list(there.values())))
                yield list(there), _features(stacked.to(model.device))


def _read(model: TrainedModel, files: dict[int, str]) -> dict[int, Tensor]:
    """Prepared pictures by their place; one that cannot be read is left out with a warning."""
    found: dict[int, Tensor] = {}
    with ThreadPoolExecutor(2) as pool:
        items = [Item(name, name) for name in files.values()]
        for place, name, (image, error) in zip(files, files.values(),
                                               pool.map(model.prepare, items)):
            if error is None:
                found[place] = image
            else:
                warnings.warn(f'{name} cannot be read and is left out: {error}', stacklevel=2)
    return found


def _features(table: Tensor) -> Features:
    """Features of rows (B, 1 or 3, D): of composition alone, or attribute, object, composition."""
    if table.shape[1] == 1:
        return Features(table[:, 0])
    attribute, obj, composition = table.unbind(1)
    return Features(composition, attribute, obj)
