"""``mmcluspro train photos/``: a split, a model and a config for a folder or a CSV file."""
from __future__ import annotations

import os
import re
import sys
from collections import Counter
from pathlib import Path

import torch

from mmcluspro.datasets.folder_tree import scan_folders
from mmcluspro.datasets.splits import PHASES
from mmcluspro.datasets.splitting import make_split
from mmcluspro.datasets.table_file import TableRow, read_table, write_table
from mmcluspro.utils.atomic import write_text

SIZES = {'ViT-B-32': '350 MB', 'ViT-B-16': '350 MB', 'ViT-L-14': '900 MB'}  # of the download
MEMORY_FOR_LARGE = 10e9  # bytes of a GPU
SEPARATORS = ('_', '__', '/')
TINY = 'tiny_clip'


def is_photos(name: str) -> bool:
    """Whether ``mmcluspro train`` was given pictures, not a config."""
    return Path(name).is_dir() or name.lower().endswith('.csv')


def own_config(name: str, work_dir: str | None = None, weights: str | None = None,
               arch: str | None = None) -> tuple[Path, str]:
    """Writes the split and the config that fit the pictures and this machine, and says so.

    Args:
        name (str): Folder ``attribute_object/`` of images, or a CSV with the header
            ``image,attribute,object`` and maybe ``split``, beside the images.
        work_dir (str, optional): Defaults to None: ``work_dirs/`` and the name of the folder.
        weights (str, optional): File or tag of CLIP weights, or 'tiny_clip'. Defaults to None:
            OpenAI's.
        arch (str, optional): Architecture of CLIP. Defaults to None: by the machine, or by the
            name of the file.

    Returns:
        tuple[Path, str]: The config, and the work folder.
    """
    source = Path(name).expanduser()
    if not source.exists():
        raise FileNotFoundError(f'There is no {source}. Give a folder of images, a CSV file, or a '
                                'config.')
    if source.is_dir() and (source / 'table.csv').is_file():
        source = source / 'table.csv'
    root = source if source.is_dir() else source.parent
    stem = root.resolve().name if source.is_dir() or source.name == 'table.csv' else source.stem
    folder = Path(work_dir or Path('work_dirs') / stem)
    folder.mkdir(parents=True, exist_ok=True)
    rows = _read(source)
    pairs = {(row.attribute, row.object) for row in rows}
    print(f'photos     {len(rows)} images of {len(pairs)} pairs in {source}')
    if not rows[0].split:
        rows = make_split(rows)
        source = folder / 'table.csv'
        write_table(source, rows)
        images = Counter(row.split for row in rows)
        print(f'split      {source}: ' + ', '.join(f'{images[phase]} {phase}' for phase in PHASES))
    chosen, reason = choose_clip(weights, arch)
    path = folder / f'{re.sub(r"[^0-9A-Za-z_]", "_", stem)}.py'
    write_text(path, _config(root.resolve(), source.resolve(), chosen))
    print(f'weights    {reason}\nconfig     {path}\n')
    return path, str(folder)


def _read(source: Path) -> list[TableRow]:
    if source.is_file():
        with source.open(encoding='utf-8-sig', errors='replace') as file:
            return read_table(source, need_split='split' in file.readline().lower())
    errors = []
    for separator in SEPARATORS:
        try:
            return scan_folders(source, separator)
        except ValueError as error:
            errors.append(error)
    raise ValueError(str(errors[0]))


def choose_clip(weights: str | None = None, arch: str | None = None
                ) -> tuple[dict[str, str] | None, str]:
    """The field ``clip`` for this machine, None for the tiny CLIP, and why.

    Args:
        weights (str, optional): As in :func:`own_config`.
        arch (str, optional): As in :func:`own_config`.
    """
    if weights == TINY:
        print('warning: the tiny CLIP of the package knows drawn shapes and nothing else. For '
              'photographs leave --weights out, or give a file of CLIP: docs/real_photos.md.',
              file=sys.stderr)
        return None, 'the tiny CLIP of the package, at 48 pixels'
    if arch is None and weights is not None:
        arch = next((known for known in SIZES if known in Path(weights).name), None)
        if arch is None and Path(weights).expanduser().is_file():
            raise ValueError(f'--weights {weights} does not tell its architecture by its name: add '
                             '--arch, for example --arch ViT-B-32.')
    gpu = torch.cuda.is_available()
    large = gpu and torch.cuda.get_device_properties(0).total_memory > MEMORY_FOR_LARGE
    why = 'as asked' if arch else f'for {"a large GPU" if large else "a GPU" if gpu else "a CPU"}'
    arch = arch or ('ViT-L-14' if large else 'ViT-B-32')
    weights = weights or 'openai'
    if Path(weights).expanduser().is_file():
        weights = str(Path(weights).expanduser().resolve())
        return dict(arch=arch, pretrained=weights), f'CLIP {arch} of {weights}'
    size = SIZES.get(arch)
    return dict(arch=arch, pretrained=weights), f'CLIP {arch} ({weights}) {why}' + (
        f', downloaded once ({size})' if size else '')


def _config(root: Path, table: Path, clip: dict[str, str] | None) -> str:
    base = 'cluspro_own_data_tiny.py' if clip is None else 'cluspro_own_data.py'
    workers = 0 if clip is None else min(8, os.cpu_count() or 1)
    lines = ['"""Written by mmcluspro train; change it, and train again with it."""',
             f"_base_ = '{{{{$MMCLUSPRO_CONFIGS:configs}}}}/{base}'",
             f"data = dict(data_root={str(root)!r}, table={str(table)!r}, on_bad_image='skip')",
             *([] if clip is None else [f'clip = {clip!r}'])]
    lines += [f'{phase}_dataloader = dict(num_workers={workers})' for phase in PHASES]
    return '\n'.join(lines) + '\n'
