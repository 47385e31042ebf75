"""``mmcluspro train photos/``: a split, a model and a config for a folder or a CSV file."""
from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from mmcluspro.datasets.check import (
    Photos,
    fix_names,
    is_table,
    label_faults,
    read_photos,
    spellings,
    split_warnings,
    too_few_names,
)
from mmcluspro.datasets.folders import empty_folders, left_out, undecodable
from mmcluspro.datasets.layout import PHASES
from mmcluspro.datasets.splitting import make_split
from mmcluspro.datasets.table_file import NAMED, Columns, TableRow, table_text
from mmcluspro.engine.launch import read_config
from mmcluspro.errors import Fault, describe, describe_kinds, printable
from mmcluspro.evaluation.wrong_labels import confident_errors, held_out_answers
from mmcluspro.features.store import FeatureStore, sample_name
from mmcluspro.registry import DATASETS
from mmcluspro.utils.files import write_text
from mmcluspro.utils.plain_files import csv_text

from .own_routes import Route, choose_route, find_files, fit_all, train_on_all

SHARD = 256  # images whose features an interruption can cost
LEAST = 50  # images below which likely wrong labels are not looked for


class OwnConfig(NamedTuple):
    """What :func:`own_config` wrote.

    Attributes:
        config (str): The config file.
        work_dir (str): The work folder.
        stored (bool): Whether features are stored before training.
        epochs (str, optional): Config of ClusPro on the same images, to compare with. Defaults to
            None: there is one config.
    """
    config: str
    work_dir: str
    stored: bool
    epochs: str | None = None


def is_photos(name: str) -> bool:
    """Whether ``mmcluspro train`` was given images, not a config."""
    return Path(name).is_dir() or is_table(name)


def own_config(name: str, work_dir: str | None = None, weights: str | None = None,
               arch: str | None = None, words: str | None = None, separator: str | None = None,
               columns: Columns = NAMED, merge_names: bool = False,
               refit: bool = True) -> OwnConfig:
    """Writes a split and a config for the images and this machine, and prints them.

    Args:
        name (str): Folder ``attribute_object/`` of images, or a table with the header
            ``image,attribute,object`` and optionally ``split``, next to the images.
        work_dir (str, optional): Defaults to None: ``work_dirs/`` and the name of the folder.
        weights (str, optional): As in :func:`~mmcluspro.cli.own_routes.choose_route`.
        arch (str, optional): The same.
        words (str, optional): The same.
        separator (str, optional): As in :func:`~mmcluspro.datasets.check.read_photos`.
        columns (Columns): The same.
        merge_names (bool): Whether names in two spellings become one. Defaults to False.
        refit (bool): Train what is delivered on all images, and measure by cross-validation, where
            features are stored and the images have no split of their own. Defaults to True.
    """
    source = Path(name).expanduser()
    if not source.exists():
        raise FileNotFoundError(f'{source} does not exist. Give a folder of images, a table (.csv, '
                                '.tsv), or a config.')
    weights, words = find_files(weights, words)  # before images are read
    if source.is_dir() and (source / 'table.csv').is_file():
        source = source / 'table.csv'
    stem = (source if source.is_dir() else source.parent).resolve().name if (
        source.is_dir() or source.name == 'table.csv') else source.stem
    folder = Path(work_dir or Path('work_dirs') / stem)
    photos = read_photos(source, separator, columns)
    rows = _existing(photos)
    pairs = {(row.attribute, row.object) for row in rows}
    print(f'photos     {len(rows)} images of {len(pairs)} pair{"s" * (len(pairs) > 1)} in {source}')
    if source.is_dir():
        for line in filter(None, (left_out(source), empty_folders(source))):
            print(f'           {printable(line)}')
    if merge_names:
        for field, merged in spellings(rows).items():
            for old, new in merged.items():
                print(f'name       {field} {printable(old)} is merged into {printable(new)}')
        rows = fix_names(rows)
    for text in describe_kinds(label_faults(rows, photos.files)):
        print(f'warning: {text}', file=sys.stderr)
    # Whatever may end the command comes before the photographs are decoded, which takes minutes.
    split = _with_split(rows, source)
    names = sorted({name for row in rows for name in row[1:3]})
    route = choose_route(weights, arch, words, sum(row.split == 'train' for row in split), names)
    kept = _decodable(rows, photos)
    refit = refit and route.stored and not rows[0].split
    if refit:
        other, route = train_on_all(route), fit_all(route)
        rows = [row._replace(split='train') for row in kept]
    else:
        rows = split if len(kept) == len(rows) else _with_split(kept, source)
    folder.mkdir(parents=True, exist_ok=True)
    as_it_is = source.is_file() and not any((photos.missing, merge_names, columns != NAMED))
    if not (as_it_is and kept[0].split and len(kept) == len(photos.rows)
            and photos.root == source.parent):
        source = folder / 'table.csv'
        _write(source, table_text(rows))
    if refit:
        print('split      none: all images train; first, a part of the pairs and of the images is '
              'left\n           out in turn to measure (--no-refit holds out one part for good)')
    else:
        print(f'split      {_counts(rows)}\n           in {source}')
        for line in split_warnings(rows):
            print(f'warning: {printable(line)}', file=sys.stderr)
    path = folder / f'{re.sub(r"[^0-9A-Za-z_]", "_", stem)}.py'
    print(f'weights    {route.said}')
    side = None if refit else _only_side(rows)
    if side:  # the AUC would be 0 in every epoch, and the first one the best
        route.fields['default_hooks'] = dict(checkpoint=dict(save_best=f'czsl/{side}'))
        print(f'best       epoch by its accuracy on {side} pairs: validation has no others')
    data = photos.root.resolve(), source.resolve(), folder
    _write(path, _config(*data, route))
    epochs = path.with_name(f'{path.stem}_cluspro.py')
    if refit:
        _write(epochs, _config(*data, other))
    print(f'config     {path}', flush=True)
    return OwnConfig(str(path), str(folder), route.stored, str(epochs) if refit else None)


