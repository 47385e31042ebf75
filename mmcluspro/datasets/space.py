"""The label space: attributes, objects, pairs, and which of them are seen."""
from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmcluspro.registry import DATASETS

from .layout import DEFAULT_SPLIT, PHASES, Pair, read_splits
from .names import name_indices, sort_names


class CompositionSpace:
    """Names of the primitives and the pairs a model chooses from. Immutable.

    Attributes and objects are sorted by name, pairs by (attribute, object), so
    two spaces with the same names have the same indices. Tensors are returned as copies: changing
        one does not change the space.

    Args:
        attributes (Sequence[str]): Raw attribute names, in any order.
        objects (Sequence[str]): Raw object names, in any order.
        pairs (Tensor | Sequence): Indices into the two sequences *as given*,
            shape (P, 2).
        seen (Tensor | Sequence[bool]): Which pairs occur in training, shape (P,).

    Examples:
        >>> space = CompositionSpace(['wet', 'dry'], ['cat', 'dog'],
        ...                          [[0, 0], [0, 1], [1, 0]], [True, True, False])
        >>> space
        CompositionSpace(2 attributes x 2 objects, 3 pairs: 2 seen, 1 unseen)
        >>> space.attributes, space.index('dry', 'cat')
        (('dry', 'wet'), 0)
    """

    def __init__(self, attributes: Sequence[str], objects: Sequence[str],
                 pairs: Tensor | Sequence[Sequence[int]], seen: Tensor | Sequence[bool]) -> None:
        index = torch.as_tensor(pairs, dtype=torch.long, device='cpu').reshape(-1, 2)
        flags = torch.as_tensor(seen, dtype=torch.bool, device='cpu').reshape(-1)
        sizes = torch.tensor([len(attributes), len(objects)], device='cpu')
        if len(index) != len(flags):
            raise ValueError(f'seen has {len(flags)} flags for {len(index)} pairs.')
        outside = ((index < 0) | (index >= sizes)).any(dim=1)
        if outside.any():
            raise ValueError(
                f'{int(outside.sum())} of {len(index)} pairs are outside of the '
                f'{len(attributes)} attributes and {len(objects)} objects, first '
                f'{index[outside][0].tolist()}.')
        names, columns = zip(*(sort_names(what, given, column) for what, given, column in (
            ('attributes', attributes, index[:, 0]), ('objects', objects, index[:, 1]))))
        key = columns[0] * len(objects) + columns[1]
        order = key.argsort()
        if (key[order].diff() == 0).any():
            first = order[1:][key[order].diff() == 0][0]
            raise ValueError(
                f'The pair ({names[0][columns[0][first]]}, {names[1][columns[1][first]]}) '
                'is given twice.')
        self.__dict__.update(
            attributes=names[0], objects=names[1],
            _pairs=torch.stack(columns, dim=1)[order], _seen=flags[order].clone())

    attributes: tuple[str, ...]
    objects: tuple[str, ...]
    _pairs: Tensor
    _seen: Tensor

    @classmethod
    def from_pairs(cls, attributes: Iterable[str], objects: Iterable[str],
                   pairs: Tensor | Iterable[Sequence[Any]],
                   seen: Tensor | Sequence[bool]) -> CompositionSpace:
        """Like the constructor; ``pairs`` may also be pairs of names."""
        attributes, objects = tuple(attributes), tuple(objects)
        if not isinstance(pairs, Tensor):
            pairs = list(pairs)
            if len(pairs) and isinstance(pairs[0][0], str):
                pairs = name_indices(pairs, attributes, objects)
        return cls(attributes, objects, pairs, seen)

    @classmethod
    def from_lists(cls, lists: Mapping[str, Iterable[Pair]],
                   phase: str = 'train') -> CompositionSpace:
        """The space of a phase from the pairs of names of all three.

        Args:
            lists (dict): Pairs of names for 'train', 'val' and 'test'.
            phase (str): 'train': the training pairs; 'val' or 'test': training
                pairs and those of the phase; 'all': the union of the three. The
                primitives are always those of all three, so that indices mean
                the same in every phase.
        """
        if phase not in (*PHASES, 'all'):
            raise ValueError(f"phase must be 'train', 'val', 'test' or 'all', got {phase!r}.")
        sets = {name: {(pair[0], pair[1]) for pair in lists[name]} for name in PHASES}
        every = set().union(*sets.values())
        attributes = tuple(sorted({attr for attr, _ in every}))
        objects = tuple(sorted({obj for _, obj in every}))
        chosen = sorted(every if phase == 'all' else sets['train'] | sets[phase])
        seen = [pair in sets['train'] for pair in chosen]
        return cls(attributes, objects, name_indices(chosen, attributes, objects), seen)

    @classmethod
    def from_splits(cls, root: str | Path, split: str = DEFAULT_SPLIT, phase: str = 'train',
                    allow_unknown: bool = False) -> CompositionSpace:
        """The space of a phase from ``root/split/{train,val,test}_pairs.txt``.

        ``phase`` as in :meth:`from_lists`, ``allow_unknown`` as in
        :func:`~mmcluspro.datasets.layout.read_splits`.
        """
        return cls.from_lists(read_splits(root, split, allow_unknown), phase)

    @classmethod
    def from_table(cls, csv: str | Path, phase: str = 'train',
                   allow_unknown: bool = False) -> CompositionSpace:
        """The space of a phase from a CSV ``image,attribute,object,split``."""
        from .table_file import read_table, table_pairs
        return cls.from_lists(table_pairs(read_table(csv), csv, allow_unknown), phase)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> CompositionSpace:
        """The inverse of :meth:`to_dict`."""
        if not isinstance(state, Mapping):
            raise ValueError(f'A space is a dict, got a {type(state).__name__}.')
        missing = [key for key in ('attributes', 'objects', 'pairs', 'seen') if key not in state]
        if missing:
            raise ValueError(
                f'A space needs attributes, objects, pairs and seen; {missing} is missing from '
                f'a dict with the keys {sorted(map(str, state))}.')
        for key in ('attributes', 'objects'):
            if not isinstance(state[key], (list, tuple)):
                raise ValueError(f'space.{key} must be a list of names, got a '
                                 f'{type(state[key]).__name__}.')
        try:
            pairs = torch.as_tensor(state['pairs'])
            seen = torch.as_tensor(state['seen'])
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise ValueError(f'space.pairs must hold two numbers each, space.seen True or False '
                             f'({error}).') from None
        if pairs.is_floating_point() and len(pairs) or pairs.ndim != 2 and pairs.numel() or (
                seen.dtype != torch.bool and len(seen)):
            raise ValueError('space.pairs must hold two whole numbers each, space.seen True or '
                             f'False, got {pairs.dtype} of shape {tuple(pairs.shape)} and '
                             f'{seen.dtype}.')
        return cls(state['attributes'], state['objects'], pairs, seen)

    def to_dict(self) -> dict[str, list]:
        """Lists of plain str, int and bool, which any safe loader can read."""
        return {'attributes': list(self.attributes), 'objects': list(self.objects),
                'pairs': self._pairs.tolist(), 'seen': self._seen.tolist()}

    @property
    def pairs(self) -> Tensor:
        """LongTensor (P, 2): attribute and object index of each pair."""
        return self._pairs.clone()

    @property
    def seen(self) -> Tensor:
        """BoolTensor (P,): whether the pair occurs in training."""
        return self._seen.clone()

    @property
    def train_pairs(self) -> Tensor:
        """LongTensor (S, 2): ``pairs[seen]``."""
        return self._pairs[self._seen]

    @cached_property
    def _table(self) -> Tensor:
        table = torch.full((len(self.attributes), len(self.objects)), -1)
        table[self._pairs[:, 0], self._pairs[:, 1]] = torch.arange(len(self._pairs))
        return table

    @cached_property
    def _name_index(self) -> tuple[dict[str, int], dict[str, int]]:
        return ({name: i for i, name in enumerate(self.attributes)},
                {name: i for i, name in enumerate(self.objects)})

    def open_world(self) -> CompositionSpace:
        """The space of all attributes x all objects, with the same seen pairs."""
        attrs, objs = len(self.attributes), len(self.objects)
        if len(self) == attrs * objs:
            return self
        # On the CPU also where a model is built on the meta device.
        seen = torch.zeros(attrs, objs, dtype=torch.bool, device='cpu')
        seen[self._pairs[:, 0], self._pairs[:, 1]] = self._seen
        pairs = torch.cartesian_prod(
            torch.arange(attrs, device='cpu'), torch.arange(objs, device='cpu'))
        return CompositionSpace(self.attributes, self.objects, pairs, seen.flatten())

    def index(self, attr: str, obj: str) -> int:
        """Row of ``pairs`` for two raw names; raises a ``ValueError`` if there is none."""
        row = []
        for what, name, known in zip(('attribute', 'object'), (attr, obj), self._name_index):
            if name not in known:
                close = difflib.get_close_matches(str(name), known, n=1)
                raise ValueError(f'{name!r} is not an {what} of the space'
                                 + (f'; did you mean {close[0]!r}?' if close else '.'))
            row.append(known[name])
        found = int(self._table[row[0], row[1]])
        if found < 0:
            raise ValueError(f'({attr}, {obj}) is not among the {len(self)} pairs of the space; '
                             'space.open_world() has all pairs.')
        return found

    def lookup(self, attr_labels: Tensor | Sequence[int],
               obj_labels: Tensor | Sequence[int]) -> Tensor:
        """Rows of ``pairs`` for index tensors of equal shape, -1 if there is no such pair."""
        attr_labels = torch.as_tensor(attr_labels)
        obj_labels = torch.as_tensor(obj_labels, device=attr_labels.device)
        for what, label, size in (('attribute', attr_labels, len(self.attributes)),
                                  ('object', obj_labels, len(self.objects))):
            if label.numel() and not 0 <= int(label.min()) <= int(label.max()) < size:
                raise ValueError(f'{what} labels must lie in [0, {size}), got values from '
                                 f'{int(label.min())} to {int(label.max())}.')
        return self._table.to(attr_labels.device)[attr_labels.long(), obj_labels.long()]

    def __len__(self) -> int:
        return len(self._pairs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CompositionSpace):
            return NotImplemented
        return ((self.attributes, self.objects) == (other.attributes, other.objects)
                and torch.equal(self._pairs, other._pairs)
                and torch.equal(self._seen, other._seen))

    def __hash__(self) -> int:
        return hash((self.attributes, self.objects, self._pairs.numpy().tobytes(),
                     self._seen.numpy().tobytes()))

    def __reduce__(self) -> tuple:
        return CompositionSpace, (self.attributes, self.objects, self._pairs, self._seen)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f'A CompositionSpace cannot be changed (tried to set {name}).')

    def __repr__(self) -> str:
        seen = int(self._seen.sum())
        return (f'CompositionSpace({len(self.attributes)} attributes x {len(self.objects)} '
                f'objects, {len(self)} pairs: {seen} seen, {len(self) - seen} unseen)')


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
