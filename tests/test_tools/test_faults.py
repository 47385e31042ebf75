"""A short run of tools/misc/faults.py, in a process of its own: it forks and takes signals."""
import json
import subprocess
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[2] / 'tools' / 'misc' / 'faults.py'


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
