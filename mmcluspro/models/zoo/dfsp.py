"""DFSP: text features decomposed into attributes and objects are fused with the image.

Lu, Guo, Liu and Guo, "Decomposed Soft Prompt Guided Fusion Enhancing for Compositional Zero-Shot
Learning".
"""
from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.fields import Unsaved, Width, integer, number
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.clip import load_clip
from mmcluspro.models.heads import CompositionHead, Portable, ThreePathHead
from mmcluspro.models.heads.three_path import Fusion
from mmcluspro.models.structures import Features, Logits, Texts, TrainStep
from mmcluspro.models.text import CLIPText
from mmcluspro.models.text.prompts import WholeEncoder, encode_prompts
from mmcluspro.models.text.tower import TextTower
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


class _ImageEnd(nn.Module):
    """The last norm and the projection of CLIP's image tower, frozen."""

    def __init__(self, arch: str = 'ViT-L-14', pretrained: str | None = None,
                 quickgelu: bool | None = None) -> None:
        super().__init__()
        visual = load_clip(arch, pretrained, quickgelu=quickgelu).visual
        self.norm, self.proj = visual.ln_post, nn.Parameter(visual.proj.detach().clone())
        self.tokens, self.width = visual.positional_embedding.shape
        self.requires_grad_(False)

    def forward(self, states: Tensor) -> Tensor:
        return self.norm(states) @ self.proj


