"""A bank in a head of another project: mmpretrain's classifier with ordinary classes."""
import re
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from mmengine.runner import Runner

PAGE = Path(__file__).resolve().parents[2] / 'docs' / 'other_projects.md'


@pytest.fixture(scope='module', autouse=True)
def head():
    """The class of the page."""
    code = re.search(r'```python\n(from torch import nn\n.*?class ClusteredHead.*?)```',
                     PAGE.read_text(encoding='utf-8'), re.DOTALL)[1]
    names = {}
    exec(code, names)
    yield names['ClusteredHead']
    MODELS.module_dict.pop('ClusteredHead')


def config(work_dir, **hook):
    return Config(dict(
        default_scope='mmpretrain', work_dir=str(work_dir), log_level='WARNING',
        model=dict(
            type='ImageClassifier', data_preprocessor=dict(mean=[127.5] * 3, std=[127.5] * 3),
            backbone=dict(type='mmcluspro.CLIPVision', arch='tiny_clip', pretrained='tiny_clip'),
            head=dict(type='ClusteredHead', num_classes=144, in_channels=64,
                      bank=dict(num_prototypes=2))),
        train_dataloader=dict(
            batch_size=32, num_workers=0, collate_fn=dict(type='default_collate'),
            sampler=dict(type='DefaultSampler', shuffle=True),
            dataset=dict(type='mmcluspro.ShapesCZSL', indices=96, pipeline=[
                dict(type='PackInputs')])),
        train_cfg=dict(by_epoch=True, max_epochs=2),
        optim_wrapper=dict(optimizer=dict(type='Adam', lr=0.01)),
        custom_hooks=[dict(type='mmcluspro.PrototypeHook', interval=1, **hook)],
        randomness=dict(seed=0)))


def test_the_hook_starts_moves_and_logs_the_bank_of_another_project(tmp_path):
    runner = Runner.from_cfg(config(tmp_path))
    bank = runner.model.head.bank('class')
    assert not bool(bank.initialised)
    starts, step = [], runner.model.head.update_prototypes

    def update():
        starts.append(bank.prototypes.clone())
        step()

    runner.model.head.update_prototypes = update
    runner.train()

    assert len(starts) == 6 and bool(bank.initialised)
    assert all((one != other).any() for one, other in zip(starts, starts[1:]))
    scalars = runner.message_hub.log_scalars
    assert 0 < scalars['train/class_used'].current() <= 1
    assert scalars['train/pcl_loss'].current() > 0
    # The features of the second epoch are nearest to prototypes of their own class.
    batch = next(iter(runner.train_dataloader))
    with torch.no_grad():
        data = runner.model.data_preprocessor(batch, True)
        clusters = runner.model.head.clusters(
            runner.model.extract_feat(data['inputs']), data['data_samples'])
        rows = runner.model.head.observe(clusters)['class']
    assert (rows // 2 == clusters['class'][1])[rows >= 0].all() and (rows >= 0).any()


def test_fewer_images_are_spread_evenly_where_labels_are_others(tmp_path, monkeypatch):
    taken = []
    runner = Runner.from_cfg(config(tmp_path, init_samples=4))
    monkeypatch.setattr(type(runner.model.head.bank('class')), 'initialise',
                        lambda bank, features, labels, counts: taken.append(len(features)))
    next(hook for hook in runner.hooks
         if type(hook).__name__ == 'PrototypeHook').before_train(runner)
    assert taken == [4]
