"""The table for an ONNX file: texts, pairs, preprocessing, and how to score features.

It is one ``.npz`` file without pickles. Another list of pairs needs another table, but not another
graph.
"""
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from mmcluspro.artefact import TrainedModel
from mmcluspro.datasets.pictures import WHITE
from mmcluspro.errors import FileError
from mmcluspro.evaluation import chosen_meta
from mmcluspro.models import Candidates
from mmcluspro.models.state import training_only_prefixes
from mmcluspro.utils.digest import arrays_digest
from mmcluspro.utils.files import writable
from mmcluspro.utils.plain_files import read_npz


def describe(model: TrainedModel) -> tuple[dict[str, Any], list[str]]:
    """Reads the preprocessing of a model's tests.

    Args:
        model (TrainedModel): The model.

    Returns:
        tuple: The description and, in words, what it cannot say. The description has ``resize``
        (length of the short edge, or of both edges with ``squash``), ``size`` (side of the square
        that is cut out of the middle),
        ``interpolation``, ``background`` (red, green and blue behind transparent pictures, or
        None) and ``input``: what the graph takes. ``channels`` ('RGB' or 'BGR'),
        ``mean`` and ``std`` in that order are for the record: the graph normalises.
    """
    found: dict[str, Any] = dict(
        input='RGB, uint8, (batch, size, size, 3)', resize=model.size, size=model.size,
        squash=False, interpolation='bicubic', background=list(WHITE))
    preparation = model.spec.get('preparation')
    notes = []
    if preparation is None:
        notes.append(f'The table cannot describe the test pipeline '
                     f'({model.spec.get("no_preparation", "there is none")}): do the same '
                     'to your pictures before the graph.')
    if preparation is not None and 'background' in preparation:
        found['background'] = preparation['background']
    for step in (preparation or dict(steps=[]))['steps']:
        if step['step'] == 'crop':
            found['size'] = step['size'][0]
            continue
        sides = {step['size']} if isinstance(step['size'], int) else {*step['size']}
        if step['step'] == 'fit' or len(sides) > 1 or step['edge'] not in (None, 'short'):
            notes.append(f'The table cannot describe a {step["step"]} with edge='
                         f'{step.get("edge")} and size={step["size"]}: do the same to your '
                         'pictures before the graph.')
            continue
        squash = step['edge'] is None  # otherwise, what is left has two sides
        found.update(resize=min(sides), squash=squash, interpolation=step['interpolation'],
                     size=min(sides) if squash or not found['size'] else found['size'])
        if step['backend'] != 'pillow':
            notes.append("The test pipeline resizes with backend='cv2', whose pixels differ from "
                         "Pillow's: scores of pictures that Pillow resized differ a little.")
    if not found['size']:
        raise ValueError(
            'The image size of the model is unknown: the preparation of its pictures has '
            'neither a resize nor a crop, and its backbone does not tell.')
    found['resize'] = found['resize'] or found['size']
    pixels = model.network.data_preprocessor
    found['channels'] = 'RGB' if pixels.to_rgb else 'BGR'
    normalise = pixels._enable_normalize
    found['mean'] = pixels.mean.flatten().tolist() if normalise else [0.0] * 3
    found['std'] = pixels.std.flatten().tolist() if normalise else [1.0] * 3
    return found, notes


FORMAT = 1
TEXTS = ('text_a', 'text_o', 'text_c')


@contextmanager
def asked_candidates(model: TrainedModel, pairs: Sequence[tuple[str, str]] | None = None,
                     world: str = 'closed') -> Iterator[Candidates]:
    """:meth:`TrainedModel.candidates`; afterwards the model knows its own names only.

    Args:
        model (TrainedModel): The model.
        pairs (Sequence, optional): Pairs of names. New names are encoded from their words. Defaults
            to None: those of ``world``.
        world (str): 'closed' or 'open', see :meth:`TrainedModel.stream`. Defaults to 'closed'.
    """
    try:
        yield model.candidates(pairs, 'closed' if pairs is not None else world)
    finally:
        model.network.head.text.restore()  # the names that a list added


def make_table(model: TrainedModel, candidates: Candidates, world: str = 'closed',
               prefer: str = 'balanced', seen_bias: float | None = None
               ) -> dict[str, np.ndarray]:
    """Everything that prediction needs besides the image side.

    Args:
        model (TrainedModel): The model.
        candidates (Candidates): Of :func:`asked_candidates`.
        world (str): Whose calibration is taken. Defaults to 'closed'.
        prefer (str): As in :meth:`TrainedModel.stream`. Defaults to 'balanced'.
        seen_bias (float, optional): As in :meth:`TrainedModel.stream`. Defaults to None.

    Returns:
        dict[str, np.ndarray]: ``text_a`` (A, D), ``text_o`` (O, D) and ``text_c`` (P, D), unit
        norm; ``attributes``, ``objects``, ``pairs`` (P, 2), ``seen`` (P,), ``feasible`` (P,),
        the pairs that may be the answer; the arrays of ``head.portable``; and ``info``, JSON with
        what ``head.portable`` says (``scale``, ``fusion``), ``link``, ``preprocessing``,
        ``temperature``, ``seen_bias``, ``calibration`` and ``weights``, which the ONNX file of the
        same model has, too.
    """
    preprocessing, notes = describe(model)
    head = model.network.head
    portable = head.portable()
    info = dict(
        **portable.info, link=head.link, format=FORMAT,
        weights=weights_id(model.network), world=world, preprocessing=preprocessing, notes=notes,
        **model.calibration(world, prefer, seen_bias, warn=False)._asdict(),
        calibration=chosen_meta(model.chosen))
    return dict(
        **{name: feature.float().numpy() for name, feature in zip(TEXTS, model.texts(candidates))
           if feature is not None},
        attributes=np.array(candidates.attributes), objects=np.array(candidates.objects),
        pairs=candidates.pairs.numpy(), seen=candidates.seen.numpy(),
        feasible=(torch.ones(len(candidates), dtype=torch.bool) if candidates.feasible is None
                  else candidates.feasible).numpy(),
        **portable.arrays(candidates),
        info=np.array(json.dumps(info)))


def write_table(table: dict[str, np.ndarray], path: str | Path) -> None:
    """Writes a table atomically, with a digest of its arrays."""
    table = dict(table, digest=np.array(arrays_digest(table)))
    with writable(path) as temporary, temporary.open('wb') as file:
        np.savez_compressed(file, **table)  # type: ignore[arg-type]


def read_table(path: str | Path) -> dict[str, np.ndarray]:
    """Reads a table and compares it with its digest."""
    remedy = 'Copy it again, or export the model once more.'
    table = read_npz(path, remedy)
    digest = table.pop('digest', None)
    parts = (*TEXTS, 'attributes', 'objects', 'pairs', 'seen', 'feasible', 'info')
    missing = [name for name in parts if name not in table]
    if missing:
        raise FileError(path, f'it is not a table of mmcluspro export: {missing[0]} is missing',
                        remedy)
    if digest is None or str(digest) != arrays_digest(table):
        raise FileError(path, 'its content does not fit its digest', remedy, 'digest')
    return table


def weights_id(network: nn.Module) -> str:
    """Sixteen hex digits that identify the weights, equal for all files of one model."""
    skipped = training_only_prefixes(network)
    return arrays_digest({
        key: value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        for key, value in network.state_dict().items() if not key.startswith(skipped)})
