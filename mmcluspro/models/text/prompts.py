"""Soft prompts (Eq. 2): names as vectors, contexts around them, and their way through the tower.

:class:`NameTable` holds the vectors of one vocabulary, to which names can be added after training;
:class:`SoftPrompt` puts trainable contexts around them; the encoder runs the prompts over a prefix
tree or as whole sequences.
"""
from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from mmcluspro.errors import listed
from mmcluspro.fields import Unsaved, choice, items, text
from mmcluspro.registry import MODELS
from mmcluspro.utils.device import upload

from .prefix_tree import Ancestor, grow, read_last
from .tower import TextTower

Learn = Annotated[Sequence[str], items(choice('context', 'vocabulary'), 0, 2)]


class NameTable(nn.Module):
    """One row, or a run of rows, for each name.

    Added names are not parameters: they are not trained, are not saved, and leave the shapes that a
    checkpoint expects as they are.

    Args:
        runs (Sequence[Tensor]): Vectors of each name, shape (number of its tokens, width).
        learn (bool): Train the vectors.
    """

    vectors: nn.Parameter
    added: Tensor

    def __init__(self, runs: Sequence[Tensor], learn: bool) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.cat(list(runs)), requires_grad=learn)
        self.register_buffer('added', self.vectors.detach()[:0].clone(), persistent=False)
        self.own_lengths = tuple(len(run) for run in runs)
        self.lengths = self.own_lengths

    def forward(self) -> Tensor:
        """All vectors in the order of the names, shape (sum of ``lengths``, width)."""
        return torch.cat([self.vectors, self.added]) if len(self.added) else self.vectors

    @torch.no_grad()
    def append(self, runs: Sequence[Tensor]) -> None:
        """Adds names behind those there are."""
        self.added = torch.cat([self.added, *(run.to(self.added) for run in runs)])
        self.lengths += tuple(len(run) for run in runs)

    def restore(self) -> None:
        """Forgets the added names."""
        self.added = self.added[:0].clone()
        self.lengths = self.own_lengths


PATHS = ('composition', 'attribute', 'object')
Embed = Callable[[Sequence[str]], list[Tensor]]


class PromptParts(NamedTuple):
    """Vectors from which the prompts of one step are composed.

    Attributes:
        contexts (dict[str, Tensor]): Context of each path, shape (l, width).
        attributes (Tensor): Vectors of all attributes, shape (tokens of attributes, width).
        objects (Tensor): Vectors of all objects, shape (tokens of objects, width).
    """
    contexts: dict[str, Tensor]
    attributes: Tensor
    objects: Tensor


