"""One process of a distributed test: trains, and leaves what it has for comparison."""
import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from conftest import STILL, small_config

from mmcluspro.engine.launch import build_runner


def main() -> None:
    name, work_dir, batch_size, launcher, options = sys.argv[1:]
    torch.set_num_threads(1)
    cfg = small_config(
        work_dir, name, **STILL, **{
            'train_cfg.max_epochs': 1,
            'train_dataloader.batch_size': int(batch_size),
            'launcher': launcher,
            **json.loads(options),
        })
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    cfg.default_hooks.checkpoint = dict(type='CheckpointHook', interval=1)
    runner = build_runner(cfg)
    runner.train()
    model = runner.model.module if launcher != 'none' else runner.model
    history = runner.message_hub.log_scalars['train/loss'].data[0]
    torch.save({'state': model.state_dict(), 'loss': history.tolist()},
               Path(work_dir) / f'rank{runner.rank}.pt')


if __name__ == '__main__':
    main()
