"""The page and prediction under load: how long answers take, and whether memory stays the same.

    python tools/misc/load.py page --clients 50 --requests 4
    python tools/misc/load.py endpoint --clients 50 --files 1000
    python tools/misc/load.py predict --count 10000
    python tools/misc/load.py train --count 3000
    python tools/misc/load.py names --count 100000

``page`` starts ``mmcluspro demo`` in a process of its own; clients upload a picture and ask, all at
once, each request with a new word. ``endpoint`` sends pictures, slow bodies, large bodies and files
that are no pictures to ``/predict`` of such a page, and hangs up. ``predict`` calls the model again
and again, every tenth call with new words. ``train`` trains for so many iterations, ``names`` asks
for so many pairs, by the inferencer and by the text box of the page. Memory is the resident set of
the process.
``--record docs/results/load.jsonl`` adds what was measured as a line of JSON.
"""
from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image

OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({}))
COUNTS = dict(predict=10_000, train=3_000, names=100_000)
RECORD: dict[str, object] = {}  # what the run measured
START = 'from mmcluspro.cli import main; raise SystemExit(main())'


def megabytes(pid: int | str = 'self') -> float:
    """Resident memory of a process (Linux)."""
    pages = int(Path(f'/proc/{pid}/statm').read_text().split()[1])
    return pages * os.sysconf('SC_PAGE_SIZE') / 1e6


