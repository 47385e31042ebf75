import json
import subprocess
import sys
from pathlib import Path

import pytest
from scipy import stats

TOOL = Path(__file__).resolve().parents[2] / 'tools' / 'analysis_tools' / 'last_epoch.py'
pytestmark = pytest.mark.slow


def run(*words):
    return subprocess.run([sys.executable, '-W', 'ignore', str(TOOL), *map(str, words)],
                          capture_output=True, text=True)


def write(folder, name, *records):
    """Records of a config with seeds 0, 1, …"""
    (folder / f'{name}.jsonl').write_text(''.join(json.dumps(dict(
        dict(config=f'{name}.py', options=[], seed=seed, metrics={'czsl/auc': 0.0}), **record))
        + '\n' for seed, record in enumerate(records)))


def test_differences_of_the_last_epoch_are_paired(tmp_path):
    base, other = [40.0, 42.0, 41.0], [41.0, 42.5, 43.0]
    for name, values in (('baseline_shapes', base), ('cluspro_shapes', other)):
        write(tmp_path, name, *(dict(val_auc=[50.0, 99.0, value]) for value in values))
    write(tmp_path, 'clip_zeroshot_shapes', dict(val_auc=[]))
    write(tmp_path, 'baseline_large', dict(
        val_auc=[9.0], fingerprint=dict(val_dataloader='of other data')))

    done = run(tmp_path)

    gaps = [b - a for a, b in zip(base, other)]
    half = stats.sem(gaps) * stats.t.ppf(0.975, 2)
    assert '| baseline_shapes | 3 | 41.00 ± 1.00 | reference |' in done.stdout
    assert f'| cluspro_shapes | 3 | 42.17 ± 1.04 | +1.17 ± {half:.2f} |' in done.stdout
    assert 'zeroshot' not in done.stdout and 'large' not in done.stdout


def test_a_missing_reference_is_named(tmp_path):
    done = run(tmp_path, '--reference', 'other')
    assert done.returncode == 2 and 'no row other' in done.stderr and 'Traceback' not in done.stderr


def test_tests_by_the_chosen_epoch(tmp_path):
    write(tmp_path, 'baseline_shapes', *(
        dict(val_auc=[1.0], val_metrics=dict(step=epoch), metrics={'czsl/auc': auc})
        for epoch, auc in [(3, 40.0), (3, 42.0), (2, 30.0)]))
    write(tmp_path, 'csp_shapes', dict(val_auc=[1.0]))
    done = run(tmp_path, '--chosen', 'baseline_', 'cluspro_')
    assert done.stdout.splitlines()[2:] == ['| 2 | 1 | 30.00 ± 0.00 |', '| 3 | 2 | 41.00 ± 1.41 |']
