"""Signals, locks and files: a training that ends at any moment goes on to the same bits."""
import os
import platform
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from mmengine.hooks import Hook

from mmcluspro.engine.hooks.checkpoints import AtomicBackend
from mmcluspro.engine.resuming import find_resumable, safe_load
from mmcluspro.engine.signals import RUN_AGAIN, STOP, Stopped
from mmcluspro.utils.locks import work_lock

SMALL = {'train_dataloader.batch_size': 32, 'train_dataloader.dataset.indices': 128}


@pytest.fixture(autouse=True)
def heard():
    """The signals are heard also where the tests were started with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def by_iter():
    # Made anew each time: merging takes _delete_ out of the dict.
    return {
        'train_cfg': dict(_delete_=True, by_epoch=False, max_iters=6, val_interval=3),
        'param_scheduler': None,
        'default_hooks.checkpoint.by_epoch': False,
        'default_hooks.checkpoint.interval': 3,
    }


class Signal(Hook):
    """Sends a signal to the process at one point of the training."""

    def __init__(self, number, point, count):
        self.number, self.point, self.count = number, point, count
        setattr(self, point, self.send)

    def send(self, runner, *args, **kwargs):
        if (runner.epoch if 'epoch' in self.point else runner.iter) == self.count:
            os.kill(os.getpid(), self.number)


def interrupted(run, folder, name, point, count, number=signal.SIGTERM, **options):
    runner = run(folder, name, **options)
    runner.register_hook(Signal(number, point, count))
    with pytest.raises(Stopped) as caught, STOP.handled():
        runner.train()
    assert caught.value.code == RUN_AGAIN
    return caught.value.reason


def resumed(run, folder, name, **options):
    torch.manual_seed(7)
    start = find_resumable(folder)
    runner = run(folder, name, resume=True, load_from=str(start), **options)
    torch.manual_seed(8)
    with STOP.handled():
        runner.train()
    return runner


def assert_same(first, second):
    ours, theirs = first.model.state_dict(), second.model.state_dict()
    assert ours.keys() == theirs.keys()
    for key in ours:
        assert ours[key].equal(theirs[key]), key
    for a, b in zip(first.optim_wrapper.optimizer.state.values(),
                    second.optim_wrapper.optimizer.state.values()):
        assert all(torch.equal(a[key], b[key]) for key in a)
    validations = [runner.message_hub.log_scalars['val/czsl/auc'].data[0].tolist()
                   for runner in (first, second)]
    assert validations[0] == validations[1]
    for what in ('best_score', 'best_ckpt'):
        assert Path(str(first.message_hub.get_info(what))).name == Path(
            str(second.message_hub.get_info(what))).name


@pytest.fixture(scope='module')
def whole(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp('whole')
    runners = {}
    for kind, options in (('epoch', {}), ('iter', by_iter())):
        runners[kind] = run(folder / kind, 'cluspro_shapes.py', **SMALL, **options)
        runners[kind].train()
    return runners


@pytest.mark.slow
@pytest.mark.parametrize('kind, point, count, file, number', [
    ('epoch', 'before_train_iter', 5, 'iter_6.pth', signal.SIGTERM),
    ('epoch', 'before_train_iter', 0, 'iter_1.pth', signal.SIGUSR1),
    ('epoch', 'before_train_iter', 3, 'epoch_1.pth', signal.SIGHUP),
    ('epoch', 'before_val_epoch', 1, None, signal.SIGTERM),
    ('iter', 'before_train_iter', 4, 'iter_5.pth', signal.SIGTERM),
    ('iter', 'before_train_iter', 2, 'iter_3.pth', signal.SIGTERM),
])
def test_a_stopped_run_goes_on_to_the_same_bits(run, whole, tmp_path, kind, point, count, file,
                                                number):
    options = SMALL if kind == 'epoch' else {**SMALL, **by_iter()}
    said = interrupted(run, tmp_path, 'cluspro_shapes.py', point, count, number, **options)
    assert signal.Signals(number).name in said and '--resume to continue' in said
    assert (f'saved {tmp_path / file}' in said) if file else 'saved' not in said
    assert find_resumable(tmp_path).name == (file or 'epoch_1.pth')

    host = platform.node().split('.')[0]
    half = tmp_path / f'epoch_9.pth.{host}-999999999-0123abcd.part'  # of a process that is dead
    half.write_bytes(b'half')
    options = SMALL if kind == 'epoch' else {**SMALL, **by_iter()}
    again = resumed(run, tmp_path, 'cluspro_shapes.py', **options)
    assert_same(whole[kind], again)
    left = {path.name for path in tmp_path.glob('*.pth')}
    assert left - {file} <= {path.name for path in Path(whole[kind].work_dir).glob('*.pth')}
    assert kind == 'iter' or not any(name.startswith('iter_') for name in left)
    assert not list(tmp_path.glob('*.part'))
    for path in tmp_path.glob('epoch_*.pth'):  # validated and saved again, best or not
        assert safe_load(path)['meta']['calibration'].keys() == {'closed', 'open'}


@pytest.mark.slow
def test_a_run_by_iteration_that_is_stopped_twice_in_a_row_goes_on_to_the_same_bits(
        run, whole, tmp_path):
    """In a validation, then after it was made up for: its file is saved before training goes on."""
    options = dict(resume=True, load_from=str(tmp_path / 'iter_3.pth'))
    interrupted(run, tmp_path, 'cluspro_shapes.py', 'before_val_epoch', 0, **SMALL, **by_iter())
    torch.manual_seed(7)
    interrupted(run, tmp_path, 'cluspro_shapes.py', 'before_train_epoch', 0, **SMALL, **by_iter(),
                **options)
    assert safe_load(tmp_path / 'iter_3.pth')['meta']['calibration']
    again = resumed(run, tmp_path, 'cluspro_shapes.py', **SMALL, **by_iter())
    assert_same(whole['iter'], again)


@pytest.mark.slow
def test_another_batch_size_inside_an_epoch_is_refused(run, tmp_path):
    interrupted(run, tmp_path, 'baseline_shapes.py', 'before_train_iter', 1, **SMALL)
    with pytest.raises(ValueError, match=r'after 2 of 4 batches .* now makes 8 batches'):
        resumed(run, tmp_path, 'baseline_shapes.py', **{**SMALL, 'train_dataloader.batch_size': 16})


class Ends:
    """A transform whose worker ends, as by a signal to the whole process group, or alone."""

    def __init__(self, together):
        self.together = together

    def __call__(self, data):
        time.sleep(1)  # the training waits for its first batch
        if self.together:
            os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize('together', [True, False])
def test_workers_that_a_signal_ended_stop_the_training(run, tmp_path, together):
    runner = run(tmp_path, **SMALL, **{'train_dataloader.num_workers': 1})
    runner.train_dataloader.dataset.pipeline.transforms.append(Ends(together))
    with pytest.raises(Stopped if together else RuntimeError) as caught, STOP.handled():
        runner.train()
    if together:
        assert f'Stopped by SIGTERM; saved {tmp_path / "iter_0.pth"}' in caught.value.reason
    else:
        assert 'DataLoader worker' in str(caught.value)
    assert (tmp_path / 'iter_0.pth').exists() == together


def test_a_signal_outside_of_training_ends_at_once():
    with pytest.raises(Stopped, match=str(RUN_AGAIN)), STOP.handled():
        os.kill(os.getpid(), signal.SIGUSR1)
        pytest.fail('the signal was deferred')
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


@pytest.mark.parametrize('stopped', [False, True], ids=['done', 'stopped'])
@pytest.mark.parametrize('ends', [False, True], ids=['in a program', 'of a command'])
def test_a_signal_after_the_end_does_not_change_the_exit_code(monkeypatch, stopped, ends):
    monkeypatch.setattr(STOP, 'ends_process', ends)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(Stopped) if stopped else nullcontext(), STOP.handled():
            if stopped:
                os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is (signal.SIG_IGN if ends else signal.SIG_DFL)
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, before if number == signal.SIGTERM else signal.SIG_DFL)


def test_an_error_leaves_the_signals_as_they_were(monkeypatch):
    monkeypatch.setattr(STOP, 'ends_process', True)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyError), STOP.handled():
        raise KeyError
    assert signal.getsignal(signal.SIGTERM) is before


def test_nohup_is_respected():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with STOP.handled():
            os.kill(os.getpid(), signal.SIGHUP)
        assert STOP.received is None
    finally:
        signal.signal(signal.SIGHUP, before)


HOLD = """
import sys, time
from mmcluspro.utils.locks import work_lock
with work_lock(sys.argv[1]):
    print('held', flush=True)
    time.sleep(60)
