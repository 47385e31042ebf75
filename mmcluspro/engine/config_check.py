"""Mistakes in a config that would otherwise be ignored, or fail deep inside."""
from difflib import get_close_matches

import torch
from mmengine.config import Config

# What Runner.from_cfg and our tools read; other names are variables of the config's own.
FIELDS = (
    'activation_checkpointing', 'auto_scale_lr', 'clip', 'compile', 'custom_hooks',
    'custom_imports', 'data', 'data_preprocessor', 'default_hooks', 'default_scope',
    'efficient_conv_bn_eval', 'env_cfg', 'experiment_name', 'final_test',
    'find_unused_parameters', 'launcher', 'load_from',
    'log_level', 'log_processor', 'model', 'model_wrapper_cfg', 'optim_wrapper',
    'param_scheduler', 'randomness', 'resume', 'runner_type', 'sync_bn', 'test_cfg',
    'test_dataloader', 'test_evaluator', 'test_pipeline', 'train_cfg', 'train_dataloader',
    'train_pipeline', 'val_cfg', 'val_dataloader', 'val_evaluator', 'val_pipeline',
    'vis_backends', 'visualizer', 'work_dir')


def check_fields(cfg: Config) -> None:
    """Refuses names that look like a misspelled field; mmengine would ignore them.

    Args:
        cfg (Config): Variables of its own may have any name that is not close to a field, or
            begin with an underscore.
    """
    for name in cfg:
        alike = [field for field in FIELDS if abs(len(field) - len(name)) <= 2]
        close = get_close_matches(name, alike, n=1, cutoff=0.75)
        if name not in FIELDS and not name.startswith('_') and close:
            raise ValueError(
                f'The config sets {name!r}, which no part reads. Did you mean {close[0]!r}? If it '
                f'is a variable of yours, call it {"_" + name!r}.')


def check_precision(cfg: Config) -> None:
    """Refuses float16 without a GPU."""
    kind = str((cfg.get('optim_wrapper') or {}).get('type'))
    if kind.endswith('AmpOptimWrapper') and not torch.cuda.is_available():
        raise ValueError(
            'optim_wrapper.type=AmpOptimWrapper (float16) needs a GPU, and torch finds none here. '
            'Use --amp, which trains in bfloat16 on the CPU, or leave it out.')
