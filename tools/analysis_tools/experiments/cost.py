"""Cost of a config (Table 10): parameters, memory, time per step, epoch and image."""
import math
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import default_collate
from mmengine.hooks import Hook
from mmengine.registry import init_default_scope
from mmengine.runner import Runner

from mmcluspro.datasets import build_space
from mmcluspro.engine.launch import build_runner
from mmcluspro.models import Candidates
from mmcluspro.models.peft import merge
from mmcluspro.registry import DATASETS

from .records import resolve

WARM_UP = 2
STATUS = Path('/proc/self/status')


CLOCKS = dict(wall=time.perf_counter, cpu=time.process_time)


def now(kind: str = 'wall') -> float:
    """Seconds; waits for the GPU first, where there is one.

    Args:
        kind (str): 'wall', or 'cpu' for the time that this process had a
            processor, which others on the machine do not lengthen. Defaults to 'wall'.
    """
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return CLOCKS[kind]()


def resident(peak: bool) -> float:
    """Memory of this process in MB, now or at its peak."""
    if STATUS.exists():
        field = 'VmHWM:' if peak else 'VmRSS:'
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
        return int(line.split()[1]) / 1024
    import resource
    unit = 1024**2 if sys.platform == 'darwin' else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


class Clock(Hook):
    """Times each iteration, from the batch that is there to the updated prototypes."""

    priority = 'LOWEST'

    def __init__(self, kind: str = 'wall') -> None:
        self.seconds: list[float] = []
        self.kind, self._start = kind, 0.0

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Starts after all other hooks."""
        self._start = now(self.kind)

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                         outputs: dict | None = None) -> None:
        """Stops after all other hooks."""
        self.seconds.append(now(self.kind) - self._start)


def bare(cfg: Config, steps: int, work_dir: str) -> int:
    """Cuts a config down to some steps of training, without logs and validation.

    Args:
        cfg (Config): Changed in place.
        steps (int): Iterations to train.
        work_dir (str): Work folder.

    Returns:
        int: Iterations that a whole epoch has.
    """
    init_default_scope('mmpretrain')
    loader = cfg.train_dataloader
    total = len(DATASETS.build(loader.dataset))
    wanted = min(total, steps * loader.batch_size)
    loader.dataset.indices = np.linspace(0, total - 1, wanted).round().astype(int).tolist()
    # Images are loaded before the clock starts; workers would take the processor meanwhile.
    loader.update(num_workers=0, persistent_workers=False,
                  collate_fn=dict(type='default_collate'))
    cfg.train_cfg = dict(by_epoch=True, max_epochs=1)
    for phase in ('val', 'test'):
        cfg[f'{phase}_cfg'] = cfg[f'{phase}_dataloader'] = cfg[f'{phase}_evaluator'] = None
    for name in ('timer', 'logger', 'checkpoint'):
        cfg.default_hooks[name] = None
    cfg.merge_from_dict(dict(work_dir=work_dir, launcher='none', log_level='ERROR'))
    return math.ceil(total / loader.batch_size)


def measure(config: str, options: Sequence[str], steps: int, images: int,
            work_dir: str, kind: str = 'wall') -> dict[str, float | None]:
    """Measures one config in this process, which must be a fresh one for the memory.

    Args:
        config (str): Config file.
        options (Sequence[str]): ``KEY=VALUE``.
        steps (int): Iterations of training to time; two more come first.
        images (int): Images to time in inference, one at a time.
        work_dir (str): Work folder.
        kind (str): See :func:`now`. Defaults to 'wall'.

    Returns:
        dict[str, float | None]: ``parameters`` (trainable), ``memory`` (MB, the peak of training:
        that of the GPU, or the growth of the process), ``step`` (s), ``epoch`` (s, without
        loading images) and ``image`` (s); None where nothing is trained.
    """
    cfg, _ = resolve(config, options)
    test = cfg.test_dataloader.dataset.copy()
    before = resident(peak=False)
    found: dict[str, float | None] = dict(memory=None, step=None, epoch=None)
    if cfg.get('train_cfg') is not None:
        iterations = bare(cfg, steps + WARM_UP, work_dir)
        runner, clock = build_runner(cfg), Clock(kind)
        runner.register_hook(clock)
        runner.train()
        step = statistics.median(clock.seconds[WARM_UP:] or clock.seconds)
        memory = (torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available()
                  else resident(peak=True) - before)
        found.update(memory=memory, step=step, epoch=step * iterations)
    else:
        cfg.merge_from_dict(dict(work_dir=work_dir, launcher='none', log_level='ERROR'))
        runner = build_runner(cfg)
    found['parameters'] = sum(p.numel() for p in runner.model.parameters() if p.requires_grad)
    found['image'] = time_per_image(runner.model, cfg, test, images, kind)
    return found


@torch.no_grad()
def time_per_image(model: Any, cfg: Config, dataset: dict, images: int,
                   kind: str = 'wall') -> float:
    """Median seconds of a prediction, LoRA merged and text cached.

    Args:
        model (CompositionalClassifier): Changed: merged.
        cfg (Config): Its config.
        dataset (dict): Config of the test set.
        images (int): How many.
        kind (str): See :func:`now`. Defaults to 'wall'.

    Returns:
        float: Seconds an image.
    """
    model.eval()
    merge(model, keep=False)
    worlds = {'closed': Candidates.from_space(build_space(cfg.model.space, 'test'))}
    samples = DATASETS.build(dict(dataset, indices=images))
    seconds = []
    for number in range(-WARM_UP, len(samples)):
        batch = dict(default_collate([samples[max(0, number)]]), worlds=worlds)
        start = now(kind)
        model.test_step(batch)
        if number >= 0:
            seconds.append(now(kind) - start)
    return statistics.median(seconds)


def medians(results: Sequence[Sequence[dict[str, float | None]]],
            base: int) -> list[dict[str, tuple[float, float] | None]]:
    """Medians over repeats, and of the ratios to the baseline of the same repeat.

    Args:
        results (Sequence): Per repeat, the measurement of each config.
        base (int): Which config is the baseline.

    Returns:
        list[dict]: Per config, (value, ratio) by quantity; None where nothing was measured.
    """
    summary = []
    for config in range(len(results[0])):
        row: dict[str, tuple[float, float] | None] = {}
        for key in results[0][config]:
            pairs = [(repeat[config][key], repeat[base][key]) for repeat in results]
            known = [(own, other) for own, other in pairs if own is not None and other]
            row[key] = (statistics.median(own for own, _ in known),
                        statistics.median(own / other for own, other in known)) if known else None
        summary.append(row)
    return summary


def threads() -> str:
    """What the times were measured on."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f'CPU, {torch.get_num_threads()} threads of {os.cpu_count()} cores'
