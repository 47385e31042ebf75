"""Draws of the split and their table, through the commands; peers against their definitions."""
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression

TOOLS = Path(__file__).resolve().parents[2] / 'tools' / 'analysis_tools'
COLOURS, TYPES = ['red', 'blue', 'green', 'black'], ['shirt', 'shoe', 'bag', 'hat', 'belt']


def run(*words):
    return subprocess.run([sys.executable, '-W', 'ignore', *map(str, words)],
                          capture_output=True, text=True)


@pytest.fixture(scope='module')
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp('field')
    rng = np.random.default_rng(0)
    pairs = np.repeat([(a, o) for a in COLOURS for o in TYPES], 12, axis=0)
    centres = {name: rng.normal(size=16) for name in (*COLOURS, *TYPES)}
    x = np.stack([centres[a] + centres[o] for a, o in pairs]) + rng.normal(size=(len(pairs), 16))
    np.savez(folder / 'toy.npz', features=x.astype(np.float32), attribute=pairs[:, 0],
             object=pairs[:, 1])
    (folder / 'words.txt').write_text(''.join(
        f'{name} {" ".join(f"{value:.3f}" for value in rng.normal(size=8))}\n'
        for name in (*COLOURS, *TYPES)))
    command = (TOOLS / 'reproduce.py', 'field', folder / 'toy.npz', '--words', folder / 'words.txt',
               '--out', folder / 'toy.jsonl', '--methods', 'regressions', 'means', '--draws', 3)
    first, again = run(*command), run(*command)
    assert first.returncode == again.returncode == 0, first.stderr
    assert first.stdout.count('AUC') == 6 and 'AUC' not in again.stdout
    return folder / 'toy.jsonl'


def test_a_draw_is_the_same_for_all_methods_and_another_for_each_seed(records):
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    found = {(line['draw'], line['method']): line for line in lines}
    assert len(found) == 6
    for draw in range(3):
        one, other = found[draw, 'regressions'], found[draw, 'means']
        assert one['images'] == other['images'] and one['pairs'] == other['pairs']
        assert sum(one['pairs']) <= 20 and one['pairs'][1] > 0
        assert one['auc'] > 20 and other['auc'] > 20
    assert len({line['auc'] for line in lines}) > 3


def test_the_table_has_the_paired_intervals_of_scipy(records):
    done = run(TOOLS / 'field_table.py', records, '--methods', 'regressions', 'means')
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    auc = {method: [line['auc'] for line in lines if line['method'] == method]
           for method in ('regressions', 'means')}
    gaps = np.subtract(auc['means'], auc['regressions'])
    half = stats.t.ppf(0.975, 2) * stats.sem(gaps)
    wanted = f'{gaps.mean():+.1f} ± {half:.1f}'.replace('-', '−')
    assert f'{np.mean(auc["regressions"]):.1f} | {np.mean(auc["means"]):.1f} | {wanted} |' in (
        done.stdout)


def test_the_regressions_are_scikit_learns(monkeypatch, tmp_path, records):
    import field
    monkeypatch.setattr(field, 'STRENGTHS', (10.0, ))
    one = field.Draw(photos := field.read_set(records.with_name('toy.npz')),
                     field.draw(photos, 0, 0), str(records.with_name('words.txt')), tmp_path)
    test = field.regressions(one, 0).test
    expected = 0
    for column, name in enumerate(('attr', 'obj')):
        x = {phase: (value / value.norm(dim=1, keepdim=True)).double().numpy()
             for phase, value in one.features.items()}
        peer = LogisticRegression(C=10.0, tol=1e-8, max_iter=5000).fit(
            x['train'], one.labels('train')[name])
        expected = expected + peer.predict_log_proba(x['test'])[:, one.spaces['test'].pairs[
            :, column]]
    np.testing.assert_allclose(test.scores, expected, atol=0.5)  # fits of 1e-3
    assert (test.scores.numpy().argmax(axis=1) == expected.argmax(axis=1)).mean() > 0.95
