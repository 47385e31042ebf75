"""Config, process group, ranks and generators before and around a training."""
import argparse
import os
import random
import re
import signal
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.config import Config, ConfigDict
from mmengine.dist import get_rank
from mmengine.runner import EpochBasedTrainLoop

from mmcluspro.engine import ranks, signals
from mmcluspro.engine import resuming as loops
from mmcluspro.engine.configs import (
    _of_the_labels,
    check_shared_memory,
    place_clip,
    place_data,
)
from mmcluspro.engine.launch import apply_options, load_config, start_cpu_process_group
from mmcluspro.engine.messages import ConfigError, message, raised_here
from mmcluspro.engine.resuming import generator_state, restore_generators
from mmcluspro.engine.runner import ResumableRunner
from mmcluspro.engine.signals import STOP, StopSignals
from mmcluspro.utils.locks import _busy


def flags(config, **own):
    return argparse.Namespace(**dict(dict(
        config=str(config), dataset=None, local_rank=0, launcher='none', work_dir=None,
        no_pin_memory=False, log='full', cfg_options=None), **own))


@pytest.mark.parametrize('workers, persistent, found', [
    (2, True, True), (0, True, None), (2, False, None)])
def test_loaders_get_defaults_that_a_config_can_override(workers, persistent, found, tmp_path,
                                                         monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    path = tmp_path / 'mine.py'
    path.write_text(f'train_dataloader = dict(num_workers={workers}, collate_fn=dict(type="own"))\n'
                    'val_dataloader = None\n')
    cfg = load_config(flags(path), ('train', 'val', 'test'), persistent)
    assert cfg.train_dataloader.pin_memory is True
    assert cfg.train_dataloader.collate_fn.type == 'own'
    assert cfg.train_dataloader.get('persistent_workers') is found
    assert cfg.val_dataloader is None and 'test_dataloader' not in cfg
    assert cfg.work_dir == './work_dirs/mine'
    cfg = load_config(flags(path, no_pin_memory=True), ('train', ), persistent)
    assert cfg.train_dataloader.pin_memory is False


def test_an_error_of_ours_in_options_keeps_its_words():
    with pytest.raises(ConfigError, match='^The config field data must be a dict such as'):
        apply_options(Config(dict(model={})), dict(data='photos'))
    with pytest.raises(ConfigError, match=r'^--cfg-options a.5=1 does not fit the config: '):
        apply_options(Config(dict(a=[1, 2])), {'a.5': 1})


@pytest.fixture
def no_group(monkeypatch):
    """Notes the groups that would be joined; the environment is put back."""
    joined = []
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    monkeypatch.setattr(torch.distributed, 'init_process_group',
                        lambda backend, timeout: joined.append((backend, timeout.seconds)))
    with pytest.MonkeyPatch.context() as patch:
        for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'MASTER_PORT', 'MASTER_ADDR'):
            patch.setenv(name, 'x')
            patch.delenv(name)
        yield joined


