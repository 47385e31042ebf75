"""Pre-trains ``tiny_clip``, the CLIP that is shipped with the package.

Contrastive training on captioned Shapes pictures, of pairs that no version of
the dataset holds out (``shapes_captions``). Run it again with
the same folder to resume; the same seed gives the same weights.

    python tools/pretrain_tiny_clip.py --work-dir work_dirs/tiny_clip
"""
import argparse
import math
import time
from pathlib import Path

import open_clip
import torch
from contrastive import Vocabulary, clip_loss, learning_rate, save_half
from shapes_captions import (
    WORDING,
    Captioner,
    draw_pretraining,
    pretraining_pairs,
)
from torch import Tensor, nn

from mmcluspro.datasets.shapes.draw import Draws
from mmcluspro.models.clip import CONFIGS
from mmcluspro.utils.files import atomic_path

# The statistics of CLIP's own pipeline: the configs of all datasets use them.
MEAN = torch.tensor(open_clip.OPENAI_DATASET_MEAN).view(1, 3, 1, 1)
STD = torch.tensor(open_clip.OPENAI_DATASET_STD).view(1, 3, 1, 1)


class Tokens:
    """Captions to rows of a small embedding that holds the tokens met so far."""

    def __init__(self, captioner: Captioner, seed: int) -> None:
        self.tokenizer = open_clip.get_tokenizer('tiny_clip')
        self.cache: dict[str, Tensor] = {}
        draws = Draws('vocabulary', seed)
        for pair in captioner.pairs * 40:
            self.ids(captioner(draws, pair, draws.choice(tuple(WORDING))))
        self.vocabulary = Vocabulary(self.cache.values())

    def ids(self, caption: str) -> Tensor:
        """Token ids (L,)."""
        if caption not in self.cache:
            self.cache[caption] = self.tokenizer([caption])[0]
        return self.cache[caption]

    def __call__(self, captions: list[str]) -> Tensor:
        """Rows of the small embedding (N, L)."""
        return self.vocabulary.rows(torch.stack([self.ids(text) for text in captions]))


def build_model(words: Vocabulary, seed: int, init: Path | None) -> tuple[nn.Module, Tensor]:
    """The model with an embedding of the used tokens only, and the full embedding at init."""
    torch.manual_seed(seed)
    open_clip.add_model_config(CONFIGS)
    model = open_clip.create_model('tiny_clip')
    if init is not None:
        state = torch.load(init, weights_only=True)
        model.load_state_dict({name: value.float() for name, value in state.items()})
    return model, words.shrink(model)


def prepare(images: Tensor) -> Tensor:
    """uint8 RGB (N, H, W, 3) to normalised float (N, 3, H, W)."""
    return (images.permute(0, 3, 1, 2).float() / 255 - MEAN) / STD


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/tiny_clip'))
    parser.add_argument('--out', type=Path, help='weights file, default WORK_DIR/tiny_clip.pt')
    parser.add_argument('--init', type=Path, help='weights to start from (default: random)')
    parser.add_argument('--pictures', type=int, default=30, help='pictures per pair')
    parser.add_argument('--plain', type=int, default=0,
                        help='plain pictures per object, without an attribute')
    parser.add_argument('--steps', type=int, default=4000)
    parser.add_argument('--batch-size', type=int, default=64)
    parser.add_argument('--lr', type=float, default=1e-3)
    parser.add_argument('--wrong', type=float, default=0.05, help='share of wrong names')
    parser.add_argument('--loose', type=float, default=0.3, help="share of neighbours' names")
    parser.add_argument('--seed', type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    captioner = Captioner(pretraining_pairs(), args.wrong, args.loose)
    images, pairs, looks = draw_pretraining(args.pictures, args.seed, args.plain)
    open_clip.add_model_config(CONFIGS)
    tokens = Tokens(captioner, args.seed)
    model, full = build_model(tokens.vocabulary, args.seed, args.init)
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW([{'params': decay, 'weight_decay': 0.05},
                                   {'params': rest, 'weight_decay': 0.0}], lr=args.lr,
                                  betas=(0.9, 0.98))
    checkpoint, start = args.work_dir / 'last.pth', 0
    args.work_dir.mkdir(parents=True, exist_ok=True)
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state['model'])
        optimizer.load_state_dict(state['optimizer'])
        start = state['step']
        print(f'Resumed at step {start}.', flush=True)
    print(f'{len(captioner.pairs)} pairs, {len(images)} pictures, '
          f'{len(tokens.vocabulary.used)} tokens, '
          f'{sum(p.numel() for p in model.visual.parameters()):,} image parameters.', flush=True)
    source, began, mean = torch.from_numpy(images), time.monotonic(), 0.0
    for step in range(start, args.steps):
        # The batch depends on seed and step only, so that a resumed run sees the same.
        draws = Draws('batch', args.seed, step)
        rows = [draws.integer(0, len(pairs)) for _ in range(args.batch_size)]
        captions = tokens([captioner(draws, pairs[row], looks[row]) for row in rows])
        for group in optimizer.param_groups:
            group['lr'] = learning_rate(step, args.steps, args.lr)
        loss = clip_loss(model.encode_image(prepare(source[rows])), model.encode_text(captions),
                         model.logit_scale.exp(), captions)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        model.logit_scale.data.clamp_(0, math.log(100))
        mean = loss.item() if step == start else 0.98 * mean + 0.02 * loss.item()
        if (step + 1) % 100 == 0 or step + 1 == args.steps:
            left = (time.monotonic() - began) / (step + 1 - start) * (args.steps - step - 1)
            print(f'step {step + 1}/{args.steps}  loss {mean:.3f}  scale '
                  f'{float(model.logit_scale.exp()):.1f}  {left / 60:.1f} min left', flush=True)
            with atomic_path(checkpoint) as part:
                torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict(),
                            'step': step + 1}, part)
    out = args.out or args.work_dir / 'tiny_clip.pt'
    state = model.state_dict()
    embedding = state['token_embedding.weight']
    save_half({**state, 'token_embedding.weight': tokens.vocabulary.expand(full, embedding)}, out)
    print(f'Wrote {out} ({out.stat().st_size / 1e6:.2f} MB).')


if __name__ == '__main__':
    main()
