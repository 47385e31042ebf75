"""Config, process group, ranks and generators before and around a training."""
import argparse
import multiprocessing
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.config import Config, ConfigDict
from mmengine.dataset import DefaultSampler
from torch.utils.data import DataLoader, SequentialSampler

from mmcluspro.engine.configs import check_shared_memory, place_clip, place_data
from mmcluspro.engine.launch import apply_options, load_config, start_cpu_process_group
from mmcluspro.engine.messages import ConfigError, message, raised_here
from mmcluspro.engine.resuming import Position, endless, generator_state, restore_generators
from mmcluspro.engine.signals import StopSignals


def flags(config, **own):
    return argparse.Namespace(**dict(dict(
        config=str(config), dataset=None, local_rank=0, launcher='none', work_dir=None,
        no_pin_memory=False, log='full', cfg_options=None), **own))


@pytest.mark.parametrize('workers, persistent, found', [
    (2, True, True), (0, True, None), (2, False, None)])
def test_loaders_get_defaults_that_a_config_can_override(workers, persistent, found, tmp_path):
    path = tmp_path / 'mine.py'
    path.write_text(f'train_dataloader = dict(num_workers={workers}, collate_fn=dict(type="own"))\n'
                    'val_dataloader = None\ntest_dataloader = dict(pin_memory=True)\n')
    cfg = load_config(flags(path), ('train', 'val', 'test'), persistent)
    assert cfg.train_dataloader.pin_memory is torch.cuda.is_available()
    assert cfg.train_dataloader.collate_fn.type == 'own'
    assert cfg.train_dataloader.get('persistent_workers') is found
    assert cfg.val_dataloader is None and cfg.test_dataloader.pin_memory is True
    assert cfg.work_dir == './work_dirs/mine'
    cfg = load_config(flags(path, no_pin_memory=True), ('train', 'test'), persistent)
    assert cfg.train_dataloader.pin_memory is cfg.test_dataloader.pin_memory is False


def test_an_error_of_ours_in_options_keeps_its_words():
    with pytest.raises(ConfigError, match='^The config field data must be a dict such as'):
        apply_options(Config(dict(model={})), dict(data='photos'))
    with pytest.raises(ConfigError, match=r'^--cfg-options a.5=1 does not fit the config: '):
        apply_options(Config(dict(a=[1, 2])), {'a.5': 1})


JOIN = """
import torch
from mmengine.config import Config
from torch import distributed
from mmcluspro.engine.launch import start_cpu_process_group
cfg = Config(dict(launcher='slurm', env_cfg=dict(dist_cfg=dict(port=PORT, timeout=60))))
start_cpu_process_group(cfg)
assert cfg.model_wrapper_cfg == dict(
    type='MMDistributedDataParallel', broadcast_buffers=False, device_ids=None), cfg
group = distributed.group.WORLD
again = Config(dict(launcher='pytorch', model_wrapper_cfg=dict(find_unused_parameters=True)))
start_cpu_process_group(again)
assert distributed.group.WORLD is group and again.model_wrapper_cfg.find_unused_parameters
total = torch.tensor(distributed.get_rank() + 1)
distributed.all_reduce(total)
print(distributed.get_backend(), distributed.get_rank(), int(total), flush=True)
distributed.barrier()
distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_slurm_without_gpus_joins_a_gloo_group(tmp_path):
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        (tmp_path / 'join.py').write_text(JOIN.replace('PORT', str(probe.getsockname()[1])))
    tasks = [subprocess.Popen(
        [sys.executable, str(tmp_path / 'join.py')], stdout=subprocess.PIPE, text=True,
        env={**os.environ, 'CUDA_VISIBLE_DEVICES': '', 'SLURM_PROCID': str(rank),
             'SLURM_NTASKS': '2', 'SLURM_LOCALID': str(rank)}) for rank in range(2)]
    assert [task.communicate(timeout=120)[0].strip() for task in tasks] == ['gloo 0 3', 'gloo 1 3']


def test_mpi_without_gpus_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    with pytest.raises(ValueError, match="launcher='mpi' needs GPUs. On CPUs use --launcher "
                       'pytorch or slurm.'):
        start_cpu_process_group(Config(dict(launcher='mpi')))


def test_a_gpu_has_its_generator_saved_and_restored(monkeypatch):
    restored = []
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'get_rng_state', lambda: torch.tensor([1, 2]))
    monkeypatch.setattr(torch.cuda, 'set_rng_state', lambda state: restored.append(state.tolist()))
    state = generator_state()
    numbers = random.random(), np.random.rand(), float(torch.rand(()))
    restore_generators(state)
    assert restored == [[1, 2]]
    assert (random.random(), np.random.rand(), float(torch.rand(()))) == numbers
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    restore_generators(state)
    assert restored == [[1, 2]] and 'cuda' not in generator_state()


def test_generators_of_a_rank_that_was_not_there_are_left_alone():
    state, numbers = generator_state(), torch.rand(4)
    Position(1, 2, [state]).restore()
    assert torch.rand(2).equal(numbers[:2])
    Position(1, 2, []).restore()
    assert torch.rand(2).equal(numbers[2:])


@pytest.mark.parametrize('shuffled', [True, False])
def test_each_epoch_has_its_order_where_the_sampler_has_one(shuffled):
    sampler = DefaultSampler(range(9), seed=0) if shuffled else SequentialSampler(range(9))
    batches = endless(DataLoader(range(9), 3, sampler=sampler), SimpleNamespace(seed=None))
    for epoch in range(3):
        if shuffled:
            sampler.set_epoch(epoch)
        order = list(sampler)
        if shuffled:
            sampler.set_epoch(0)
        assert torch.cat([next(batches) for _ in range(3)]).tolist() == order


def test_a_forked_worker_ends_by_sigterm_and_ignores_the_rest():
    with StopSignals().handled():
        worker = multiprocessing.get_context('fork').Process(target=time.sleep, args=(60, ))
        worker.start()
        os.kill(worker.pid, signal.SIGUSR1)
        worker.join(0.3)
        assert worker.is_alive()
        worker.terminate()
        worker.join(30)
    assert worker.exitcode == -signal.SIGTERM


def test_only_parts_with_a_width_get_that_of_another_clip():
    cfg = Config(dict(clip=dict(arch='ViT-B-32'), model=dict(
        backbone=dict(type='mmcluspro.CLIPVision'), neck=dict(type='x', in_channels=768),
        head=dict(type='y', text=dict(type='mmcluspro.CLIPText')))))
    place_clip(cfg)
    assert cfg.model.neck.in_channels == 512 and 'in_channels' not in cfg.model.head
    assert cfg.model.backbone.arch == cfg.model.head.text.arch == 'ViT-B-32'


class AnyFields:
    """A dataset of the user's whose labels may depend on anything."""

    @classmethod
    def make_space(cls, **fields):
        return fields


