"""Places and inputs that a run should not meet: each is tried once, through the commands.

Machines with too little (shared memory, open files, rights, an ASCII locale), runs that are resumed
with other ranks or another optimizer, data and settings at their edge, and pictures that unfold.
Nothing may hang, print a traceback, or take more than :data:`MEMORY`; each trial says which exit
code and words are right.
"""
from __future__ import annotations

import csv
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import torch
from fault_runs import CONFIG, MODES
from PIL import Image

LIMIT = 300   # seconds of a command
MEMORY = 3000  # MB
ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534


class Result(NamedTuple):
    """What a command did: exit code, output, and its largest memory in MB."""
    code: int
    text: str
    megabytes: float


def run(words: Sequence[str], base: Path, prefix: Sequence[str] = (),
        prepare: Callable[[], None] | None = None, during: Callable[[int], None] | None = None,
        tool: str = '', cwd: Path | None = None, **environment: str) -> Result:
    """Runs a command of mmcluspro in a process of its own.

    Args:
        words (Sequence[str]): Such as ``['train', 'config.py']``.
        base (Path): Folder for what it prints, and for its other files.
        prefix (Sequence[str]): Words before it, such as ``unshare``.
        prepare (Callable, optional): Runs in the new process before the command.
        during (Callable, optional): Runs beside it, with its process id.
        tool (str): A script of the repository in the place of the command.
        cwd (Path, optional): Current folder. Defaults to ``base``.
        **environment: Variables of the environment.
    """
    start = ['-m', 'mmcluspro'] if not tool else [tool]
    environment = {**os.environ, 'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1', **environment}
    with (base / 'output.txt').open('w+b') as output:
        process = subprocess.Popen([*prefix, sys.executable, *start, *words], stdout=output,
                                   stderr=subprocess.STDOUT, preexec_fn=prepare, env=environment,
                                   start_new_session=True, cwd=cwd or base)
        if during is not None:
            during(process.pid)
        end, largest = time.monotonic() + LIMIT, 0.0
        while process.poll() is None and time.monotonic() < end:
            largest = max(largest, peak(process.pid))
            time.sleep(0.05)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.seek(0)
        text = output.read().decode(errors='replace')
    return Result(process.returncode, text, largest)


def peak(pid: int) -> float:
    """Largest memory so far in MB; that of :func:`os.wait4` would begin with the parent's."""
    with suppress(OSError):
        found = re.search(r'VmHWM:\s+(\d+)', Path(f'/proc/{pid}/status').read_text())
        return int(found[1]) / 1024 if found else 0.0
    return 0.0


def judged(result: Result, codes: Sequence[int], words: str = '') -> str:
    """What was wrong; '' if nothing was."""
    if 'Traceback' in result.text:
        return 'a traceback: ' + result.text.strip().splitlines()[-1][:200]
    if result.code not in codes:
        return f'exit code {result.code}: {result.text.strip()[-300:]}'
    if not re.search(words, result.text):
        return f'did not say {words!r}: {result.text.strip()[-300:]}'
    return f'{result.megabytes:.0f} MB' if result.megabytes > MEMORY else ''


class Place:
    """Configs, checkpoints and pictures for the trials, in a folder of their own."""

    def __init__(self, base: Path) -> None:
        self.base = base
        base.chmod(0o755)
        self.config = base / 'small.py'
        self.config.write_text(CONFIG.format(timeout=60, **MODES['epoch']))
        self.done = base / 'done'
        found = self.train('done', 'train_cfg.max_epochs=1')
        if found.code:
            raise SystemExit(f'The training without faults failed:\n{found.text[-2000:]}')
        self.checkpoint = next(self.done.glob('best_*.pth'))
        self.count = 0

    def train(self, folder: str, *options: str, words: Sequence[str] = (), **how: Any) -> Result:
        """A training of seconds, with ``--cfg-options``."""
        return run(['train', str(self.config), '--work-dir', str(self.base / folder), *words,
                    *(['--cfg-options', *options] if options else [])], self.base, **how)

    def resume(self, folder: str, *options: str, **how: Any) -> Result:
        """The same from the first epoch of :attr:`done`."""
        return self.train(folder, *options,
                          words=['--resume', str(self.done / 'epoch_1.pth')], **how)

    def predict(self, picture: Path, *words: str, **how: Any) -> Result:
        """A prediction."""
        return run(['predict', str(how.pop('model', self.checkpoint)), str(picture), '--device',
                    'cpu', *words], self.base, **how)

    def new(self, name: str) -> Path:
        """A file name that is not taken."""
        self.count += 1
        return self.base / f'{self.count}_{name}'


