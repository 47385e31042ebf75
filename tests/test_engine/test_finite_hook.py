"""NaN and infinity stop a training, are named, and reach no checkpoint."""
import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from mmengine.hooks import Hook

from mmcluspro.engine.hooks.finite import finite_each
from mmcluspro.engine.resuming import find_resumable
from mmcluspro.utils.safe_load import non_finite_tensors, safe_load


class Damage(Hook):
    """Puts NaN into one part of one iteration."""

    priority = 'VERY_HIGH'

    def __init__(self, part, iteration):
        self.part, self.iteration = part, iteration

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        if runner.iter != self.iteration:
            return
        if self.part == 'image':
            data_batch['inputs'] = [image.float() for image in data_batch['inputs']]
            data_batch['inputs'][3][0, 5, 5] = torch.nan
        elif self.part == 'neck':
            handle = runner.model.neck.register_forward_hook(
                lambda module, inputs, output: handle.remove() or replace(
                    output, attribute=output.attribute.index_fill(0, torch.tensor([1]), torch.inf)),
                prepend=True)
        elif self.part == 'loss':
            whole = runner.model.head.loss

            def loss(*args, **kwargs):
                runner.model.head.loss = whole
                losses = whole(*args, **kwargs)
                return {**losses, 'obj_loss': losses['obj_loss'] * torch.inf}

            runner.model.head.loss = loss

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        if self.part == 'weights' and runner.iter == self.iteration:
            next(p for p in runner.model.parameters() if p.requires_grad).data[0] = torch.nan
        if self.part == 'prototypes' and runner.iter == self.iteration:
            runner.model.head.banks['obj'].prototypes[7] = torch.nan


def train(run, folder, part, iteration, interval, name='cluspro_shapes.py', **options):
    runner = run(folder, name, **{
        'default_hooks.finite.interval': interval, 'train_cfg.val_interval': 5,
        'train_dataloader.batch_size': 16, 'train_dataloader.dataset.indices': 48, **options})
    runner.register_hook(Damage(part, iteration))
    with pytest.raises(ValueError, match='NaN or infinity') as caught:
        runner.train()
    return runner, str(caught.value)


@pytest.mark.parametrize('part, interval, stage', [
    ('image', 1, r'the prepared images \(epoch 2; 1 of 16 images: sample \d+\)'),
    ('image', 100, r'the prepared images \(epoch 2; 1 of 16 images: sample \d+\)'),
    ('neck', 2, r'the features of the neck \(epoch 2; 1 of 16 images: sample \d+\)'),
    ('loss', 2, r'the loss \(epoch 2; (loss, obj_loss|obj_loss, loss)\)'),
    ('weights', 2, r'the trained weights \(epoch 2; \S+\)'),
    ('prototypes', 1, r'the prototypes \(epoch 2; head\.banks\.obj\.prototypes\)'),
])
def test_training_stops_and_names_iteration_stage_and_files(run, tmp_path, part, interval, stage):
    runner, message = train(run, tmp_path, part, 4, interval)
    assert message.startswith('Training stops at iteration 5: NaN or infinity in ')
    assert re.search(stage, message), message
    assert f'last good checkpoint is {tmp_path / "epoch_1.pth"}' in message
    if interval == 1:
        assert runner.iter == 4
    report = (tmp_path / 'non_finite.txt').read_text().splitlines()
    assert len(report) == 2 + 16 and all(line.startswith('sample ') for line in report[2:])
    # What is left is good, and the run can go on from it.
    assert [path.name for path in tmp_path.glob('*.pth')] == ['epoch_1.pth']
    assert not non_finite_tensors(safe_load(tmp_path / 'epoch_1.pth'))
    assert find_resumable(tmp_path).name == 'epoch_1.pth'


def test_the_image_that_is_named_is_the_damaged_one(run, tmp_path):
    _, message = train(run, tmp_path, 'image', 0, 1, 'baseline_shapes.py')
    report = (tmp_path / 'non_finite.txt').read_text().splitlines()
    assert f'1 of 16 images: {report[2 + 3]})' in message
    assert 'No checkpoint was written yet' in message


