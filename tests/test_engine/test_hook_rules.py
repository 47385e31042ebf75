"""What hooks do at the edges: other ranks, missing parts, wrong fields."""
import io
from types import SimpleNamespace

import pytest
import torch
from mmengine.fileio import LocalBackend
from mmengine.hooks import CheckpointHook
from torch import nn

from mmcluspro.engine.hooks import checkpoint_hook as module
from mmcluspro.engine.hooks import stop_hook
from mmcluspro.engine.hooks.checkpoint_hook import ATOMIC, STOP_FILE, SafeCheckpointHook
from mmcluspro.engine.hooks.console_hook import ConsoleHook
from mmcluspro.engine.hooks.console_text import _worst, test_table, weight_files
from mmcluspro.engine.hooks.finite_hook import FiniteHook
from mmcluspro.engine.hooks.labels_hook import LabelsHook
from mmcluspro.engine.hooks.memory_hook import device_bytes
from mmcluspro.engine.hooks.prototype_hook import PrototypeHook
from mmcluspro.engine.hooks.stop_hook import StopHook
from mmcluspro.engine.loops import EpochLoop, IterLoop
from mmcluspro.engine.signals import STOP, Stopped

test_table.__test__ = False


@pytest.mark.parametrize('hook, fields, words', [
    (StopHook, dict(interval=0), 'StopHook.interval must be positive, got 0.'),
    (FiniteHook, dict(interval=-1), 'FiniteHook.interval must be positive, got -1.'),
    (PrototypeHook, dict(interval=0), 'PrototypeHook.interval must be positive, got 0.'),
    (PrototypeHook, dict(check_interval=0),
     'PrototypeHook.check_interval must be positive, got 0.'),
])
def test_an_interval_below_one_is_refused(hook, fields, words):
    with pytest.raises(ValueError) as caught:
        hook(**fields)
    assert str(caught.value) == words


# Checkpoints.

def saver(folder, **fields):
    """A hook whose `before_train` ran, without mmengine's."""
    hook = SafeCheckpointHook(**fields)
    hook.out_dir, hook.file_backend = str(folder), LocalBackend()
    return hook


def runner_of(folder, resume=False, **fields):
    hub = SimpleNamespace(runtime_info=fields.pop('info', {}))
    hub.update_info = hub.runtime_info.__setitem__
    return SimpleNamespace(work_dir=str(folder), _resume=resume, message_hub=hub, epoch=2, iter=8,
                           logger=SimpleNamespace(warning=lambda text: None), **fields)


@pytest.mark.parametrize('fields, found', [
    ({}, dict(backend=ATOMIC)), (dict(backend_args=dict(backend='local')), dict(backend='local')),
    (dict(out_dir='s3://bucket'), None)])
def test_files_of_this_machine_are_written_atomically(fields, found, tmp_path, monkeypatch):
    monkeypatch.setattr(CheckpointHook, 'before_train', lambda self, runner: None)
    hook = SafeCheckpointHook(**fields)
    hook.out_dir = hook.out_dir or str(tmp_path)
    hook.before_train(runner_of(tmp_path))
    assert hook.backend_args == found


@pytest.mark.parametrize('rows, best', [
    ([(40, 0, 0), (60, 0, 0), (50, 0, 0)], 2),      # no unseen images
    ([(0, 30, 0), (0, 30, 0), (0, 20, 0)], 1),      # no seen ones, and a tie
    ([(90, 0, 0), (20, 30, 1e-6), (80, 0, 0)], 2),  # an AUC that is not 0 comes first
    ([(90, 10, 5), (20, 30, 5), (99, 99, 4)], 1)])  # others are compared as they are
def test_accuracy_decides_among_epochs_without_an_auc(rows, best, tmp_path):
    hook = saver(tmp_path, save_best='czsl/auc')
    runner = runner_of(tmp_path, save_checkpoint=lambda folder, filename, **_: None)
    runner.message_hub.get_info = runner.message_hub.runtime_info.__getitem__
    runner.logger.info = lambda text: None
    for runner.epoch, row in enumerate(rows, 1):
        keys = 'czsl/seen', 'czsl/unseen', 'czsl/auc'
        hook._save_best_checkpoint(runner, dict(zip(keys, map(float, row))))
    found = runner.message_hub.runtime_info
    assert found['best_ckpt'] == str(tmp_path / f'best_czsl_auc_epoch_{best}.pth')
    assert found['best_score'] == pytest.approx(rows[best - 1][2], abs=1e-6)