class Client:
    """One visitor of the page.

    Args:
        address (str): Of the page.
        index (int): Number of the function that classifies.
        name (str): Identifies the session.
    """

    def __init__(self, address: str, index: int, name: str) -> None:
        self.address, self.index, self.name = address, index, name

    def ask(self, number: int) -> tuple[float, bool]:
        """Uploads and asks; returns the seconds, and whether there was an answer."""
        start = time.monotonic()
        try:
            path = self._upload()
            pairs = f'red star\nblue key\n{self.name}{number} teapot'
            body = dict(data=[dict(path=path, meta={'_type': 'gradio.FileData'}), 'These pairs',
                              '', '', pairs, 0.0], fn_index=self.index, session_hash=self.name)
            with self._request('queue/join?', json.dumps(body).encode(), 'application/json'):
                pass
            with self._request(f'queue/data?session_hash={self.name}') as stream:
                answered = any(b'best of 3 pairs' in line for line in stream
                               if b'process_completed' in line)
        except OSError:  # refused: the queue is full
            answered = False
        return time.monotonic() - start, answered

    def _upload(self) -> str:
        buffer = BytesIO()
        pixels = np.random.default_rng().integers(0, 255, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(buffer, 'PNG')
        body = (b'--b\r\nContent-Disposition: form-data; name="files"; filename="x.png"\r\n'
                b'Content-Type: image/png\r\n\r\n' + buffer.getvalue() + b'\r\n--b--\r\n')
        with self._request('upload', body, 'multipart/form-data; boundary=b') as answer:
            return json.loads(answer.read())[0]

    def _request(self, place: str, body: bytes | None = None, kind: str = ''):
        sent = urllib.request.Request(f'{self.address}/gradio_api/{place}', body,
                                      {'Content-Type': kind} if body else {})
        return OPEN.open(sent, timeout=300)


@contextmanager
def running_page() -> Iterator[tuple[str, int]]:
    """Address and process of the page of the package's model."""
    with tempfile.TemporaryDirectory() as folder:
        page = subprocess.Popen(
            [sys.executable, '-W', 'ignore', '-c', START, 'demo', '--device', 'cpu'], cwd=folder,
            text=True, stdout=subprocess.PIPE, env=dict(os.environ, OMP_NUM_THREADS='1'))
        try:
            assert page.stdout is not None
            yield next(found[0] for line in page.stdout
                       if (found := re.search(r'http://[\d.:]+', line))), page.pid
        finally:
            page.kill()
            page.wait()


def load_page(clients: int, requests: int) -> int:
    """Starts the page, asks it from all clients at once, prints a table."""
    with running_page() as (address, pid):
        with OPEN.open(f'{address}/config', timeout=60) as answer:
            config = json.loads(answer.read())
        index = next(entry['id'] for entry in config['dependencies'] if len(entry['inputs']) == 6)
        Client(address, index, 'first').ask(0)
        before = megabytes(pid)
        with ThreadPoolExecutor(clients) as pool:
            asked = [pool.submit(Client(address, index, f'c{i}r{j}').ask, j)
                     for j in range(requests) for i in range(clients)]
            results = [one.result() for one in asked]
        after = megabytes(pid)
    times = [seconds for seconds, answered in results if answered]
    RECORD.update(clients=clients, requests=len(results), answered=len(times),
                  median_seconds=round(median(times or [0]), 2),
                  slowest_seconds=round(max(times or [0]), 2), mb_before=round(before),
                  mb_after=round(after))
    print('| clients at once | requests | answered | refused | median s | slowest s | MB before | '
          f'MB after |\n|---|---|---|---|---|---|---|---|\n| {clients} | {len(results)} | '
          f'{len(times)} | {len(results) - len(times)} | {median(times or [0]):.2f} | '
          f'{max(times or [0]):.2f} | {before:.0f} | {after:.0f} |')
    return 0 if times else 1


def load_endpoint(clients: int, files: int) -> int:
    """Starts the page, sends it what programs send; fails if an answer is missing."""
    from load_endpoint import try_endpoint
    with running_page() as (address, pid):
        rows = try_endpoint(address, clients, files, lambda: megabytes(pid))
    RECORD.update(clients=clients, trials=rows)
    grown = float(str(rows[-1]['mb_after'])) - float(str(rows[-1]['mb_before']))
    closed = sum('closed' in str(row['statuses']) for row in rows)
    return int(grown > 50 or closed > 0)


class Memory:
    """Prints the memory ten times on the way; the second tenth and the last one are compared."""

    def __init__(self, what: str, count: int) -> None:
        self.every, self.found = max(count // 10, 1), list[float]()
        print(f'| {what} | MB |\n|---|---|')

    def look(self, number: int) -> None:
        """Called after each of them, counted from 1."""
        if number % self.every == 0:
            self.found.append(megabytes())
            print(f'| {number} | {self.found[-1]:.0f} |', flush=True)

    def verdict(self) -> int:
        """1 if the memory grew."""
        grown = self.found[-1] - self.found[1 if len(self.found) > 1 else 0]
        RECORD.update(every=self.every, mb=[round(value, 1) for value in self.found],
                      mb_grown=round(grown, 1))
        print(f'growth after the first tenths: {grown:.1f} MB')
        return 0 if grown < 50 else 1


def load_predictions(count: int) -> int:
    """Predicts again and again."""
    from mmcluspro.demo.demo_command import zero_shot_model
    inferencer = zero_shot_model('cpu')
    image = np.random.default_rng(0).integers(0, 255, (96, 80, 3), dtype=np.uint8)
    memory = Memory('predictions', count)
    for number in range(1, count + 1):
        # Hexadecimal: the tiny tower has room for few digits.
        new = [('red', 'star'), (f'w{number:x}', f't{number:x}')] if number % 10 == 0 else None
        inferencer.predict(image, new, workers=0)
        memory.look(number)
    return memory.verdict()


def load_training(count: int) -> int:
    """Trains ClusPro on Shapes with batches of two images."""
    from mmengine.hooks import Hook
    from mmengine.registry import HOOKS

    from mmcluspro.cli import main as run
    memory = Memory('iterations', count)

    class LoadHook(Hook):
        def after_train_iter(self, runner, *_: object, **__: object) -> None:
            memory.look(runner.iter + 1)

    HOOKS.register_module(module=LoadHook)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / 'load.py'
        config.write_text(
            "_base_ = '{{$MMCLUSPRO_CONFIGS:configs}}/cluspro_shapes.py'\n"
            'train_dataloader = dict(batch_size=2)\n'
            "custom_hooks = [dict(type='mmengine.LoadHook')]\n"
            'default_hooks = dict(logger=dict(interval=500), checkpoint=dict(by_epoch=False, '
            f'interval={count}))\n'
            f'train_cfg = dict(_delete_=True, by_epoch=False, max_iters={count}, '
            f'val_interval={count})\n'
            f"param_scheduler = dict(_delete_=True, type='ConstantLR', factor=1, by_epoch=False)\n")
        code = run(['train', str(config), '--work-dir', f'{folder}/run', '--no-test'])
    return code or memory.verdict()


def load_names(count: int) -> int:
    """Asks for many pairs at once."""
    from mmcluspro.demo.demo_command import zero_shot_model
    from mmcluspro.demo.logic import pair_text, parse_pairs
    side = int(count**0.5) + 1
    pairs = [(f'word{i}', f'thing{j}') for i in range(side) for j in range(side)][:count]
    try:
        parse_pairs(pair_text(pairs))
        print(f'the page: {count:,} pairs are taken')
    except ValueError as error:
        print(f'the page: {error}')
    inferencer, before, start = zero_shot_model('cpu'), megabytes(), time.monotonic()
    (result, ) = inferencer.predict(np.zeros((64, 64, 3), dtype=np.uint8), pairs, workers=0)
    seconds, after = time.monotonic() - start, megabytes()
    RECORD.update(seconds=round(seconds, 1), mb_before=round(before), mb_after=round(after))
    print(f'the inferencer: {count:,} pairs answered after {seconds:.1f} s, '
          f'{before:.0f} MB before, {after:.0f} MB after, best {result.pairs[0].attribute} '
          f'{result.pairs[0].object}')
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest='kind', required=True)
    page = kinds.add_parser('page')
    page.add_argument('--clients', type=int, default=50)
    page.add_argument('--requests', type=int, default=4, help='requests per client')
    endpoint = kinds.add_parser('endpoint')
    endpoint.add_argument('--clients', type=int, default=50)
    endpoint.add_argument('--files', type=int, default=1000)
    for name, count in COUNTS.items():
        kinds.add_parser(name).add_argument('--count', type=int, default=count)
    for kind in kinds.choices.values():
        kind.add_argument('--record', help='file to which the numbers are added as a line of JSON')
    args = parser.parse_args(argv)
    begin = time.monotonic()
    if args.kind == 'page':
        code = load_page(args.clients, args.requests)
    elif args.kind == 'endpoint':
        code = load_endpoint(args.clients, args.files)
    else:
        import warnings
        warnings.simplefilter('ignore')
        code = dict(predict=load_predictions, train=load_training, names=load_names)[args.kind](
            args.count)
        RECORD.update(count=args.count)
    if args.record:
        line = dict(kind=args.kind, **RECORD, seconds_in_all=round(time.monotonic() - begin),
                    load_average=round(os.getloadavg()[2], 1), date=time.strftime('%Y-%m-%d'))
        with open(args.record, 'a') as file:
            file.write(json.dumps(line) + '\n')
    return code


if __name__ == '__main__':
    sys.exit(main())
