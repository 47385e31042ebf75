"""From a config to a space."""
from collections.abc import Mapping
from typing import Any

from mmcluspro.registry import DATASETS

from .space import CompositionSpace


def build_space(cfg: CompositionSpace | Mapping[str, Any], phase: str = 'all') -> CompositionSpace:
    """Builds the label space that dataset, model and metric share.

    Args:
        cfg (CompositionSpace | dict): A space (returned as it is), the dict of
            :meth:`CompositionSpace.to_dict`, or ``dict(type='mmcluspro.UTZappos',
            data_root=...)``: the dataset class then makes it, and the other keys
            are arguments of its ``make_space``.
        phase (str): 'train', 'val', 'test' or 'all' (the union). It has no
            meaning for the first two forms. Defaults to 'all'.

    Returns:
        CompositionSpace: The space of the phase.
    """
    if isinstance(cfg, CompositionSpace):
        return cfg
    if not isinstance(cfg, Mapping):
        raise ValueError(f'space must be a CompositionSpace or a dict, got {cfg!r}.')
    if 'type' not in cfg:
        return CompositionSpace.from_dict(cfg)
    arguments = dict(cfg)
    kind = arguments.pop('type')
    dataset = DATASETS.get(kind) if isinstance(kind, str) else kind
    if dataset is None:
        raise ValueError(
            f"space.type={kind!r} is not a registered dataset; write 'mmcluspro.UTZappos', "
            "'mmcluspro.MITStates', 'mmcluspro.CGQA', 'mmcluspro.TableCZSL' or "
            "'mmcluspro.ShapesCZSL'.")
    make_space = getattr(dataset, 'make_space', None)
    if make_space is None:
        raise ValueError(f'space.type={kind!r} makes no space: it has no classmethod make_space.')
    return make_space(phase=phase, **arguments)
