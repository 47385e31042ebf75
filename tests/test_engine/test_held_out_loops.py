"""All photographs train what is delivered; fits without a part of them say how good it is."""
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.hooks import Hook
from sklearn.linear_model import LogisticRegression

from mmcluspro.api import TrainedModel
from mmcluspro.engine.cross_validation import choose_across
from mmcluspro.engine.launch import build_runner
from mmcluspro.evaluation import reduce_scores
from mmcluspro.evaluation.curve import czsl_curve, standard_metrics
from mmcluspro.evaluation.intervals import intervals

from .test_fit_loop import config


class Seen(Hook):
    """Keeps the metrics of the test."""

    def after_test_epoch(self, runner, metrics=None):
        runner.found = metrics


def fit(folder, seed):
    torch.set_num_threads(1)
    every = {'phase': 'train', 'test_mode': True, 'indices': list(range(0, 860, 2))}
    cfg = config(folder, **{
        'randomness.seed': seed,
        'train_cfg.settings': dict(attr_penalty=0.1, obj_penalty=0.5, means=0.1),
        'train_cfg.num_folds': 3, 'train_dataloader.dataset.indices': every['indices'],
        'val_cfg': dict(type='mmcluspro.HeldOutValLoop'),
        'test_cfg': dict(type='mmcluspro.HeldOutTestLoop')})
    for phase in ('val', 'test'):
        cfg[f'{phase}_dataloader'].dataset.update(every)
    runner = build_runner(cfg)
    runner.register_hook(Seen())
    runner.train()
    runner.test()
    return runner


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    return fit(tmp_path_factory.mktemp('held_out'), 0)


@pytest.mark.slow
def test_every_seed_delivers_the_same_model(run, tmp_path):
    other = fit(tmp_path, 7)
    assert other.seed != run.seed
    for name, weight in run.model.head.state_dict().items():
        torch.testing.assert_close(other.model.head.state_dict()[name], weight)
    first, second = (TrainedModel.load(next(Path(each.work_dir).glob('best_*.pth')))
                     for each in (run, other))
    assert first.chosen_for('closed') == second.chosen_for('closed')
    assert run.found == other.found


def scores_of(fold):
    candidates = fold.head.known_candidates
    assert candidates.seen.equal(fold.space.seen)
    with torch.no_grad():
        found = fold.head.score(fold.features, candidates).pair.double()
    return found, fold.space.lookup(fold.labels['attr'], fold.labels['obj'])


def accuracies(folds, biases):
    """Seen and unseen accuracy where each fold has its own bias, by the definition."""
    right, seen = [], []
    for fold, bias in zip(folds, biases):
        scores, targets = scores_of(fold)
        best = (scores - bias * fold.space.seen).argmax(dim=1)
        right.append(best == targets)
        seen.append(fold.space.seen[targets])
    right, seen = torch.cat(right), torch.cat(seen)
    return [100 * float(right[side].double().mean()) for side in (seen, ~seen)]


def test_every_pair_is_unseen_once_and_every_image_is_answered_by_a_fit_without_it(run):
    folds = run.train_loop.folds
    assert torch.stack([~fold.space.seen for fold in folds]).sum(dim=0).eq(1).all()
    count = np.bincount(np.concatenate([fold.images for fold in folds]), minlength=430)
    assert count.min() >= 1 and count.max() <= 2
    assert run.found['held_out/images'] == count.sum() and run.found['held_out/folds'] == 3


