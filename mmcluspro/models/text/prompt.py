"""Soft prompts (Eq. 2): trainable contexts and vocabulary inside a frozen text tower."""
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mmcluspro.errors import listed
from mmcluspro.registry import MODELS

from .name_table import NameTable

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

    def __init__(self,
                 attributes: Sequence[str],
                 objects: Sequence[str],
                 embed: Embed,
                 context: str = 'a photo of',
                 learn: Sequence[str] = ('context', 'vocabulary'),
                 names: str = 'mean',
                 share_context: bool = False,
                 attr_dropout: float = 0.0,
                 max_tokens: int | None = None) -> None:
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
