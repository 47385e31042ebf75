"""DFSP: text features decomposed into attributes and objects are fused with the image.

Lu, Guo, Liu and Guo, "Decomposed Soft Prompt Guided Fusion Enhancing for Compositional Zero-Shot
Learning".
"""
from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.fields import Unsaved, Width, number
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.heads import CompositionHead, Portable, ThreePathHead
from mmcluspro.models.heads.three_path import Fusion
from mmcluspro.models.structures import Features, Logits, Texts, TrainStep
from mmcluspro.registry import MODELS

from .common import AttentionBlock, decomposed, primitive_means, require_one_path

DIRECTIONS = ('t2i', 'i2t', 'BiF')
Direction = Literal['t2i', 'i2t', 'BiF']


def check_direction(direction: str) -> None:
    """Refuses another word than those of :data:`DIRECTIONS`."""
    if direction not in DIRECTIONS:
        raise ValueError(f'head.direction must be one of {DIRECTIONS}, got {direction!r}.')


class GuidedHead(ThreePathHead):
    """What the two heads have in common: the losses, and no export.

    Args:
        *args: As in :class:`~mmcluspro.models.heads.ThreePathHead`.
        weight (float): Share of the features without fusion. Defaults to 0.8.
        prompt_weight (float): Weight of the loss without fusion. Defaults to 0.1.
        loss_weights (dict, optional): Of 'attr', 'obj' and 'pair'. Defaults to None: 0.01, 0.01
            and 1.
        fusion (str): 'composition', the only one. Defaults to 'composition'.
        **kwargs: As in :class:`~mmcluspro.models.heads.ThreePathHead`.
    """

    def __init__(self, *args: Any, weight: Annotated[float, number(0, 1)] = 0.8,
                 prompt_weight: Unsaved[float] = 0.1, loss_weights: Unsaved[dict | None] = None,
                 fusion: Fusion = 'composition', **kwargs: Any) -> None:
        super().__init__(*args, loss_weights=dict(attr=0.01, obj=0.01) | (loss_weights or {}),
                         fusion=fusion, **kwargs)
        require_one_path(self, fusion)
        if not 0 <= weight <= 1:
            raise ValueError(f'head.weight must lie in [0, 1], got {weight}.')
        self.weight, self.prompt_weight = weight, prompt_weight

    def without_fusion(self, features: Features, texts: Texts, candidates: Candidates) -> Tensor:
        """Logits of the soft prompt, shape (B, P)."""
        return ThreePathHead.compare(self, features, texts, candidates).composition

    def guided(self, features: Features, texts: Texts, fused: Tensor,
               labels: dict[str, Tensor]) -> TrainStep:
        """The training step; logits of primitives are means of those without fusion."""
        candidates = self.train_candidates
        plain = self.without_fusion(features, texts, candidates)
        attr, obj = (decomposed(plain, column, size) for column, size in zip(
            candidates.pairs.T, (len(candidates.attributes), len(candidates.objects))))
        return TrainStep(features, texts, Logits(attr, obj, fused), labels, candidates)

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """Losses of the fused logits, of the primitives, and of the prompt without fusion."""
        plain = self.without_fusion(step.features, step.texts, step.candidates)
        return dict(super().terms(step), prompt_loss=self.prompt_weight * F.cross_entropy(
            plain, step.labels['pair']))

    def portable(self) -> Portable:
        """Not possible: the image is fused with the texts."""
        return CompositionHead.portable(self)


