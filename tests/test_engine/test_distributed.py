"""Two processes over gloo equal one with the joined batch."""
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow
WORKER = Path(__file__).with_name('dist_worker.py')
ROOT = Path(__file__).resolve().parents[2]


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def launch(work_dir, name, batch_size, processes, **options):
    work_dir.mkdir()
    command = [sys.executable, str(WORKER)]
    if processes > 1:
        command = [sys.executable, '-m', 'torch.distributed.run', '--master_addr=127.0.0.1',
                   f'--master_port={free_port()}', f'--nproc_per_node={processes}', str(WORKER)]
    launcher = 'pytorch' if processes > 1 else 'none'
    done = subprocess.run(
        [*command, name, str(work_dir), str(batch_size), launcher, json.dumps(options)],
        capture_output=True, text=True, check=False, env={**os.environ, 'OMP_NUM_THREADS': '1'})
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(work_dir / f'rank{rank}.pt') for rank in range(processes)]


@pytest.mark.parametrize('name', ['baseline_shapes.py', 'cluspro_shapes.py'])
def test_two_processes_equal_one_with_the_joined_batch(tmp_path, name):
    (one, ) = launch(tmp_path / 'one', name, 64, 1)
    first, second = launch(tmp_path / 'two', name, 32, 2)

    joined = [(a + b) / 2 for a, b in zip(first['loss'], second['loss'])]
    assert joined == pytest.approx(one['loss'], abs=1e-4)
    for key, value in one['state'].items():
        got = first['state'][key]
        assert got.equal(second['state'][key]), f'{key} differs between ranks'
        torch.testing.assert_close(got, value, atol=2e-3, rtol=0,
                                   msg=lambda m, key=key: f'{key}: {m}')
    if name.startswith('cluspro'):
        key = 'head.banks.attr.prototypes'
        torch.testing.assert_close(first['state'][key], one['state'][key], atol=1e-3, rtol=0)


def test_ranks_may_have_unequal_last_batches(tmp_path):
    """Without round_up the second rank's last batch has one image less."""
    options = {'train_dataloader.dataset.indices': 127,
               'train_dataloader.sampler.round_up': False}
    (one, ) = launch(tmp_path / 'one', 'cluspro_shapes.py', 64, 1, **options)

    first, second = launch(tmp_path / 'two', 'cluspro_shapes.py', 32, 2, **options)

    for key, value in first['state'].items():
        assert value.equal(second['state'][key]), f'{key} differs between ranks'
    for branch in ('attr', 'obj'):
        key = f'head.banks.{branch}'
        torch.testing.assert_close(first['state'][f'{key}.prototypes'],
                                   one['state'][f'{key}.prototypes'], atol=1e-3, rtol=0)
        assert first['state'][f'{key}.queue.pushed'].equal(one['state'][f'{key}.queue.pushed'])


def test_the_scripts_train_and_test_on_two_processes(tmp_path):
    """tools/dist_train.sh with validation and the final test, then tools/dist_test.sh."""
    tools, config = ROOT / 'tools', str(ROOT / 'configs' / 'baseline_shapes.py')
    env = {**os.environ, 'OMP_NUM_THREADS': '1',
           'PATH': f'{Path(sys.executable).parent}:{os.environ["PATH"]}'}
    small = ['--cfg-options', 'train_cfg.max_epochs=1', 'train_dataloader.dataset.indices=128',
             f'val_dataloader.dataset.indices={[*range(0, 1038, 2)]}'.replace(' ', ''),
             'train_dataloader.batch_size=32']

    def script(*command):
        done = subprocess.run([*map(str, command), *small], cwd=tmp_path, capture_output=True,
                              text=True, check=False, env={**env, 'PORT': str(free_port())})
        assert done.returncode == 0, done.stderr[-3000:]

    script(tools / 'dist_train.sh', config, 2, '--work-dir', 'run')
    trained = json.loads((tmp_path / 'run' / 'test_metrics.json').read_text())
    best = next((tmp_path / 'run').glob('best_*.pth'))
    script(tools / 'dist_test.sh', config, best, 2, '--work-dir', 'test')
    assert json.loads((tmp_path / 'test' / 'test_metrics.json').read_text()) == trained
