"""CAILA: adapters of attributes, objects and compositions inside the layers of both towers.

Zheng, Zhu and Nevatia, "CAILA: Concept-Aware Intra-Layer Adapters for Compositional Zero-Shot
Learning".
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any

import torch
from open_clip.transformer import QuickGELU, ResidualAttentionBlock
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from mmcluspro.fields import Unsaved, integer
from mmcluspro.models.backbones import CLIPVision
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.heads import ThreePathHead
from mmcluspro.models.heads.three_path import Fusion
from mmcluspro.models.peft import Injected, fuse_attention
from mmcluspro.models.state import declare_restorable
from mmcluspro.models.structures import PATHS, Features, Logits, Texts, TrainStep
from mmcluspro.models.text import CLIPText
from mmcluspro.models.text.prompts import PromptEncoder, PromptParts, encode_prompts, plan_names
from mmcluspro.registry import MODELS

from .common import require_one_path

MIXTURE = 'mixture'


class ConceptAdapter(nn.Module):
    """z = gelu(W_d h), u = W_u z: the bottleneck of one concept, zero at the start.

    Args:
        dim (int): Width of h.
        width (int): Width of z.
        like (Tensor): Gives device and dtype.
    """

    def __init__(self, dim: int, width: int, like: Tensor) -> None:
        super().__init__()
        factory: dict[str, Any] = dict(device=like.device, dtype=like.dtype)
        self.down, self.up = nn.Linear(dim, width, **factory), nn.Linear(width, dim, **factory)
        self.act = QuickGELU()
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """h (..., D) → z (..., width) and u (..., D)."""
        z = self.act(self.down(h))
        return z, self.up(z)


class ConceptAdapters(Injected):
    """h + u of the concept that runs, after a branch of a block; h alone when none does.

    In the mixture, the hidden states z of all concepts are averaged before the projection of the
    mixture's own adapter, and so are the outputs u.

    Args:
        scale (nn.Module): What stood there: open_clip's layer scale.
        dim (int): Width of h.
        width (int): Width of the bottleneck.
        concepts (Sequence[str]): Names of the concepts, :data:`MIXTURE` last if there is one.
        like (Tensor): Gives device and dtype.
    """

    def __init__(self, scale: nn.Module, dim: int, width: int, concepts: Sequence[str],
                 like: Tensor) -> None:
        super().__init__()
        self.scale = scale
        self.adapters = nn.ModuleDict({
            concept: ConceptAdapter(dim, width, like) for concept in concepts})
        self.running: str | None = None

    def forward(self, h: Tensor) -> Tensor:
        """h (..., D) → (..., D)."""
        h = self.scale(h)
        if self.running is None:
            return h
        if self.running != MIXTURE:
            return h + self.adapters[self.running](h)[1]
        own: Any = self.adapters[MIXTURE]
        others = [adapter(h) for name, adapter in self.adapters.items() if name != MIXTURE]
        z = torch.stack([own.act(own.down(h)), *(z for z, _ in others)]).mean(dim=0)
        return h + torch.stack([own.up(z), *(u for _, u in others)]).mean(dim=0)


def inject_concepts(blocks: Sequence[Any], concepts: Sequence[str], reduction: int,
                    mixture_from: int | None = None) -> list[ConceptAdapters]:
    """Puts adapters after attention and MLP of open_clip's blocks, in the place of layer scale.

    The blocks stay of their own class, so that the prefix tree of prompts still applies.

    Args:
        blocks (Sequence): Of a transformer.
        concepts (Sequence[str]): One adapter per branch each.
        reduction (int): The bottleneck is this many times narrower than the block.
        mixture_from (int, optional): First block with a mixture. Defaults to None, no mixture.
    """
    found = []
    for number, block in enumerate(blocks):
        if type(block) is not ResidualAttentionBlock:
            raise ValueError('CAILA needs a tower of the standard blocks of CLIP, such as that of '
                             f'ViT-B-32 or ViT-L-14, got {type(block).__name__}.')
        weight = block.ln_1.weight
        names = [*concepts]
        if mixture_from is not None and number >= mixture_from:
            names.append(MIXTURE)
        for name in ('ls_1', 'ls_2'):
            adapters = ConceptAdapters(getattr(block, name), len(weight), len(weight) // reduction,
                                       names, weight)
            setattr(block, name, adapters)
            found.append(adapters)
    return found


@contextmanager
def running(adapters: Sequence[ConceptAdapters], concept: str) -> Iterator[None]:
    """Inside the block, the adapters of one concept are on."""
    for part in adapters:
        part.running = concept
    try:
        yield
    finally:
        for part in adapters:
            part.running = None


def learn_norms(tower: nn.Module) -> None:
    """Makes the layer norms of a frozen tower trainable."""
    for module in tower.modules():
        if isinstance(module, nn.LayerNorm):
            module.requires_grad_(True)


CONCEPTS = ('attribute', 'object')
Reduction = Annotated[int, integer(1, 1024)]


@MODELS.register_module()
class CAILAVision(CLIPVision):
    """CLIP's image tower with adapters of attributes and objects, and a mixture above.

    An image runs once with the adapters of attributes and once with those of objects; the class
    tokens give f_a and f_o. From block ``mixture_from`` on, the tokens of both runs form one
    sequence, whose blocks mix both adapters with one of their own (z and u are the hidden states
    and outputs of an adapter, h the output of attention or MLP):

        z = mean(z_m, z_a, z_o),  h' = h + mean(W_m z, u_a, u_o),   f_c from the mean of both
        class tokens.

    Args:
        *args: As in :class:`~mmcluspro.models.backbones.CLIPVision`, ``peft`` and the outputs of
            tokens and layers excepted.
        reduction (int): The bottleneck is this many times narrower than the tower. Defaults to 4.
        mixture_from (int, optional): First block with a mixture. Defaults to None: the middle.
        norms (bool): Whether the layer norms and the projection learn, too. Defaults to True.
        **kwargs: As in :class:`~mmcluspro.models.backbones.CLIPVision`.
    """

    fixed: tuple[str, ...] = ('peft', 'out_tokens', 'out_layers', 'project_layers')

    def __init__(self, *args: Any, reduction: Reduction = 4,
                 mixture_from: Annotated[int, integer(0, 255)] | None = None, norms: bool = True,
                 peft: Unsaved[None] = None, **kwargs: Any) -> None:
        given = dict(kwargs, peft=peft)
        refused = [name for name in ('peft', 'out_tokens', 'out_layers') if given.get(name)]
        if refused:
            raise ValueError(f'CAILAVision has adapters of its own and returns f_a, f_o and f_c: '
                             f'leave backbone.{refused[0]} out.')
        self.with_cp = kwargs.pop('with_cp', False)
        super().__init__(*args, **kwargs)
        self._return_tokens(str(kwargs.get('arch', args[0] if args else 'ViT-L-14')))
        if norms:
            learn_norms(self.visual)
            self.visual.proj.requires_grad_(True)
            if hasattr(self, '_restorable'):
                declare_restorable(self)  # what learns now is saved
        blocks = self.visual.transformer.resblocks
        self.mixture_from = len(blocks) // 2 if mixture_from is None else mixture_from
        if not 0 <= self.mixture_from < len(blocks):
            raise ValueError(f'backbone.mixture_from must lie in [0, {len(blocks)}), the blocks of '
                             f'the tower, got {mixture_from}.')
        inject_concepts(blocks, CONCEPTS, reduction, self.mixture_from)
        fuse_attention(self.visual)

    def forward(self, x: Tensor) -> Features:
        """Encodes images (B, 3, H, W) to f_a, f_o and f_c, (B, D) each, not normalised."""
        attr = obj = self.visual._embeds(x)
        mixed: Tensor | None = None
        for number, block in enumerate(self.visual.transformer.resblocks):
            if number == self.mixture_from:
                mixed = torch.cat([attr, obj], dim=1)
            attr, obj = (self._run(block, part, concept)
                         for part, concept in zip((attr, obj), CONCEPTS))
            if mixed is not None:
                mixed = self._run(block, mixed, MIXTURE)
        assert mixed is not None
        pooled = attr[:, 0], obj[:, 0], (mixed[:, 0] + mixed[:, attr.shape[1]]) / 2
        f_a, f_o, f_c = (self.visual.ln_post(part) @ self.visual.proj for part in pooled)
        return Features(f_c, f_a, f_o)

    def _run(self, block: Any, x: Tensor, concept: str) -> Tensor:
        if self.with_cp and torch.is_grad_enabled():
            return checkpoint(self._step, block, x, concept, use_reentrant=False)
        return self._step(block, x, concept)

    def _step(self, block: Any, x: Tensor, concept: str) -> Tensor:
        with running([block.ls_1, block.ls_2], concept):
            if self.visual.transformer.batch_first:
                return block(x)
            return block(x.transpose(0, 1)).transpose(0, 1)


@MODELS.register_module()
class CAILAText(CLIPText):
    """CLIP's text tower with adapters of attributes, objects and compositions.

    The prompts of each path run with the adapters of that path, h' = h + u after attention and
    MLP of every block.

    Args:
        *args: As in :class:`~mmcluspro.models.text.CLIPText`.
        reduction (int): The bottleneck is this many times narrower than the tower. Defaults to 4.
        norms (bool): Whether the layer norms and the projection learn, too. Defaults to True.
        released (bool): As in the released code: prompts of attributes end with "object", features
            keep their length, the table of tokens learns (but for its start token), and
            :class:`CAILAHead` has temperatures of attributes and objects, 20 times CLIP's at the
            start. Asks for ``prompt.learn=()`` and ``prompt.names='tokens'``. Defaults to False.
        **kwargs: As in :class:`~mmcluspro.models.text.CLIPText`.
    """

    def __init__(self, *args: Any, reduction: Reduction = 4, norms: bool = True,
                 released: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        text = self.tower.text
        self.released = released
        self.unit_norm = not released
        if released:
            if self.prompt.names != 'tokens':
                raise ValueError("text.released=True reads names from the table of tokens: set "
                                 f"text.prompt.names='tokens', got {self.prompt.names!r}.")
            self.tower.embedding.weight.requires_grad_(True).register_hook(self._without_start)
        if norms:
            learn_norms(self.tower)
            projection = text.text_projection
            if projection is not None:
                projection.requires_grad_(True)
            if hasattr(self.tower, '_restorable'):
                declare_restorable(self.tower)
        if released and hasattr(self.tower, '_restorable'):
            declare_restorable(self.tower)
        self.adapters = inject_concepts(text.transformer.resblocks, PATHS, reduction)

    def _without_start(self, gradient: Tensor) -> Tensor:
        gradient = gradient.clone()
        gradient[self.tower.frame.start] = 0
        return gradient

    def parts(self) -> PromptParts:
        """The parts for one step; as released, names are read from the table as it is now."""
        parts = super().parts()
        if not self.released:
            return parts
        attributes, objects = (
            torch.cat(self.tower.embed([self.readable(name) for name in names]))
            for names in (self.attributes, self.objects))
        return parts._replace(attributes=attributes, objects=objects)

    def embed(self, path: str, parts: PromptParts, pairs: Tensor | None) -> Tensor:
        if not self.released or path != 'attribute':
            return super().embed(path, parts, pairs)
        last, = self.tower.embed(['object'])
        runs = [torch.cat([run, last])
                for run in parts.attributes.split(list(self.prompt.attributes.lengths))]
        plan = plan_names([len(run) for run in runs], self.logit_scale.device)
        return encode_prompts(self.encoder(path), plan, parts.contexts[path], None,
                              torch.cat(runs), self.chunk(), self.with_cp)

    def encoder(self, path: str | None = None) -> PromptEncoder:
        plain = super().encoder(path)
        return plain if path is None else _ConceptEncoder(plain, self.adapters, path)


class _ConceptEncoder:
    """An encoder of prompts whose every call runs with the adapters of one path.

    Checkpointing calls it again in backward, when another path may have run since.
    """

    def __init__(self, plain: PromptEncoder, adapters: list, path: str) -> None:
        self.plain, self.adapters, self.path = plain, adapters, path

    def begin(self, context: Tensor) -> Any:
        with running(self.adapters, self.path):
            return self.plain.begin(context)

    def branch(self, before: Any, nodes: Tensor) -> Any:
        with running(self.adapters, self.path):
            return self.plain.branch(before, nodes)

    def finish(self, before: Any, leaves: Tensor, parent: Tensor | None) -> Tensor:
        with running(self.adapters, self.path):
            return self.plain.finish(before, leaves, parent)


@MODELS.register_module()
class CAILAHead(ThreePathHead):
    """Three losses; compositions are scored with the mean of three texts.

    With unit-norm texts, t'_c = unit(t_c + t_a + t_o) of c = (a, o), and the losses are the
    cross-entropies of cosines over temperature of (f_c, t'_c), (f_a, t_a) and (f_o, t_o). Scores
    are the softmax of those of f_c. With ``text.released=True`` texts keep their length in the sum,
    and the temperatures of attributes and objects are parameters.

    Args:
        *args: As in :class:`~mmcluspro.models.heads.ThreePathHead`.
        img_dropout (float): Dropout rate of the unit-norm f_c in training. Defaults to 0.1.
        fusion (str): 'composition', the only one. Defaults to 'composition'.
        **kwargs: As in :class:`~mmcluspro.models.heads.ThreePathHead`.
    """

    def __init__(self, *args: Any, img_dropout: Unsaved[float] = 0.1,
                 fusion: Fusion = 'composition', **kwargs: Any) -> None:
        super().__init__(*args, fusion=fusion, **kwargs)
        require_one_path(self, fusion)
        if not 0 <= img_dropout < 1:
            raise ValueError(f'head.img_dropout must lie in [0, 1), got {img_dropout}.')
        self.drop = nn.Dropout(img_dropout)
        self.released = bool(getattr(self.text, 'released', False))
        if self.released:
            start = self.text.logit_scale.detach() + math.log(20)
            self.attr_scale, self.obj_scale = nn.Parameter(start.clone()), nn.Parameter(start)

    def texts(self, candidates: Candidates, primitives: bool = True) -> Texts:
        """Texts of the paths; those of pairs hold their attribute and object in equal parts."""
        attr, obj, pair = super().texts(candidates)
        assert attr is not None and obj is not None
        pair = F.normalize(pair + attr[candidates.pairs[:, 0]] + obj[candidates.pairs[:, 1]],
                           dim=1)
        if not primitives:
            return Texts(None, None, pair)
        return Texts(F.normalize(attr, dim=1), F.normalize(obj, dim=1), pair)

    def compare(self, features: Features, texts: Texts, candidates: Candidates) -> Logits:
        """Cosines over temperature, each path with its own if there are three."""
        if not self.released:
            return super().compare(features, texts, candidates)
        scales = self.attr_scale, self.obj_scale, self.text.logit_scale
        with torch.autocast(features.composition.device.type, enabled=False):
            return Logits._make(
                None if pair is None
                else scale.exp() * (F.normalize(pair[0].float(), dim=1) @ pair[1].float().T)
                for scale, pair in zip(scales, self.matched(features, texts)))

    def step(self, features: Features, labels: dict[str, Tensor]) -> TrainStep:
        """Texts and logits over the seen pairs, with dropout on f_c."""
        f = self.drop(F.normalize(features.composition, dim=1))
        return super().step(replace(features, composition=f), labels)
