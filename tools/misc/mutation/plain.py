"""Samples: stored features, exported tables, curves, tables of experiments, records."""
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def make_features(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from mmcluspro.features.writer import PhaseWriter, start_folder
        root = folder / 'features'
        facts = dict(backbone=dict(type='x', arch='y'), pool=None, weights={}, fingerprint=7,
                     pipeline=[dict(type='Resize')], preprocessor=dict(mean=[1, 2, 3]),
                     dtype='float32', shard_size=4)
        start_folder(root, facts)
        writer = PhaseWriter(root, 'train', [f'image {i}' for i in range(6)])
        for span in writer.missing():
            writer.write(span, np.random.default_rng(0).normal(size=(len(span), 5)))
        return next(root.rglob(name))
    return make


def read_features(path: Path) -> Any:
    from mmcluspro.features.store import FeatureStore
    root = path.parent if path.name == 'features.json' else path.parents[1]
    store = FeatureStore(root, 'train')
    return store.facts, store.names, [np.array(shard) for shard in store.open()]


def make_exported_table(folder: Path) -> Path:
    from mmcluspro.export.text_table import write_table
    generator = np.random.default_rng(0)
    write_table(dict(
        **{name: generator.normal(size=(3, 8)).astype(np.float32)
           for name in ('text_a', 'text_o', 'text_c')},
        attributes=np.array(['wet', 'dry', 'old']), objects=np.array(['cat', 'dog', 'car']),
        pairs=np.array([[0, 0], [1, 1], [2, 2]]), seen=np.array([True, False, True]),
        feasible=np.array([True, True, False]),
        info=np.array(json.dumps(dict(scale=100.0, weights='abc')))), folder / 'table.npz')
    return folder / 'table.npz'


def make_plus_table(folder: Path) -> Path:
    """As ``mmcluspro export`` writes it for ClusPro+: with prototypes of the pairs."""
    from mmcluspro.export.text_table import write_table
    generator = np.random.default_rng(0)
    write_table(dict(
        **{name: generator.normal(size=(4, 8)).astype(np.float32)
           for name in ('text_a', 'text_o', 'text_c', 'pair_a', 'pair_o')},
        attributes=np.array(['wet', 'dry', 'old', 'new']),
        objects=np.array(['cat', 'dog', 'car', 'bus']),
        pairs=np.array([[i, i] for i in range(4)]), seen=np.array([True, False, True, True]),
        feasible=np.array([True, True, False, True]),
        info=np.array(json.dumps(dict(scale=100.0, fusion='probability', evidence=1.0)))),
        folder / 'plus.npz')
    return folder / 'plus.npz'


def read_exported_table(path: Path) -> Any:
    from mmcluspro.export.text_table import read_table
    return read_table(path)


def make_curves(folder: Path) -> Path:
    from mmcluspro.evaluation import czsl_curve
    from mmcluspro.visualization.curve_plot import write_curves
    generator = np.random.default_rng(0)
    curve = czsl_curve(generator.normal(size=20), generator.random(20) < 0.5)
    return write_curves(dict(closed=curve), folder / 'test_curve.json')


def make_prototype_images(folder: Path) -> Path:
    from PIL import Image

    from mmcluspro.visualization.prototypes import (
        PrototypeImages,
        ShownExample,
        ShownPrototype,
        as_jpeg,
        write_prototype_images,
    )
    pictures = [as_jpeg(Image.new('RGB', (9, 9), color), 9) for color in ('red', 'blue')]
    found = PrototypeImages(dict(attr='abc'), dict(attr={0: ShownPrototype(0.5, False, [0, 1])}),
                            pictures, [ShownExample(1, 'wet', 'cat', True)])
    return write_prototype_images(found, folder / 'prototype_images.json')


def read_prototype_image_file(path: Path) -> Any:
    from dataclasses import asdict

    from mmcluspro.visualization.prototypes import read_prototype_images
    return asdict(read_prototype_images(path))


def read_curve_file(path: Path) -> Any:
    from mmcluspro.visualization.curve_plot import read_curves
    return {world: [*stored.curve, stored.auc, stored.hm]
            for world, stored in read_curves(path).items()}


def make_run(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [dict(step=1, loss=2.5, attr_loss=1.0), {'step': 1, 'czsl/auc': 12.5}]
        path.write_text('\n'.join(map(json.dumps, lines)) if 'scalars' in name else
                        json.dumps({'czsl/auc': 12.5, 'predict/seen': 70.0}, indent=1))
        return path
    return make


def read_run_folder(path: Path) -> Any:
    from dataclasses import asdict

    from mmcluspro.visualization.report_page import Report, page, read_run
    found = read_run(path.parent if path.name == 'test_metrics.json' else path.parents[2])
    page(Report('run', run=found))  # what is read can be shown
    return asdict(found)


def make_yaml(folder: Path) -> Path:
    (folder / 'tables.yml').write_text('''
table1:
  title: Closed world
  world: closed
  datasets: [shapes, utzappos]
  reference: Baseline
  rows:
  - {name: Baseline, config: "baseline_{dataset}.py", paper: {utzappos: [1.5, 2, 3, 4]}}
  - {name: ClusPro, config: "cluspro_{dataset}.py", options: [a.b=1, c=2]}
''')
    return folder / 'tables.yml'


def read_yaml(path: Path) -> Any:
    from experiments.tables import load_tables
    return {key: repr(table).replace(str(path.parent), '')
            for key, table in load_tables(path).items()}


def make_record(folder: Path) -> Path:
    (folder / 'records').mkdir(exist_ok=True)
    (folder / 'records' / 'a.json').write_text(json.dumps(dict(
        config='a.py', options=['b=1'], seed=0, metrics={'czsl/auc': 45.5}, fingerprint={})))
    return folder / 'records' / 'a.json'


def read_record(path: Path) -> Any:
    from experiments.run_store import Store
    return repr(Store(path.parent).records)
