"""DFSP as its released code builds it: all tokens of image and prompt take part in the fusion."""
from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.fields import Unsaved, integer
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.clip import load_clip
from mmcluspro.models.structures import Features, Logits, Texts, TrainStep
from mmcluspro.models.text import CLIPText
from mmcluspro.models.text.prompts import WholeEncoder, encode_prompts
from mmcluspro.models.text.tower import TextTower
from mmcluspro.registry import MODELS

from .common import AttentionBlock, primitive_means
from .dfsp import Direction, GuidedHead, check_direction


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
