#!/usr/bin/env python
"""Pre-trains `fashion_clip`: a text tower and projections on a locked DINOv2.

The image tower is the frozen DINOv2, read from its stored features; a causal text tower as in
open_clip and a linear projection of the images learn from the shop's titles with CLIP's
contrastive loss. Only training images are used, all of which are of seen pairs.

    mmcluspro extract-features frozen_dinov2_cluspro_fashion.py
    python tools/pretrain_fashion_clip.py --data data/fashion \\
        --features data/features/fashion_dinov2_s --out data/weights/fashion_clip.pt

The same seed gives the same weights on the same machine. See docs/fashion.md.
"""
import argparse
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from contrastive import Vocabulary, clip_loss, learning_rate, save_half
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.datasets import Fashion
from mmcluspro.datasets.layout import metadata_file, read_metadata, read_splits, select_rows
from mmcluspro.features import FeatureStore
from mmcluspro.models import get_tokenizer
from mmcluspro.models.clip import load_clip
from mmcluspro.utils.digest import file_digest

ARCH = 'fashion_clip'
PREFIX = 'a photo of '  # what prompts start with in CoOp, CSP and all that follow


class Captioned(NamedTuple):
    """Training images with their titles.

    Attributes:
        names (list[str]): Images, as the metadata names them.
        titles (list[str]): Their titles, in lower case.
        features (Tensor): Their stored features, shape (N, C).
    """
    names: list[str]
    titles: list[str]
    features: Tensor


def read_training(data_root: Path, features: Path, split: str = Fashion.SPLIT) -> Captioned:
    """Reads titles and features of the training images; no other phase is opened."""
    path = metadata_file(data_root, split)
    rows = read_metadata(path)
    chosen = select_rows(rows, read_splits(data_root, split), 'train', path)
    if chosen.faults:
        raise ValueError(f'{path} does not fit its pair lists: {chosen.faults[0]}.')
    rows = [rows[number] for number in chosen.numbers if rows[number].get('title')]
    store = FeatureStore(features, 'train')
    stored = torch.stack([torch.from_numpy(store[row['image']]) for row in rows])
    return Captioned([row['image'] for row in rows], [row['title'].lower() for row in rows],
                     stored)


def vary(title: str, drop: float, prefix: float, draws: random.Random) -> str:
    """A title with some words left out, and in some cases the start of a prompt before it."""
    words = title.split()
    kept = [word for word in words if draws.random() >= drop] or words[-1:]
    return (PREFIX if draws.random() < prefix else '') + ' '.join(kept)


class Towers(nn.Module):
    """The text tower and the projection of stored image features."""

    def __init__(self, width: int, feature_drop: float) -> None:
        super().__init__()
        half = load_clip(ARCH).requires_grad_(True).train()
        self.text, self.logit_scale = half.text, half.logit_scale
        self.feature_drop = feature_drop
        self.proj = nn.Linear(width, half.text.text_projection.shape[1])

    def loss(self, features: Tensor, rows: Tensor) -> Tensor:
        """CLIP's loss of features (N, C) and captions (N, L)."""
        image = self.proj(F.dropout(features, self.feature_drop, self.training))
        return clip_loss(image, self.encode_text(rows), self.logit_scale.exp(), rows)

    def encode_text(self, rows: Tensor) -> Tensor:
        """The tower's forward for captions that are cut behind the longest, (N, L) → (N, D)."""
        length, tower = rows.shape[1], self.text
        x = tower.token_embedding(rows) + tower.positional_embedding[:length]
        x = tower.transformer(x, attn_mask=tower.attn_mask[:length, :length])
        ends = x[torch.arange(len(rows)), rows.argmax(dim=1)]
        return tower.ln_final(ends) @ tower.text_projection

    def weights(self, embedding: Tensor) -> dict[str, Tensor]:
        """What `CLIPText` and `ProjectedBackbone` read."""
        state = {f'text.{name}': value for name, value in self.text.state_dict().items()}
        state['text.token_embedding.weight'] = embedding
        return {**state, 'logit_scale': self.logit_scale,
                'visual.proj.weight': self.proj.weight, 'visual.proj.bias': self.proj.bias}