@MODELS.register_module()
class SoftPrompt(nn.Module):
    """Contexts and name vectors of the prompts ``[context attribute object]``.

    The trained parts determine the method: none for zero-shot CLIP, the contexts for CoOp, the
        vocabulary for CSP, and both for Troika and ClusPro.

    Args:
        attributes (Sequence[str]): Readable names.
        objects (Sequence[str]): Readable names.
        embed (Callable): Texts to the token embeddings of each, shape (tokens, width).
        context (str): Words before the names, any number. Defaults to 'a photo of'.
        learn (Sequence[str]): Which of 'context' and 'vocabulary' to train. Defaults to both.
        names (str): 'mean' gives a name one vector, the mean of its sub-words; 'tokens' keeps all
            its sub-words, for names that are not trained. Defaults to 'mean'.
        share_context (bool): Use one context for the three paths instead of three. Defaults to
            False.
        attr_dropout (float): Dropout on the vectors of attributes and objects in training.
            Defaults to 0.0; the released configs use 0.3 on MIT-States and UT-Zappos.
        max_tokens (int | None): Room in the tower for context and names. Defaults to None.
    """

    def __init__(self, attributes: Unsaved[Sequence[str]], objects: Unsaved[Sequence[str]],
                 embed: Unsaved[Embed], context: Annotated[str, text()] = 'a photo of',
                 learn: Learn = ('context', 'vocabulary'),
                 names: Literal['mean', 'tokens'] = 'mean', share_context: bool = False,
                 attr_dropout: Unsaved[float] = 0.0,
                 max_tokens: Unsaved[int | None] = None) -> None:
        super().__init__()
        _check(learn, names, attr_dropout)
        self.names = names
        self.max_tokens = max_tokens
        start = embed([context])[0]
        self.contexts = nn.ParameterDict({
            path: nn.Parameter(start.clone(), requires_grad='context' in learn)
            for path in (('shared', ) if share_context else PATHS)})
        attribute_runs, object_runs = self._runs(attributes, embed), self._runs(objects, embed)
        self._check_room(_lengths(attribute_runs), _lengths(object_runs))
        self.attributes = NameTable(attribute_runs, learn='vocabulary' in learn)
        self.objects = NameTable(object_runs, learn='vocabulary' in learn)
        self.dropout = nn.Dropout(attr_dropout)

    def forward(self) -> PromptParts:
        """The parts for one step; the three paths share the vocabulary after dropout."""
        contexts = {path: self.contexts['shared' if 'shared' in self.contexts else path]
                    for path in PATHS}
        return PromptParts(contexts, self.dropout(self.attributes()), self.dropout(self.objects()))

    def extend(self, attributes: Sequence[str], objects: Sequence[str], embed: Embed) -> None:
        """Appends names, with the vectors that they would be initialised with.

        If a name is refused, the prompt does not change. A warning lists names that the tower
        cannot tell apart.
        """
        attribute_runs, object_runs = self._runs(attributes, embed), self._runs(objects, embed)
        self._check_room(self.attributes.lengths + _lengths(attribute_runs),
                         self.objects.lengths + _lengths(object_runs))
        for what, names, runs in (('attributes', attributes, attribute_runs),
                                  ('objects', objects, object_runs)):
            _warn_alike(what, names, runs)
        self.attributes.append(attribute_runs)
        self.objects.append(object_runs)

    def restore(self) -> None:
        """Removes the names that were added."""
        self.attributes.restore()
        self.objects.restore()

    def _runs(self, names: Sequence[str], embed: Embed) -> list[Tensor]:
        runs = embed(names)
        empty = [name for name, run in zip(names, runs) if not len(run)]
        if empty:
            raise ValueError(
                f'These names have no tokens: {empty}. Give them words through readable '
                '(raw name -> words).')
        if self.names == 'tokens':
            return runs
        self._warn_long([name for name, run in zip(names, runs)
                         if self.max_tokens is not None and len(run) > self.max_tokens])
        return [run.mean(0, keepdim=True) for run in runs]

    def _warn_long(self, names: Sequence[str]) -> None:
        if names:
            warnings.warn(
                f'These names have more tokens than the {self.max_tokens} that the text tower '
                f'reads: {listed([*map(_short, names)], 3)}. They count as the mean of '
                'their tokens, and long names hardly differ then; shorten them.', stacklevel=2)

    def _check_room(self, attributes: Sequence[int], objects: Sequence[int]) -> None:
        context = max(len(vectors) for vectors in self.contexts.values())
        names = max(attributes) + max(objects)
        if self.max_tokens is not None and context + names > self.max_tokens:
            raise ValueError(
                f'The text tower has room for {self.max_tokens} tokens, but prompt.context has '
                f'{context} and the longest names have {names}. Shorten the context, or the names '
                'through readable (raw name -> words).')