def test_iterations_are_checked_before_they_are_saved(run, tmp_path):
    """By iteration, the saving comes before the flags are due."""
    _, message = train(run, tmp_path, 'loss', 2, 100, 'baseline_shapes.py', **{
        'train_cfg': dict(_delete_=True, by_epoch=False, max_iters=4, val_interval=100),
        'param_scheduler': None,
        'default_hooks.checkpoint': dict(type='CheckpointHook', by_epoch=False, interval=2)})
    assert 'stops at iteration 3' in message
    assert {path.name for path in tmp_path.glob('*.pth')} == {'iter_2.pth'}


def test_a_checkpoint_with_nan_is_neither_found_nor_loaded(run, tmp_path, capsys):
    runner = run(tmp_path, **{'train_cfg.val_interval': 5, 'train_dataloader.dataset.indices': 64})
    runner.train()
    saved = safe_load(tmp_path / 'epoch_2.pth')
    key = next(key for key in saved['state_dict'] if 'contexts' in key)
    saved['state_dict'][key][0] = torch.inf
    torch.save(saved, tmp_path / 'epoch_2.pth')

    assert find_resumable(tmp_path).name == 'epoch_1.pth'
    assert 'epoch_2.pth holds NaN or infinity' in capsys.readouterr().err
    again = run(tmp_path / 'again', resume=True, load_from=str(tmp_path / 'epoch_2.pth'),
                **{'train_dataloader.dataset.indices': 64})
    with pytest.raises(ValueError, match=f'epoch_2.pth holds NaN or infinity in state_dict.{key}'):
        again.train()


def test_images_that_spoil_the_initialisation_are_named(run, tmp_path, monkeypatch):
    runner = run(tmp_path, 'cluspro_shapes.py')
    runner.model.neck.register_forward_hook(
        lambda module, inputs, output: replace(
            output, attribute=output.attribute.index_fill(0, torch.tensor([2]), torch.nan)))
    with pytest.raises(ValueError, match='2 of 128 training images .* sample 2, sample 66'):
        runner.train()


@pytest.mark.slow
def test_all_ranks_stop_together_and_name_the_image_of_one(tmp_path):
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    done = subprocess.run(
        [sys.executable, '-m', 'torch.distributed.run', '--nproc_per_node=2',
         '--master_addr=127.0.0.1', f'--master_port={port}',
         str(Path(__file__).with_name('finite_worker.py')), str(tmp_path), '5'],
        capture_output=True, text=True, check=False, env={**os.environ, 'OMP_NUM_THREADS': '1'})
    said = [line for line in done.stderr.splitlines() if 'Training stops at iteration' in line]
    assert len(said) == 2 and len(set(said)) == 1, done.stderr[-3000:]
    report = (tmp_path / 'non_finite.txt').read_text().splitlines()
    assert f'iteration 3: NaN or infinity in the prepared images (epoch 1; 1 of 8 images: '\
        f'{report[2 + 5]})' in said[0]
    assert not list(tmp_path.glob('*.pth'))


@pytest.mark.parametrize('bad', [torch.nan, torch.inf, -torch.inf])
def test_every_tensor_is_looked_at(bad):
    tensors = [torch.randn(3, 4), torch.zeros(()), torch.randn(5), torch.ones(2, 2, 2)]
    assert finite_each(tensors).all()
    for place in range(4):
        spoiled = [tensor.clone() for tensor in tensors]
        spoiled[place].view(-1)[-1] = bad
        assert finite_each(spoiled).tolist() == [i != place for i in range(4)]
    state = {'state_dict': {'w': torch.ones(2), 'n': torch.ones(2).long()},
             'optimizer': {'state': {0: {'exp_avg': torch.tensor([1.0, bad])}}, 'lr': [0.1]}}
    assert non_finite_tensors(state) == ['optimizer.state.0.exp_avg']
    masks = {'state_dict': {'attn_mask': torch.tensor([0.0, bad])}}
    assert non_finite_tensors(masks) == (['state_dict.attn_mask'] if bad != bad else [])
