"""Text features of the last few pair sets, kept for as long as nothing they depend on changes."""
import weakref
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

Value = TypeVar('Value')


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
