"""Exports an ONNX file of the image side and a table of text features: ``mmcluspro export``."""
from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from mmcluspro.api import load
from mmcluspro.artefact.pairs import read_pairs
from mmcluspro.cli.apps import parse_export
from mmcluspro.cli.flags import model_options
from mmcluspro.models import Candidates
from mmcluspro.utils.files import writable

from .image_side import ImageSide, require_onnx, write_half, write_int8, write_onnx
from .text_table import asked_candidates, make_table, write_table

VARIANTS = {'fp16': write_half, 'int8': write_int8}
BATCHES = (1, 3, 17)
TOLERANCE = 1e-4
SCORE_TOLERANCE = 1e-3  # of the spread of the scores


def export_model(checkpoint: str | Path, out: str | Path, table: str | Path | None = None,
                 pairs: Sequence[tuple[str, str]] | None = None, world: str = 'closed',
                 table_only: bool = False, variants: Sequence[str] = (), prefer: str = 'balanced',
                 seen_bias: float | None = None,
                 **options: Any) -> list[Path]:
    """Exports a checkpoint, checks the files, and prints the largest differences.

    Args:
        checkpoint (str | Path): A checkpoint for :func:`mmcluspro.load`.
        out (str | Path): The ONNX file.
        table (str | Path, optional): The table. Defaults to None: ``out`` with ``.npz``.
        pairs (Sequence, optional): Pairs of names. Defaults to None: those of ``world``.
        world (str): See ``make_table``. Defaults to 'closed'.
        table_only (bool): Write the table for other pairs, not the graph. Defaults to False.
        variants (Sequence[str]): Smaller files to write as well: 'fp16', 'int8'. Their names are
            ``out`` with ``_fp16`` and ``_int8``; they use the same table.
        prefer (str): See ``make_table``. Defaults to 'balanced'.
        seen_bias (float, optional): See ``make_table``. Defaults to None.
        **options: ``config``, ``imports`` and ``weights`` of :func:`mmcluspro.load`.

    Returns:
        list[Path]: The files.
    """
    out = Path(out)
    table = Path(table or out.with_suffix('.npz'))
    for path, suffix in ((out, '.onnx'), (table, '.npz')):
        if path.suffix != suffix:
            raise ValueError(f'The name of this file must end with {suffix}, got {path}.')
    if not table_only:
        require_onnx()
    model = load(checkpoint, 'cpu', **options)
    head = model.network.head
    side = ImageSide(model.network).eval()
    with ExitStack() as stack:
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter('always', UserWarning)
        candidates = stack.enter_context(asked_candidates(model, pairs, world))
        content = make_table(model, candidates, world, prefer, seen_bias)
        info = json.loads(str(content['info']))
        for note in [*(str(warning.message) for warning in caught), *info['notes']]:
            print(f'note: {note}')
        print(f'{table}: {len(candidates)} pairs ({int(candidates.seen.sum())} seen) of '
              f'{len(candidates.attributes)} attributes and {len(candidates.objects)} objects')
        size = info['preprocessing']['size']
        require_portable(content, side, head, candidates, size)
        if table_only:
            write_table(content, table)
            return [table]
        files = [out, *(out.with_name(f'{out.stem}_{name}.onnx') for name in variants)]
        for path, name in zip(files, ('fp32', *variants)):
            with writable(path) as temporary:
                if path == out:
                    write_onnx(side, temporary, size, dict(weights=info['weights']))
                else:
                    VARIANTS[name](out, temporary)
                found = largest_difference(
                    temporary, content, side, head, candidates, size)
                _judge(found, name, path)
            if path == out:
                write_table(content, table)
    return [table, *files]


def _judge(found: Difference, name: str, path: Path) -> None:
    if not (np.isfinite(found).all() and (name != 'fp32' or found.features <= TOLERANCE)):
        raise ValueError(
            f'{path} was not written: its features differ from those of torch by '
            f'{found.features:.1e} (allowed: {TOLERANCE}). Please report the model and the '
            'versions of torch, onnx and onnxruntime.')
    print(f'{path} ({name}): onnxruntime compared with torch on random images: largest '
          f'difference of features {found.features:.1e}, of scores {found.scores:.1e}')


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


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and exports."""
    args = parse_export(argv)
    variants = [name for name, wanted in (('fp16', args.half), ('int8', args.int8)) if wanted]
    export_model(
        args.checkpoint, args.out or f'{Path(args.checkpoint).stem}.onnx', args.table,
        read_pairs(args.pairs) if args.pairs else None, args.world, args.table_only, variants,
        args.prefer, args.seen_bias, **model_options(args))
