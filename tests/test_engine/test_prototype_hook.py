"""Prototypes are initialised from training images of all primitives, without a trace elsewhere."""
import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset

from mmcluspro.engine.features import cluster_features
from mmcluspro.engine.hooks import PrototypeHook
from mmcluspro.models.classifier import run_images
from mmcluspro.models.prototypes import balanced_sample


@pytest.fixture
def runner(run, tmp_path):
    return run(tmp_path, 'cluspro_shapes.py', **{'train_dataloader.dataset.indices': 96})


def initialise(runner, **kwargs):
    """The banks after ``before_train``; they were empty before."""
    banks = runner.model.head.clustered
    for bank in banks.values():
        bank.initialised.fill_(False)
    PrototypeHook(**kwargs).before_train(runner)
    assert all(bool(bank.initialised) for bank in banks.values())
    return {branch: bank.prototypes.clone() for branch, bank in banks.items()}


@pytest.mark.parametrize('init_samples, count', [(32, 32), (96, 96), (1000, 96), (None, 96)])
def test_init_samples_takes_so_many_images_of_all_primitives(runner, monkeypatch, init_samples,
                                                             count):
    taken = []
    monkeypatch.setattr(
        'mmcluspro.engine.hooks.prototypes.cluster_features',
        lambda model, loader, indices: taken.append(indices) or cluster_features(
            model, loader, indices))

    got = initialise(runner, init_samples=init_samples)

    (indices, ) = taken
    assert len(indices) == len(set(indices.tolist())) == count
    every = cluster_features(runner.model, runner.train_dataloader, np.arange(96))[1]
    for branch, bank in runner.model.head.clustered.items():
        features, labels = cluster_features(runner.model, runner.train_dataloader, indices)
        assert labels[branch].unique().equal(every[branch].unique())
        bank.initialise(features[branch], labels[branch],
                        torch.bincount(every[branch], minlength=bank.num_classes))
        torch.testing.assert_close(got[branch], bank.prototypes)


@pytest.mark.parametrize('count', [1, 40, 300, 999, 5000])
def test_a_balanced_sample_keeps_rare_primitives_and_caps_common_ones_alike(count):
    generator = torch.Generator().manual_seed(0)
    share = 1 / torch.arange(1, 31).float()
    labels = [torch.multinomial(share, 1000, True, generator=generator),
              torch.randint(3, (1000, ), generator=generator)]

    chosen = balanced_sample(labels, count)

    assert len(chosen) == min(count, 1000) and (chosen.diff() > 0).all()
    had, has = (torch.bincount(label, minlength=30) for label in (labels[0], labels[0][chosen]))
    # Who lost an image has at least as many as anybody is owed: a common cap, up to one image.
    cut = has < had
    if cut.any() and count >= 300:
        cap = int(has[cut].min())
        assert cap >= 1 and (has >= had.clamp_max(cap)).all()


def test_fewer_images_give_other_prototypes_and_the_hook_says_how_many(runner, monkeypatch):
    lines = []
    monkeypatch.setattr(runner.logger, 'info', lines.append)
    few, every = initialise(runner, init_samples=24), initialise(runner)
    assert lines == ['Initialising the prototypes from 24 training images',
                     'Initialising the prototypes from 96 training images']
    assert all(not few[branch].equal(every[branch]) for branch in few)


def test_the_head_knows_the_size_of_a_full_batch_before_the_first_one(runner):
    initialise(runner)
    assert runner.model.head.gatherer.least == runner.train_dataloader.batch_size > 1


@pytest.mark.parametrize('init_samples', [0, -3])
def test_init_samples_must_be_positive(init_samples):
    with pytest.raises(ValueError, match=f'init_samples must be positive, got {init_samples}'):
        PrototypeHook(init_samples=init_samples)


def test_features_are_those_of_the_model_and_the_generators_stay(runner):
    model, loader = runner.model, runner.train_dataloader
    model.train()
    indices = np.array([5, 3, 90, 17, 3])
    state = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()

    features, labels = cluster_features(model, loader, indices)

    assert model.training
    assert (random.getstate(), np.random.get_state()[1].tolist()) == state[:2]
    assert torch.get_rng_state().equal(state[2])
    again, _ = cluster_features(model, loader, indices[::-1].copy())
    for branch in ('attr', 'obj'):
        torch.testing.assert_close(features[branch], again[branch].flip(0))
        assert features[branch][1].equal(features[branch][4])
        assert labels[branch].tolist() == [
            loader.dataset.get_data_info(int(i))[f'{branch}_label'] for i in indices]


def test_one_run_over_images_restores_the_mode_also_after_an_error(runner):
    model, loader = runner.model, runner.val_dataloader
    some = DataLoader(Subset(loader.dataset, range(5)), 2, collate_fn=loader.collate_fn)
    model.train()
    batches = list(run_images(model, some))
    assert [len(batch.features) for batch in batches] == [2, 2, 1] and model.training
    assert not any(batch.features.attribute.requires_grad for batch in batches)
    run = run_images(model, [{'inputs': 3}])
    with pytest.raises(Exception, match='.'):
        next(run)
    assert model.training