@MODELS.register_module()
class DFSPText(CLIPText):
    """CLIP's text side that also tells the states of tokens before its last norm.

    It brings the last norm and projection of the image tower along, which follow the fusion.

    Args:
        *args: As in :class:`~mmcluspro.models.text.CLIPText`.
        positions (int): Tokens of a prompt, with start and end; the rest is filled up. Defaults to
            8.
        **kwargs: As in :class:`~mmcluspro.models.text.CLIPText`; names are one token each.
    """

    def __init__(self, *args: Any, positions: Annotated[int, integer(1, 77)] = 8,
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.image_end = _ImageEnd(**{
            name: kwargs[name] for name in ('arch', 'pretrained', 'quickgelu') if name in kwargs})
        self.positions = positions
        context = max(len(vectors) for vectors in self.prompt.contexts.values())
        #: Place of the end token, behind the start, the context and two names.
        self.end = len(self.tower.frame.start) + context + 2
        if self.prompt.names != 'mean' or self.end >= positions:
            raise ValueError(
                f'text.positions={positions} has no room for {self.end + 1} tokens: shorten '
                "text.prompt.context, and leave text.prompt.names at 'mean'.")

    def encode_states(self, pairs: Tensor) -> Tensor:
        """States of the first ``positions`` tokens of pairs (P, 2), (P, positions, width)."""
        self._check_range(pairs)

        def compute() -> Tensor:
            parts = self.parts()
            return encode_prompts(
                _StateEncoder(self.tower, self.positions), self._plan('composition', pairs),
                parts.contexts['composition'], parts.attributes, parts.objects,
                self.chunk(whole=True), self.with_cp)

        if not self._is_constant():
            return compute()
        self.cache.validate(self)
        return self.cache.get_tokens(pairs, self.for_cache(compute))

    def finish(self, states: Tensor) -> Tensor:
        """Last norm and projection of states (…, width), (…, out_dim)."""
        return self.tower.project(states)


class _StateEncoder(WholeEncoder):
    """Whole sequences to the states of their first tokens, before the last norm."""

    def __init__(self, tower: TextTower, positions: int) -> None:
        super().__init__(tower)
        self.positions = positions

    def finish(self, before: list[Tensor], leaves: Tensor, parent: Tensor | None) -> Tensor:
        states = self.tower.run_tokens(*self._whole(before, leaves, parent), normed=False)
        return states[:, :self.positions]


@MODELS.register_module()
class DFSPReleasedHead(GuidedHead):
    """The architecture of the released code, which :class:`DFSPHead` simplifies.

    x (L tokens) is the image before the last norm of its tower, t_c (8 tokens) the prompt of pair
    c before that of its own. Decomposition averages t over the asked pairs of each of the N
    attributes and objects; one linear layer changes the width of what crosses over, another
    turns 8 N positions into L, or L into 8 N:

        t2i:  x' = self(cross(x, W' W [t_a; t_o]));   t' = self(t_c)
        i2t:  x' = self(x);  z = self(cross([t_a; t_o], V' V x));   t' = U (z_a ⊙ z_o)
        BiF:  x' of t2i and t' of i2t.

    The class token of x' and the end token of t' pass the last norm and projection of their tower,
    and are added to f and the text of c with the weights 1 − w and w.

    In i2t and BiF the released code attends over the tokens of **all images of a batch**, and deals
    their positions out to other images and names. So an image's scores depend on its batch. It
    looks like a slip; ``mix_images=False`` keeps images apart.

    Args:
        *args: As in :class:`GuidedHead`; ``text.type`` is 'mmcluspro.DFSPText'.
        direction (str): 't2i', 'i2t' or 'BiF'. Defaults to 't2i'.
        layers (int): Blocks of self-attention on each side. Defaults to 1.
        dropout (float): Dropout rate of what crosses over, and in the self blocks. Defaults to
            0.3.
        mix_images (bool): Whether images of a batch are mixed, as released. Defaults to True.
        **kwargs: As in :class:`GuidedHead`.
    """

    def __init__(self, *args: Any, direction: Direction = 't2i',
                 layers: Annotated[int, integer(1, 32)] = 1, dropout: Unsaved[float] = 0.3,
                 mix_images: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_direction(direction)
        if not isinstance(self.text, DFSPText):
            raise ValueError("DFSPReleasedHead needs head.text.type='mmcluspro.DFSPText', got "
                             f'{type(self.text).__name__}.')
        self.direction, self.mix_images = direction, mix_images
        self.sizes = len(self.space.attributes), len(self.space.objects)
        image, text = self.text.image_end.width, self.text.tower.embedding.embedding_dim
        tokens, positions = self.text.image_end.tokens, self.text.positions * sum(self.sizes)
        self.drop = nn.Dropout(dropout)
        self.self_image, self.self_text = (nn.Sequential(*[
            AttentionBlock(width, cross=False, mlp_drop=dropout, identity=False)
            for _ in range(layers)]) for width in (image, text))
        if direction != 'i2t':
            self.to_image = nn.ModuleList([nn.Linear(text, image), nn.Linear(positions, tokens)])
            self.cross_image = AttentionBlock(image, cross=True, identity=False)
        if direction != 't2i':
            self.to_text = nn.ModuleList([nn.Linear(image, text), nn.Linear(tokens, positions)])
            self.cross_text = AttentionBlock(text, cross=True, identity=False)
            self.compose = nn.Linear(text, text)

    def texts(self, candidates: Candidates, primitives: bool = True) -> Texts:
        """Texts of pairs without fusion, unit norm; none of primitives."""
        states = self.text.encode_states(candidates.text_pairs)
        return Texts(None, None, F.normalize(self.text.finish(states[:, self.text.end]), dim=1))

    def compare(self, features: Features, texts: Texts, candidates: Candidates) -> Logits:
        """Cosines over temperature after fusion; no attribute and object logits."""
        states = self.text.encode_states(candidates.text_pairs)
        return Logits(None, None, self.fused(features, states, candidates))

    def step(self, features: Features, labels: dict[str, Tensor]) -> TrainStep:
        """Texts and logits over the seen pairs; the prompts run once."""
        candidates = self.train_candidates
        states = self.text.encode_states(candidates.text_pairs)
        texts = Texts(None, None, F.normalize(self.text.finish(states[:, self.text.end]), dim=1))
        return self.guided(features, texts, self.fused(features, states, candidates), labels)

    def fused(self, features: Features, states: Tensor, candidates: Candidates) -> Tensor:
        """Logits (B, P).

        Args:
            features (Features): With the last layer's tokens (B, L, width) in ``extra``.
            states (Tensor): Of the prompts of the candidates, shape (P, positions, width).
            candidates (Candidates): The pairs, of names that were trained.
        """
        pairs, end = candidates.text_pairs, self.text.end
        self._refuse_new(candidates)
        tokens, names = self.last_layer(features), self.decompose(states, pairs)
        images, drawn = tokens, tokens
        if self.direction != 'i2t':
            images = self.cross_image(images, self.names_to_image(names))
        images = self.text.image_end(self.self_image(images)[:, 0])
        if self.direction == 't2i':
            drawn = self.self_text(states)[:, end]
        else:
            drawn = self.pairs_of_images(names, tokens, pairs)
        plain, drawn = self.text.finish(states[:, end]), self.text.finish(drawn)
        # Cosines in full precision under autocast, too.
        with torch.autocast(plain.device.type, enabled=False):
            image = F.normalize(self._mix(features.composition, images), dim=-1)
            text = F.normalize(self._mix(plain, drawn), dim=-1)  # (P, D) or (B, P, D)
            cosines = image @ text.T if text.ndim == 2 else (text @ image[:, :, None])[..., 0]
            return self.text.logit_scale.exp() * cosines

    def _refuse_new(self, candidates: Candidates) -> None:
        if candidates.all_names:
            return
        for kind, size in zip(('attribute', 'object'), self.sizes):
            places = getattr(candidates, f'text_{kind}s').tolist()
            new = [name for name, place in zip(getattr(candidates, f'{kind}s'), places)
                   if place >= size]
            if new:
                raise ValueError(
                    f'DFSPReleasedHead has a linear layer over the {size} {kind}s that it was '
                    f'trained with and cannot answer {", ".join(map(repr, new[:5]))}: leave these '
                    f'{kind}s out, or use DFSPHead.')

    def last_layer(self, features: Features) -> Tensor:
        """The tokens before the last norm of the image tower, shape (B, L, width)."""
        layers = [name for name in features.extra if name.startswith('layer_')]
        found = features.extra[max(layers, key=lambda name: int(name[6:]))] if layers else None
        end = self.text.image_end
        wanted = end.tokens, end.width
        if found is None or tuple(found.shape[1:]) != wanted:
            raise ValueError(
                f'DFSPReleasedHead reads {wanted[0]} tokens of width {wanted[1]} of the last block '
                'of the image tower: set backbone.out_layers=[-1], with the same arch in backbone '
                'and head.text, and neck=None.')
        return found.to(end.proj.dtype)

    def decompose(self, states: Tensor, pairs: Tensor) -> Tensor:
        """Means over the asked pairs of each attribute, then of each object.

        Args:
            states (Tensor): Shape (P, positions, width).
            pairs (Tensor): Shape (P, 2).

        Returns:
            Tensor: Shape (N, positions, width).
        """
        return torch.cat([primitive_means(states.flatten(1), column, size)[0] for column, size in
                          zip(pairs.T, self.sizes)]).unflatten(1, states.shape[1:])

    def names_to_image(self, names: Tensor) -> Tensor:
        """Names (N, positions, text width) as tokens of an image, (1, L, image width)."""
        widen, count = self.to_image
        places = widen(names).transpose(0, 1).flatten(0, 1)  # position by position
        return self.drop(count(places.T)).T[None]

    def pairs_of_images(self, names: Tensor, tokens: Tensor, pairs: Tensor) -> Tensor:
        """States of the end token of each pair, as each image sees it, (B, P, text width)."""
        size, positions = len(tokens), names.shape[1]
        narrow, count = self.to_text
        keys = count(narrow(tokens).transpose(1, 2))  # (B, width, positions · N)
        if self.mix_images:  # one sequence for each name, through all images
            keys = keys.permute(2, 0, 1).reshape(size * positions, len(names), -1).transpose(0, 1)
            query = names.repeat(1, size, 1)
        else:  # one for each image and name
            keys = keys.unflatten(2, (positions, -1)).permute(0, 3, 2, 1).flatten(0, 1)
            query = names.repeat(size, 1, 1)
        found = self.self_text(self.cross_text(query, self.drop(keys)))
        if self.mix_images:
            found = found.unflatten(1, (size, positions)).transpose(0, 1)
        ends = found.view(size, len(names), positions, -1)[:, :, self.text.end]
        attr, obj = pairs[:, 0], pairs[:, 1] + self.sizes[0]
        return self.compose(ends[:, attr] * ends[:, obj])

    def _mix(self, plain: Tensor, fused: Tensor) -> Tensor:
        return self.weight * plain.float() + (1 - self.weight) * fused.float()
