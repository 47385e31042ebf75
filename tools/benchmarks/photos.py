"""Memory and time of the routes of docs/real_photos.md: CLIP trained on photos, DINOv2 stored.

    python tools/benchmarks/photos.py --json docs/results/photos.json

Memory of CLIP is the dry run of memory.py, for the batch of the shipped config. Times are CPU time
of one thread, with random weights: per image of a training step, and per image of a frozen tower.
"""
import argparse
import json
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from memory import build, gigabytes
from mmengine.registry import init_default_scope
from mmpretrain.structures import DataSample

from mmcluspro.registry import MODELS

SIZES = (20, 20, 60)  # attributes, objects, pairs
CLIPS = {'ViT-B-32': 512, 'ViT-L-14': 768}


def step_seconds(model: Any, images: int) -> float:
    """CPU seconds per image of a forward and backward pass."""
    sample = DataSample()
    for name in ('attr', 'obj', 'pair'):
        sample.set_field(0, f'{name}_label')
    inputs = torch.randn(images, 3, 224, 224)
    start = time.process_time()
    losses = model(inputs, [sample] * images, mode='loss')
    model.parse_losses(losses)[0].backward()
    return (time.process_time() - start) / images


def clip_route(arch: str, width: int) -> dict[str, float]:
    """GB and seconds of ClusPro on your own photos."""
    model, batch = build('cluspro_own_data.py', SIZES, **{
        'model.backbone.arch': arch, 'model.head.text.arch': arch,
        'model.neck.in_channels': width, 'model.head.in_channels': width})
    needed = {option: round(gigabytes(model, batch, **fields), 1)
              for option, fields in (('gigabytes', {}), ('gigabytes_amp', dict(amp=True)))}
    model.backbone.visual.set_grad_checkpointing(True)
    model.head.text.with_cp = False
    return dict(needed, batch=batch, seconds_per_image=round(step_seconds(model, 4), 2))


@torch.inference_mode()
def frozen_route(images: int = 8) -> dict[str, float]:
    """GB and seconds of storing features of DINOv2-S."""
    tower = MODELS.build(dict(type='mmcluspro.DINOv2', arch='small', pretrained=None))
    tower.eval()  # mmpretrain's backbones return nothing here
    start = time.process_time()
    tower(torch.randn(images, 3, 224, 224))
    seconds = (time.process_time() - start) / images
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return dict(gigabytes=round(peak, 1), seconds_per_image=round(seconds, 2))


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--json', help='write the numbers to this file, too')
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    init_default_scope('mmpretrain')
    rows = {'DINOv2-S': frozen_route(),
            **{arch: clip_route(arch, width) for arch, width in CLIPS.items()}}
    text = json.dumps(rows, indent=1)
    print(text)
    if args.json:
        Path(args.json).write_text(text + '\n')


if __name__ == '__main__':
    main()
