"""CUDA's rules on a machine without CUDA.

Inside :class:`PretendCuda` a tensor can be moved to 'cuda'. It stays in the memory of the host and
is computed by the CPU, but its storage carries a tag. Python sees the tag as the device, and every
ATen call, backward included, is checked: its operands share one device, as CUDA demands, and
nothing is copied between devices unless the code says so.
"""
from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

TORCH = Path(torch.__file__).parent
CUDA, CPU = torch.device('cuda', 0), torch.device('cpu')
GETTERS = {name: getattr(torch.Tensor, name).__get__ for name in ('device', 'is_cuda', 'is_cpu')}
MOVES = (torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.cpu)
# Data enters here without an ATen call that the tag could follow.
ENTRIES = (torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor,
           torch.Tensor.__deepcopy__)
ARRAYS = (torch.Tensor.numpy, torch.Tensor.__array__)
# ATen calls that say in their name that they copy, or that read no data.
COPIES = {'copy_', '_to_copy', '_foreach_copy_', '_has_compatible_shallow_copy_type', 'set_data'}
# Besides pointwise calls, these take a scalar tensor of the host.
SCALARS = {'where', 'masked_fill', 'masked_fill_', 'index_put', 'index_put_', 'fill', 'fill_',
           '_index_put_impl_', 'full_like', 'index_fill', 'index_fill_', 'lift_fresh'}
READS = {'_local_scalar_dense', 'item', 'equal', 'is_nonzero'}


class DeviceFault(RuntimeError):
    """What CUDA would refuse, or do behind one's back."""


class PretendCuda:
    """Context in which 'cuda' exists.

    Attributes:
        faults (list[str]): All that was raised, also where the code went on after it.
        waits (Counter): What made the host wait for the device, by name and by the file and
            function that asked: reads, and 'upload', a copy to the device that is not both
            ``non_blocking`` and from pinned memory.
    """

    def __init__(self):
        self.faults, self.waits = [], Counter()
        self._tagged, self._pinned = {}, {}
        self._places = [CPU]  # of tensors that are made from nothing, by the call around it

    def __enter__(self):
        self._stack = ExitStack()
        self._stack.enter_context(_Calls(self))
        self._stack.enter_context(_Functions(self))
        # The autograd engine leaves modes of functions behind: take them up where it calls Python.
        apply, hook = BackwardCFunction.apply, checkpoint._recomputation_hook

        def apply_watched(node, *args):
            with _Functions(self):
                return apply(node, *args)

        class WatchedHook(hook):

            def __enter__(inner):
                inner.functions = _Functions(self)
                inner.functions.__enter__()
                return super().__enter__()

            def __exit__(inner, *error):
                super().__exit__(*error)
                inner.functions.__exit__(*error)

        self._stack.enter_context(patch.object(BackwardCFunction, 'apply', apply_watched))
        self._stack.enter_context(patch.object(checkpoint, '_recomputation_hook', WatchedHook))
        # Outside the hook, where shapes are compared, Python sees no tags.
        self._stack.enter_context(patch.dict(
            checkpoint._allowed_determinism_checks_to_fns, default=lambda t: t.shape))
        return self

    def __exit__(self, *error):
        self._stack.close()

    def device(self, tensor):
        """Where a tensor pretends to be."""
        return CUDA if any(storage._cdata in self._tagged for storage in storages(tensor)) else CPU

    def place(self, tensor, device):
        """Says where a storage is."""
        for storage in storages(tensor):
            if device == CUDA:
                # A weak reference keeps the address from being used again.
                self._tagged.setdefault(storage._cdata, StorageWeakRef(storage))
            else:
                self._tagged.pop(storage._cdata, None)

    def pin(self, tensor):
        """A copy in what would be pinned memory."""
        copied = tensor.clone()
        for storage in storages(copied):
            self._pinned[storage._cdata] = StorageWeakRef(storage)
        return copied

    def is_pinned(self, tensor):
        return any(storage._cdata in self._pinned for storage in storages(tensor))

    def wait(self, name):
        """Counts a wait, for the first caller that is neither torch nor here."""
        frame = sys._getframe(1)
        while frame.f_code.co_filename == __file__ or TORCH in Path(
                frame.f_code.co_filename).parents:
            frame = frame.f_back
        self.waits[name, Path(frame.f_code.co_filename).name, frame.f_code.co_name] += 1

    def devices(self, *values):
        return {self.device(tensor) for tensor in tensors_in(values)}

    def fail(self, message):
        self.faults.append(message)
        raise DeviceFault(message)


