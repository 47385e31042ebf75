"""One of two processes: the second one gets an image with NaN in its third iteration."""
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from conftest import small_config
from mmengine.hooks import Hook

from mmcluspro.engine.launch import build_runner
from mmcluspro.engine.messages import run_command


class Damage(Hook):
    def before_train_iter(self, runner, batch_idx, data_batch=None):
        if runner.rank == 1 and runner.iter == 2:
            data_batch['inputs'] = [image.float() for image in data_batch['inputs']]
            data_batch['inputs'][5][:] = torch.inf


def main() -> None:
    cfg = small_config(sys.argv[1], 'cluspro_shapes.py', **{
        'train_dataloader.batch_size': 8, 'launcher': 'pytorch',
        'default_hooks.finite.interval': int(sys.argv[2])})
    runner = build_runner(cfg)
    runner.register_hook(Damage())
    runner.train()


if __name__ == '__main__':
    run_command(main)
