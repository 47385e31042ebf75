"""CVGAE: a variational graph autoencoder of attributes and objects."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.fields import Unsaved, Width
from mmcluspro.models.heads.three_path import ThreePathHead
from mmcluspro.models.necks import PathEmbedder, mlp
from mmcluspro.models.structures import Features, TrainStep
from mmcluspro.models.text.words import WordTableText
from mmcluspro.registry import MODELS

MAX_LOG_SIGMA = 10.0


class SageConv(nn.Module):
    """GraphSAGE with the mean: h W_own + mean of the neighbours' h W_heard + b."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.own = nn.Linear(in_dim, out_dim, bias=False)
        self.heard = nn.Linear(in_dim, out_dim)

    def forward(self, states: Tensor, neighbours: Tensor) -> Tensor:
        """states (n, in_dim), neighbours (n, n) with rows that sum to 1 or 0 → (n, out_dim)."""
        return self.own(states) + self.heard(neighbours @ states)


class Latent(NamedTuple):
    """Normal distributions of the names, and one draw."""

    mean: Tensor  # (A + O, D)
    log_sigma: Tensor  # (A + O, D)
    draw: Tensor  # (A + O, D); the mean outside of training


class GraphEncoder(nn.Module):
    """SAGE(dropout(ReLU(SAGE(X)))): word vectors (n, in_dim) → (n, out_dim)."""

    def __init__(self, in_dim: int, hidden_dim: int, out_dim: int, dropout: float) -> None:
        super().__init__()
        self.hidden = SageConv(in_dim, hidden_dim)
        self.dropout = nn.Dropout(dropout)
        self.last = SageConv(hidden_dim, out_dim)

    def forward(self, words: Tensor, neighbours: Tensor) -> Tensor:
        """words (n, in_dim), neighbours (n, n) → (n, out_dim)."""
        return self.last(self.dropout(self.hidden(words, neighbours).relu()), neighbours)


@MODELS.register_module()
class VariationalGraphText(WordTableText):
    r"""Attributes and objects as nodes, pairs composed from their latent vectors.

    Names that share a seen pair are neighbours. With word vectors X and two encoders of two
    GraphSAGE layers each,

    .. math::
        \mu = \mathrm{E}_\mu(X), \quad \log\sigma = \mathrm{E}_\sigma(X), \quad
        z = \mu + \sigma \epsilon, \quad t_{ao} = \mathrm{centred}(\mathrm{MLP}([z_a, z_o]))

    with z = μ outside of training. The graph has A + O nodes whatever the number of pairs, so
    that the open world costs no more than composing its pairs. A new name has no neighbours.

    Args:
        out_dim (int): Width of the features, that of the image side. Defaults to 1600.
        node_dim (int): Width of μ, σ and z. Defaults to 150.
        hidden_dim (int): Of the graph. Defaults to 2048.
        pair_dim (int): Hidden width of the MLP. Defaults to 1000.
        dropout (float): In the graph and in the MLP. Defaults to 0.5.
        **kwargs: As in :class:`~mmcluspro.models.text.WordTableText`.
    """

    node_pairs: Tensor

    def __init__(self, out_dim: Width = 1600, node_dim: Width = 150, hidden_dim: Width = 2048,
                 pair_dim: Width = 1000, dropout: Unsaved[float] = 0.5, **kwargs: Any) -> None:
        super().__init__(out_dim=out_dim, **kwargs)
        self.mean, self.log_sigma = (
            GraphEncoder(self.width, hidden_dim, node_dim, dropout) for _ in range(2))
        self.composer = mlp((2 * node_dim, pair_dim, out_dim), norm=True, dropout=dropout)
        self.connect(torch.zeros(0, 2, dtype=torch.long, device='cpu'))

    def connect(self, pairs: Tensor) -> None:
        """Sets which pairs are edges, shape (S, 2)."""
        self.register_buffer('node_pairs', pairs.to(self.logit_scale.device), persistent=False)
        self.forget()

    def edges(self) -> Tensor:
        """Adjacency of attributes (rows) and objects (columns), 0 or 1, shape (A, O)."""
        edges = self.logit_scale.new_zeros(len(self.attributes), len(self.objects))
        edges[self.node_pairs[:, 0], self.node_pairs[:, 1]] = 1
        return edges

    def latent(self) -> Latent:
        """Runs the encoder; dropout and ε are drawn here."""
        edges = self.edges()
        size = sum(edges.shape)
        both = edges.new_zeros(size, size)
        both[:len(edges), len(edges):] = edges
        both[len(edges):, :len(edges)] = edges.T
        neighbours = both / both.sum(dim=1, keepdim=True).clamp_min(1)
        words = torch.cat([self.attr_table(), self.obj_table()])
        mean = self.mean(words, neighbours)
        log_sigma = self.log_sigma(words, neighbours).clamp_max(MAX_LOG_SIGMA)
        drawn = self.training and torch.is_grad_enabled()
        draw = mean + log_sigma.exp() * torch.randn_like(mean) if drawn else mean
        return Latent(mean, log_sigma, draw)

    def parts(self) -> tuple[Tensor, Tensor]:
        draw = self.latent().draw
        return draw[:len(self.attributes)], draw[len(self.attributes):]

    def compose(self, parts: tuple[Tensor, Tensor], pairs: Tensor) -> Tensor:
        composed = self.composer(super().compose(parts, pairs))
        # Of a product with centred texts, the mean of an image feature drops out.
        return composed - composed.mean(dim=1, keepdim=True)