def _with_split(rows: list[TableRow], source: Path) -> list[TableRow]:
    """The rows with the split that they have, or with one that is made."""
    if not rows[0].split and (few := too_few_names({(row.attribute, row.object) for row in rows})):
        raise ValueError(f'{source}: {few}.')
    rows = rows if rows[0].split else make_split(rows)
    images = Counter(row.split for row in rows)
    empty = [phase for phase in PHASES if not images[phase]]
    if empty:
        raise ValueError(f'{source}: no image has split {" or ".join(map(repr, empty))}. Add '
                         'images, or correct the split; without one (a column split, or folders '
                         'train/, val/ and test/), mmcluspro train chooses it.')
    return rows


def store_features(config: str) -> None:
    """Stores the features of all photos that are not stored yet.

    Args:
        config (str): What :func:`own_config` wrote.
    """
    from .extract_features import extract, parse_args
    print('features   computed once for each photograph; after an interruption, run the same '
          'command again', flush=True)
    cfg = read_config(config)
    phases = dict.fromkeys(cfg[f'{phase}_dataloader'].dataset.phase for phase in PHASES)
    extract(parse_args([config, '--workers', '0', '--shard-size', str(SHARD), '--phases',
                        *phases]), keep=True)
    sets = [DATASETS.build(dict(cfg[f'{phase}_dataloader'].dataset, pipeline=[], features=None))
            for phase in {cfg[f'{phase}_dataloader'].dataset.phase: phase for phase in PHASES}
            .values()]
    rows = [(data, data.get_data_info(i)) for data in sets for i in range(len(data))]
    stores = {data.phase: FeatureStore(cfg.train_dataloader.dataset.features, data.phase)
              for data in sets}
    features = np.stack([stores[data.phase][sample_name(info)] for data, info in rows])
    table = Path(config).parent / 'likely_wrong.csv'
    found = wrong_labels(features, [
        (info['name'], data.space.attributes[info['attr_label']],
         data.space.objects[info['obj_label']]) for data, info in rows])
    if found:
        write_text(table, csv_text([('image', 'attribute', 'object', 'likely_attribute',
                                     'likely_object'), *found]))
        print(f'labels     {len(found)} of {len(rows)} images have a label that is likely wrong: '
              f'look at\n           them in {table}')
    print(flush=True)


def wrong_labels(features: np.ndarray, rows: Sequence[tuple[str, str, str]]
                 ) -> list[tuple[str, ...]]:
    """Images whose attribute or object is likely wrong, with the likely names.

    Args:
        features (np.ndarray): Shape (N, D).
        rows (Sequence): Name of the image, attribute and object of each.
    """
    likely = []
    for place in (1, 2):
        names = sorted({row[place] for row in rows})
        labels = torch.tensor([names.index(row[place]) for row in rows])
        if len(names) < 2 or len(rows) < LEAST:
            return []
        answers = held_out_answers(torch.from_numpy(features.reshape(len(rows), -1)), labels,
                                   len(names))
        likely.append([names[i] for i in confident_errors(answers, labels)])
    return [(*row, *names) for row, *names in zip(rows, *likely) if row[1:] != tuple(names)]


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


def _existing(photos: Photos) -> list[TableRow]:
    """Rows whose file is there; the others are listed and counted."""
    _say_skipped(photos.missing, len(photos.rows) + len(photos.missing), photos.remark)
    return photos.rows


def _decodable(rows: list[TableRow], photos: Photos) -> list[TableRow]:
    """Rows whose image can be decoded; the others are listed and counted."""
    bad = dict(undecodable([photos.files[row.image] for row in rows]))
    faults = [Fault('image', row.image, bad[photos.files[row.image]]) for row in rows
              if photos.files[row.image] in bad]
    _say_skipped(faults, len(rows))
    return [row for row in rows if photos.files[row.image] not in bad]


def _say_skipped(faults: list[Fault], number: int, remark: str = '') -> None:
    if len(faults) == number:
        raise ValueError(f'None of the {number} images can be read:\n{describe(faults)}' + remark)
    if faults:
        print(f'warning: {len(faults)} of {number} images cannot be read and are skipped:\n'
              f'{describe(faults)}{remark}', file=sys.stderr)


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
