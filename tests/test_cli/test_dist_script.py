"""tools/dist_train.sh with a stand-in for torchrun: arguments, signals and exit codes."""
import os
import signal
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / 'tools' / 'dist_train.sh'
# As torchrun: passes SIGTERM on to its processes, which leave their code, and ends with 1.
TORCHRUN = """#!/usr/bin/env bash
trap 'echo 75 > "$MMCLUSPRO_EXIT_CODE_FILE"; exit 1' TERM
printf '%s\\n' "$@" > arguments
[ -n "$LEAVES" ] && echo "$LEAVES" > "$MMCLUSPRO_EXIT_CODE_FILE"
[ -n "$ENDS" ] && exit "$ENDS"
echo ready
for _ in $(seq 600); do sleep 0.05; done
"""


def hear():
    """A child of nohup is deaf to SIGHUP, and bash cannot change that."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def script(tmp_path):
    """Starts the script in an empty folder."""
    (tmp_path / 'bin').mkdir()
    (tmp_path / 'bin' / 'torchrun').write_text(TORCHRUN)
    (tmp_path / 'bin' / 'torchrun').chmod(0o755)

    def start(**variables):
        env = {**os.environ, 'PATH': f'{tmp_path / "bin"}:{os.environ["PATH"]}',
               'TMPDIR': str(tmp_path), **variables}
        return subprocess.Popen(['bash', str(SCRIPT), 'config.py', '2', '--log', 'short'],
                                cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True,
                                preexec_fn=hear)

    return start


@pytest.mark.parametrize('variables, code', [
    (dict(ENDS='0'), 0), (dict(ENDS='3'), 3), (dict(ENDS='1', LEAVES='2'), 2)])
def test_the_code_is_that_of_the_processes(script, variables, code, tmp_path):
    assert script(**variables).wait(20) == code
    assert {path.name for path in tmp_path.iterdir()} == {'bin', 'arguments'}  # nothing is left


def test_flags_of_the_training_are_not_those_of_torchrun(script, tmp_path):
    script(ENDS='0').wait(20)
    words = (tmp_path / 'arguments').read_text().split()
    place = words.index('--')
    assert words[place + 1].endswith('tools/train.py')
    assert words[place + 2:] == ['config.py', '--launcher', 'pytorch', '--log', 'short']


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_reaches_the_processes_and_the_code_says_that_they_saved(script, number):
    process = script()
    assert process.stdout.readline() == 'ready\n'
    process.send_signal(number)
    assert process.wait(20) == 75
