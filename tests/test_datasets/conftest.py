"""A small dataset in the published layout, and the tools as modules."""
import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from mmcluspro.datasets import write_layout

REPO = Path(__file__).resolve().parents[2]
SPLIT = 'compositional-split-natural'
PAIRS = {
    'train': [('wet', 'cat'), ('wet', 'Dog.Big'), ('Faux.Fur', 'cat'), ('old', 'Dog.Big')],
    'val': [('wet', 'cat'), ('old', 'cat')],
    'test': [('wet', 'Dog.Big'), ('Faux.Fur', 'Dog.Big')],
}
COUNTS = {'train': 3, 'val': 2, 'test': 1}


def paint(path, color=(200, 30, 30)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new('RGB', (8, 6), color).save(path)


def make_rows():
    return [{'image': f'{attr}_{obj}/{phase}{i}.png', 'attr': attr, 'obj': obj, 'set': phase}
            for phase, pairs in PAIRS.items() for attr, obj in pairs
            for i in range(COUNTS[phase])]


@pytest.fixture
def layout(tmp_path):
    """Root, rows and names of a dataset of 12 + 4 + 2 images."""
    root = tmp_path / 'data'
    rows = make_rows()
    for row in rows:
        paint(root / 'images' / row['image'])
    metadata = write_layout(root, rows, PAIRS)
    return SimpleNamespace(root=root, rows=rows, pairs=PAIRS, metadata=metadata,
                           lists=root / SPLIT, split=SPLIT)


@pytest.fixture
def tool():
    """Loads a script of tools/dataset_converters by its name."""
    def load(name):
        path = REPO / 'tools' / 'dataset_converters' / f'{name}.py'
        spec = importlib.util.spec_from_file_location(f'tool_{name}', path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    return load


@pytest.fixture
def real_splits():
    """The published pair lists, where a checkout has them beside it."""
    folder = REPO.parent / 'shared' / 'data' / 'splits'
    if not folder.is_dir():
        pytest.skip('the published pair lists are not here')
    return folder
