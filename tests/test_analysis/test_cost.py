"""efficiency.py: medians and ratios, and one real measurement."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from experiments.cost import medians, now, resident

ROOT = Path(__file__).resolve().parents[2]


def test_ratios_are_taken_turn_by_turn():
    """A machine that is twice as slow in one turn is so for both configs."""
    base, other = [1.0, 2.0, 1.0], [1.5, 3.0, 1.5]
    results = [[dict(step=a, memory=100.0, image=None), dict(step=b, memory=110.0, image=None)]
               for a, b in zip(base, other)]

    first, second = medians(results, base=0)

    assert first['step'] == (1.0, 1.0) and second['step'] == (1.5, 1.5)
    assert second['memory'] == pytest.approx((110.0, 1.1)) and second['image'] is None


def test_the_peak_of_memory_is_seen_after_it_is_freed():
    before = resident(peak=False)
    # 256 MB: the system may take other pages of the process away meanwhile.
    block = torch.ones(256 * 2**18)
    del block
    assert resident(peak=True) - before > 50


def test_the_clock_of_the_processor_does_not_count_sleep():
    import time
    start = now('cpu')
    time.sleep(0.2)
    assert now('cpu') - start < 0.1


@pytest.mark.slow
def test_baseline_and_cluspro_are_measured(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / 'tools/analysis_tools/efficiency.py'),
         str(ROOT / 'configs/cluspro_shapes.py'), str(ROOT / 'configs/clip_zeroshot_shapes.py'),
         '--baseline', str(ROOT / 'configs/baseline_shapes.py'), '--repeats', '1', '--steps', '1',
         '--images', '2', '--out', 'deep/cost.json', '--cfg-options',
         'train_dataloader.batch_size=8'],
        cwd=tmp_path, env={**os.environ, 'OMP_NUM_THREADS': '1'}, capture_output=True, text=True,
        check=False)

    assert done.returncode == 0, done.stderr
    baseline, cluspro, zero_shot = json.loads(
        (tmp_path / 'deep/cost.json').read_text())['results'][0]
    assert baseline['parameters'] == cluspro['parameters'] > 0 == zero_shot['parameters']
    assert zero_shot['step'] is None and zero_shot['image'] > 0
    for found in (baseline, cluspro):
        assert found['memory'] > 10 and found['image'] > 0
        # shapes-v2 has 860 training images: 108 batches of 8.
        assert found['epoch'] == pytest.approx(found['step'] * 108)
    assert '| cluspro_shapes.py | ' in done.stdout and '(1.00×)' in done.stdout
    assert 'ClusPro parameters 1.00×, memory 1.02×, training 1.15×, inference 1.00×' in done.stdout


@pytest.mark.slow
def test_a_config_that_fails_is_named(tmp_path):
    (tmp_path / 'broken.py').write_text('train_cfg = 3 +\n')
    done = subprocess.run(
        [sys.executable, str(ROOT / 'tools/analysis_tools/efficiency.py'), 'broken.py'],
        cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert 'error: broken.py could not be measured: ' in done.stderr
    assert 'Traceback' not in done.stderr
