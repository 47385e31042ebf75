"""Checkpoints without the frozen towers: they come back from where they came from.

A tower that reads its own weights at construction says so with ``declare_restorable``. Its
frozen parameters are then left out of checkpoints (ViT-L/14: tens of MB instead of 1.7 GB) and
taken from the model itself on loading, provided that the model holds the same weights: a
fingerprint travels with the checkpoint. Everything else is saved: what is trained, all persistent
buffers, and frozen weights that nobody could restore, such as those of a random tower.

Published files also leave out what only training needs (``declare_training_only``): prototypes.
"""
from collections.abc import Iterator, Mapping
from typing import Any

from mmengine.model import is_model_wrapper
from torch import Tensor, nn

from mmcluspro.errors import listed
from mmcluspro.utils.digest import FINGERPRINT, fingerprint


def declare_restorable(module: nn.Module) -> None:
    """Marks the frozen parameters of a module as restorable at construction.

    Call it when the weights are in and frozen, before anything trainable is injected.

    Args:
        module (nn.Module): Holds frozen parameters read from a source that its config names.
    """
    frozen = {name: p for name, p in module.named_parameters(remove_duplicate=False)
              if not p.requires_grad}
    # By name, not by requires_grad at saving: an averaged copy of the model has no gradients.
    module._restorable = frozenset(frozen)  # type: ignore[assignment]
    # Statistics of BatchNorm: saved, but a file that was trained on stored features lacks them.
    module._restorable_buffers = frozenset(  # type: ignore[assignment]
        name for name, _ in module.named_buffers(remove_duplicate=False))
    # Positions are resampled for another image size; the rest of the tower stays the same.
    module.register_buffer(FINGERPRINT, fingerprint(
        {name: p for name, p in frozen.items() if not name.endswith('positional_embedding')}))


def declare_training_only(module: nn.Module) -> None:
    """Marks the state of a module as needed by training only: a file may leave all of it out.

    Args:
        module (nn.Module): Keeps what it was built with when a file has nothing of it.
    """
    module._training_only = True  # type: ignore[assignment]


def training_only_prefixes(model: nn.Module) -> tuple[str, ...]:
    """Beginnings of the keys that a published file leaves out, such as ``'head.banks.'``."""
    return tuple(f'{path}.' for path, module in model.named_modules(remove_duplicate=False)
                 if path and getattr(module, '_training_only', False))


def lacks_training_state(model: nn.Module, state_dict: Mapping[str, Any]) -> bool:
    """Whether a file has nothing of what only training needs, as a published one."""
    return bool(_left_out(model, state_dict, ''))


def restorable_keys(model: nn.Module, prefix: str = '') -> dict[str, Tensor]:
    """Parameters that a checkpoint may leave out, by their key.

    Args:
        model (nn.Module): Any module above the declared ones.
        prefix (str): Prefix of ``model`` in the keys. Defaults to ''.
    """
    return {key: parameter for _, entries in _declared(model, prefix)
            for key, parameter in entries.items()}


def check_state_keys(model: nn.Module, state_dict: Mapping[str, Any], prefix: str = '') -> None:
    """Refuses a state dict that lacks a key, has one too many or one of another shape.

    Restorable parameters, non-persistent and unset buffers may be there or not, and what only
    training needs as a whole; a module with ``stands_in`` ignores the weights of a tower below its
    own key; the shape of buffers is left to the modules that own them.

    Args:
        model (nn.Module): The model that would load it.
        state_dict (Mapping[str, Any]): The state dict.
        prefix (str): Only keys under it are looked at. Defaults to ''.

    Raises:
        ValueError: Names the first faults of each kind and counts the rest.
    """
    model = model.module if is_model_wrapper(model) else model  # type: ignore[assignment]
    known, optional = _all_keys(model, prefix)
    wrong = [str(key)[:100] for key, value in state_dict.items()
             if not isinstance(key, str) or isinstance(known.get(key), Tensor)
             and not isinstance(value, Tensor)]
    if wrong:
        raise ValueError(f'The checkpoint does not fit the model: {listed(sorted(wrong))} must be '
                         'tensors under a name. It is damaged, or of another kind.')
    keys = {key for key in state_dict if key.startswith(prefix)}
    optional.update(_left_out(model, state_dict, prefix))
    # Batch counters are younger than BatchNorm; torch and mmengine do without them, too.
    missing = [key for key in known if key not in keys | optional
               and not key.endswith('num_batches_tracked')]
    stand_ins = tuple(f'{prefix}{path}.' for path, module in model.named_modules()
                      if getattr(module, 'stands_in', False))
    surplus = [key for key in keys if key not in known and not key.startswith(stand_ins)
               and not key.endswith(('_extra_state', FINGERPRINT))]
    shapes = [f'{key} {tuple(state_dict[key].shape)} instead of {tuple(known[key].shape)}'
              for key in keys if isinstance(known.get(key), nn.Parameter)
              and known[key].shape != state_dict[key].shape]
    faults = [f'{kind} {listed(sorted(names))}' for kind, names in
              (('missing', missing), ('unexpected', surplus), ('wrong shape', shapes)) if names]
    if faults:
        raise ValueError(
            f'The checkpoint does not fit the model: {"; ".join(faults)}. Was it trained with '
            'another config (peft, neck, prompt, clustering) than the one that loads it?')


