import json
import subprocess
import sys
from pathlib import Path

from scipy import stats

TOOL = Path(__file__).resolve().parents[2] / 'tools' / 'analysis_tools' / 'last_epoch.py'


def run(*words):
    return subprocess.run([sys.executable, '-W', 'ignore', str(TOOL), *map(str, words)],
                          capture_output=True, text=True)


def test_differences_of_the_last_epoch_are_paired(tmp_path):
    base, other = [40.0, 42.0, 41.0], [41.0, 42.5, 43.0]
    for name, values in (('baseline_shapes', base), ('cluspro_shapes', other)):
        for seed, value in enumerate(values):
            record = dict(val_auc=[50.0, 99.0, value])
            (tmp_path / f'{name}_seed{seed}.json').write_text(json.dumps(record))
    (tmp_path / 'clip_zeroshot_shapes_seed0.json').write_text(json.dumps(dict(val_auc=[])))
    (tmp_path / 'baseline_large_seed0.json').write_text(json.dumps(dict(
        val_auc=[9.0], fingerprint=dict(val_dataloader='of other data'))))

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
    for seed, (epoch, auc) in enumerate([(3, 40.0), (3, 42.0), (2, 30.0)]):
        (tmp_path / f'baseline_shapes_seed{seed}.json').write_text(json.dumps(dict(
            val_auc=[1.0], val_metrics=dict(step=epoch), metrics={'czsl/auc': auc})))
    (tmp_path / 'csp_shapes_seed0.json').write_text(json.dumps(dict(val_auc=[1.0])))
    done = run(tmp_path, '--chosen', 'baseline_', 'cluspro_')
    assert done.stdout.splitlines()[2:] == ['| 2 | 1 | 30.00 ± 0.00 |', '| 3 | 2 | 41.00 ± 1.41 |']
