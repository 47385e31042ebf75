"""tools/slurm_train.sh with stand-ins for srun and scontrol."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / 'tools' / 'slurm_train.sh'


def fake(folder, name, body):
    path = folder / name
    path.write_text(f'#!{sys.executable}\nimport sys\nfrom pathlib import Path\n'
                    f'log = Path({str(folder / "log")!r})\n{body}')
    path.chmod(0o755)


@pytest.fixture
def start(tmp_path):
    def run(codes, *flags, **environment):
        (tmp_path / 'log').write_text('')
        fake(tmp_path, 'srun', f"""
codes = {codes!r}
past = log.read_text().count('srun')
log.write_text(log.read_text() + 'srun ' + ' '.join(sys.argv[1:]) + chr(10))
sys.exit(codes[past])
""")
        fake(tmp_path, 'scontrol', """
log.write_text(log.read_text() + 'scontrol ' + ' '.join(sys.argv[1:]) + chr(10))
""")
        done = subprocess.run(
            ['bash', str(SCRIPT), 'gpu', 'job', 'config.py', 'work', *flags], check=False,
            capture_output=True, text=True,
            env={**os.environ, 'PATH': f'{tmp_path}:{os.environ["PATH"]}', **environment})
        return done.returncode, (tmp_path / 'log').read_text().splitlines()
    return run


def test_slurm_is_asked_for_a_signal_before_the_limit(start):
    code, (line, ) = start([0], '--amp', GRACE='60')
    assert code == 0
    assert '--signal=USR1@60' in line and line.endswith('--launcher slurm --amp')


@pytest.mark.parametrize('codes, last', [([75, 75, 0], 0), ([75, 2], 2)])
def test_a_stopped_training_is_started_again_with_resume(start, codes, last):
    code, lines = start(codes)
    assert code == last and len(lines) == len(codes)
    assert [line.endswith(' --resume') for line in lines] == [False] + [True] * (len(codes) - 1)


def test_other_codes_end_the_script(start):
    assert start([2])[0] == 2 and len(start([1, 0])[1]) == 1


def test_restarts_are_counted(start):
    code, lines = start([75] * 5, RESTARTS='2')
    assert code == 75 and len(lines) == 3


def test_a_batch_job_is_requeued_and_resumes(start):
    code, lines = start([75, 0], SLURM_JOB_ID='42')
    assert code == 0 and lines[1] == 'scontrol requeue 42' and len(lines) == 2
    _, (line, ) = start([0], SLURM_JOB_ID='42', SLURM_RESTART_COUNT='1')
    assert line.endswith(' --resume')