@MODELS.register_module()
class DFSPHead(GuidedHead):
    """Soft prompts whose decomposed features are fused with the tokens of the image.

    t_c is the text of pair c = (a, o), x the tokens of the image, the first of which is f.
    Decomposition averages over the seen pairs of a primitive: t_a = mean_o t_(a,o),
    t_o = mean_a t_(a,o). With blocks of attention and MLP,

        t2i:  x' = self(cross(x, W [t_a; t_o]));     t' = self(t_c)
        i2t:  x' = self(x);  [z_a; z_o] = self(cross([t_a; t_o], W x));  t' = V (z_a ⊙ z_o)
        BiF:  x' of t2i and t' of i2t.

    Image and text are w f + (1 − w) x'_1 and w t_c + (1 − w) t', w = 0.8, of unit norm in each
    part; p(c) is the softmax of their cosines over temperature. The losses are

        CE(p(c)) + 0.01 (CE(p(a)) + CE(p(o))) + 0.1 CE(p_sp(c)),

    where p_sp compares f with t_c without fusion, and the logits of a (of o) are the means of
    those logits over its pairs.

    Args:
        *args: As in :class:`GuidedHead`.
        in_channels (int): Width D of features, tokens and texts.
        direction (str): 't2i', 'i2t' or 'BiF'. Defaults to 't2i'.
        dropout (float): Dropout rate of what crosses over, and in the self blocks. Defaults to
            0.3.
        chunk_size (int): Number of texts of images (images times pairs) that are made together
            in i2t and BiF. Defaults to 16384.
        **kwargs: As in :class:`GuidedHead`; with ``weight`` 1 (w) the head is a soft prompt
            without fusion.
    """

    def __init__(self, *args: Any, in_channels: Width, direction: Direction = 't2i',
                 dropout: Unsaved[float] = 0.3, chunk_size: Unsaved[int] = 16384,
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_direction(direction)
        if chunk_size < 1:
            raise ValueError(f'head.chunk_size must be at least 1, got {chunk_size}.')
        self.direction, self.chunk_size = direction, chunk_size
        self.drop = nn.Dropout(dropout)
        self.self_image = AttentionBlock(in_channels, cross=False, mlp_drop=dropout)
        self.self_text = AttentionBlock(in_channels, cross=False, mlp_drop=dropout)
        self.to_image = self.to_text = None
        if direction != 'i2t':
            self.to_image = nn.Linear(in_channels, in_channels)
            self.cross_image = AttentionBlock(in_channels, cross=True)
        if direction != 't2i':
            self.to_text = nn.Linear(in_channels, in_channels)
            self.cross_text = AttentionBlock(in_channels, cross=True)
            self.compose = nn.Linear(in_channels, in_channels)

    def compare(self, features: Features, texts: Texts, candidates: Candidates) -> Logits:
        """Cosines over temperature after fusion; no attribute and object logits.

        Args:
            features (Features): With the projected tokens (B, L, D); without them, f is the only
                token.
            texts (Texts): Unit-norm texts of the candidates; the seen ones are asked for again.
            candidates (Candidates): The pairs.
        """
        f = features.composition
        tokens = f[:, None] if features.tokens is None else features.tokens
        tokens = tokens.to(self.self_image.norm.weight.dtype)
        trained = self.train_candidates
        seen = texts if candidates is trained else self.texts(trained, False)
        memory = torch.cat(self.decompose(seen.composition, trained, seen.composition))
        images = self._mix(f, self.fused_images(tokens, memory))
        scale = self.text.logit_scale.exp()
        if self.to_text is None:
            with torch.autocast(f.device.type, enabled=False):
                drawn = self.self_text(texts.composition[:, None])[:, 0]
                return Logits(None, None, scale * images @ self._mix(texts.composition, drawn).T)
        attr, obj = self.decompose(texts.composition, candidates, seen.composition)
        named = self.fused_primitives(tokens, torch.cat([attr, obj]))
        places = candidates.pairs + candidates.pairs.new_tensor([0, len(attr)])
        size = max(1, self.chunk_size // max(1, len(f)))
        chunks = zip(texts.composition.split(size), places.split(size))
        return Logits(None, None, scale * torch.cat(
            [self._cosines(images, named, *chunk) for chunk in chunks], dim=1))

    def decompose(self, texts: Tensor, candidates: Candidates,
                  seen: Tensor) -> tuple[Tensor, Tensor]:
        """t_a (A, D) and t_o (O, D) of candidates, from the texts of the seen pairs.

        A name that no seen pair has is the mean of the asked pairs.

        Args:
            texts (Tensor): Texts of the candidates, shape (P, D).
            candidates (Candidates): The pairs.
            seen (Tensor): Texts of the seen pairs, shape (S, D).
        """
        trained, found = self.train_candidates, []
        for column, places in enumerate((candidates.text_attributes, candidates.text_objects)):
            size = (len(self.space.attributes), len(self.space.objects))[column]
            known, count = primitive_means(seen, trained.pairs[:, column], size)
            asked, _ = primitive_means(texts, candidates.pairs[:, column], len(places))
            inside = places.clamp_max(size - 1)
            has = (places < size) & (count[inside] > 0)
            found.append(torch.where(has[:, None], known[inside], asked))
        return found[0], found[1]

    def fused_images(self, tokens: Tensor, primitives: Tensor) -> Tensor:
        """x'_1 (B, D), from the tokens (B, L, D) and [t_a; t_o] (A + O, D)."""
        if self.to_image is not None:
            other = self.drop(self.to_image(primitives.to(tokens.dtype)))
            tokens = self.cross_image(tokens, other[None])
        return self.self_image(tokens)[:, 0]

    def fused_primitives(self, tokens: Tensor, primitives: Tensor) -> Tensor:
        """[z_a; z_o] (B, A + O, D), entries of order one."""
        assert self.to_text is not None
        other = self.drop(self.to_text(tokens))
        # Texts have unit norm, and a product of two entries would vanish beside t_c.
        drawn = self.cross_text(primitives[None] * primitives.shape[1]**0.5, other)
        return self.self_text(drawn.flatten(0, 1)[:, None])[:, 0].view_as(drawn)

    def _cosines(self, images: Tensor, named: Tensor, texts: Tensor, places: Tensor) -> Tensor:
        """Cosines of images (B, D) and the mixtures of t_c and t' (B, P, D), without making them.

        With s = (1 − w) / ‖t'‖ and unit t_c, the mixture w t_c + s t' has the product
        w ⟨i, t_c⟩ + s ⟨i, t'⟩ with the image, and the squared norm w² + (1 − w)² + 2 w s ⟨t_c, t'⟩.
        """
        drawn = self.compose(named[:, places[:, 0]] * named[:, places[:, 1]])
        # Cosines in full precision under autocast, too.
        with torch.autocast(drawn.device.type, enabled=False):
            drawn, texts, w = drawn.float(), F.normalize(texts.float(), dim=-1), self.weight
            share = (1 - w) / drawn.norm(dim=-1).clamp_min(1e-12)
            product = w * images @ texts.T + share * torch.bmm(drawn, images[:, :, None])[..., 0]
            square = w**2 + (1 - w)**2 + 2 * w * share * (drawn * texts).sum(-1)
            return product * square.clamp_min(1e-12).rsqrt()

    def _mix(self, plain: Tensor, fused: Tensor) -> Tensor:
        """w plain + (1 − w) fused of unit norms, as a unit vector in full precision."""
        plain, fused = (F.normalize(part.float(), dim=-1) for part in (plain, fused))
        return F.normalize(self.weight * plain + (1 - self.weight) * fused, dim=-1)

    def step(self, features: Features, labels: dict[str, Tensor]) -> TrainStep:
        """Texts and logits over the seen pairs; those of primitives are means without fusion."""
        texts = self.texts(self.train_candidates, False)
        fused = self.compare(features, texts, self.train_candidates).composition
        return self.guided(features, texts, fused, labels)
