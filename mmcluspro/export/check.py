"""Compares an exported file with the model it came from."""
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from mmcluspro.models import Candidates

from .image_side import ImageSide

BATCHES = (1, 3, 17)
TOLERANCE = 1e-4
SCORE_TOLERANCE = 1e-3  # of the spread of the scores


class Difference(NamedTuple):
    """Largest absolute differences between the exported files and torch."""

    features: float
    scores: float


def open_session(path: str | Path, threads: int = 0) -> Any:
    """An onnxruntime session on the CPU; ``threads=0`` leaves their number to it."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(
            str(path), options, providers=['CPUExecutionProvider'])
    except Exception as error:  # onnxruntime has no common base of its own errors
        raise ValueError(f'onnxruntime cannot open {path}: {error}') from error


@torch.no_grad()
def require_portable(table: dict[str, np.ndarray], side: ImageSide, head: Any,
                     candidates: Candidates, size: int) -> None:
    """Compares ``head.portable`` with ``head.score`` before any file is written.

    Args:
        table (dict): Of :func:`~mmcluspro.export.text_table.make_table`.
        side (ImageSide): In torch.
        head (CompositionHead): Scores as in validation, after ``adapt``.
        candidates (Candidates): Of the table.
        size (int): Side of the pictures.

    Raises:
        ValueError: They differ by more than ``SCORE_TOLERANCE`` of the spread of the scores.
    """
    images = _pictures(3, size, torch.Generator().manual_seed(0))
    feats = side.features(images)
    found = dict(zip(side.paths, (part.numpy() for part in side(images))))
    head.forget_adaptation()
    head.adapt(feats)
    scores = head.score(feats, candidates).pair.numpy()
    head.forget_adaptation()
    gap, spread = np.abs(head.portable().score(found, table) - scores).max(), np.ptp(scores)
    if not gap <= SCORE_TOLERANCE * spread + TOLERANCE:
        name = type(head).__name__
        raise ValueError(
            f'{name} cannot be exported: the scores that {name}.portable computes differ from '
            f'those of {name}.score by up to {gap:.1e}, where scores span {spread:.1e}. Make the '
            'two agree; see docs/extending.md. A head whose adapt moves its scores cannot.')


def _pictures(batch: int, size: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(256, (batch, size, size, 3), dtype=torch.uint8, generator=generator)


@torch.no_grad()
def largest_difference(path: str | Path, table: dict[str, np.ndarray], side: ImageSide,
                       head: Any, candidates: Candidates, size: int) -> Difference:
    """Runs random pictures through both, in batches of 1, 3 and 17.

    Args:
        path (str | Path): The ONNX file.
        table (dict): As read from its file.
        side (ImageSide): In torch.
        head (CompositionHead): Its ``score`` is compared with what ``portable`` computes from the
            features of the file and the table.
        candidates (Candidates): Of the table.
        size (int): Side of the pictures.
    """
    session, portable = open_session(path), head.portable()
    generator = torch.Generator().manual_seed(0)
    found = np.zeros(len(Difference._fields))
    for batch in BATCHES:
        images = _pictures(batch, size, generator)
        mine = dict(zip(side.paths, session.run(None, {'image': images.numpy()})))
        theirs = dict(zip(side.paths, side(images)))
        scores = head.score(side.features(images), candidates).pair.numpy()
        gap = [np.abs(mine[path] - theirs[path].numpy()).max() for path in side.paths]
        # numpy's maximum keeps NaN, Python's does not.
        found = np.maximum(found, [
            np.max(gap), np.abs(portable.score(mine, table) - scores).max()])
    return Difference(*found.tolist())
