"""tools/benchmarks/clustering.py: the loop it compares with solves the same problems."""
import importlib.util
from pathlib import Path

import torch

from mmcluspro.models.prototypes import assign_together

FILE = Path(__file__).resolve().parents[2] / 'tools' / 'benchmarks' / 'clustering.py'


def load():
    spec = importlib.util.spec_from_file_location('clustering_benchmark', FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_released_loop_finds_the_assignment_of_the_batch_scope():
    tool = load()
    branch = tool.make_branch(4, 32, torch.Generator().manual_seed(0))
    (bank, ) = tool.make_banks([branch], queue_size=0, assigner=dict(
        type='mmcluspro.LocalAwareOT', scope='batch', **tool.RELEASED))

    loop = tool.released_loop(*branch[:2], bank.prototypes, **tool.RELEASED)

    assert loop.equal(assign_together([bank], branch[:1], branch[1:2])[0])


def test_it_prints_a_row_for_each_dataset(monkeypatch, capsys):
    tool = load()
    monkeypatch.setattr(tool, 'SIZES', {'tiny': (3, 4, 8)})
    monkeypatch.setattr(tool, 'DIM', 16)
    tool.measure_solver()
    assert 'tiny' in capsys.readouterr().out.splitlines()[-1]
