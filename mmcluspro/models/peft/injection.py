"""Puts small trainable modules into a frozen tower, chosen by name patterns."""
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Protocol

from torch import nn

from mmcluspro.registry import MODELS


class Injector(Protocol):
    """Interface for ``inject``, implemented by ``LoRA`` and ``Bottleneck``."""

    def inject(self, module: nn.Module) -> list[str]:
        """Changes ``module`` in place and returns the names of the targets."""
        ...


class Injected(nn.Module):
    """Base of what is injected: follows ``train()`` where the tower around it does not."""


def inject(module: nn.Module, cfg: dict | Injector) -> list[str]:
    """Injects what ``cfg`` describes into ``module``, in place.

    Args:
        module (nn.Module): The tower. Freeze it first: only what exists then is frozen.
        cfg (dict | Injector): ``dict(type='mmcluspro.LoRA', ...)`` or
            ``dict(type='mmcluspro.Bottleneck', ...)``.

    Returns:
        list[str]: Names of the targets that were changed.
    """
    injector: Any = MODELS.build(dict(cfg)) if isinstance(cfg, dict) else cfg
    if not hasattr(injector, 'inject'):
        raise ValueError(
            f"peft must be of type 'mmcluspro.LoRA' or 'mmcluspro.Bottleneck', got {cfg}.")
    return injector.inject(module)


def injected_modules(module: nn.Module) -> list[Injected]:
    """All injected modules below ``module``."""
    return [child for child in module.modules() if isinstance(child, Injected)]


def match_targets(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Names matched by any pattern.

    A pattern is a shell pattern (``*``, ``?``, ``[...]``) for the whole dotted name or for its
    end after a dot: ``'attn.q'`` is the query projection of every block,
    ``'resblocks.2[0-3].attn.*'`` all of attention in the last four of 24.

    Args:
        names (Iterable[str]): Names there are.
        patterns (Sequence[str]): Patterns, each of which must match something.

    Returns:
        list[str]: The matched names in their order.
    """
    names = list(names)
    if isinstance(patterns, str) or not patterns:
        raise ValueError(f'peft.targets must be a list of name patterns, got {patterns!r}.')
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in names):
            raise ValueError(
                f'peft.targets: {pattern!r} matches nothing. There are: '
                f'{", ".join(_summary(names)) or "no targets in this tower"}.')
    return [name for name in names if any(_matches(name, pattern) for pattern in patterns)]


def replace_module(root: nn.Module, name: str, new: nn.Module) -> None:
    """Puts ``new`` at the dotted ``name``, in the training mode of what was there."""
    parent_name, _, child = name.rpartition('.')
    parent = root.get_submodule(parent_name)
    new.train(getattr(parent, child).training)
    setattr(parent, child, new)


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f'*.{pattern}')


def _summary(names: Iterable[str]) -> list[str]:
    """Names with their numbers replaced by ``*``: the 24 blocks of a tower read as one."""
    return list(dict.fromkeys(
        '.'.join('*' if part.isdigit() else part for part in name.split('.')) for name in names))
