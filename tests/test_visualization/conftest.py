"""Checkpoints of untrained models, written as training writes them, and checks of pictures."""
from itertools import combinations
from pathlib import Path

import pytest
import torch

from mmcluspro import cli
from mmcluspro.engine.launch import build_runner, read_config

ROOT = Path(__file__).resolve().parents[2]


def small_config(folder, name, options=()):
    """A config of the repository, cut down to 64 or so images a phase."""
    cfg = read_config(ROOT / 'configs' / name)
    cfg.merge_from_dict({
        'train_dataloader.dataset.indices': list(range(0, 860, 10)),
        'val_dataloader.dataset.indices': list(range(0, 1020, 16)),
        'test_dataloader.dataset.indices': list(range(0, 1020, 16)),
        'work_dir': str(folder), 'launcher': 'none', 'log_level': 'ERROR', **dict(options),
    })
    return cfg


def write_checkpoint(folder, name):
    """``<folder>/last.pth`` of a fresh model of a config; prototypes from random features."""
    cfg = small_config(folder, name)
    cfg.dump(str(folder / 'config.py'))
    torch.manual_seed(0)
    runner = build_runner(cfg)
    runner._train_loop = runner.build_train_loop(cfg.train_cfg)
    head = runner.model.head
    generator = torch.Generator().manual_seed(0)
    for branch in getattr(head, 'banks', {}):
        bank = head.bank(branch)
        labels = torch.arange(bank.num_classes).repeat(20)
        bank.initialise(torch.randn(len(labels), bank.dim, generator=generator), labels)
        bank.usage[1], bank.usage[0] = 0.0, bank.usage[0] + bank.usage[1]
    runner.save_checkpoint(str(folder), 'last.pth', save_optimizer=False,
                           save_param_scheduler=False)
    return str(folder / 'last.pth')


@pytest.fixture(scope='session')
def baseline(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp('baseline'), 'baseline_shapes.py')


@pytest.fixture(scope='session')
def cluspro(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp('cluspro'), 'cluspro_shapes.py')


@pytest.fixture(scope='session')
def small_run(tmp_path_factory):
    """The work folder of ``mmcluspro train``: an epoch of ClusPro on 200 images, and its test."""
    folder = tmp_path_factory.mktemp('small') / 'run'
    assert cli.main(['train', 'cluspro_shapes.py', '--work-dir', str(folder), '--cfg-options',
                     'train_cfg.max_epochs=1', 'train_dataloader.dataset.indices=200',
                     'test_dataloader.dataset.indices=200']) == 0
    return folder


@pytest.fixture
def train_briefly():
    """Trains one epoch of two iterations."""

    def train(folder, name, options):
        cfg = small_config(folder, name, {
            'train_cfg.max_epochs': 1, 'default_hooks.logger.interval': 1,
            'default_hooks.prototypes.interval': 1, **options})
        for phase in ('train', 'val', 'test'):
            cfg[f'{phase}_dataloader'].collate_fn = dict(type='default_collate')
        build_runner(cfg).train()

    return train


@pytest.fixture
def tool(monkeypatch, tmp_path):
    """Runs a command that draws in an empty folder, as typed."""

    def run(name, *words):
        monkeypatch.chdir(tmp_path)
        assert cli.main([name, *map(str, words)]) == 0
        return tmp_path

    return run


@pytest.fixture
def legible():
    """Checks that no two texts of a figure overlap, none is cut off, and none is tiny."""

    def check(figure, least=7.5):
        figure.canvas.draw()
        renderer, page = figure.canvas.get_renderer(), figure.bbox
        texts = [text for text in figure.findobj(lambda artist: hasattr(artist, 'get_fontsize'))
                 if text.get_visible() and text.get_text()]
        boxes = [(text, text.get_window_extent(renderer)) for text in texts]
        # Tick labels outside of the axes' limits are kept by matplotlib, but not drawn.
        boxes = [(text, box) for text, box in boxes if box.width > 0 and box.x1 > 0]
        assert boxes
        for text, box in boxes:
            assert text.get_fontsize() >= least, text
            assert box.x0 >= -1 and box.y0 >= -1, text
            assert box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1, text
        for (one, first), (two, second) in combinations(boxes, 2):
            wide = min(first.x1, second.x1) - max(first.x0, second.x0)
            high = min(first.y1, second.y1) - max(first.y0, second.y0)
            assert wide <= 1 or high <= 3, (one, two)

    return check
