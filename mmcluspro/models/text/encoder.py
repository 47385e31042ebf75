"""Base class of the text sides: three paths, unit norm, and a cache for evaluation.

The cache keeps the features of the last few pair sets for as long as nothing they depend on
changes.
"""
from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import torch
from mmengine.dist import all_gather, get_rank, get_world_size
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.datasets import resolve_readable
from mmcluspro.datasets.names import RULES
from mmcluspro.fields import choice, mapping, optional, text
from mmcluspro.models.structures import TextTokens
from mmcluspro.utils.device import free_bytes

Value = TypeVar('Value')


def _rule(value: Any, where: str) -> Any:
    """The name of a rule, or the words of single names."""
    return (choice(*RULES) if isinstance(value, str) else mapping(text(), text()))(
        value, where)


Readable = Annotated[Mapping[str, str] | Any | None, optional(_rule)]


class _Entry(NamedTuple):
    tensor: Callable[[], Tensor | None]
    version: int | None
    copy: Tensor
    value: Any


class PairMemo(Generic[Value]):
    """Remembers one value for each of the last ``size`` pair sets.

    The same tensor, unchanged since, is recognised at no cost; another one by its content.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.entries: list[_Entry] = []

    def get(self, pairs: Tensor, compute: Callable[[], Value]) -> Value:
        """The value of ``pairs``, computed when it is not known."""
        entry = self._find(pairs)
        value = compute() if entry is None else entry.value
        copy = pairs.clone() if entry is None else entry.copy
        newest = _Entry(weakref.ref(pairs), _version(pairs), copy, value)
        others = [other for other in self.entries if other is not entry]
        self.entries = [*others, newest][-self.size:]
        return value

    def _find(self, pairs: Tensor) -> _Entry | None:
        version = _version(pairs)
        for entry in self.entries:
            if entry.tensor() is pairs and version is not None and entry.version == version:
                return entry
        for entry in self.entries:
            copy = entry.copy
            if copy.device == pairs.device and torch.equal(copy, pairs):
                return entry
        return None

    def clear(self) -> None:
        self.entries = []

    def __reduce__(self) -> tuple:  # copies and pickles of a model start empty
        return type(self), (self.size, )


class FeatureCache:
    """Features of the three paths.

    Args:
        size (int): Number of pair sets to keep. Defaults to 3, for example training pairs,
            closed world and open world.
    """

    def __init__(self, size: int = 3) -> None:
        self.size = size
        self.names: dict[str, Tensor] = {}
        self.pairs: PairMemo[Tensor] = PairMemo(size)
        self.tokens: PairMemo[Tensor] = PairMemo(1)  # as large as the tower is long
        self.state: list[Any] = []

    def validate(self, module: nn.Module) -> None:
        """Drops everything when a parameter or buffer of ``module`` is not what it was.

        Those that train are compared by value, since averaging hooks write through ``.data``,
        which no counter sees. The frozen rest is compared by identity and version.
        """
        tensors = [*module.parameters(), *module.buffers()]
        features = [*self.names.values(), *(
            entry.value for memo in (self.pairs, self.tokens) for entry in memo.entries)]
        if (len(tensors) != len(self.state) or not all(map(_unchanged, tensors, self.state))
                or any(feature._version for feature in features)):  # a caller wrote into them
            self.clear()
            self.state = [tensor.detach().clone() if tensor.requires_grad else _stamp(tensor)
                          for tensor in tensors]

    def get_names(self, path: str, compute: Callable[[], Tensor]) -> Tensor:
        """Features of all attributes or objects."""
        if path not in self.names:
            self.names[path] = compute()
        return self.names[path]

    def get_pairs(self, pairs: Tensor, compute: Callable[[], Tensor]) -> Tensor:
        """Features of a pair set."""
        return self.pairs.get(pairs, compute)

    def get_tokens(self, pairs: Tensor, compute: Callable[[], Tensor]) -> Tensor:
        """States of the tokens of a pair set."""
        return self.tokens.get(pairs, compute)

    def clear(self) -> None:
        self.names = {}
        self.pairs.clear()
        self.tokens.clear()
        self.state = []

    def __reduce__(self) -> tuple:
        return type(self), (self.size, )


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def _stamp(tensor: Tensor) -> tuple:
    return id(tensor), tensor.data_ptr(), tensor.device, tensor.dtype, _version(tensor)


def _unchanged(tensor: Tensor, before: Any) -> bool:
    if isinstance(before, Tensor) != tensor.requires_grad:
        return False
    if not tensor.requires_grad:
        return _stamp(tensor) == before
    return (tensor.device == before.device and tensor.dtype == before.dtype
            and torch.equal(tensor, before))


MANY = 100_000  # pairs; from here on, memory is looked at before it is taken
SHARED_FROM = 4096  # pairs; fewer are encoded by every rank, which costs less than it saves


class TextEncoder(nn.Module):
    """Base class of the text sides. Subclasses implement ``parts`` and ``embed``.

    Features that need gradients or dropout are computed in every step. Otherwise (in evaluation, in
    serving, and in training if nothing here is trained) they are computed once, in float32, and
    cached until a parameter changes.

    Args:
        attributes (Sequence[str]): Raw names.
        objects (Sequence[str]): Raw names.
        out_dim (int): Width of the features.
        logit_scale (Tensor): Logarithm of one over the temperature, a scalar.
        learn_temperature (bool): Train ``logit_scale``.
        readable (dict | callable | str | None): Overrides of the readable names.

    Attributes:
        unit_norm (bool): Whether features are scaled to unit norm. Subclasses for heads that
            measure distances set it to False.
    """

    unit_norm = True

    def __init__(self, attributes: Sequence[str], objects: Sequence[str], out_dim: int,
                 logit_scale: Tensor, learn_temperature: bool,
                 readable: Mapping[str, str] | Any | None) -> None:
        super().__init__()
        self.attributes: tuple[str, ...] = tuple(attributes)
        self.objects: tuple[str, ...] = tuple(objects)
        self.readable = resolve_readable(readable, [*attributes, *objects])
        self.out_dim = out_dim
        self.logit_scale = nn.Parameter(
            logit_scale.detach().clone().float().reshape(()), requires_grad=learn_temperature)
        self.cache = FeatureCache()
        self._bounds: PairMemo[list[list[int]]] = PairMemo(4)

    def parts(self) -> Any:
        """Vectors that all paths of one step share; dropout is sampled here, once per step."""
        raise NotImplementedError

    def embed(self, path: str, parts: Any, pairs: Tensor | None) -> Tensor:
        """Features of 'attribute', 'object' or 'composition', of any norm."""
        raise NotImplementedError

    def pretrained(self, names: Sequence[str]) -> Tensor:
        """Embeddings of raw names before any training, for Eq. 14; any norm, shape (n, D)."""
        raise NotImplementedError(
            f"{type(self).__name__} has no method pretrained, which head.feasibility='pretrained' "
            "needs: write it, or set head.feasibility='trained'.")

    def encode_attributes(self) -> Tensor:
        """Features of all attributes, unit norm, shape (A, out_dim)."""
        return self._features(['attribute'], None)[0]

    def encode_objects(self) -> Tensor:
        """Features of all objects, unit norm, shape (O, out_dim)."""
        return self._features(['object'], None)[0]

    def encode_pairs(self, pairs: Tensor) -> Tensor:
        """Features of pairs (P, 2) of attribute and object, unit norm, shape (P, out_dim)."""
        return self._features(['composition'], pairs)[0]

    def encode_tokens(self, pairs: Tensor) -> TextTokens:
        """States of all tokens of the prompts of pairs (P, 2), for heads that read single words."""
        raise self._without('tokens')

    def encode_sentences(self, sentences: Sequence[str]) -> Tensor:
        """Features of whole sentences, unit norm, shape (n, out_dim)."""
        raise self._without('sentences')

    def project(self, states: Tensor) -> Tensor:
        """Token states (…, width) to the joint space, (…, out_dim), not normalised."""
        raise self._without('tokens')

    def _without(self, what: str) -> NotImplementedError:
        return NotImplementedError(
            f'{type(self).__name__} has no {what}: use mmcluspro.CLIPText for model.head.text.')

    def forward(self, pairs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features of all attributes, all objects and the given pairs (Eq. 2).

        Args:
            pairs (Tensor): Attribute and object of each pair, shape (P, 2).

        Returns:
            tuple[Tensor, Tensor, Tensor]: t^a (A, out_dim), t^o (O, out_dim), t^c (P, out_dim).
        """
        attributes, objects, compositions = self._features(
            ['attribute', 'object', 'composition'], pairs)
        return attributes, objects, compositions

    def share(self, pairs: Tensor) -> None:
        """Encodes many pairs (P, 2) for the cache, each rank a part; every rank has to call it.

        It does nothing in a single process, for few pairs, or if features are not cached.
        """
        if get_world_size() == 1 or len(pairs) < SHARED_FROM or not self._is_constant():
            return
        check_pairs(pairs)
        self.cache.validate(self)
        self.cache.get_pairs(pairs, self.for_cache(lambda: self._encode_part(pairs)))

    def _encode_part(self, pairs: Tensor) -> Tensor:
        """Features of all pairs, those of this rank computed, the others received."""
        size = -(-len(pairs) // get_world_size())
        own = pairs[get_rank() * size:(get_rank() + 1) * size]
        features = self._encode('composition', self.parts(), own)
        padded = F.pad(features, (0, 0, 0, size - len(own)))
        return torch.cat(all_gather(padded))[:len(pairs)]

    def train(self, mode: bool = True) -> TextEncoder:
        self.forget()
        return super().train(mode)

    def forget(self) -> None:
        """Clears the cache."""
        self.cache.clear()

    def _apply(self, *args: Any, **kwargs: Any) -> TextEncoder:
        self.forget()  # .to(device), .half() and the like
        return super()._apply(*args, **kwargs)

    def _features(self, paths: Sequence[str], pairs: Tensor | None) -> list[Tensor]:
        if pairs is not None:
            check_pairs(pairs)
        if self._is_constant():
            return self._kept(paths, pairs)
        parts = self.parts()
        return [self._encode(path, parts, pairs) for path in paths]

    def _is_constant(self) -> bool:
        """Whether features need no gradients and draw nothing at random."""
        drops = self.training and any(
            isinstance(module, nn.Dropout) and module.p > 0 for module in self.modules())
        learns = torch.is_grad_enabled() and any(
            parameter.requires_grad for name, parameter in self.named_parameters()
            if name != 'logit_scale')
        return not drops and not learns

    @torch.compiler.disable  # versions and identities mean nothing inside a traced graph
    def _kept(self, paths: Sequence[str], pairs: Tensor | None) -> list[Tensor]:
        self.cache.validate(self)
        return [self._cached(path, pairs) for path in paths]

    def _cached(self, path: str, pairs: Tensor | None) -> Tensor:
        compute = self.for_cache(lambda: self._encode(path, self.parts(), pairs))
        if path == 'composition' and pairs is not None:
            return self.cache.get_pairs(pairs, compute)
        return self.cache.get_names(path, compute)

    def for_cache(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Normal tensors and full precision, whatever the mode of the call that fills the cache."""
        @torch.inference_mode(False)
        @torch.no_grad()
        @torch.autocast(self.logit_scale.device.type, enabled=False)
        def alone() -> Tensor:
            return compute()

        return alone

    def _encode(self, path: str, parts: Any, pairs: Tensor | None) -> Tensor:
        if path == 'composition' and pairs is not None and not len(pairs):
            return self.logit_scale.new_zeros(0, self.out_dim)
        if pairs is not None and len(pairs) > MANY:
            self._check_memory(len(pairs))
        features = self.embed(path, parts, pairs).float()
        return F.normalize(features, dim=-1) if self.unit_norm else features

    def _check_memory(self, count: int) -> None:
        """Says it in words where the features of so many pairs have no room."""
        needed, free = 4 * count * self.out_dim, free_bytes(self.logit_scale.device)
        if needed > free:
            raise ValueError(
                f'The text features of {count:,} pairs need {needed / 1e9:.0f} GB, and '
                f'{free / 1e9:.0f} GB are free: ask for fewer pairs (in the open world, these are '
                'all attributes x all objects), or use a machine with more memory.')

    @torch.compiler.disable  # reads indices, no maths
    def _check_range(self, pairs: Tensor) -> None:
        def bounds() -> list[list[int]]:
            return torch.stack([pairs.amin(0), pairs.amax(0)]).tolist()

        if not len(pairs):
            return
        # Once for each pair set: reading the indices makes the host wait for the device.
        low, high = self._bounds.get(pairs, bounds)
        if min(low) < 0 or high[0] >= len(self.attributes) or high[1] >= len(self.objects):
            raise ValueError(
                f'pairs must index {len(self.attributes)} attributes and {len(self.objects)} '
                f'objects, got indices from {low} to {high}.')

    def _check_new(self, attributes: Sequence[str], objects: Sequence[str]) -> None:
        known = [name for names, own in ((attributes, set(self.attributes)),
                                         (objects, set(self.objects)))
                 for name in names if name in own]
        if known:
            raise ValueError(f'extend got names that are there already: {known}. Leave them out.')


def log_scale(temperature: float) -> Tensor:
    """``logit_scale`` of a temperature."""
    if not temperature > 0:
        raise ValueError(f'text.temperature must be positive, got {temperature}.')
    return torch.tensor(-math.log(temperature))


def check_pairs(pairs: Tensor) -> None:
    if pairs.dim() != 2 or pairs.shape[1] != 2 or pairs.dtype != torch.long:
        raise ValueError(
            'pairs must be a LongTensor of shape (P, 2) with attribute and object indices, '
            f'got {pairs.dtype} of shape {tuple(pairs.shape)}.')
