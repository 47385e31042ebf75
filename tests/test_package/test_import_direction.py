"""Sub-packages import in one direction."""
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope='module')
def graph():
    path = ROOT / 'tools' / 'misc' / 'import_graph.py'
    spec = importlib.util.spec_from_file_location('import_graph', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_import_goes_against_the_direction(graph):
    found = list(graph.edges(ROOT / 'mmcluspro'))
    assert len(found) > 100 and any(edge.lazy for edge in found)
    assert {edge.source for edge in found} <= set(graph.RANK), 'give a new sub-package its layer'
    assert [edge for edge in found if edge.upward] == []
    beside = {(edge.source, edge.target) for edge in found
              if graph.RANK[edge.source] == graph.RANK[edge.target]}
    assert not {(target, source) for source, target in beside} & beside, 'a cycle in a layer'


@pytest.mark.parametrize('line', [
    'from mmcluspro.api import load', 'import mmcluspro.api.calls', 'from ..api import x',
    'from .. import api', 'def f():\n    from mmcluspro import api'])
def test_every_form_of_an_upward_import_is_found(graph, tmp_path, line):
    package = tmp_path / 'mmcluspro'
    for name in ('api', 'models'):
        (package / name).mkdir(parents=True)
    (package / 'models' / 'part.py').write_text(f'import torch\n{line}\n')
    (edge, ) = graph.edges(package)
    assert edge.upward and (edge.source, edge.target) == ('models', 'api')
    assert edge.lazy == line.startswith('def') and edge.place.startswith('models/part.py:')


def test_tools_are_not_imported():
    for path in (ROOT / 'mmcluspro').rglob('*.py'):
        if '.mim' not in path.parts:
            found = re.findall(r'^\s*(?:from|import) (?:experiments|tools)\b', path.read_text(),
                               flags=re.MULTILINE)
            assert not found, path