@MODELS.register_module()
class CVGAENeck(PathEmbedder):
    """:class:`~mmcluspro.models.necks.PathEmbedder` whose embeddings have the mean zero.

    So their cosines with centred texts are dot products of two layer-normed vectors, divided by
    the width, as in the published code.
    """

    def forward(self, inputs: Features | Tensor | Sequence[Tensor]) -> Features:
        """f (B, in_channels) → f_c (B, out_channels) with the mean zero."""
        features = super().forward(inputs)
        f = features.composition
        return replace(features, composition=f - f.mean(dim=1, keepdim=True))


@MODELS.register_module()
class CVGAEHead(ThreePathHead):
    r"""CVGAE (Anwaar et al., "On Leveraging Variational Graph Embeddings for OW-CZSL", 2022).

    Scores are cosines over temperature between image features and :class:`VariationalGraphText`.
    With N names, the loss is

    .. math::
        w_c L_{x \to c} + w_x L_{c \to x} / N^2 + w_r (L_{edges} + L_{KL} / N^2)

    - :math:`L_{x \to c}`: cross-entropy of an image over the seen pairs;
    - :math:`L_{c \to x}`: that of its pair over the images of the batch;
    - :math:`L_{edges}`: -log σ(z_a·z_o), averaged over the seen pairs, plus -log(1 - σ(z_a·z_o)),
      averaged over all others;
    - :math:`L_{KL}`: divergence of the names' distributions from the standard normal one, averaged
      over names.

    Args:
        *args: ``space`` and ``text`` of :class:`ThreePathHead`.
        pair_weight (float): w_c. Defaults to 10.0.
        image_weight (float): w_x. Defaults to 0.01.
        recon_weight (float): w_r. Defaults to 1.0.
        **kwargs: ``feasibility``, ``losses`` and ``init_cfg``.
    """

    fixed: tuple[str, ...] = ('fusion', )

    def __init__(self, *args: Any, pair_weight: Unsaved[float] = 10.0,
                 image_weight: Unsaved[float] = 0.01, recon_weight: Unsaved[float] = 1.0,
                 **kwargs: Any) -> None:
        super().__init__(*args, fusion='composition', loss_weights=dict(attr=0, obj=0), **kwargs)
        weights = dict(pair=pair_weight, image=image_weight, recon=recon_weight)
        for name, weight in weights.items():
            if weight < 0:
                raise ValueError(f'head.{name}_weight must not be negative, got {weight}.')
        if not isinstance(self.text, VariationalGraphText):
            raise ValueError('CVGAEHead needs the text side mmcluspro.VariationalGraphText, got '
                             f'{type(self.text).__name__}: set model.head.text.type.')
        self.weights = weights
        self.text.connect(self._train.pairs)

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """The contrast in both directions, and the two terms of the autoencoder."""
        logits, rows = step.logits.composition, step.labels['pair']
        own = torch.arange(len(rows), device=rows.device)
        # Drawn once more: the graph has no more nodes than there are names.
        latent = self.text.latent()
        scale = len(latent.mean)**2
        weights = self.weights
        return dict(
            pair_loss=weights['pair'] * F.cross_entropy(logits, rows),
            image_loss=weights['image'] / scale * F.cross_entropy(logits[:, rows].T, own),
            edge_loss=weights['recon'] * edge_loss(latent.draw, self.text.edges()),
            kl_loss=weights['recon'] / scale * kl_loss(latent))


def edge_loss(draw: Tensor, edges: Tensor) -> Tensor:
    """Cross-entropy of the edges from the dot products of the names, both kinds averaged apart.

    Args:
        draw (Tensor): z of attributes and objects, shape (A + O, D).
        edges (Tensor): 0 or 1, shape (A, O).
    """
    logits = draw[:len(edges)] @ draw[len(edges):].T
    there, missing = edges, 1 - edges
    return ((F.softplus(-logits) * there).sum() / there.sum().clamp_min(1)
            + (F.softplus(logits) * missing).sum() / missing.sum().clamp_min(1))


def kl_loss(latent: Latent) -> Tensor:
    """KL divergence from the standard normal distribution, averaged over the names."""
    mean, log_sigma = latent.mean, latent.log_sigma
    each = 1 + 2 * log_sigma - mean.square() - (2 * log_sigma).exp()
    return -0.5 * each.sum(dim=1).mean()
