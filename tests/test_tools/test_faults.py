"""A short run of tools/misc/faults.py, in a process of its own: it forks and takes signals."""
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

PATH = Path(__file__).resolve().parents[2] / 'tools' / 'misc' / 'faults.py'


def test_the_moment_of_a_fault_depends_on_nothing_but_its_seed_and_number(monkeypatch):
    monkeypatch.syspath_prepend(str(PATH.parent))
    from fault_runs import chance_of
    plan = [chance_of(5, 'epoch', 'SIGKILL', number, 0).random() for number in range(20)]
    assert [chance_of(5, 'epoch', 'SIGKILL', number, 0).random() for number in range(20)] == plan
    others = [chance_of(6, 'epoch', 'SIGKILL', 0, 0), chance_of(5, 'iter', 'SIGKILL', 0, 0),
              chance_of(5, 'epoch', 'SIGTERM', 0, 0), chance_of(5, 'epoch', 'SIGKILL', 0, 1)]
    assert len({*plan, *(chance.random() for chance in others)}) == 24


@pytest.mark.parametrize('code, late', [(0, True), (-9, False), (2, False)])
def test_a_process_that_ends_well_was_done_before_it_was_killed(monkeypatch, code, late):
    monkeypatch.syspath_prepend(str(PATH.parent))
    from fault_kinds import TRAINING
    process = SimpleNamespace(code=code)
    assert TRAINING['SIGKILL'].came_too_late(process) is late
    assert not TRAINING['SIGTERM'].came_too_late(process)


def test_what_fell_is_counted_and_its_later_outcome_shown(monkeypatch):
    monkeypatch.syspath_prepend(str(PATH.parent))
    from fault_tables import Outcome, areas
    outcomes = [Outcome('A', 'place', 'start', 1.0, 'a traceback', False, 'old'),
                Outcome('A', 'place', 'start', 1.0, '', True, 'new'),
                Outcome('B', 'place', 'start', 1.0, '', False, 'new'),
                Outcome('C', 'place', 'start', 1.0, '', True, 'new'),
                Outcome('D', 'artefact export', 'm.onnx', 1.0, '', True, 'new')]
    rows = {line.split(' | ')[0][2:]: line.split(' | ')[1:] for line in areas(outcomes).split('\n')}
    assert rows['machines, settings, data and pictures at their edge'] == [
        '4', '2', '2', 'A (place): 1 of 1; B (place): **open** |']
    assert rows['each file of the other commands: renames, disk'] == ['1', '1', '0', '– |']
    assert rows['training on two ranks'] == ['0', '0', '0', '– |']


def test_the_table_of_the_docs_is_that_of_the_records(monkeypatch):
    monkeypatch.syspath_prepend(str(PATH.parent))
    from fault_tables import areas, read_log
    docs = PATH.parents[2] / 'docs'
    assert f'\n{areas(read_log(docs / "results" / "faults.jsonl"))}\n\n' in (
        docs / 'robustness.md').read_text()


@pytest.mark.slow
def test_a_short_campaign_is_survived(tmp_path):
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', str(PATH), '--runs', 'iter', '--only', 'SIGKILL',
         'SIGTERM', 'full disk', '--log', str(tmp_path / 'log')],
        capture_output=True, text=True, timeout=900)
    found = [json.loads(line) for line in (tmp_path / 'log').read_text().splitlines()]
    assert [entry['kind'] for entry in found] == ['SIGKILL', 'SIGTERM', 'full disk'], done.stderr
    assert all(entry['equal'] and not entry['note'] for entry in found), done.stderr
    assert done.returncode == 0 and '| **all** | | 3 | 3 | 3 | |' in done.stdout
