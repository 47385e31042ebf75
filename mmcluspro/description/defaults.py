"""Defaults of today, written into a description: those of a later version may differ."""
from __future__ import annotations

from functools import lru_cache
from inspect import Parameter, signature
from typing import Any

from mmcluspro.registry import MODELS

from .schema import PACKAGES, Schema

LEFT_OUT = ('chunk_size', )  # how much runs at once is not a property of the model
NESTED = dict(bank='PrototypeBank', traction='CrossModalTraction')


def with_defaults(part: dict[str, Any]) -> dict[str, Any]:
    """A part with the fields that its config leaves to the class.

    Args:
        part (dict): One with a type of the schema; others come back as they are.
    """
    kind = part.get('type')
    fields = _schema().get(kind) if isinstance(kind, str) else None
    if fields is None or not isinstance(kind, str):
        return part
    found = {name: value for name, value in _defaults(kind).items()
             if name in fields and name not in LEFT_OUT}
    found = {**found, **part}
    if 'prompt' in fields and found.get('prompt') is None:
        found['prompt'] = dict(type='SoftPrompt')
    if isinstance(found.get('prompt'), dict):
        found['prompt'] = with_defaults(found['prompt'])
    for name, owner in NESTED.items():
        if name in fields:
            given = found.get(name) or {}
            known = dict(bank=('num_prototypes', ), traction=('num_layers', 'scale'))[name]
            found[name] = {**{key: value for key, value in _defaults(owner).items()
                              if key in known}, **given} if isinstance(given, dict) else given
    return found


@lru_cache(maxsize=1)
def _schema() -> dict[str, Any]:
    return {kind: fields for kind, (fields, _) in Schema().table.items()}


def _defaults(kind: str) -> dict[str, Any]:
    """Default values by field, with those that ``**kwargs`` hands on to the parents."""
    owner: Any = MODELS.get(f'{PACKAGES.get(kind, "mmcluspro")}.{kind}')
    found: dict[str, Any] = {}
    for base in owner.__mro__:
        if '__init__' not in base.__dict__:
            continue
        parameters = signature(base.__init__).parameters.values()
        for parameter in parameters:
            if parameter.default is not Parameter.empty:
                value = parameter.default
                found.setdefault(parameter.name, list(value) if isinstance(value, tuple) else value)
        if not any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
            break
    return found