def full_shared_memory(kilobytes: int) -> Callable[[Place], str]:
    """Workers of the loader find no shared memory: for their semaphores, or for their batches."""
    def attempt(place: Place) -> str:
        small = ['unshare', '--mount', 'sh', '-c',
                 f'mount -t tmpfs -o size={kilobytes}k tmpfs /dev/shm && exec "$@"', 'sh']
        return judged(place.train('shm', 'train_dataloader.num_workers=2', prefix=small), [2],
                      'shared memory')
    return attempt


def killed_worker(place: Place) -> str:
    """A worker of the loader is killed, as by a system that has run out of memory."""
    def kill(pid: int) -> None:
        seen: set[str] = set()
        end = time.monotonic() + LIMIT
        while time.monotonic() < end and Path(f'/proc/{pid}').exists():
            children = set(Path(f'/proc/{pid}/task/{pid}/children').read_text().split())
            for child in children & seen:  # those of a moment ago: not the first command that ends
                with suppress(OSError):
                    os.kill(int(child), signal.SIGKILL)
                    return
            seen = children
            time.sleep(0.7)

    found = place.train('worker', 'train_dataloader.num_workers=2',
                        'train_dataloader.dataset.indices=960', during=kill)
    return judged(found, [2], 'worker')


def another_user(place: Place) -> str:
    """A user who may read, but not write, trains and predicts into a folder of root."""
    become = ['setpriv', '--reuid', str(NOBODY), '--regid', str(NOBODY), '--clear-groups',
              '--inh-caps', '-all,+dac_read_search', '--ambient-caps', '+dac_read_search',
              '--bounding-set', '-all,+dac_read_search']
    how: dict[str, Any] = dict(prefix=become, HOME=str(place.base / 'home'))
    picture = photo(place.new('x.png'))
    return judged(place.train('done', words=['--resume'], **how), [2], 'error: ') or judged(
        place.train('other', **how), [2], 'error: .*Permission denied') or judged(
        place.predict(picture, '--out', str(place.base / 'r.csv'), **how), [2],
        'Permission denied') or judged(place.predict(picture, **how), [0], '%')


def few_files(place: Place) -> str:
    """32 open files."""
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))

    folder = place.new('many')
    folder.mkdir()
    for number in range(40):
        photo(folder / f'{number}.png')
    return judged(place.train('files', 'train_cfg.max_epochs=1', prepare=limit), [0, 2]) or judged(
        place.predict(folder, '--out', str(place.new('r.csv')), prepare=limit), [0, 2])


def ascii_locale(place: Place) -> str:
    """A locale without UTF-8: names of files, pairs and output in other letters."""
    how = dict(LC_ALL='C', LANG='C', PYTHONUTF8='0', PYTHONCOERCECLOCALE='0')
    folder = place.new('café')
    folder.mkdir()
    photo(folder / 'süß 紅.png')
    pairs, out = place.new('pairs.txt'), place.new('out.csv')
    pairs.write_text('süß café\nrouge étoile\n', encoding='utf-8')
    found = judged(place.predict(folder, '--pairs', str(pairs), **how), [0], '%') or judged(
        place.predict(folder, '--pairs', str(pairs), '--out', str(out), **how), [0])
    rows = list(csv.DictReader(out.open(encoding='utf-8', newline=''))) if not found else []
    if rows and (len(rows) != 1 or rows[0]['image'] != str(folder / 'süß 紅.png')
                 or rows[0]['object_1'] not in ('café', 'étoile')):
        return f'other names: {rows}'
    table = place.new('photos')
    for attribute, thing in (('nass', 'käse'), ('trocken', 'käse'), ('nass', 'tür'),
                             ('trocken', 'tür')):
        (table / f'{attribute}_{thing}').mkdir(parents=True)
        for number in range(6):
            photo(table / f'{attribute}_{thing}' / f'{number} ü.png', number)
    found = found or judged(run(['check-data', str(table)], place.base, **how), [2],
                            'PYTHONUTF8=1')
    return found or judged(run(['check-data', str(table)], place.base,
                               **{**how, 'PYTHONUTF8': '1'}), [0, 1])


