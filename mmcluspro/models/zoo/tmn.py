"""TMN: a small network of modules whose wiring depends on the pair that is asked about."""
from collections.abc import Sequence
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.fields import Unsaved, Width, integer
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.heads.base import CompositionHead
from mmcluspro.models.structures import Features, Logits, Scores, Texts, TrainStep, as_features
from mmcluspro.registry import MODELS

from .common import other_rows


class RowNorm(nn.BatchNorm1d):
    """BatchNorm of the last dimension over all others."""

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape (…, channels)."""
        return super().forward(x.flatten(0, -2)).view_as(x)


class Layer(nn.Module):
    """M modules of one layer after the first: BatchNorm, linear, BatchNorm, ReLU.

    Args:
        modules (int): M.
        width (int): D.
    """

    def __init__(self, modules: int, width: int) -> None:
        super().__init__()
        self.before, self.after = RowNorm(modules * width), RowNorm(modules * width)
        layers = [nn.Linear(width, width) for _ in range(modules)]
        self.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]))

    def forward(self, x: Tensor) -> Tensor:
        """x (…, M, D) → (…, M, D)."""
        x = self.before(x.flatten(-2)).view_as(x)
        x = torch.einsum('...mi,moi->...mo', x, self.weight) + self.bias
        return F.relu(self.after(x.flatten(-2)).view_as(x))


@MODELS.register_module()
class TMNHead(CompositionHead):
    """TMN (Purushwalkam et al., "Task-Driven Modular Networks", ICCV 2019).

    Layer 1 has M modules ReLU(BN(W x)) on the image feature x. Module j of a later layer reads
    the outputs of the layer before it, mixed with weights that a gating network computes from the
    word vectors of the pair, and the score reads a last mixture:

        in_j = Σ_i g_ji(a, o) out_i,   Σ_i g_ji = 1,   g = softmax(V ReLU(BN(U [w_a, w_o])))
        score(x, a, o) = w · BN(Σ_i g_i(a, o) out_i) + b
        L = CE(scores of the pair and of other seen pairs, drawn at random; the pair)

    V starts at zero, so that all modules count alike at first. New names are taken from their
    word vectors.

    Args:
        *args: ``space`` and ``text`` of :class:`~mmcluspro.models.heads.CompositionHead`.
        in_channels (int): Width of x.
        num_layers (int): Number of layers. Defaults to 3.
        num_modules (int): M. Defaults to 24.
        width (int): Width of a module's output. Defaults to 16.
        gate_width (int): Hidden width of the gating network. Defaults to 64.
        num_negatives (int): How many other seen pairs the loss draws for each image. Defaults to
            600.
        chunk_size (int): Number of scores, images times pairs, that are computed together in
            evaluation. Defaults to 16384.
        **kwargs: As in :class:`~mmcluspro.models.heads.CompositionHead`.
    """

    link = 'identity'

    def __init__(self, *args: Any, in_channels: Width,
                 num_layers: Annotated[int, integer(1, 64)] = 3,
                 num_modules: Annotated[int, integer(1, 1024)] = 24, width: Width = 16,
                 gate_width: Width = 64, num_negatives: Unsaved[int] = 600,
                 chunk_size: Unsaved[int] = 16384, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, value in dict(num_layers=num_layers, num_modules=num_modules,
                                num_negatives=num_negatives, chunk_size=chunk_size).items():
            if value < 1:
                raise ValueError(f'head.{name} must be at least 1, got {value}.')
        self.num_modules, self.num_negatives, self.chunk_size = (
            num_modules, num_negatives, chunk_size)
        self.first = nn.Sequential(
            nn.Linear(in_channels, num_modules * width), nn.BatchNorm1d(num_modules * width),
            nn.ReLU())
        self.layers = nn.ModuleList([Layer(num_modules, width) for _ in range(num_layers - 1)])
        self.last = nn.Sequential(RowNorm(width), nn.Linear(width, 1))
        # Every module of the later layers and the score have M weights.
        outputs = nn.Linear(gate_width, (num_modules * (num_layers - 1) + 1) * num_modules,
                            bias=False)
        inputs = nn.Linear(self.text.out_dim, gate_width, bias=False)
        nn.init.normal_(inputs.weight, 0, 0.1)
        nn.init.zeros_(outputs.weight)
        self.gater = nn.Sequential(inputs, nn.BatchNorm1d(gate_width), nn.ReLU(), outputs)

    def gates(self, candidates: Candidates) -> Tensor:
        """Weights of all pairs, shape (P, M · (layers - 1) + 1, M)."""
        vectors = self.text.encode_pairs(candidates.text_pairs)
        return self.gater(vectors).unflatten(1, (-1, self.num_modules)).softmax(dim=2)

    def run(self, x: Tensor, gates: Tensor) -> Tensor:
        """Scores of images x (B, in_channels) by gates (B or 1, P, …, M), shape (B, P)."""
        x = self.first(x).unflatten(1, (self.num_modules, -1))[:, None]  # (B, 1, M, D)
        *wiring, last = gates.split(
            [self.num_modules] * len(self.layers) + [1], dim=2)
        for layer, weights in zip(self.layers, wiring):
            x = layer(weights @ x)
        return self.last(last @ x)[..., 0, 0]

    def score(self, feats: Features | Sequence[Tensor], candidates: Candidates) -> Scores:
        """Scores of all pairs, some pairs at a time.

        Args:
            feats (Features): Of B images.
            candidates (Candidates): What can be answered.
        """
        x = as_features(feats).composition
        gates = self.gates(candidates.to(self.device))
        size = max(1, self.chunk_size // max(1, len(x)))
        return Scores(torch.cat([self.run(x, part[None]) for part in gates.split(size)], dim=1))

    def step(self, features: Features, labels: dict[str, Tensor]) -> TrainStep:
        """Scores of the pair of each image, in column 0, and of other seen pairs."""
        candidates = self.train_candidates
        gates, rows = self.gates(candidates), labels['pair']
        rows = torch.cat([rows[:, None], other_rows(rows, len(gates), (self.num_negatives, ))], 1)
        scores = self.run(features.composition, gates[rows])
        texts = Texts(None, None, gates.flatten(1))
        return TrainStep(features, texts, Logits(None, None, scores), labels, candidates)

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """Cross-entropy of the drawn pairs."""
        scores = step.logits.composition
        return dict(pair_loss=F.cross_entropy(scores, scores.new_zeros(len(scores)).long()))
