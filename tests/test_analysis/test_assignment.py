"""assignment.py: stability and agreement are what they say, and the page shows the records."""
import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

from experiments.assignment_quality import STRATEGIES, Branch, PeakBytes, compare, mixture
from experiments.run_store import read_lines
from mmcluspro.models.prototypes import PrototypeBank

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / 'tools' / 'analysis_tools' / 'assignment.py'
RECORDS = ROOT / 'docs' / 'results' / 'assignment.jsonl'


@pytest.fixture(scope='module')
def tool():
    spec = importlib.util.spec_from_file_location('assignment_tool', TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules['assignment_tool'] = module
    spec.loader.exec_module(module)
    return module


def make_branch(separated, classes=3, each=40, dim=12):
    """Features at five places per class, far apart and equally frequent, or anywhere."""
    generator = torch.Generator().manual_seed(classes)
    labels = torch.arange(classes).repeat_interleave(each)
    places = normalize(torch.randn(classes, 5, dim, generator=generator), dim=2)
    noise = torch.randn(len(labels), dim, generator=generator)
    mode = torch.arange(len(labels)) % 5
    features = normalize(places[labels, mode] + 0.01 * noise if separated else noise, dim=1)
    bank = PrototypeBank(classes, dim, queue_size=0)
    bank.initialise(features, labels)
    return Branch(features, labels, bank)


def test_modes_that_are_far_apart_are_stable_and_right_with_any_queue():
    branches = dict(attr=make_branch(True, 3), obj=make_branch(True, 4, 30))
    before = branches['attr'].bank.prototypes.clone()

    records = compare(branches, batch=30, chosen=torch.arange(120))

    assert len(records) == 2 * len(STRATEGIES)
    for record in records:
        if record['strategy'] in ('nearest', 'queue 64', 'queue 128'):
            assert min(record['stable'], record['agrees']) > 0.9, record
        if record['strategy'] == 'nearest':
            assert record['stable'] == 1, record
        transport = 0 if record['strategy'] == 'nearest' else 1
        if record['strategy'] != 'queue 0':
            assert record['transport'] == transport, record
    held = {record['strategy']: record['queue_mb'] for record in records}
    assert held['queue 0'] == held['batch'] == 0 < held['queue 64'] < held['queue 128']
    assert branches['attr'].bank.prototypes.equal(before)


def test_small_problems_are_less_stable_than_large_ones():
    branches = dict(attr=make_branch(False, 3, 80), obj=make_branch(False, 4, 60))
    found = {(record['strategy'], record['branch']): record
             for record in compare(branches, batch=24, chosen=torch.arange(240))}

    for branch in branches:
        small, large = found['queue 0', branch], found['queue 128', branch]
        assert small['stable'] < large['stable'] and small['agrees'] < large['agrees']


def test_peak_bytes_counts_what_lives_at_a_time():
    with PeakBytes() as memory:
        kept = torch.zeros(256)
        for _ in range(5):
            kept = kept + 1
        kept.view(16, 16)[0]
    assert memory.peak == 2 * 1024


def test_the_mixture_has_looks_that_the_partner_decides():
    labels, partners = torch.arange(400) % 4, torch.arange(400) // 4 % 10
    cosine = mixture(labels, partners, dim=768) @ mixture(labels, partners, dim=768).T
    same_pair = (labels == labels[:, None]) & (partners == partners[:, None])
    different = ~torch.eye(400, dtype=torch.bool)
    assert cosine[same_pair & different].mean() == pytest.approx(2 / 3, abs=0.03)
    assert cosine[labels != labels[:, None]].abs().mean() < 0.05


def test_a_list_of_pairs_is_measured_and_added_to_the_records(tool, tmp_path, monkeypatch, capsys):
    pairs, out = tmp_path / 'train_pairs.txt', tmp_path / 'records.jsonl'
    pairs.write_text('red apple\nred car\nold car\nold house\n')
    for _ in range(2):  # the second replaces the first
        monkeypatch.setattr(sys, 'argv', [
            'assignment.py', '--pairs', str(pairs), '--name', 'small', '--images', '120',
            '--dim', '16', '--batch', '8', '--steps', '3', '--out', str(out)])
        tool.main()
    records = list(read_lines(out))
    assert len(records) == 2 * len(STRATEGIES)
    assert {record['features'] for record in records} == {'synthetic'}
    assert "| small, 8 | `scope='batch'` |" in capsys.readouterr().out
    monkeypatch.setattr(sys, 'argv', ['assignment.py', '--page', 'docs/clustering.md'])
    with pytest.raises(SystemExit):
        tool.main()
    assert 'give it with --out' in capsys.readouterr().err


def test_the_page_shows_the_records(tool):
    page = (ROOT / 'docs' / 'clustering.md').read_text(encoding='utf-8')
    block = page.split('<!-- assignment -->\n')[1].split('\n<!-- /assignment -->')[0]
    assert block == tool.table(list(read_lines(RECORDS)))
