"""The tools as modules, and the published lists."""
import importlib.util
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]


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