def train(data: Captioned, args: argparse.Namespace) -> dict[str, Tensor]:
    """Trains and returns the state dict of the whole CLIP without DINOv2."""
    torch.manual_seed(args.seed)
    draws = random.Random(args.seed)
    tokenizer = get_tokenizer(ARCH)
    towers = Towers(data.features.shape[1], args.feature_drop)
    # Words are tokenized one by one, so that leaving some out brings no other tokens.
    vocabulary = Vocabulary(tokenizer([PREFIX, *data.titles], context_length=128))
    full = vocabulary.shrink(towers.text)
    decay = [p for p in towers.parameters() if p.ndim > 1]
    rest = [p for p in towers.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW([{'params': decay, 'weight_decay': args.weight_decay},
                                   {'params': rest, 'weight_decay': 0.0}], lr=args.lr,
                                  betas=(0.9, 0.98))
    per_epoch = len(data.titles) // args.batch_size
    steps, began, mean = per_epoch * args.epochs, time.monotonic(), 0.0
    print(f'{len(data.titles)} titles, {len(vocabulary.used)} tokens, {steps} steps', flush=True)
    for step in range(steps):
        if step % per_epoch == 0:
            order = torch.randperm(len(data.titles))
        chosen = order[step % per_epoch * args.batch_size:][:args.batch_size]
        ids = tokenizer([vary(data.titles[i], args.word_drop, 0.5, draws) for i in chosen])
        ids = ids[:, :int(ids.argmax(dim=1).max()) + 1].contiguous()
        for group in optimizer.param_groups:
            group['lr'] = learning_rate(step, steps, args.lr)
        loss = towers.loss(data.features[chosen], vocabulary.rows(ids))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(towers.parameters(), 1.0)
        optimizer.step()
        towers.logit_scale.data.clamp_(0, math.log(100))
        mean = loss.item() if step == 0 else 0.98 * mean + 0.02 * loss.item()
        if (step + 1) % 50 == 0 or step + 1 == steps:
            left = (time.monotonic() - began) / (step + 1) * (steps - step - 1) / 60
            print(f'step {step + 1}/{steps}  loss {mean:.3f}  scale '
                  f'{towers.logit_scale.exp().item():.1f}  {left:.1f} min left', flush=True)
    return towers.weights(vocabulary.expand(full, towers.text.token_embedding.weight))


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--data', type=Path, default=Path('data/fashion'),
                        help='folder of prepare_photographs.py')
    parser.add_argument('--features', type=Path, default=Path('data/features/fashion_dinov2_s'),
                        help='folder of mmcluspro extract-features')
    parser.add_argument('--split', default=Fashion.SPLIT)
    parser.add_argument('--out', type=Path, default=Path('data/weights/fashion_clip.pt'))
    parser.add_argument('--epochs', type=int, default=30)
    parser.add_argument('--batch-size', type=int, default=256)
    parser.add_argument('--lr', type=float, default=1e-3)
    parser.add_argument('--weight-decay', type=float, default=0.1)
    parser.add_argument('--word-drop', type=float, default=0.3,
                        help='share of the words of a title that are left out')
    parser.add_argument('--feature-drop', type=float, default=0.1,
                        help='dropout on the features of images')
    parser.add_argument('--seed', type=int, default=0)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    data = read_training(args.data, args.features, args.split)
    if len(data.titles) < args.batch_size:
        raise ValueError(f'{args.data} has {len(data.titles)} titles, fewer than --batch-size.')
    save_half(train(data, args), args.out)
    print(f'Wrote {args.out} ({args.out.stat().st_size / 1e6:.2f} MB, '
          f'sha256 {file_digest(args.out, "sha256")}).')


if __name__ == '__main__':
    main()