def _all_keys(model: nn.Module, prefix: str) -> tuple[dict[str, Any], set[str]]:
    """All keys a state dict of ``model`` may have, and those it may lack."""
    known: dict[str, Any] = {
        prefix + name: p for name, p in model.named_parameters(remove_duplicate=False)}
    optional = {*restorable_keys(model, prefix), *_restorable_buffers(model, prefix)}
    for path, module in model.named_modules(remove_duplicate=False):
        for name, buffer in module._buffers.items():
            key = f'{prefix}{path}.{name}' if path else prefix + name
            known[key] = buffer
            if buffer is None or name in module._non_persistent_buffers_set:
                optional.add(key)
    return known, optional


def compact_state_hooks(module: nn.Module, full_state: bool = False, strict: bool = True) -> None:
    """Leaves restorable parameters out of ``state_dict`` and restores them on loading.

    Works with torch's ``state_dict``/``load_state_dict`` and with mmengine's, below any prefix,
    and in copies of the module. Files with and without the frozen weights load into either.

    Args:
        module (nn.Module): Usually the whole model.
        full_state (bool): Save everything. Defaults to False.
        strict (bool): A missing or unexpected key raises on loading, even where mmengine would
            only warn. Defaults to True.
    """
    if not full_state:
        module._register_state_dict_hook(_drop_restorable)
    module._compact_strict = strict  # type: ignore[assignment]
    module._register_load_state_dict_pre_hook(_fill_restorable, with_module=True)


def _declared(model: nn.Module, prefix: str) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yields (prefix of a declared module, {key: parameter}) for what is still frozen."""
    for path, module in model.named_modules(remove_duplicate=False):
        names: frozenset[str] = getattr(module, '_restorable', frozenset())
        if names:
            inner = f'{prefix}{path}.' if path else prefix
            yield inner, {inner + name: parameter
                          for name, parameter in module.named_parameters(remove_duplicate=False)
                          if name in names and not parameter.requires_grad}


def _restorable_buffers(model: nn.Module, prefix: str) -> dict[str, Tensor]:
    """Buffers of declared towers, by their key: those of the weights that the tower read."""
    return {f'{prefix}{path}.{name}' if path else prefix + name: buffer
            for path, module in model.named_modules(remove_duplicate=False)
            for name, buffer in module.named_buffers(remove_duplicate=False)
            if name in getattr(module, '_restorable_buffers', ())}


def _left_out(model: nn.Module, state_dict: Mapping[str, Any], prefix: str) -> dict[str, Tensor]:
    """The model's own state of modules that only training needs and the file knows nothing of."""
    declared = [module.state_dict(prefix=f'{prefix}{path}.' if path else prefix)
                for path, module in model.named_modules(remove_duplicate=False)
                if getattr(module, '_training_only', False)]
    return {key: tensor for own in declared if not own.keys() & state_dict.keys()
            for key, tensor in own.items()}


def _drop_restorable(module: nn.Module, state_dict: dict, prefix: str, metadata: Any) -> None:
    for key in restorable_keys(module, prefix):
        state_dict.pop(key, None)


def _fill_restorable(module: nn.Module, state_dict: dict, prefix: str, *rest: Any) -> None:
    if module._compact_strict:
        check_state_keys(module, state_dict, prefix)
    buffers = {prefix + name: buffer for name, buffer in module.named_buffers()}
    for inner, entries in _declared(module, prefix):
        absent = {key: parameter for key, parameter in entries.items() if key not in state_dict}
        theirs, ours = state_dict.get(inner + FINGERPRINT), buffers[inner + FINGERPRINT]
        if absent and theirs is not None and not ours.is_meta and not _same(theirs, ours):
            raise ValueError(
                f'The checkpoint left out the frozen weights of {inner[:-1] or "the model"}, and '
                'those of this model are others. Set arch and pretrained to the ones it was '
                'trained with, or save with full_state=True.')
        state_dict.update({key: parameter.detach() for key, parameter in absent.items()})
    persistent = set(module.state_dict(prefix=prefix))
    state_dict.update({key: buffer for key, buffer in _restorable_buffers(module, prefix).items()
                       if key in persistent and key not in state_dict})
    state_dict.update(_left_out(module, state_dict, prefix))
    # A full checkpoint may be loaded without the source of the tower: pretrained=None.
    for key in [key for key in state_dict if key.startswith(prefix)
                and key.endswith(FINGERPRINT) and key not in buffers]:
        del state_dict[key]


def _same(theirs: Any, ours: Tensor) -> bool:
    return isinstance(theirs, Tensor) and theirs.numel() == 1 and bool(theirs.eq(ours.to(theirs)))