def _lengths(runs: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(len(run) for run in runs)


def _warn_alike(what: str, names: Sequence[str], runs: Sequence[Tensor]) -> None:
    """Warns about new names that get the same vectors, and so the same scores."""
    first: dict[bytes, str] = {}
    alike = []
    for name, run in zip(names, runs):
        # Rounded: the mean of the same sub-words in another order differs in the last bit.
        key = (run.detach() * 1e4).round().to(torch.int64).cpu().numpy().tobytes()
        if first.setdefault(key, name) != name:
            alike.append(f'{_short(first[key])} and {_short(name)}')
    if alike:
        warnings.warn(
            f'The text tower cannot tell these {what} apart, so they share their probability: '
            f'{listed(alike, 3, "; ")}. Names that are too long are cut off; shorten them, or '
            'leave one out.', stacklevel=2)


def _short(name: str) -> str:
    return repr(name if len(name) <= 40 else f'{name[:20]}…{name[-19:]}')


def _check(learn: Sequence[str], names: str, attr_dropout: float) -> None:
    unknown = [part for part in learn if part not in ('context', 'vocabulary')]
    if isinstance(learn, str) or unknown:
        raise ValueError(
            "prompt.learn is a tuple that may hold 'context' and 'vocabulary', "
            f'got {learn!r}.')
    if names not in ('mean', 'tokens'):
        raise ValueError(f"prompt.names must be 'mean' or 'tokens', got {names!r}.")
    if names == 'tokens' and 'vocabulary' in learn:
        raise ValueError(
            "prompt.names='tokens' keeps the sub-words of the names as they are; with "
            f"prompt.learn={tuple(learn)} set names='mean', so that a name is one vector.")
    if not 0 <= attr_dropout < 1:
        raise ValueError(f'prompt.attr_dropout must lie in [0, 1), got {attr_dropout}.')


class Leaves(NamedTuple):
    """The ends of n prompts, all with the same number of tokens.

    Attributes:
        tokens (Tensor): Rows of the vectors of the last name, shape (n, tokens of the name).
        parent (Tensor | None): Row of ``Group.nodes`` that stands before, shape (n,).
    """
    tokens: Tensor
    parent: Tensor | None = None


class Group(NamedTuple):
    """Prompts whose first names have the same number of tokens.

    Attributes:
        nodes (Tensor | None): Rows of the attributes' vectors for each attribute that occurs,
            shape (m, tokens of the name); None for prompts of one name.
        leaves (list[Leaves]): One for each length of the last name.
    """
    nodes: Tensor | None
    leaves: list[Leaves]


class PromptPlan(NamedTuple):
    """All prompts of one path.

    Attributes:
        groups (list[Group]): In the order in which they are encoded.
        order (Tensor): Where each asked prompt is among the encoded ones, shape (P,).
    """
    groups: list[Group]
    order: Tensor


def plan_names(lengths: Sequence[int], device: torch.device) -> PromptPlan:
    """Plans ``[context name]`` for every name.

    Args:
        lengths (Sequence[int]): Number of tokens of each name.
        device (torch.device): Where the plan is needed.
    """
    names = torch.arange(len(lengths), device=device)
    leaves, asked = _leaves(names, None, torch.tensor(lengths, device=device))
    return PromptPlan([Group(None, leaves)], torch.cat(asked).argsort())


def plan_pairs(pairs: Tensor, attr_lengths: Sequence[int],
               obj_lengths: Sequence[int]) -> PromptPlan:
    """Plans ``[context attribute object]`` for the asked pairs.

    Args:
        pairs (Tensor): Attribute and object of each pair, shape (P, 2), P > 0.
        attr_lengths (Sequence[int]): Number of tokens of each attribute.
        obj_lengths (Sequence[int]): Number of tokens of each object.
    """
    attributes, objects = pairs.unbind(1)
    attr_tokens = torch.tensor(attr_lengths, device=pairs.device)
    obj_tokens = torch.tensor(obj_lengths, device=pairs.device)
    groups, asked = [], []
    for length in attr_tokens[attributes].unique().tolist():
        rows = (attr_tokens[attributes] == length).nonzero().squeeze(1)
        used, parent = attributes[rows].unique(return_inverse=True)
        leaves, where = _leaves(objects[rows], parent, obj_tokens)
        groups.append(Group(_token_rows(used, attr_tokens, length), leaves))
        asked += [rows[part] for part in where]
    return PromptPlan(groups, torch.cat(asked).argsort())


def _leaves(names: Tensor, parent: Tensor | None,
            num_tokens: Tensor) -> tuple[list[Leaves], list[Tensor]]:
    leaves, where = [], []
    for length in num_tokens[names].unique().tolist():
        rows = (num_tokens[names] == length).nonzero().squeeze(1)
        leaves.append(Leaves(_token_rows(names[rows], num_tokens, length),
                             None if parent is None else parent[rows]))
        where.append(rows)
    return leaves, where


def _token_rows(names: Tensor, num_tokens: Tensor, length: int) -> Tensor:
    first = num_tokens.cumsum(0) - num_tokens
    return first[names, None] + torch.arange(length, device=names.device)


class PromptEncoder(Protocol):
    """Prompts are encoded from their first tokens on, one segment after the other."""

    def begin(self, context: Tensor) -> Any:
        """Encodes the context of all prompts, shape (l, width)."""

    def branch(self, before: Any, nodes: Tensor) -> Any:
        """Encodes the m names that follow, shape (m, k, width)."""

    def finish(self, before: Any, leaves: Tensor, parent: Tensor | None) -> Tensor:
        """Encodes the ends, shape (n, k, width), to features, shape (n, out_dim)."""


class Stem(NamedTuple):
    """The prefix of a segment: the keys of its tokens and their number."""
    ancestors: tuple[Ancestor, ...]
    length: int


class TreeEncoder:
    """Runs every token once for each different prefix; see :mod:`.prefix_tree`."""

    def __init__(self, tower: TextTower) -> None:
        self.tower = tower
        self.blocks = tower.text.transformer.resblocks

    def begin(self, context: Tensor) -> Stem:
        tokens = torch.cat([self.tower.vectors(self.tower.frame.start), context])[None]
        return Stem((Ancestor(grow(self.blocks, self._place(tokens, 0))), ), tokens.shape[1])

    def branch(self, before: Stem, nodes: Tensor) -> Stem:
        keys = grow(self.blocks, self._place(nodes, before.length), before.ancestors)
        return Stem((*before.ancestors, Ancestor(keys)), before.length + nodes.shape[1])

    def finish(self, before: Stem, leaves: Tensor, parent: Tensor | None) -> Tensor:
        *shared, last = before.ancestors
        end = self.tower.vectors(self.tower.frame.end[:1])
        tokens = torch.cat([leaves, end.expand(len(leaves), 1, -1)], dim=1)
        states = read_last(self.blocks, self._place(tokens, before.length),
                           [*shared, Ancestor(last.layers, parent)])
        return self.tower.project(states)

    def _place(self, tokens: Tensor, start: int) -> Tensor:
        return tokens + self.tower.text.positional_embedding[start:start + tokens.shape[1]]


class WholeEncoder:
    """Runs the tower's own forward on whole sequences, for towers of any kind."""

    def __init__(self, tower: TextTower) -> None:
        self.tower = tower

    def begin(self, context: Tensor) -> list[Tensor]:
        return [torch.cat([self.tower.vectors(self.tower.frame.start), context])[None]]

    def branch(self, before: list[Tensor], nodes: Tensor) -> list[Tensor]:
        return [*before, nodes]

    def finish(self, before: list[Tensor], leaves: Tensor, parent: Tensor | None) -> Tensor:
        return self.tower.run(*self._whole(before, leaves, parent))

    def _whole(self, before: list[Tensor], leaves: Tensor,
               parent: Tensor | None) -> tuple[Tensor, Tensor]:
        """Ids and vectors of whole sequences, from the start token to the last filler."""
        frame, size = self.tower.frame, len(leaves)
        parts = [*before[:-1], before[-1] if parent is None else before[-1][parent], leaves]
        num_inner = sum(part.shape[1] for part in parts) - len(frame.start)
        num_end = frame.context_length - len(frame.start) - num_inner
        ids = [*frame.start, *[frame.filler] * num_inner, *frame.end[:num_end]]
        parts.append(self.tower.vectors(frame.end[:num_end])[None])
        tokens = torch.cat([part.expand(size, -1, -1) for part in parts], dim=1)
        return upload(ids, leaves.device).expand(size, -1), tokens


class TokenEncoder(WholeEncoder):
    """As :class:`WholeEncoder`, with the states of all tokens, shape (n, context_length, width)."""

    def finish(self, before: list[Tensor], leaves: Tensor, parent: Tensor | None) -> Tensor:
        return self.tower.run_tokens(*self._whole(before, leaves, parent))


def encode_prompts(encoder: PromptEncoder, plan: PromptPlan, context: Tensor,
                   nodes: Tensor | None, leaves: Tensor, chunk_size: int,
                   with_cp: bool = False) -> Tensor:
    """Encodes the prompts of one path.

    Args:
        encoder (PromptEncoder): How.
        plan (PromptPlan): Which vectors make up each prompt.
        context (Tensor): Context of the path, shape (l, width).
        nodes (Tensor | None): Vectors of the attributes that stand before objects.
        leaves (Tensor): Vectors of the last names, shape (tokens, width).
        chunk_size (int): Number of prompts that run together.
        with_cp (bool): Whether to forget the activations of a chunk until backward needs them.

    Returns:
        Tensor: Features, not normalised, shape (P, out_dim).
    """
    def finish(before: Any, tokens: Tensor, parent: Tensor | None) -> Tensor:
        return encoder.finish(before, F.embedding(tokens, leaves), parent)

    root = encoder.begin(context)
    features = []
    for group in plan.groups:
        before = root
        if group.nodes is not None and nodes is not None:
            before = encoder.branch(root, F.embedding(group.nodes, nodes))
        for tokens, parent in _chunks(group.leaves, chunk_size):
            if with_cp and torch.is_grad_enabled():
                features.append(checkpoint(finish, before, tokens, parent, use_reentrant=False,
                                           preserve_rng_state=False))
            else:
                features.append(finish(before, tokens, parent))
    return torch.cat(features).index_select(0, plan.order)


def _chunks(leaves: list[Leaves], size: int) -> Iterator[tuple[Tensor, Tensor | None]]:
    for tokens, parent in leaves:
        for start in range(0, len(tokens), size):
            stop = start + size
            yield tokens[start:stop], None if parent is None else parent[start:stop]
