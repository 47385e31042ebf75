"""How the suite runs: in parallel, slow tests on request, one thread per process."""
import gc
import logging
import os
import sys
import threading
from collections import Counter
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

os.environ.setdefault('OMP_NUM_THREADS', '1')  # before torch is imported, here and in children

import struct
import zlib

import pytest
import torch
from PIL import Image

SPLIT = 'compositional-split-natural'
PAIRS = {
    'train': [('wet', 'cat'), ('wet', 'Dog.Big'), ('Faux.Fur', 'cat'), ('old', 'Dog.Big')],
    'val': [('wet', 'cat'), ('old', 'cat')],
    'test': [('wet', 'Dog.Big'), ('Faux.Fur', 'Dog.Big')],
}
COUNTS = {'train': 3, 'val': 2, 'test': 1}


def pytest_addoption(parser):
    parser.addoption('--slow', action='store_true',
                     help='also run the tests marked slow: trainings, exports, installations')


def pytest_xdist_auto_num_workers(config):
    """Whole folders run in parallel; single files and tests in this process, without its start."""
    if config.args and not any(Path(name).is_dir() for name in config.args):
        return 0
    return min(len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity')
               else os.cpu_count() or 1, 8)


def pytest_report_header(config):
    return [] if _takes_slow(config) else ['slow tests are left out (run them with --slow)']


def pytest_collection_modifyitems(config, items):
    if not _takes_slow(config):
        slow = [item for item in items if item.get_closest_marker('slow')]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker('slow')]
    # Long files first, so that no process is left with one at the end.
    length = Counter()
    for item in items:
        length[item.path] += 300 if item.get_closest_marker('slow') else 1
    items.sort(key=lambda item: -length[item.path])


def _takes_slow(config):
    """With --slow, with -m, and for a test that is named."""
    return (config.getoption('slow') or config.option.markexpr
            or any('::' in name for name in config.args))


@pytest.fixture(scope='session', autouse=True)
def one_thread():
    """Small models are slower with several threads, and the suite runs in several processes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Serves folders on this machine; torch's folder is empty."""
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'torch'))
    monkeypatch.setenv('no_proxy', '127.0.0.1')
    servers = []

    def start(folder):
        handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
        servers.append(ThreadingHTTPServer(('127.0.0.1', 0), handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f'http://127.0.0.1:{servers[-1].server_port}'

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope='session', autouse=True)
def formats_once():
    """A run makes the text of its config pretty four times; here, each text once."""
    from mmengine.config import config
    known = {}

    def format_once(text, **style):
        key = text, str(style)
        if key not in known:
            known[key] = format_code(text, **style)
        return known[key]

    format_code = config.FormatCode
    with mock.patch.object(config, 'FormatCode', format_once):
        yield


@pytest.fixture(scope='module', autouse=True)
def frozen_imports():
    """mmengine collects garbage for each dataset: a quarter of a second where much is imported."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    gc.unfreeze()  # or nanobind reports leaks


@pytest.fixture(scope='module', autouse=True)
def own_environment():
    """What a command sets for its process, such as the demo's pixel limit, ends with the module."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture(scope='module', autouse=True)
def no_log_of_another_module():
    """mmengine keeps the log of the last run; one that is closed breaks who writes to it next."""
    yield
    if 'mmengine.logging' in sys.modules:
        from mmengine.logging import MMLogger
        for logger in MMLogger._instance_dict.values():
            for handler in [each for each in logger.handlers
                            if isinstance(each, logging.FileHandler)]:
                logger.removeHandler(handler)
                handler.close()


def paint(path, color=(200, 30, 30)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new('RGB', (8, 6), color).save(path)


def make_rows():
    return [{'image': f'{attr}_{obj}/{phase}{i}.png', 'attr': attr, 'obj': obj, 'set': phase}
            for phase, pairs in PAIRS.items() for attr, obj in pairs
            for i in range(COUNTS[phase])]


@pytest.fixture
def layout(tmp_path):
    """Root, rows and names of a dataset of 12 + 4 + 2 images."""
    from mmcluspro.datasets import write_layout
    root = tmp_path / 'data'
    rows = make_rows()
    for row in rows:
        paint(root / 'images' / row['image'])
    metadata = write_layout(root, rows, PAIRS)
    return SimpleNamespace(root=root, rows=rows, pairs=PAIRS, metadata=metadata,
                           lists=root / SPLIT, split=SPLIT)


@pytest.fixture
def png_bomb(tmp_path):
    """Writes a PNG that claims many pixels and has none."""
    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack(
            '>I', zlib.crc32(kind + data))

    def write(width, height):
        header = struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)
        path = tmp_path / 'bomb.png'
        path.write_bytes(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header)
                         + chunk(b'IDAT', zlib.compress(b'')) + chunk(b'IEND', b''))
        return path

    return write
