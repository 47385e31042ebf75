"""Which model ``mmcluspro train photos/`` delivers: a fit, or ClusPro trained in epochs.

Both answer the same parts of the pairs and photographs. ClusPro takes as long for one part as the
fit for all, so two parts decide between them. Two plain logistic regressions need be better than
the fit on every part, because what is best on a few pairs is chance.
"""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
from mmengine.config import Config
from mmengine.runner import Runner

from mmcluspro.datasets.table_file import read_table, write_table
from mmcluspro.engine.cross_validation import Fold, auc_of
from mmcluspro.engine.launch import build_runner, load_config
from mmcluspro.utils.files import remove, write_text

from .own_photos import store_features

DECIDING = 2  # parts that are compared


def deliver(runner: Runner, config: str, args: argparse.Namespace) -> Runner:
    """The runner of the better method, trained on all photographs, and one line that says why.

    Args:
        runner (Runner): Fitted regressions, with their folds.
        config (str): Of ClusPro on the same photographs.
        args (argparse.Namespace): Flags of ``mmcluspro train``; ``method`` is 'auto'
            or 'cluspro'.
    """
    folds: Sequence[Fold] = runner.train_loop.folds
    folder = Path(runner.work_dir)
    number = DECIDING if args.method == 'auto' else len(folds)
    ours = [_train_part(config, folder, place, fold, args)
            for place, fold in enumerate(folds[:number])]
    theirs = [auc_of([fold]) for fold in folds]
    said = (f'AUC {np.mean(ours):.1f} of ClusPro and {np.mean(theirs[:number]):.1f} of the '
            f'regressions on the same {number} parts that were left out')
    wins = all(one > other for one, other in zip(ours, theirs))  # two parts are few: on each
    if args.method == 'auto' and not wins:
        plain = [auc_of([fold]) for fold in runner.train_loop.plain_folds]
        if not all(one > other for one, other in zip(plain, theirs)):
            print(f'method     regressions are delivered: {said}', flush=True)
            return runner
        print(f'method     two logistic regressions are delivered: AUC {np.mean(plain):.1f} of '
              f'them and {np.mean(theirs):.1f} with class means and texts; better on each of '
              f'{len(plain)} parts', flush=True)
        cfg = runner.cfg
        cfg.train_cfg.settings = runner.train_loop.fitted.plain._asdict()
        return _trained(cfg)
    print(f'method     ClusPro is delivered{"" if wins else ", as asked"}: {said}', flush=True)
    for place, fold in enumerate(folds[number:], number):
        _train_part(config, folder, place, fold, args)
    for path in folder.glob('*.pth'):  # of the regressions
        remove(folder, path)
    cfg = load_config(_flags(args, config, folder), ('train', 'val', 'test'), False)
    cfg.train_cfg.folds = [str(_table(folder, place)) for place in range(len(folds))]
    cfg.train_cfg.regressions = runner.train_loop.regressions
    if args.report:
        cfg.default_hooks.report = dict(type='mmcluspro.ReportHook')
    return _trained(cfg)


def _trained(cfg: Config) -> Runner:
    runner = build_runner(cfg)
    runner.train()
    return runner


def _table(folder: Path, place: int) -> Path:
    return folder / 'parts' / str(place) / 'table.csv'


def _flags(args: argparse.Namespace, config: str, folder: Path) -> argparse.Namespace:
    return argparse.Namespace(**dict(vars(args), config=config, work_dir=str(folder)))


def _train_part(config: str, folder: Path, place: int, fold: Fold,
                args: argparse.Namespace) -> float:
    """Trains ClusPro without a part, and returns its AUC there."""
    table = _table(folder, place)
    table.parent.mkdir(parents=True, exist_ok=True)
    cfg = load_config(_flags(args, config, table.parent), ('train', 'val'), False)
    rows = read_table(cfg.model.space.table)
    held = set(fold.images.tolist())
    write_table(table, [row._replace(split='val' if i in held else 'train')
                        for i, row in enumerate(rows)])
    data = dict(data_root=cfg.model.space.data_root, table=str(table),
                features=str(table.parent / 'features'))
    own = table.with_name('part.py')
    write_text(own, f'_base_ = {str(Path(config).resolve())!r}\ndata = {data!r}\n'
               f'model = dict(backbone=dict(backbone=dict(features={data["features"]!r})))\n'
               "val_dataloader = test_dataloader = dict(dataset=dict(phase='val'))\n"
               'val_cfg = dict(_delete_=True)\n')
    with redirect_stdout(StringIO()):
        store_features(str(own))
        cfg = load_config(_flags(args, str(own), table.parent), ('train', 'val'), False)
        cfg.default_hooks.update(console=None, curve=None)
        cfg.default_hooks.checkpoint.update(save_best=None, interval=cfg.train_cfg.max_epochs)
        cfg.log_level = 'WARNING'
        runner = build_runner(cfg)
        runner.train()
    return float(runner.message_hub.get_scalar('val/czsl/auc').current())
