"""``mmcluspro train photos/``: a split, a model and a config for a folder or a CSV file."""
from __future__ import annotations

import re
import sys
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from mmcluspro.datasets.folder_tree import empty_folders, left_out, scan_folders
from mmcluspro.datasets.image_folder import ImageFolder, undecodable
from mmcluspro.datasets.photo_check import split_warnings, too_few_names
from mmcluspro.datasets.splits import PHASES
from mmcluspro.datasets.splitting import make_split
from mmcluspro.datasets.table_file import TableRow, read_table, table_text
from mmcluspro.errors import Fault, describe, printable
from mmcluspro.utils.atomic import write_text

from .own_routes import Route, check_files, choose_route

SEPARATORS = ('_', '__', '/')
SHARD = 256  # images whose features an interruption can cost


class OwnConfig(NamedTuple):
    """What :func:`own_config` wrote.

    Attributes:
        config (str): The config file.
        work_dir (str): The work folder.
        stored (bool): Whether features are stored before training.
    """
    config: str
    work_dir: str
    stored: bool


def is_photos(name: str) -> bool:
    """Whether ``mmcluspro train`` was given images, not a config."""
    return Path(name).is_dir() or name.lower().endswith('.csv')


def own_config(name: str, work_dir: str | None = None, weights: str | None = None,
               arch: str | None = None, words: str | None = None) -> OwnConfig:
    """Writes a split and a config for the images and this machine, and prints them.

    Args:
        name (str): Folder ``attribute_object/`` of images, or a CSV with the header
            ``image,attribute,object`` and optionally ``split``, next to the images.
        work_dir (str, optional): Defaults to None: ``work_dirs/`` and the name of the folder.
        weights (str, optional): As in :func:`~mmcluspro.cli.own_routes.choose_route`.
        arch (str, optional): The same.
        words (str, optional): The same.
    """
    source = Path(name).expanduser()
    if not source.exists():
        raise FileNotFoundError(f'{source} does not exist. Give a folder of images, a CSV file, or '
                                'a config.')
    check_files(weights, words)  # before images are read
    if source.is_dir() and (source / 'table.csv').is_file():
        source = source / 'table.csv'
    root = source if source.is_dir() else source.parent
    stem = root.resolve().name if source.is_dir() or source.name == 'table.csv' else source.stem
    folder = Path(work_dir or Path('work_dirs') / stem)
    read = _read(source)
    rows = _usable(read, root)
    pairs = {(row.attribute, row.object) for row in rows}
    print(f'photos     {len(rows)} images of {len(pairs)} pair{"s" * (len(pairs) > 1)} in {source}')
    if source.is_dir():
        for line in filter(None, (left_out(source), empty_folders(source))):
            print(f'           {printable(line)}')
    if not rows[0].split and (few := too_few_names(pairs)):
        raise ValueError(f'{source}: {few}.')
    folder.mkdir(parents=True, exist_ok=True)
    if not rows[0].split or len(rows) < len(read):
        rows = rows if rows[0].split else make_split(rows)
        source = folder / 'table.csv'
        _write(source, table_text(rows))
    print(f'split      {_counts(rows)}\n           in {source}')
    for line in split_warnings(rows):
        print(f'warning: {printable(line)}', file=sys.stderr)
    images = Counter(row.split for row in rows)
    empty = [phase for phase in PHASES if not images[phase]]
    if empty:
        raise ValueError(f'{source}: no image has split {" or ".join(map(repr, empty))}. Add '
                         'images, or correct the column split; without this column, '
                         'mmcluspro train chooses a split.')
    names = sorted({name for pair in pairs for name in pair})
    route = choose_route(weights, arch, words, images['train'], names)
    path = folder / f'{re.sub(r"[^0-9A-Za-z_]", "_", stem)}.py'
    print(f'weights    {route.said}')
    side = _only_side(rows)
    if side:  # the AUC would be 0 in every epoch, and the first one the best
        route.fields['default_hooks'] = dict(checkpoint=dict(save_best=f'czsl/{side}'))
        print(f'best       epoch by its accuracy on {side} pairs: validation has no others')
    _write(path, _config(root.resolve(), source.resolve(), folder, route))
    print(f'config     {path}', flush=True)
    return OwnConfig(str(path), str(folder), route.stored)