def tensors_in(value):
    """Tensors in tuples, lists and dicts; torch's own tree functions take a third of a run."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (tuple, list)):
        return []
    return [tensor for item in value for tensor in tensors_in(item)]


def storages(tensor):
    """The memory of a tensor: one, or those of its parts for a sparse one."""
    with torch._C.DisableTorchFunction():
        if tensor.is_meta:
            return []
        if tensor.layout is torch.strided:
            return [tensor.untyped_storage()]
        with _disable_current_modes():
            return [part.untyped_storage() for part in (tensor._indices(), tensor._values())]


class _Functions(TorchFunctionMode):
    """The door of Python: device fields and arguments."""

    def __init__(self, world):
        super().__init__()
        self.world = world

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        for name, getter in GETTERS.items():
            if func == getter:
                found = self.world.device(args[0])
                return found if name == 'device' else found.type == name[3:]
        if func in ARRAYS and self.world.device(args[0]) == CUDA:
            self.world.fail("can't convert a cuda tensor to numpy: copy it to the host first")
        if func is torch.Tensor.__setitem__ and isinstance(args[2], Tensor) and args[2].dim() and (
                len(self.world.devices(args[0], args[2])) > 1):
            self.world.fail('__setitem__ copies between devices')
        if func is torch.Tensor.pin_memory:
            return self.world.pin(args[0])
        if func in MOVES:
            return self._move(func, args, kwargs)
        place = kwargs.get('device')
        if place is not None:
            kwargs['device'] = CPU
            place = _known(place)
        else:
            given = args[:1] if func is torch.Tensor.__deepcopy__ else (args, kwargs)
            place = CUDA if CUDA in self.world.devices(given) else CPU
        generator = kwargs.get('generator')
        if generator is not None and generator.device.type != place.type:
            self.world.fail(f'{func.__name__}: a generator of {generator.device} for {place}')
        result = self._inside(place, func, args, kwargs)
        if func in ENTRIES:
            if place == CUDA and func is not torch.Tensor.__deepcopy__ and not (
                    isinstance(args[0], Tensor) and self.world.device(args[0]) == CUDA):
                self.world.wait('upload')
            self._retag(result, place)
        return result

    def _inside(self, place, func, args, kwargs):
        self.world._places.append(place)
        try:
            return func(*args, **kwargs)
        finally:
            self.world._places.pop()

    def _retag(self, result, place):
        for tensor in tensors_in(result):
            self.world.place(tensor, place)

    def _move(self, func, args, kwargs):
        tensor, *rest = args
        here = self.world.device(tensor)
        there = here
        waits = not (kwargs.get('non_blocking') and self.world.is_pinned(tensor))
        if func is not torch.Tensor.to:
            there = CUDA if func is torch.Tensor.cuda else CPU
            func, rest, kwargs = torch.Tensor.to, [], {}
        elif kwargs.get('device') is not None:
            there = _known(kwargs.pop('device'))
        elif rest and isinstance(rest[0], (str, torch.device, Tensor)):
            first = rest.pop(0)
            if isinstance(first, Tensor):
                there, rest = self.world.device(first), [first.dtype, *rest]
            else:
                there = _known(first)
        rest = [CPU if not rest or not isinstance(rest[0], torch.dtype) else rest.pop(0), *rest]
        result = func(tensor, *rest, **kwargs)
        if here == there:
            return result
        if there == CPU:
            self.world.wait('copy')
        elif waits:
            self.world.wait('upload')
        result = result.clone() if result is tensor or (
            self.world.device(result) == here and _shares(result, tensor)) else result
        self.world.place(result, there)
        return result


def _known(device):
    """One of the two devices there are."""
    return CUDA if torch.device(device).type == 'cuda' else CPU


def _shares(first, second):
    return [storage._cdata for storage in storages(first)] == [
        storage._cdata for storage in storages(second)]


class _Calls(TorchDispatchMode):
    """The rules of CUDA for ATen calls."""

    def __init__(self, world):
        super().__init__()
        self.world = world

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = tensors_in((args, kwargs))
        place = self._check(func, tensors)
        if place == CPU:
            return func(*args, **kwargs)
        known = {storage._cdata for tensor in tensors for storage in storages(tensor)}
        result = func(*args, **kwargs)
        for tensor in tensors_in(result):
            if not any(storage._cdata in known for storage in storages(tensor)):
                self.world.place(tensor, CUDA)
        return result

    def _check(self, func, tensors):
        """The device of the result."""
        name = func.overloadpacket.__name__
        if not tensors:
            return self.world._places[-1]
        places = [self.world.device(tensor) for tensor in tensors]
        if CUDA not in places:
            return CPU
        if name in READS:
            self.world.wait(name)
        if CPU in places and name in COPIES:
            return places[0]
        lenient = torch.Tag.pointwise in func.tags or name in SCALARS or (
            name.startswith('_foreach_'))
        wrong = [tensor for tensor, place in zip(tensors, places)
                 if place == CPU and not (lenient and tensor.dim() == 0)]
        if wrong:
            self.world.fail(
                f'{name}: expected all tensors on cuda, found '
                f'{[tuple(tensor.shape) for tensor in wrong]} on the host')
        return CUDA