"""


def test_a_second_training_in_a_folder_names_the_first(tmp_path):
    other = subprocess.Popen([sys.executable, '-c', HOLD, str(tmp_path)], stdout=subprocess.PIPE,
                             text=True)
    assert other.stdout.readline() == 'held\n'
    with pytest.raises(ValueError, match=rf'in use by process {other.pid} on .*--work-dir'), \
            work_lock(tmp_path):
        pass
    other.kill()
    other.wait()
    with work_lock(tmp_path):  # a dead process holds nothing
        pass


@pytest.mark.parametrize('make', [
    lambda path: path.write_text('a file'), lambda path: path.symlink_to('/dev/null/nowhere')])
def test_a_wrong_work_folder_is_named(tmp_path, make):
    make(tmp_path / 'run')
    with pytest.raises(ValueError, match=r'work folder \S+run cannot be used'), \
            work_lock(tmp_path / 'run'):
        pass


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    backend = AtomicBackend()
    backend.put(b'old', tmp_path / 'epoch_1.pth')

    def full(*args):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(os, 'fsync', full)
    with pytest.raises(OSError, match=r'epoch_1.pth cannot be written \(No space left on device'):
        backend.put(b'new', tmp_path / 'epoch_1.pth')
    assert [path.name for path in tmp_path.iterdir()] == ['epoch_1.pth']
    assert (tmp_path / 'epoch_1.pth').read_bytes() == b'old'


class Rising(Hook):
    """Makes each epoch the best so far."""

    priority = 'VERY_HIGH'

    def after_val_epoch(self, runner, metrics=None):
        metrics['czsl/auc'] = float(runner.epoch)


@pytest.mark.slow
@pytest.mark.parametrize('fails, left', [
    ('epoch_2.pth', {'epoch_1.pth', 'best_czsl_auc_epoch_1.pth'}),
    ('best_czsl_auc_epoch_2.pth', {'epoch_2.pth', 'best_czsl_auc_epoch_1.pth'}),
])
def test_older_files_stay_until_the_new_one_is_written(run, tmp_path, monkeypatch, fails, left):
    runner = run(tmp_path, **SMALL, **{'default_hooks.checkpoint.max_keep_ckpts': 1})
    runner.register_hook(Rising())
    put = AtomicBackend.put

    def full(self, content, path):
        if Path(path).name == fails:
            raise OSError(28, 'No space left on device')
        put(self, content, path)

    monkeypatch.setattr(AtomicBackend, 'put', full)
    with pytest.raises(OSError, match='No space'):
        runner.train()
    assert {path.name for path in tmp_path.glob('*.pth')} == left
    assert find_resumable(tmp_path).name == max(name for name in left if name[0] == 'e')


class Falling(Rising):
    """Makes each epoch worse than the one before."""

    def after_val_epoch(self, runner, metrics=None):
        metrics['czsl/auc'] = 10.0 - runner.epoch


@pytest.mark.slow
@pytest.mark.parametrize('gone, best', [(False, 1), (True, 2)])
def test_the_best_is_found_in_a_folder_that_was_moved(run, tmp_path, gone, best):
    first = run(tmp_path / 'old', **SMALL, **{'train_cfg.max_epochs': 1})
    first.register_hook(Falling())
    first.train()
    (tmp_path / 'old').rename(tmp_path / 'new')
    if gone:
        (tmp_path / 'new' / 'best_czsl_auc_epoch_1.pth').unlink()
    start = str(find_resumable(tmp_path / 'new'))
    second = run(tmp_path / 'new', resume=True, load_from=start, **SMALL)
    second.register_hook(Falling())
    second.train()
    name = f'best_czsl_auc_epoch_{best}.pth'
    assert [path.name for path in (tmp_path / 'new').glob('best_*')] == [name]
    assert second.message_hub.get_info('best_ckpt') == str(tmp_path / 'new' / name)