def store_features(config: str) -> None:
    """Stores the features of all photos that are not stored yet.

    Args:
        config (str): What :func:`own_config` wrote.
    """
    from .extract_features import extract, parse_args
    print('features   computed once; after an interruption, run the same command again',
          flush=True)
    extract(parse_args([config, '--workers', '0', '--shard-size', str(SHARD)]))
    print(flush=True)


def _counts(rows: list[TableRow]) -> str:
    """How many images each phase has, and how many pairs are seen and unseen."""
    images = Counter(row.split for row in rows)
    pairs = {(row.attribute, row.object) for row in rows}
    seen = {(row.attribute, row.object) for row in rows if row.split == 'train'}
    return (f'{images["train"]} images to train, {images["val"]} to validate, {images["test"]} to '
            f'test; {len(seen)} seen and {len(pairs - seen)} unseen pairs')


def _only_side(rows: list[TableRow]) -> str | None:
    """'seen' or 'unseen' if all pairs of validation are of this kind, otherwise None."""
    seen = {(row.attribute, row.object) for row in rows if row.split == 'train'}
    kinds = {(row.attribute, row.object) in seen for row in rows if row.split == 'val'}
    return None if len(kinds) != 1 else 'seen' if kinds == {True} else 'unseen'


def _write(path: Path, text: str) -> None:
    """Writes a file; an earlier one with other content is kept under another name."""
    if path.is_file() and path.read_text(encoding='utf-8', errors='replace') != text:
        number = next(number for number in count(1)
                      if not path.with_name(f'{path.stem}_{number}{path.suffix}').exists())
        kept = path.with_name(f'{path.stem}_{number}{path.suffix}')
        path.rename(kept)
        print(f'note       the earlier {path.name} differs and is now {kept}')
    write_text(path, text)


def _usable(rows: list[TableRow], root: Path) -> list[TableRow]:
    """Rows whose image exists and can be decoded; the others are listed and counted."""
    folder = ImageFolder(root)
    files = {row: folder.find(row.image) for row in rows}
    bad = dict(undecodable([file for file in files.values() if file]))
    faults = [Fault('image', row.image, bad.get(file or '', 'the file is missing'))
              for row, file in files.items() if file is None or file in bad]
    if len(faults) == len(rows):
        raise ValueError(f'None of the {len(rows)} images can be read:\n{describe(faults)}'
                         + folder.remark)
    if faults:
        print(f'warning: {len(faults)} of {len(rows)} images cannot be read and are skipped:\n'
              f'{describe(faults)}{folder.remark}', file=sys.stderr)
    lost = {fault.where for fault in faults}
    return [row for row in rows if row.image not in lost]


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


def _config(root: Path, table: Path, folder: Path, route: Route) -> str:
    fields = dict(route.fields)
    data: dict[str, Any] = dict(data_root=str(root), table=str(table))
    if route.stored:
        data['features'] = str((folder / 'features').resolve())
        backbone = fields['model']['backbone']['backbone']
        backbone['features'] = data['features']
    else:
        data['on_bad_image'] = 'skip'
    lines = ['"""Written by mmcluspro train; change it, and train again with it."""',
             f"_base_ = '{{{{$MMCLUSPRO_CONFIGS:configs}}}}/{route.base}'"]
    return '\n'.join([*lines, *(f'{name} = {_literal(value)}' for name, value in
                                dict(data=data, **fields).items())]) + '\n'


def _literal(value: Any) -> str:
    """Python for a value, in which mmengine finds no ``{{$VARIABLE:}}`` to fill in."""
    return repr(value).replace('{{', r'{\x7b')