def test_the_curve_counts_all_answers_at_the_same_bias(run):
    curve = run.test_evaluator.metrics[0].curve
    for place in (1, len(curve.bias) // 3, len(curve.bias) // 2, len(curve.bias) - 3):
        bias = float(curve.bias[place:place + 2].mean())
        seen, unseen = accuracies(run.train_loop.folds, [bias] * 3)
        assert (curve.seen[place], curve.unseen[place]) == pytest.approx((seen, unseen))


def test_delivered_accuracies_have_a_bias_that_other_folds_chose(run):
    folds = run.train_loop.folds
    chosen = choose_across(folds)
    biases = [each.seen_bias for each in chosen]
    assert len(set(biases)) == 3
    seen, unseen = accuracies(folds, biases)
    assert (run.found['predict/seen'], run.found['predict/unseen']) == pytest.approx((seen, unseen))
    others = accuracies(folds[1:], [biases[0]] * 2)
    grid = [accuracies(folds[1:], [bias] * 2) for bias in np.linspace(-10, 10, 201)]
    assert 2 / sum(1 / part for part in others) >= max(
        2 * a * b / (a + b) if a * b else 0 for a, b in grid) - 1e-9
    for name in ('seen', 'unseen'):
        assert (run.found[f'interval/{name}_low'] < run.found[f'predict/{name}']
                < run.found[f'interval/{name}_high'])


def test_the_row_of_two_logistic_regressions_is_that_of_scikit_learn(run):
    head, features, labels = run.train_loop.fitted[:3]
    x = torch.nn.functional.normalize(features.double(), dim=1)
    found = []
    for fold in run.train_loop.folds:
        train = np.setdiff1d(np.arange(len(x)), fold.images)
        attr, obj = (LogisticRegression(C=c, tol=1e-6, max_iter=5000).fit(
            x[train], labels[name][train]).predict_log_proba(x[fold.images])
            for name, c in (('attr', 10), ('obj', 2)))
        pairs = fold.space.pairs.numpy()
        found.append(reduce_scores(
            torch.from_numpy(attr[:, pairs[:, 0]] + obj[:, pairs[:, 1]]),
            labels['pair'][fold.images], fold.space.seen, bias_on='score'))
    auc = standard_metrics(*(np.concatenate(part) for part in (
        [each.margin[:, 0, 0] for each in found], [each.diff[:, 0] for each in found],
        [each.is_seen for each in found])))['auc']
    assert run.found['regressions/auc'] == pytest.approx(auc, abs=0.2)  # fits of 1e-4


def test_what_is_delivered_was_fitted_to_all_and_has_the_bias_of_all_answers(run):
    best, = Path(run.work_dir).glob('best_*.pth')
    model = TrainedModel.load(best)
    assert int(model.space.seen.sum()) == 86
    chosen = model.chosen_for('closed')
    seen, unseen = accuracies(run.train_loop.folds, [chosen.seen_bias] * 3)
    assert 2 * seen * unseen / (seen + unseen) == pytest.approx(
        run.test_evaluator.metrics[0].curve.hm.max())
    numbers = json.loads((Path(run.work_dir) / 'test_metrics.json').read_text())
    assert numbers['regressions/auc'] > 0
    head, features, labels = model.network.head, *run.train_loop.fitted[1:3]
    answers = head.score([features], head.train_candidates).pair.argmax(dim=1)
    assert (answers == labels['pair']).float().mean() > 0.6


def test_a_model_of_all_photographs_is_not_tested_on_them(run):
    best, = Path(run.work_dir).glob('best_*.pth')
    cfg = run.cfg.copy()
    cfg.load_from, cfg.work_dir = str(best), f'{run.work_dir}/again'
    with pytest.raises(ValueError, match='trained on all photographs, and was measured'):
        build_runner(cfg).test()


def drawn(rng, pairs):
    """Margins of 10 images of each pair; some pairs are harder than others."""
    pair = np.repeat(np.arange(pairs), 10)
    is_seen = pair % 2 == 0
    margin = rng.logistic(size=len(pair)) - rng.normal(0.5, 0.7, pairs)[pair]
    curve = czsl_curve(margin, is_seen)
    return margin, is_seen, pair, dict(auc=curve.auc, hm=curve.hm.max(), seen=50.0, unseen=50.0)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(0)
    truth = drawn(rng, 20000)[3]
    held = {'auc': 0, 'hm': 0}
    for seed in range(50):
        sample = drawn(rng, 60)
        found = intervals(*sample, draws=100, seed=seed)
        for name in held:
            held[name] += found[f'{name}_low'] <= truth[name] <= found[f'{name}_high']
    assert held['auc'] >= 42 and held['hm'] >= 42
