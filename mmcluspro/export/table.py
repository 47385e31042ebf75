"""The table beside an ONNX file: text features, pairs, and what makes scores of features.

One ``.npz`` without pickles. Another list of pairs needs another table, not another graph.
"""
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mmcluspro.apis.candidates import known_candidates, listed_candidates
from mmcluspro.engine.hooks.composition_hook import stored_calibration
from mmcluspro.evaluation import Calibration

from .files import writable
from .preprocessing import describe

FORMAT = 1
TEXTS = ('text_a', 'text_o', 'text_c')


def make_table(model: Any, pairs: Sequence[tuple[str, str]] | None = None,
               world: str = 'closed') -> dict[str, np.ndarray]:
    """All that prediction needs besides the image side, as ``CZSLInferencer`` has it.

    Args:
        model (Any): From ``load_model``; it is left as it was.
        pairs (Sequence, optional): Pairs of names. Names that were not trained enter through
            their words. Defaults to None: those of ``world``.
        world (str): 'closed': the pairs of the data; 'open': all attributes x all objects,
            without the unseen ones below the threshold of feasibility that validation chose
            (Eq. 15). It also says whose calibration is taken. Defaults to 'closed'.

    Returns:
        dict[str, np.ndarray]: ``text_a`` (A, D), ``text_o`` (O, D) and ``text_c`` (P, D), unit
        norm; ``attributes``, ``objects``, ``pairs`` (P, 2), ``seen`` (P,); and ``info``, JSON
        with ``scale``, ``fusion``, ``preprocessing``, ``temperature``, ``seen_bias``,
        ``calibration`` and ``weights``, which the ONNX file of the same model has, too.
    """
    head, text = model.head, model.head.text
    stored = model.meta.get('calibration') or {}
    try:
        if pairs is not None:
            chosen = listed_candidates(head, model.space, pairs)
        else:
            chosen = known_candidates(
                head, model.space, world, (stored.get('open') or {}).get('threshold'))
        with torch.no_grad():
            text_a, text_o, text_c = text(chosen.text_pairs)
    finally:
        text.restore()  # the names that a list added
    preprocessing, notes = describe(model)
    info = dict(
        format=FORMAT, weights=weights_id(model), world=world, fusion=head.fusion,
        scale=float(text.logit_scale.exp()), preprocessing=preprocessing, notes=notes,
        **(stored_calibration(stored, world) or Calibration())._asdict(), calibration=stored)
    features = text_a[chosen.text_attributes], text_o[chosen.text_objects], text_c
    return dict(
        **{name: feature.float().numpy() for name, feature in zip(TEXTS, features)},
        attributes=np.array(chosen.attributes), objects=np.array(chosen.objects),
        pairs=chosen.pairs.numpy(), seen=chosen.seen.numpy(), info=np.array(json.dumps(info)))


def write_table(table: dict[str, np.ndarray], path: str | Path) -> None:
    """Writes a table whole or not at all."""
    with writable(path) as temporary, temporary.open('wb') as file:
        np.savez_compressed(file, **table)  # type: ignore[arg-type]


def weights_id(model: Any) -> str:
    """Sixteen hex digits that tell models apart: published and other files of one are the same."""
    digest = hashlib.sha256()
    for key, value in sorted(model.state_dict().items()):
        if 'head.banks.' not in key:
            digest.update(key.encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()[:16]
