"""GB of a training process on the published datasets, by a dry run: no GPU, no data, no weights.

    python tools/benchmarks/memory.py                     # the table of docs/training.md
    python tools/benchmarks/memory.py --json FILE         # and its record
"""
import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from mmpretrain.structures import DataSample

from mmcluspro.datasets import CompositionSpace
from mmcluspro.engine.hooks.memory import estimate_step
from mmcluspro.engine.launch import read_config
from mmcluspro.registry import MODELS

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
# Name, config, attributes, objects, training pairs: docs/data.md.
DATASETS = (('UT-Zappos', 'utzappos', 16, 12, 83), ('MIT-States', 'mitstates', 115, 245, 1262),
            ('C-GQA', 'cgqa', 413, 674, 5592))
# with_cp of the image tower, of the text side, bfloat16, images that run together.
OPTIONS = {
    'as shipped': {}, '`--amp`': dict(amp=True),
    'text `with_cp`, `--amp`': dict(amp=True, text=True), 'no `with_cp`': dict(image=False)}
INITS = ('normal_', 'uniform_', 'trunc_normal_', 'kaiming_uniform_', 'xavier_uniform_', 'ones_',
         'zeros_', 'constant_')


def make_space(attributes: int, objects: int, pairs: int) -> CompositionSpace:
    """A space of these sizes whose names are one token each."""
    index = torch.arange(pairs)
    index = torch.stack([index % attributes, index // attributes % objects], dim=1)
    return CompositionSpace([f'a{i:04}' for i in range(attributes)],
                            [f'o{i:04}' for i in range(objects)], index, [True] * pairs)


def build(config: str, sizes: tuple[int, int, int], **changes: Any) -> tuple[Any, int]:
    """The model of a config without weights, and the batch size of the config."""
    cfg = read_config(CONFIGS / config)
    cfg.merge_from_dict({'model.backbone.pretrained': None, 'model.head.text.pretrained': None,
                         **changes})
    with patch.multiple(torch.nn.init, **dict.fromkeys(INITS, lambda tensor, *_, **__: tensor)):
        model = MODELS.build(dict(cfg.model, space=make_space(*sizes)))
    for bank in model.head.clustered.values():
        bank.initialise(torch.randn(bank.num_classes, bank.dim), torch.arange(bank.num_classes))
    return model, cfg.train_dataloader.batch_size


def gigabytes(model: Any, batch: int, image: bool = True, text: bool = False, amp: bool = False,
              micro: int | None = None, side: int = 224) -> float:
    """GB of a training step with these options."""
    model.backbone.visual.set_grad_checkpointing(image)
    model.head.text.with_cp, model.micro_batch = text, micro
    sample = DataSample()
    for name in ('attr', 'obj', 'pair'):
        sample.set_field(0, f'{name}_label')
    context = torch.autocast('cpu', torch.bfloat16) if amp else None
    return estimate_step(model, (batch, 3, side, side), [sample] * batch, context).total / 1e9


def table() -> dict[str, dict[str, float]]:
    """GB by dataset and option."""
    rows = {}
    for name, config, *sizes in DATASETS:
        model, batch = build(f'cluspro_{config}.py', tuple(sizes))
        rows[f'{name} | {batch}'] = {}
        for option, fields in OPTIONS.items():
            rows[f'{name} | {batch}'][option] = round(gigabytes(model, batch, **fields), 1)
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--json', help='write the numbers to this file, too')
    args = parser.parse_args(argv)
    rows = table()
    print('| dataset | batch |', ' | '.join(OPTIONS), '|')
    print('|---' * (len(OPTIONS) + 2) + '|')
    for name, cells in rows.items():
        print('|', name, '|', ' | '.join(f'{cell:.1f}' for cell in cells.values()), '|')
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + '\n')


if __name__ == '__main__':
    main()