def test_only_parts_of_dead_writers_are_removed(tmp_path, monkeypatch):
    for name in ('dead.part', 'alive.part', 'epoch_1.pth'):
        (tmp_path / name).write_text('')
    monkeypatch.setattr(CheckpointHook, 'before_train', lambda self, runner: None)
    monkeypatch.setattr(module, 'is_abandoned', lambda path: path.name == 'dead.part')
    saver(tmp_path).before_train(runner_of(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ['alive.part', 'epoch_1.pth']


@pytest.mark.parametrize('resume, left', [(True, ['epoch_2.pth']),
                                          (False, ['epoch_1.pth', 'epoch_2.pth'])])
def test_resuming_removes_the_epoch_that_a_killed_run_had_replaced(resume, left, tmp_path,
                                                                   monkeypatch):
    for name in left + ['epoch_1.pth']:
        (tmp_path / name).write_text('')

    def before_train(self, runner):
        self.keep_ckpt_ids = [2]

    monkeypatch.setattr(CheckpointHook, 'before_train', before_train)
    hook = saver(tmp_path, interval=1, max_keep_ckpts=1)
    hook.filename_tmpl = 'epoch_{}.pth'
    hook.before_train(runner_of(tmp_path, resume))
    assert sorted(path.name for path in tmp_path.iterdir()) == left


def test_a_checkpoint_inside_an_epoch_needs_our_loops():
    runner = SimpleNamespace(_train_loop=object(), _resume=True)
    with pytest.raises(ValueError, match="inside an epoch, .*runner_type='mmcluspro."
                       r"ResumableRunner'.*or resume from an epoch_\*.pth"):
        SafeCheckpointHook().after_load_checkpoint(runner, dict(meta=dict(position={})))
    runner._resume = False  # only the weights are wanted
    SafeCheckpointHook().after_load_checkpoint(runner, dict(meta=dict(position={})))


@pytest.mark.parametrize('first', [True, False])
def test_the_first_rank_notes_the_file_of_a_stop(first, tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(module, 'is_main_process', lambda: first)
    runner = runner_of(tmp_path, train_loop=SimpleNamespace(
        position=lambda batches: SimpleNamespace(_asdict=lambda: dict(batches=batches))))
    runner.save_checkpoint = lambda folder, name, **own: saved.append((name, own['meta']))
    path = saver(tmp_path).save_inside_epoch(runner, 3, 11)
    assert path == str(tmp_path / 'iter_11.pth')
    assert saved == [('iter_11.pth', dict(epoch=2, iter=11, position=dict(batches=3)))]
    assert runner.message_hub.runtime_info[STOP_FILE] == 'iter_11.pth'
    note = tmp_path / 'last_checkpoint'
    assert note.exists() is first and (not first or note.read_text() == path)


@pytest.mark.parametrize('there', [True, False])
def test_the_file_of_a_stop_goes_when_the_epoch_is_saved(there, tmp_path, monkeypatch):
    order = []
    stop_file = tmp_path / 'iter_7.pth'
    if there:
        stop_file.write_text('')
    monkeypatch.setattr(CheckpointHook, '_save_checkpoint_with_step',
                        lambda self, runner, step, meta: order.append(stop_file.exists()))
    runner = runner_of(tmp_path, info={STOP_FILE: 'iter_7.pth'}, train_loop=object())
    hook = saver(tmp_path)
    hook._save_checkpoint_with_step(runner, 3, {})
    assert order == [there] and not stop_file.exists()
    assert runner.message_hub.runtime_info[STOP_FILE] == ''
    assert hook.file_backend.waiting is None


def test_a_file_that_vanished_before_its_removal_is_no_error(tmp_path):
    hook = saver(tmp_path)
    (tmp_path / 'old.pth').write_text('')
    with hook.file_backend.later():
        for name in ('gone.pth', 'old.pth'):
            hook.file_backend.remove(str(tmp_path / name))
        assert (tmp_path / 'old.pth').exists()
    assert not (tmp_path / 'old.pth').exists()


# Stopping.

@pytest.fixture
def stop(monkeypatch):
    monkeypatch.setattr(STOP, 'received', 'SIGTERM')
    monkeypatch.setattr(STOP, 'deferred', False)
    return STOP


class FakeSaver(SafeCheckpointHook):
    """Notes what it is asked to save."""

    def __init__(self, kept):
        self.kept, self.saved, self.last_ckpt = kept, [], 'epoch_2.pth'

    def keeps(self, step):
        return step == self.kept

    def _save_checkpoint(self, runner):
        self.saved.append(runner.epoch + 1)
        self.last_ckpt = f'epoch_{runner.epoch + 1}.pth'


@pytest.mark.parametrize('hooks, loop', [
    ([], EpochLoop), ([], IterLoop), ([FakeSaver(0)], type('OwnLoop', (), {}))])
def test_without_a_saver_or_our_loop_a_stop_saves_nothing(hooks, loop, stop):
    runner = SimpleNamespace(hooks=hooks, train_loop=object.__new__(loop))
    with pytest.raises(Stopped) as stopped:
        StopHook().stop_inside_epoch(runner, 1, 5)
    assert stopped.value.reason.startswith('Stopped by SIGTERM. Run the same command')


@pytest.mark.parametrize('kept, saved, words', [
    (3, [], 'saved epoch_2.pth'), (2, [3], 'saved epoch_3.pth')])
def test_a_stop_between_epochs_saves_what_is_not_saved(kept, saved, words, stop):
    hook = FakeSaver(kept)
    runner = SimpleNamespace(hooks=[hook], train_loop=object.__new__(EpochLoop), epoch=2)
    with pytest.raises(Stopped) as stopped:
        StopHook().after_train_epoch(runner)
    assert hook.saved == saved and words in stopped.value.reason


def test_a_signal_in_the_last_validation_stops_after_training(stop):
    with pytest.raises(Stopped):
        StopHook().after_train(SimpleNamespace())
    stop.received = None
    StopHook().after_train(SimpleNamespace())


def test_a_rank_learns_of_the_signal_of_another(stop, monkeypatch):
    stop.received = None
    monkeypatch.setattr(stop_hook, 'get_world_size', lambda: 2)
    monkeypatch.setattr(stop_hook, 'all_reduce', lambda asked, op: asked.fill_(1))
    assert stop_hook._asked() and STOP.received == 'a signal to another rank'
    STOP.received = 'SIGHUP'
    assert stop_hook._asked() and STOP.received == 'SIGHUP'


# The console.

def test_other_ranks_say_nothing(capsys):
    hook, runner = ConsoleHook(), SimpleNamespace(rank=1)
    hook.before_train(runner)
    hook.before_train_epoch(runner)
    hook.after_train_iter(runner, 0, outputs=dict(loss=1.0))
    hook.after_train_epoch(runner)
    hook.after_val_epoch(runner, {})
    hook.after_test_epoch(runner, {})
    assert hook._bar is None and capsys.readouterr() == ('', '')


class Terminal(io.StringIO):

    def isatty(self):
        return True


def test_a_terminal_sees_a_bar_with_the_loss_and_a_line_without_a_validation(monkeypatch, capsys):
    screen = Terminal()
    monkeypatch.setattr('sys.stderr', screen)
    runner = SimpleNamespace(
        rank=0, max_iters=4, iter=0, epoch=0, max_epochs=2, val_loop=None, train_dataloader=[1, 2],
        train_loop=object(), message_hub=SimpleNamespace(runtime_info={}, log_scalars={
            'train/loss': SimpleNamespace(mean=lambda window: 0.25 * window)}))
    hook = ConsoleHook()
    hook.before_train_epoch(runner)
    hook._bar.mininterval = 0
    hook.after_train_iter(runner, 0, outputs=dict(loss=torch.tensor(1.5)))
    hook.after_train_epoch(runner)
    assert 'epoch 1/2' in screen.getvalue() and 'loss=1.500' in screen.getvalue()
    header, row = capsys.readouterr().out.strip('\n').splitlines()
    assert header.split()[:2] == ['epoch', 'loss'] and row.split() == ['1', '0.500']


def test_data_of_a_phase_that_does_not_run_is_not_described(capsys, tmp_path):
    class Data(list):
        pass

    data = Data('xyz')
    data.space = type('Space', (), dict(seen=torch.tensor([True, False]), attributes='a',
                                        objects='bc', __len__=lambda self: 2))()
    loader = SimpleNamespace(dataset=data, batch_size=16)
    model = nn.Linear(2, 2)
    model.head = nn.Linear(1, 1)
    model.head.device = 'cpu'
    runner = SimpleNamespace(
        rank=0, model=model, _train_dataloader=loader, _train_loop=1, train_dataloader=loader,
        _val_dataloader=loader, _val_loop=None, _test_dataloader=None, _test_loop=None,
        log_dir=str(tmp_path), timestamp='now', iter=0)
    ConsoleHook().before_train(runner)
    said = capsys.readouterr().out
    assert 'train      3 images, 1 seen and 1 unseen pairs of 1 attributes and 2 objects' in said
    assert '\nval' not in said and '\ntest' not in said and 'resumed' not in said


def test_a_test_without_files_has_numbers_only(tmp_path):
    text = test_table({'predict/seen': 1.0, 'predict/unseen': 2.0}, 5, tmp_path)
    assert 'worst pairs' not in text and 'tables in' not in text
    assert text.splitlines()[1] == 'test of 5 images, in percent'
    assert _worst(tmp_path / 'test_pairs.csv') == ''


@pytest.mark.parametrize('own, inner, text, found', [
    (None, 'a.pt', 'a.pt', dict(backbone='a.pt', text='a.pt')),
    ('b c.pt', 'a.pt', None, dict(backbone='a.pt', projection='b c.pt')),
    ('a.pt', None, 'b c.pt', dict(backbone='a.pt', text='b c.pt')),
    (None, None, 'gone.pt', {})])
def test_files_of_frozen_towers_are_found_in_a_config(own, inner, text, found, tmp_path,
                                                      monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ('a.pt', 'b c.pt'):
        (tmp_path / name).write_text('')
    backbone = dict(type='P', pretrained=own, **(
        dict(backbone=dict(pretrained=inner)) if inner else {}))
    assert weight_files(dict(backbone=backbone, head=dict(text=dict(pretrained=text)))) == found


# Others.

def test_parts_of_different_lengths_are_no_rows_of_a_batch():
    hook = FiniteHook()
    hook._add('features', (torch.ones(2, 3), torch.ones(4, 3)))
    hook._add('labels', torch.ones(2, dtype=torch.long))
    assert hook._stages == []
    hook._add('features', (torch.ones(2, 3), torch.tensor([[1.], [float('nan')]])))
    (name, _, flags), = hook._stages
    assert name == 'features' and flags.tolist() == [True, False]


def test_a_checkpoint_with_nan_is_not_written():
    hook = FiniteHook()
    runner = SimpleNamespace(iter=7, work_dir='.', model=nn.Linear(1, 1), hooks=[], cfg={},
                             message_hub=SimpleNamespace(runtime_info={}))
    bad = dict(state_dict={'head.weight': torch.tensor([float('inf')])})
    with pytest.raises(ValueError, match='NaN or infinity in .*head.weight.* at iteration 7: the '
                       'checkpoint is not written'):
        hook.before_save_checkpoint(runner, bad)
    hook.before_save_checkpoint(runner, dict(state_dict={'head.weight': torch.ones(1)}))


def test_the_memory_of_a_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'get_device_properties',
                        lambda device: SimpleNamespace(total_memory=123))
    assert device_bytes(torch.device('cuda', 0)) == 123
    assert device_bytes(torch.device('cpu')) > 1 << 28


def test_a_checkpoint_without_labels_is_taken_as_it_is():
    LabelsHook().after_load_checkpoint(SimpleNamespace(), dict(meta={}))
