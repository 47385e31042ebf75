"""Locks: one process, those that die hold nothing, and their files are removed."""
import json
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import time

import pytest

from mmcluspro.utils import locks
from mmcluspro.utils.locks import held

fork = multiprocessing.get_context('fork')


def note(path, **changed):
    path.write_text(json.dumps(dict(dict(host=platform.node(), pid=os.getppid(), since='today',
                                         command='train'), **changed)))


def test_without_locks_a_living_process_of_this_machine_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(locks, 'fcntl', None)
    path = tmp_path / 'x.lock'
    note(path)
    with pytest.raises(ValueError, match=rf'^The place is in use by process {os.getppid()} on .*'
                       r'since today: train\). Wait for it, end it, or go elsewhere\.$'), \
            held(path, 'The place', 'go elsewhere'):
        pass
    dead = subprocess.Popen([sys.executable, '-c', ''])
    dead.wait()
    for gone in (dict(pid=dead.pid), dict(host='another'), dict(pid='x'), dict(pid=10**30)):
        note(path, **gone)
        with held(path, 'The place', 'go elsewhere'):
            assert json.loads(path.read_text())['pid'] == os.getpid()
        assert not path.exists()


def test_a_lock_without_a_note_says_so(tmp_path):
    def take(path, said):
        with path.open('w') as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
            said.put(True)
            time.sleep(30)

    fcntl, path, said = pytest.importorskip('fcntl'), tmp_path / 'x.lock', fork.Queue()
    process = fork.Process(target=take, args=(path, said))
    process.start()
    said.get(timeout=30)
    with pytest.raises(ValueError, match='^The place is in use by another process. Wait for it, '
                       'end it, or go elsewhere.$'), held(path, 'The place', 'go elsewhere'):
        pass
    process.kill()
    process.join()


def hold(path, said):
    worker = os.fork()  # as a worker of a loader that outlives its killed parent
    if worker == 0:
        time.sleep(30)
        os._exit(0)
    with held(path, 'The place', 'go elsewhere'):
        other = os.fork()
        if other == 0:
            time.sleep(30)
            os._exit(0)
        said.put((worker, other))
        time.sleep(30)


def test_workers_that_outlive_a_killed_process_hold_nothing(tmp_path):
    path, said = tmp_path / 'x.lock', fork.Queue()
    process = fork.Process(target=hold, args=(path, said))
    process.start()
    workers = said.get(timeout=30)
    with pytest.raises(ValueError, match=f'in use by process {process.pid}'), \
            held(path, 'The place', 'go elsewhere'):
        pass
    process.kill()
    process.join()
    with held(path, 'The place', 'go elsewhere'):
        pass
    for worker in workers:
        os.kill(worker, signal.SIGKILL)


def count(path, place, times, wait):
    while times:
        try:
            with held(path, 'The place', 'go elsewhere', wait):
                number = int(place.read_text())
                place.write_text(str(number + 1))
            times -= 1
        except ValueError:
            assert not wait


@pytest.mark.parametrize('wait, times', [(False, 100), (True, 5)])
def test_only_one_is_inside_also_while_files_are_removed(wait, times, tmp_path):
    path, place = tmp_path / 'x.lock', tmp_path / 'count'
    place.write_text('0')
    all_of_them = [fork.Process(target=count, args=(path, place, times, wait)) for _ in range(4)]
    for process in all_of_them:
        process.start()
    for process in all_of_them:
        process.join()
    assert place.read_text() == str(4 * times) and not path.exists()
