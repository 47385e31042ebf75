"""The faults: how each is injected, how the user would fix it, which exit codes are right."""
from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fault_runs import Process, train_words

from mmcluspro.engine.signals import RUN_AGAIN

DONE = 0


class Scene(NamedTuple):
    """Where a fault happens.

    Attributes:
        process (Process): What is hurt.
        folder (Path): Its work folder.
        config (Path): Its config.
        random (random.Random): Source of chance.
    """
    process: Process
    folder: Path
    config: Path
    random: random.Random


class Kind(NamedTuple):
    """A fault.

    Attributes:
        inject (Callable): Does it; may return the process whose end counts.
        codes (tuple[int, ...]): Exit codes of a process that took it well.
        mend (Callable): What has to be done before ``--resume``.
        prepare (Callable | None): Runs in the process before the command.
        says (str): What the process has to say, unless it was done before.
        hurts (bool): Whether the run ends; otherwise it has to go on undisturbed.
        repeats (bool): Whether the run goes on with ``--resume``; otherwise it starts anew.
    """
    inject: Callable[[Scene], Process | None]
    codes: tuple[int, ...]
    mend: Callable[[Scene], None] = lambda scene: None
    prepare: Callable[[], None] | None = None
    says: str = ''
    hurts: bool = True
    repeats: bool = True

    def came_too_late(self, process: Process) -> bool:
        """Whether the process was done before: none ends well after SIGKILL."""
        return self.codes == (-signal.SIGKILL, ) and process.code == DONE


def send(number: int) -> Callable[[Scene], None]:
    """A signal to the process."""
    return lambda scene: scene.process.send(number)


def fill_disk(scene: Scene) -> None:
    """Fills the small file system that the folder is on; if there is none, limits file sizes."""
    if not os.path.ismount(scene.folder.parent):
        import resource
        resource.prlimit(scene.process.pid, resource.RLIMIT_FSIZE, (20_000, 20_000))
        return
    fill(scene.folder.parent, scene.random.choice([0, 4096, 100_000]))


def fill(disk: Path, left: int) -> None:
    """Fills a small file system up to so many bytes."""
    with open(disk / 'filler', 'wb', buffering=0) as file:
        try:
            while True:
                file.write(bytes(65536))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        file.truncate(max(0, file.tell() - left))


def free_disk(scene: Scene) -> None:
    free(scene.folder.parent)


def free(disk: Path) -> None:
    """Gives a file system its room back."""
    (disk / 'filler').unlink(missing_ok=True)


def make_read_only(scene: Scene) -> None:
    """Lays a read-only view of the folder over it; files that are open stay writable."""
    scene.folder.mkdir(parents=True, exist_ok=True)
    for words in (['mount', '--bind'], ['mount', '-o', 'remount,ro,bind']):
        subprocess.run([*words, scene.folder, scene.folder], check=True)


def make_writable(scene: Scene) -> None:
    subprocess.run(['umount', scene.folder], check=True)


def take_away(scene: Scene) -> None:
    """Removes the folder, or renames it."""
    if scene.random.random() < 0.5:
        shutil.rmtree(scene.folder, ignore_errors=True)
    else:
        with suppress(FileNotFoundError):
            scene.folder.rename(scene.folder.with_name(f'gone-{time.monotonic_ns()}'))


def start_second(scene: Scene) -> Process:
    """A second training in the folder of the first."""
    output = scene.process.output.with_name('second.txt')
    output.write_text('')
    return Process(train_words(scene.config, scene.folder), output)


def let_clock_jump() -> None:
    """Every look at the clock of this process may be up to a year off."""
    whole, source = time.time, random.Random(os.getpid())
    time.time = lambda: whole() + source.choice([-1, 0, 0, 1]) * source.random() * 3e7


def mix_file_times(scene: Scene) -> None:
    """File times as a clock that jumps leaves them."""
    for path in scene.folder.glob('*.pth'):
        moment = time.time() + scene.random.uniform(-3e7, 3e7)
        os.utime(path, (moment, moment))


TRAINING = {
    'SIGKILL': Kind(send(signal.SIGKILL), (-signal.SIGKILL, )),
    'SIGTERM': Kind(send(signal.SIGTERM), (RUN_AGAIN, DONE, -signal.SIGTERM)),
    'SIGHUP': Kind(send(signal.SIGHUP), (RUN_AGAIN, DONE, -signal.SIGHUP)),
    'SIGUSR1': Kind(send(signal.SIGUSR1), (RUN_AGAIN, DONE, -signal.SIGUSR1)),
    'SIGINT': Kind(send(signal.SIGINT), (130, DONE)),
    'full disk': Kind(fill_disk, (2, DONE), free_disk, says='error: '),
    'read-only folder': Kind(make_read_only, (2, DONE), make_writable, says='error: '),
    'vanished folder': Kind(take_away, (2, DONE), repeats=False),
    'clock that jumps, SIGKILL': Kind(send(signal.SIGKILL), (-signal.SIGKILL, ), mix_file_times,
                                      let_clock_jump),
    'second run in the folder': Kind(start_second, (2, ), says='is in use by process',
                                     hurts=False),
}
PREDICTION = {name: TRAINING[name] for name in ('SIGKILL', 'SIGTERM', 'SIGINT')}
PREDICTION['SIGTERM'] = Kind(send(signal.SIGTERM), (-signal.SIGTERM, DONE))
