"""Compares an exported file with the model it came from."""
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mmcluspro.models.heads import fuse

from .image_side import ImageSide
from .table import TEXTS

BATCHES = (1, 3, 17)
TOLERANCE = 1e-4


class Difference(NamedTuple):
    """Largest absolute differences between onnxruntime and torch."""

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
def largest_difference(path: str | Path, table: dict[str, np.ndarray], side: ImageSide,
                       head: Any, size: int) -> Difference:
    """Runs random pictures through both, in batches of 1, 3 and 17.

    Args:
        path (str | Path): The ONNX file.
        table (dict): As read from its file.
        side (ImageSide): In torch.
        head (nn.Module): Whose scores are compared over the pairs of the table.
        size (int): Side of the pictures.
    """
    session = open_session(path)
    pairs = torch.from_numpy(table['pairs'])
    texts = [torch.from_numpy(table[name]) for name in TEXTS[-len(side.names):]]
    scale = head.text.logit_scale.exp()
    generator = torch.Generator().manual_seed(0)
    found = Difference(0.0, 0.0)
    for batch in BATCHES:
        images = torch.randint(256, (batch, size, size, 3), dtype=torch.uint8, generator=generator)
        mine = [torch.from_numpy(f) for f in session.run(None, {'image': images.numpy()})]
        theirs = side(images)

        def scores(feats: Any) -> Tensor:
            logits = [scale * f @ text.T for f, text in zip(feats, texts)]
            return fuse((None, ) * (3 - len(logits)) + tuple(logits), pairs, head.fusion)

        gap = [float((a - b).abs().max()) for a, b in zip(mine, theirs)]
        # numpy's maximum keeps NaN, Python's does not.
        found = Difference(
            float(np.max([found.features, *gap])),
            float(np.max([found.scores, float((scores(mine) - scores(theirs)).abs().max())])))
    return found
