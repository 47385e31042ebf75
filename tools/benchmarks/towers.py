"""Time of an image tower that trains: adapters, LoRA and its dropout, beside what they replace.

    python tools/benchmarks/towers.py --batch 4

Forward and backward of ViT-B/32 with random weights, CPU time, the least of interleaved rounds.
Only the ratios of one run mean anything; the largest difference of the features stands beside.
"""
import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F

from mmcluspro.models.backbones import CLIPVision
from mmcluspro.models.peft import FusedAttention, LowRank

LORA = dict(type='mmcluspro.LoRA', rank=16)


def plain_attention(tower: nn.Module) -> nn.Module:
    """The same tower with torch's ``nn.MultiheadAttention``, under the same parameters."""
    for layer in tower.modules():
        for name, child in layer.named_children():
            if type(child) is FusedAttention:
                plain = nn.MultiheadAttention(child.embed_dim, child.num_heads, batch_first=True)
                for own in ('in_proj_weight', 'in_proj_bias', 'out_proj'):
                    setattr(plain, own, getattr(child, own))
                setattr(layer, name, plain.train(child.training))
    return tower


def separate_masks(tower: nn.Module) -> nn.Module:
    """The same tower with torch's masks and an inner checkpoint around each, as before."""
    for update in tower.modules():
        if isinstance(update, LowRank):
            update.drop, update.recompute = nn.Dropout(update.drop.p), True
    return tower


def tower(peft: dict | None, with_cp: bool = False) -> CLIPVision:
    torch.manual_seed(0)
    return CLIPVision('ViT-B-32', peft=peft, with_cp=with_cp).train()


def cases() -> dict[str, tuple[CLIPVision, nn.Module]]:
    """By name: the tower, and what it is compared with."""
    bottleneck = dict(type='mmcluspro.Bottleneck', dropout=0.0)
    dropped = dict(LORA, drop_rate=0.1)
    return {
        'Bottleneck: fused / torch attention': (
            tower(bottleneck), plain_attention(tower(bottleneck))),
        'LoRA: dropout / none': (tower(dropped), tower(LORA)),
        'LoRA, checkpointed blocks: dropout / none': (tower(dropped, True), tower(LORA, True)),
        'LoRA, checkpointed blocks: now / inner checkpoint and masks of torch': (
            tower(dropped, True), separate_masks(tower(dropped, True))),
    }


def step(model: nn.Module, images: torch.Tensor) -> float:
    start = time.process_time()
    F.normalize(model(images)[0], dim=1).square().mean().backward()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--batch', type=int, default=4)
    parser.add_argument('--rounds', type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    images = torch.randn(args.batch, 3, 224, 224)
    for name, pair in cases().items():
        times = [[step(model, images) for model in pair] for _ in range(args.rounds)]
        ours, other = (min(row[place] for row in times) for place in (0, 1))
        with torch.no_grad():
            found = [model.eval()(images)[0] for model in pair]
        print(f'{name}: {ours:.2f} s / {other:.2f} s = {ours / other:.2f}, '
              f'features differ by {float((found[0] - found[1]).abs().max()):.0e}', flush=True)


if __name__ == '__main__':
    main()