def other_ranks(place: Place) -> str:
    """A run of one process is resumed by two."""
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    found = run(['--nproc_per_node=2', '--master_addr=127.0.0.1', f'--master_port={port}',
                 str(ROOT / 'tools' / 'train.py'), str(place.config), '--launcher', 'pytorch',
                 '--work-dir', str(place.base / 'ranks'), '--resume',
                 str(place.done / 'epoch_1.pth')], place.base, tool='-mtorch.distributed.run')
    note = judged(found, [0], 'iteration 3 is number 2')
    return note or ('' if (place.base / 'ranks' / 'epoch_2.pth').is_file() else 'no second epoch')


def other_optimizer(place: Place) -> str:
    """A run with Adam is resumed with SGD."""
    place.config.with_name('sgd.py').write_text(
        "_base_ = 'small.py'\noptim_wrapper = dict(optimizer=dict("
        "_delete_=True, type='SGD', lr=0.01, momentum=0.9))\n")
    return judged(run(['train', str(place.base / 'sgd.py'), '--work-dir', str(place.base / 'sgd'),
                       '--resume', str(place.done / 'epoch_1.pth')], place.base), [2],
                  'optimizer of the checkpoint is not that')


def longer_schedule(place: Place) -> str:
    """A finished run is extended with another rate."""
    return judged(place.resume('longer', 'train_cfg.max_epochs=2',
                               'optim_wrapper.optimizer.lr=0.001'), [0], 'lr goes on at')


def many_prototypes(place: Place) -> str:
    """More prototypes than samples of any class."""
    return judged(place.train('k', 'train_cfg.max_epochs=1', 'model.head.num_prototypes=64',
                              'train_dataloader.batch_size=4'), [0, 2])


def exploding_rate(place: Place) -> str:
    """A rate at which the weights explode: stops, or goes on with finite numbers."""
    found = place.train('rate', 'optim_wrapper.optimizer.lr=1e12')
    note = judged(found, [0, 2])
    bad = [path.name for path in (place.base / 'rate').glob('*.pth') if any(
        value.is_floating_point() and not value.isfinite().all() for value in torch.load(
            path, weights_only=False)['state_dict'].values())]
    return note or (f'not finite: {bad}' if bad else '')


def large_batch(place: Place) -> str:
    """A batch larger than the data."""
    return judged(place.train('batch', 'train_cfg.max_epochs=1',
                              'train_dataloader.batch_size=4096'), [0, 2])


def dropped_batch(place: Place) -> str:
    """The only batch is dropped, because it is not full: no training at all."""
    return judged(place.train('drop', 'train_cfg.max_epochs=1', 'train_dataloader.batch_size=4096',
                              'train_dataloader.drop_last=True'), [2], 'error: ')


def one_image(place: Place) -> str:
    """A single training image."""
    return judged(place.train('one', 'train_cfg.max_epochs=1',
                              'train_dataloader.dataset.indices=1'), [0, 2])


def one_pair(place: Place) -> str:
    """A folder of photos with one pair, and one photo."""
    folder = place.new('photos')
    (folder / 'wet cat').mkdir(parents=True)
    note = ''
    for number in range(4):
        photo(folder / 'wet cat' / f'{number}.png', number)
        note = note or judged(run(['train', str(folder), '--work-dir',
                                   str(place.base / f'pair{number}')], place.base), [2], 'error: ')
    return note


