"""Describes the training data: one of our datasets by name, never a folder."""
from __future__ import annotations

from typing import Any

from mmcluspro.fields import Refusal, choice, flag, integer, needs, record, text

FIELDS: dict[str, dict[str, Any]] = {
    **{name: dict(split=text(100), allow_unknown=flag) for name in (
        'MITStates', 'UTZappos', 'CGQA', 'Fashion', 'VAWCZSL', 'AOCLEVr', 'Clothing16K')},
    'ShapesCZSL': dict(version=text(100), seed=integer(0, 1 << 62)),
    'TableCZSL': dict(separator=text(10), allow_unknown=flag),
}


def describe_data(dataset: dict[str, Any]) -> dict[str, Any] | None:
    """The dataset of a config without its paths; None for one that is not ours."""
    kind = str(dataset.get('type')).removeprefix('mmcluspro.')
    if kind not in FIELDS:
        return None
    found = {name: dataset[name] for name in FIELDS[kind] if name in dataset}
    try:
        return check_data(dict(found, type=kind), 'data')
    except Refusal:
        return None


def check_data(value: Any, where: str) -> dict[str, Any]:
    """The field ``data``."""
    kind = choice(*FIELDS)(value.get('type') if isinstance(value, dict) else None, f'{where}.type')
    found = record(type=choice(kind), **FIELDS[kind])(value, where)
    needs(found, ('type', ), where)
    if any(sign in found.get('split', '') for sign in '/\\') or '..' in found.get('split', ''):
        raise Refusal(f'{where}.split is the name of a folder in the data, without a path')
    return found
