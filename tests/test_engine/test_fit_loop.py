"""A fit through the public doors: cross-validation, checkpoint, test, prediction, new words."""
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from mmcluspro.api import TrainedModel
from mmcluspro.engine.launch import build_runner, read_config
from mmcluspro.evaluation.held_out import make_folds
from mmcluspro.models.classifier import run_images

ROOT = Path(__file__).resolve().parents[2]


def config(work_dir, **options):
    """Shapes from images, so that nothing needs to be stored first."""
    cfg = read_config(ROOT / 'configs' / 'regression_shapes.py')
    tower = cfg.model.backbone.backbone
    cfg.model.backbone = tower
    cfg.model.data_preprocessor.type = 'ClsDataPreprocessor'
    for phase in ('train', 'val', 'test'):
        cfg[f'{phase}_dataloader'].dataset.pop('features', None)
    cfg.merge_from_dict({'work_dir': str(work_dir), 'launcher': 'none', 'log_level': 'WARNING',
                         'val_dataloader.dataset.indices': list(range(0, 1020, 4)), **options})
    return cfg


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    torch.set_num_threads(1)
    runner = build_runner(config(tmp_path_factory.mktemp('fit'), **{
        'train_cfg.settings': dict(attr_penalty=0.1, obj_penalty=0.5)}))
    runner.train()
    return runner


def test_with_one_penalty_each_it_is_two_logistic_regressions_of_scikit_learn(run):
    parts = [list(run_images(run.model, loader))
             for loader in (run.train_dataloader, run.val_dataloader)]
    (x, attr, obj), (new, *_) = (
        [torch.cat([torch.nn.functional.normalize(part.features.composition) for part in each]),
         *(torch.cat([part.labels[name] for part in each]) for name in ('attr', 'obj'))]
        for each in parts)
    scores = run.model.head.score([new], run.model.head.known_candidates)
    for mine, labels, c in ((scores.attribute, attr, 10), (scores.object, obj, 2)):
        peer = LogisticRegression(C=c, tol=1e-8, max_iter=5000).fit(x.double(), labels)
        np.testing.assert_allclose(mine.detach(), peer.predict_proba(new.double()), atol=1e-4)


def test_the_checkpoint_predicts_as_the_model_that_was_fitted(run):
    path = next(Path(run.work_dir).glob('best_*.pth'))
    model = TrainedModel.load(path).network
    images = torch.randn(4, 64)
    torch.testing.assert_close(
        model.head.score([images], model.head.known_candidates).pair,
        run.model.head.score([images], run.model.head.known_candidates).pair)


@pytest.mark.slow
def test_train_and_predict_as_commands(tmp_path):
    cfg = config(tmp_path / 'run')
    cfg.dump(tmp_path / 'fit.py')
    ran = subprocess.run([sys.executable, '-m', 'mmcluspro', 'train', str(tmp_path / 'fit.py')],
                         capture_output=True, text=True, cwd=tmp_path, check=True)
    assert 'on pairs held out in turn (two logistic regressions' in ran.stdout
    assert (tmp_path / 'run' / 'report.html').exists()


def test_folds_hold_every_pair_out_once_and_orphan_nobody():
    pairs = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 2]])
    rows = torch.arange(60) % 6
    folds = make_folds(rows, pairs, 3)
    assert (~folds.seen).sum(dim=0).tolist() == [1, 1, 1, 1, 1, 0]  # object 2 has one pair
    for train, held, seen in zip(*folds):
        assert not (train & held).any() and (train | held).all()
        assert set(rows[train].tolist()) <= set(seen.nonzero()[:, 0].tolist())
        for kind in (0, 1):
            assert set(pairs[seen, kind].tolist()) == set(pairs[:, kind].tolist())
    assert (folds.held.sum(dim=0) >= 1).all()