def photo(path: Path, seed: int = 0) -> Path:
    """A small picture of random pixels."""
    pixels = np.random.default_rng(seed).integers(0, 255, (48, 48, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def animated(suffix: str, frames: int, side: int) -> Callable[[Place], str]:
    """An animation of very many large frames in few bytes."""
    def attempt(place: Place) -> str:
        path = place.new(f'animated{suffix}')
        first, *others = (Image.new('RGB', (side, side), (number, 0, 0)) for number in range(3))
        first.save(path, save_all=True, append_images=others * (frames // 2), duration=10)
        return judged(place.predict(path), [0], '%|cannot be read')
    return attempt


def avif(place: Place) -> str:
    """An AVIF picture of 10,500² pixels in some hundred kilobytes."""
    path = place.new('bomb.avif')
    Image.new('L', (10_500, 10_500)).save(path, quality=1, speed=10)
    return judged(place.predict(path), [0], '10500 x 10500 pixels, more than 100,000,000')


def exif(place: Place) -> str:
    """Metadata without end: a list of tags that leads back to itself, counts of gigabytes."""
    note = ''
    # One tag; its number of values, its place, and the place of the next list of tags.
    for name, entries, count, following in (('loop', 1, 1, 8), ('count', 1, 0xffffffff, 0),
                                            ('many', 0xffff, 1, 0)):
        tags = b'II*\0\x08\0\0\0' + entries.to_bytes(2, 'little') + b''.join(
            (0x0112).to_bytes(2, 'little') + (4).to_bytes(2, 'little')
            + count.to_bytes(4, 'little') + (8).to_bytes(4, 'little')
            for _ in range(min(entries, 5000))) + following.to_bytes(4, 'little')
        for suffix in ('.jpg', '.png', '.webp'):
            path = place.new(f'{name}{suffix}')
            Image.new('RGB', (64, 64)).save(path, exif=b'Exif\0\0' + tags)
            note = note or judged(place.predict(path), [0], '%|cannot be read')
    return note


def external_data(place: Place) -> str:
    """ONNX files whose weights are said to be in a file outside of their folder."""
    folder, secret = place.new('onnx'), place.new('secret.bin')
    folder.mkdir()
    note = judged(run(['export', str(place.checkpoint), '--out', str(folder / 'm.onnx')],
                      place.base), [0])
    if note:
        return note
    model = onnx.load(str(folder / 'm.onnx'))
    weight = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    secret.write_bytes(weight.raw_data)
    (folder / 'link.bin').symlink_to(secret)
    picture = photo(place.new('x.png'))
    for location in (f'../{secret.name}', str(secret), 'link.bin'):
        weight.raw_data = secret.read_bytes()
        onnx.external_data_helper.set_external_data(weight, location)
        weight.ClearField('raw_data')
        (folder / 'm.onnx').write_bytes(model.SerializeToString())
        note = note or judged(
            run([str(folder / 'm.onnx'), str(folder / 'm.npz'), str(picture)], place.base,
                tool=str(ROOT / 'docs' / 'examples' / 'onnx_predict.py')), [1],
            'error: .*m.onnx cannot be opened: .*[Ee]xternal data')
    return note


PLACES: dict[str, Callable[[Place], str]] = {
    '/dev/shm of 16 kB': full_shared_memory(16), '/dev/shm of 256 kB': full_shared_memory(256),
    'killed worker of the loader': killed_worker,
    'user without rights': another_user, '32 open files': few_files,
    'ASCII locale': ascii_locale, 'other number of ranks': other_ranks,
    'other optimizer': other_optimizer, 'longer schedule': longer_schedule,
    'K beyond the samples': many_prototypes, 'exploding rate': exploding_rate,
    'batch beyond the data': large_batch, 'no full batch': dropped_batch,
    'one image': one_image, 'one pair': one_pair, 'AVIF bomb': avif, 'EXIF bombs': exif,
    'animated GIF': animated('.gif', 400, 2000), 'animated WebP': animated('.webp', 400, 2000),
    'ONNX with external data': external_data,
    'animated PNG': animated('.png', 400, 2000), 'animated AVIF': animated('.avif', 60, 1000),
}
NEED_ROOT = ('/dev/shm of 16 kB', '/dev/shm of 256 kB', 'user without rights')