def test_slurm_without_gpus_joins_a_gloo_group(no_group, monkeypatch):
    for name, value in dict(PROCID='3', NTASKS='4', LOCALID='1').items():
        monkeypatch.setenv(f'SLURM_{name}', value)
    cfg = Config(dict(launcher='slurm', env_cfg=dict(dist_cfg=dict(port=1234, timeout=60))))
    start_cpu_process_group(cfg)
    assert no_group == [('gloo', 60)]
    assert [os.environ[name] for name in (
        'RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'MASTER_PORT', 'MASTER_ADDR')] == [
            '3', '4', '1', '1234', '127.0.0.1']
    assert cfg.model_wrapper_cfg == dict(
        type='MMDistributedDataParallel', broadcast_buffers=False, device_ids=None)


def test_a_group_that_is_there_is_kept(no_group, monkeypatch):
    monkeypatch.setattr(torch.distributed, 'is_initialized', lambda: True)
    cfg = Config(dict(launcher='pytorch', model_wrapper_cfg=dict(find_unused_parameters=True)))
    start_cpu_process_group(cfg)
    assert no_group == [] and cfg.model_wrapper_cfg.find_unused_parameters is True


def test_mpi_without_gpus_is_refused(no_group):
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


def test_tensors_are_compared_between_several_ranks_only(monkeypatch):
    x = torch.ones(3)
    ranks.require_same(dict(prototypes=x))  # one process: nothing to compare
    monkeypatch.setattr(ranks, 'get_world_size', lambda: 2)
    monkeypatch.setattr(ranks, 'all_gather', lambda sums: [sums, sums + 1])
    ranks.require_same({})
    with pytest.raises(RuntimeError, match='^prototypes of rank 1 differ from those of rank 0'):
        ranks.require_same(dict(prototypes=x))


def test_generators_of_a_rank_that_was_not_there_are_left_alone(monkeypatch):
    restored = []
    monkeypatch.setattr(loops, 'restore_generators', restored.append)
    position = loops.Position(1, 2, [dict(rank=0), dict(rank=1)])
    for rank in (1, 2):
        monkeypatch.setattr(loops, 'get_rank', lambda rank=rank: rank)
        position.restore()
    assert restored == [dict(rank=1)]
    assert get_rank() == 0


def broken():
    raise RuntimeError('DataLoader worker is killed by signal')
    yield


@pytest.mark.parametrize('received, world, asked', [
    (None, 1, []), ('SIGTERM', 2, []),
    ('SIGTERM', 1, [('stop_inside_epoch', dict(batches=3, step=7))])])
def test_workers_that_a_signal_ended_stop_the_training(received, world, asked, monkeypatch):
    calls = []
    loop = object.__new__(loops.EpochLoop)
    loop._iter = 7
    loop._runner = SimpleNamespace(call_hook=lambda name, **own: calls.append((name, own)))
    monkeypatch.setattr(STOP, 'received', received)
    monkeypatch.setattr(loops, 'get_world_size', lambda: world)
    with pytest.raises(RuntimeError, match='killed by signal'):
        loop._next(broken(), 3)
    assert calls == asked


@pytest.mark.parametrize('with_epoch', [True, False])
def test_epochs_are_told_to_samplers_that_want_to_know(with_epoch):
    told = []
    sampler = SimpleNamespace(set_epoch=told.append) if with_epoch else SimpleNamespace()

    class Loader:
        def __iter__(self):
            return iter('ab')

    Loader.sampler = sampler
    batches = loops.endless(Loader(), SimpleNamespace(seed=None))
    assert ''.join(next(batches) for _ in range(5)) == 'ababa'
    assert told == ([0, 1, 2] if with_epoch else [])


@pytest.mark.parametrize('number, ended', [
    (signal.SIGTERM, [(signal.SIGTERM, signal.SIG_DFL)]), (signal.SIGUSR1, [])])
def test_a_forked_worker_ends_by_sigterm_and_ignores_the_rest(number, ended, monkeypatch):
    stop, done, killed = StopSignals(), [], []
    stop._owner = os.getpid() + 1
    monkeypatch.setattr(signals.signal, 'signal', lambda *args: done.append(args))
    monkeypatch.setattr(signals.os, 'kill', lambda *args: killed.append(args))
    stop._handle(number, None)
    assert stop.received is None and done == ended
    assert killed == [(os.getpid(), number) for _ in ended]


def test_a_train_cfg_with_a_type_is_built_as_it_says():
    runner = object.__new__(ResumableRunner)
    loop = object.__new__(EpochBasedTrainLoop)
    assert runner.build_train_loop(loop) is loop


def test_a_work_folder_in_use_without_a_note_says_so(tmp_path):
    with (tmp_path / 'lock').open('w+') as file:
        assert _busy('The work folder runs', file, 'choose another one') == (
            'The work folder runs is in use by another process. Wait for it, end it, or choose '
            'another one.')


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
    assert _of_the_labels(data) == ConfigDict(data)


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
        list(torch.utils.data.DataLoader(Fatal(kill), num_workers=1))
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
