"""Exports an ONNX file of the image side and a table of text features: ``mmcluspro export``."""
import json
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from mmcluspro.api import load
from mmcluspro.artefact.pairs import read_pairs
from mmcluspro.cli.apps import parse_export
from mmcluspro.cli.flags import model_options
from mmcluspro.utils.files import writable

from .check import TOLERANCE, Difference, largest_difference, require_portable
from .image_side import ImageSide, require_onnx, write_half, write_int8, write_onnx
from .text_table import asked_candidates, make_table, write_table

VARIANTS = {'fp16': write_half, 'int8': write_int8}


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


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and exports."""
    args = parse_export(argv)
    variants = [name for name, wanted in (('fp16', args.half), ('int8', args.int8)) if wanted]
    export_model(
        args.checkpoint, args.out or f'{Path(args.checkpoint).stem}.onnx', args.table,
        read_pairs(args.pairs) if args.pairs else None, args.world, args.table_only, variants,
        args.prefer, args.seen_bias, **model_options(args))