@pytest.mark.parametrize('kind', ['no_package.NoSuchDataset', AnyFields])
def test_fields_of_unknown_data_all_reach_the_labels(kind):
    data = dict(type=kind, data_root='photos', colour='red')
    cfg = Config(dict(model={}))
    cfg.data = ConfigDict(data)
    place_data(cfg)
    assert cfg.model.space == data


def test_data_without_a_field_space_changes_model_and_loaders():
    cfg = Config(dict(model=dict(space=dict(type='mmcluspro.TableCZSL', data_root='a')),
                      train_dataloader=dict(dataset=dict(
                          type='mmcluspro.TableCZSL', data_root='a', phase='train')),
                      data=dict(data_root='b')))
    place_data(cfg)
    assert cfg.model.space.data_root == cfg.train_dataloader.dataset.data_root == 'b'
    assert cfg.train_dataloader.dataset.phase == 'train' and 'space' not in cfg


def test_an_error_that_mmengine_wraps_is_explained_by_its_cause():
    inner = None
    try:
        apply_options(Config(dict(model={})), dict(data='photos'))
    except ConfigError as error:
        inner = error
    outer = ConfigError('class `X` in mmcluspro/x.py: something')
    outer.__cause__ = inner
    assert message(outer).startswith('The config field data must be a dict')
    other = KeyError('class `X` in y.py')
    other.__cause__ = inner
    assert message(other) is None and raised_here(other) is False


class Fatal(torch.utils.data.Dataset):
    """A dataset whose worker is killed, or whose batch finds no shared memory."""

    def __init__(self, kill):
        self.kill = kill

    def __len__(self):
        return 8

    def __getitem__(self, place):
        if self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError('unable to allocate shared memory(shm) for file </torch_7_8_9>: No '
                           'space left on device (28)')


@pytest.mark.parametrize('kill, words', [
    (True, r'A dataloader worker \(process [\d, ]+\) was ended by something else.*num_workers=1'),
    (False, r'Dataloader workers need shared memory .*shm-size=1g.*num_workers=0')])
def test_a_lost_worker_of_a_loader_says_what_to_do(kill, words):
    with pytest.raises(RuntimeError) as caught:
        list(DataLoader(Fatal(kill), num_workers=1))
    text = message(caught.value)
    assert re.match(words, text) and '--resume' in text and '\n' not in text
    assert message(RuntimeError('another')) is None


def test_workers_without_room_for_their_semaphores_are_refused(monkeypatch):
    cfg = Config(dict(train_dataloader=dict(num_workers=2), val_dataloader=dict(num_workers=0)))
    made = []

    def full():
        made.append(1)
        raise OSError(28, 'No space left on device')

    check_shared_memory(cfg)
    monkeypatch.setattr('mmcluspro.engine.configs.Lock', full)
    with pytest.raises(ValueError, match='/dev/shm.*num_workers=0'):
        check_shared_memory(cfg)
    check_shared_memory(Config(dict(train_dataloader=dict(num_workers=0))))
    assert len(made) == 1
