"""Recall@k and mAP against scikit-learn and by hand, and in a test run."""
import json

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from mmcluspro.cli import main
from mmcluspro.evaluation import retrieval


@pytest.mark.parametrize('images, pairs', [(1, 1), (7, 3), (60, 11)])
def test_means_of_average_precision_are_those_of_scikit_learn(images, pairs):
    generator = np.random.default_rng(images)
    scores, targets = generator.random((images, pairs)), generator.integers(0, pairs, images)
    seen = generator.random(pairs) < 0.5
    found = retrieval(scores, targets, seen)
    own = {pair: 100 * average_precision_score(targets == pair, scores[:, pair])
           for pair in set(targets.tolist())}
    assert found['map'] == pytest.approx(np.mean(list(own.values())))
    for name, side in (('map_seen', True), ('map_unseen', False)):
        part = [value for pair, value in own.items() if seen[pair] == side]
        assert found.get(name) == (pytest.approx(np.mean(part)) if part else None)
    for k in (1, 5, 10):
        first = [(targets[np.argsort(-scores[:, pair])[:k]] == pair).any() for pair in own]
        assert found[f'text_to_image_r{k}'] == pytest.approx(100 * np.mean(first))
        top = [target in np.argsort(-row)[:k] for row, target in zip(scores, targets)]
        assert found[f'image_to_text_r{k}'] == pytest.approx(100 * np.mean(top))


def test_equal_scores_are_no_hits():
    found = retrieval(np.ones((4, 2)), [0, 1, 1, 1], [True, True], ks=(1, 2))
    assert found['text_to_image_r1'] == 0 and found['image_to_text_r1'] == 0
    assert found['map'] == pytest.approx(50 * (1 / 4 + (1 / 2 + 2 / 3 + 3 / 4) / 3))
    assert found['image_to_text_r2'] == 100


def test_the_command_reports_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chosen = str(list(range(0, 1020, 60))).replace(' ', '')
    assert main(['test', 'clip_zeroshot_shapes.py', '--retrieval', '--work-dir', 'run', '--out',
                 'numbers.json', '--out-item', 'metrics', '--cfg-options', 'val_cfg=None',
                 'val_dataloader=None', 'val_evaluator=None', 'test_evaluator.1.threshold=None',
                 f'test_dataloader.dataset.indices={chosen}']) == 0
    numbers = json.loads((tmp_path / 'numbers.json').read_text())
    assert 0 < numbers['retrieval/map'] < 100
    assert numbers['retrieval/text_to_image_r10'] >= numbers['retrieval/text_to_image_r1']
    assert numbers['retrieval/image_to_text_r10'] > 0
