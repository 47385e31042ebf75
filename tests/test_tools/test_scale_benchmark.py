"""The benchmark of scale, at the smallest sizes, and its records."""
import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope='module')
def scale():
    spec = importlib.util.spec_from_file_location('scale', ROOT / 'tools/benchmarks/scale.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_both_kinds_run(scale):
    assert scale.clustering(20)['seconds'] > 0
    assert scale.scoring(400)['seconds'] > 0


def test_the_records_reach_the_sizes_that_the_page_names(scale):
    lines = (ROOT / 'docs/results/scale.jsonl').read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    for kind, sizes in (('primitives', scale.PRIMITIVES), ('pairs', scale.PAIRS)):
        assert [row['size'] for row in rows if row['kind'] == kind] == [*sizes]
    assert [row['ranks'] for row in rows if row['kind'] == 'ranks'] == [*scale.RANKS]
