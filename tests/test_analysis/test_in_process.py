"""reproduce.py --in-process: records of trainings that leave nothing else on the disk."""
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import DefaultSampler
from mmpretrain.structures import DataSample

from experiments import Run, Store, fast_runs, in_process
from experiments.fast_runs import PhaseData, evaluate, evaluate_open
from mmcluspro.datasets import CompositionSpace
from mmcluspro.evaluation import calculate, head_feasibility
from mmcluspro.models import Candidates
from mmcluspro.models.structures import Features
from mmcluspro.models.zoo.compcos import CompCosHead

CONFIG = '''
model = dict(head=dict(k=1))
train_cfg = dict(max_epochs=1)
loader = dict(dataset=dict(features='f'))
train_dataloader = val_dataloader = test_dataloader = loader
'''


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Four runs, and stand-ins: the AUC is 10 K + seed, in the test 1 more; K = 7 fails."""
    (tmp_path / 'learn.py').write_text(CONFIG)
    reads = []

    def train(cfg, data, seed):
        if cfg.model.head.k == 7:
            raise ValueError('no space left on the moon')
        cfg.model.head.built = True  # as mmengine does with what it builds
        return 10 * cfg.model.head.k + seed

    monkeypatch.setattr(in_process, 'read_vectors_once', lambda: None)
    monkeypatch.setattr(in_process, 'read_phases', lambda cfg, phases: reads.append(phases) or dict(
        train=None, val=0, test=1))
    monkeypatch.setattr(in_process, 'train', train)
    monkeypatch.setattr(in_process, 'evaluate', lambda model, data: dict.fromkeys(
        in_process.KEPT, float(model + data)))
    monkeypatch.setattr(in_process, 'evaluate_open', lambda model, data, threshold: dict(
        dict.fromkeys(in_process.KEPT, model / 2), threshold=threshold or 0.25))
    return reads, [Run.make(tmp_path / 'learn.py', [f'model.head.k={k}'], seed)
                   for k in (1, 7) for seed in (0, 1)]


def test_each_run_has_a_record_and_features_are_read_once(runs, tmp_path, capsys):
    reads, todo = runs
    failed = in_process.InProcess(Store(tmp_path / 'runs'), tmp_path)(todo)

    assert failed == dict.fromkeys([run.name for run in todo[2:]], 'no space left on the moon')
    assert reads == [('train', 'val', 'test')]
    store = Store(tmp_path / 'runs')
    assert len(store.records) == 2 and not store.changes(todo[1])
    record = store.find(todo[1])
    assert record['metrics']['czsl/auc'] == 12 and record['val_metrics']['czsl/auc'] == 11
    assert record['metrics']['czsl_open/auc'] == 5.5
    assert record['metrics']['czsl_open/threshold'] == 0.25  # that of validation
    out = capsys.readouterr().out
    assert '[2/4] learn_seed1: validation AUC 11.00' in out and '12.00' not in out
    assert '[3/4] FAILED learn-head.k=7_seed0: no space left on the moon' in out


@pytest.fixture
def small(tmp_path):
    """A model on features of width 4, and a phase of 60 images."""
    words = tmp_path / 'words.txt'
    names = ('old', 'red', 'wet', 'cat', 'cup', 'dog')
    numbers = np.random.default_rng(0).normal(size=(6, 4))
    words.write_text(''.join(f'{name} {" ".join(map(str, row))}\n'
                             for name, row in zip(names, numbers)))
    space = CompositionSpace(names[:3], names[3:], [[0, 0], [0, 1], [1, 1], [1, 2], [2, 0]],
                             [True, True, True, True, False])
    torch.manual_seed(0)
    head = CompCosHead(space=space, text=dict(
        type='mmcluspro.LinearPairText', path=str(words), out_dim=4))
    model = SimpleNamespace(head=head, eval=head.eval, extract_feat=Features)
    samples = []
    for row in (pairs := torch.arange(60) % 5).tolist():
        samples.append(DataSample())
        for name, value in zip(('attr', 'obj'), space.pairs[row].tolist()):
            samples[-1].set_field(value, f'{name}_label')
    return model, PhaseData(torch.randn(60, 4), samples, pairs, Candidates.from_space(space), space)


def test_the_open_world_has_all_pairs_and_the_best_threshold(small):
    model, data = small
    best = evaluate_open(model, data)
    assert evaluate_open(model, data, best['threshold'])['auc'] == best['auc']
    rho = head_feasibility(model.head, data.space)[tuple(data.space.open_world().pairs.T)]
    seen = data.space.open_world().seen
    with torch.no_grad():
        scores = model.head.score(Features(data.inputs), Candidates.from_space(
            data.space.open_world())).pair
    targets = data.space.open_world().lookup(*data.space.pairs[data.pair].T)
    aucs = []
    for threshold in np.linspace(rho[~seen].min(), rho[~seen].max(), 50):
        kept = seen | (rho.double() > threshold)
        log = scores.log().masked_fill(~kept, -1e6)
        aucs.append(calculate(log, targets, seen)['auc'])
    assert best['auc'] == pytest.approx(max(aucs), abs=1e-3)
    assert best['auc'] < evaluate(model, data)['auc']


class Model(torch.nn.Module):
    """Its loss is the square of one weight."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(3.0))
        self.head = SimpleNamespace(
            clustered={}, begin_epoch=lambda epoch: None, update_prototypes=lambda: None,
            loss=lambda features, samples: dict(loss=self.weight**2))

    def init_weights(self):
        pass

    def extract_feat(self, inputs):
        return inputs


def test_long_runs_show_steps_and_images(small, monkeypatch, capsys):
    monkeypatch.setattr('mmcluspro.utils.progress.PAUSE', 0)
    monkeypatch.setattr(fast_runs.MODELS, 'build', lambda cfg: Model())
    cfg = Config(dict(
        model={}, param_scheduler=dict(type='CosineAnnealingLR'), train_cfg=dict(max_epochs=2),
        train_dataloader=dict(batch_size=25),
        optim_wrapper=dict(type='OptimWrapper', optimizer=dict(type='SGD', lr=0.1))))
    model, data = small

    trained = fast_runs.train(cfg, data, seed=0)
    evaluate(model, data)

    rates = [0.1 * (1 + np.cos(np.pi * step / 6)) / 2 for step in range(6)]
    assert float(trained.weight.detach()) == pytest.approx(3 * np.prod([1 - 2 * r for r in rates]))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(',')[0] for line in lines] == [
        *(f'training: {step} of 6 steps' for step in range(1, 7)),
        'scores of 5 pairs: 60 of 60 images']


def test_the_order_of_a_shuffled_test_is_that_of_its_sampler():
    from experiments.fast_runs import _order
    want = list(DefaultSampler(range(20), shuffle=True, seed=3))
    assert _order(dict(sampler=dict(type='DefaultSampler', shuffle=True, seed=3)), 20) == want
    assert want != list(range(20))
    for sampler in (dict(shuffle=False), dict(shuffle=True)):  # training draws its own order
        assert _order(dict(sampler=sampler), 20) == list(range(20))
