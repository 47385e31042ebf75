"""Checks of a PrototypeBank: invalid fields, and state with other shapes."""
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .prototypes import PrototypeBank


def check_options(num_prototypes: int | str, momentum_unit: str, single: str, missing: str,
                  shares: dict[str, float], numbers: dict[str, tuple[int, int]]) -> None:
    """Raises ValueError for a wrong field of the config.

    Args:
        num_prototypes (int or str): Field of the bank.
        momentum_unit (str): Field of the bank.
        single (str): Field of the bank.
        missing (str): Field of the bank.
        shares (dict): Fields that lie in [0, 1].
        numbers (dict): Fields and the least value of each.
    """
    if isinstance(num_prototypes, str):
        _one_of('num_prototypes', num_prototypes, ('share', 'auto'))
    elif num_prototypes < 1:
        raise ValueError(f'bank.num_prototypes must be at least 1, got {num_prototypes}.')
    for name, value in shares.items():
        if not 0.0 <= value <= 1.0:
            raise ValueError(f'bank.{name} must lie in [0, 1], got {value}.')
    for name, (number, least) in numbers.items():
        if number < least:
            raise ValueError(f'bank.{name} must be at least {least}, got {number}.')
    _one_of('momentum_unit', momentum_unit, ('step', 'epoch'))
    _one_of('single', single, ('batch_mean', 'momentum'))
    _one_of('missing', missing, ('later', 'error'))


def check_state(bank: 'PrototypeBank', state: dict[str, Any], prefix: str) -> None:
    """Raises ValueError for saved buffers that another config must have written.

    PyTorch would leave such buffers as they are, with prototypes of zeros, where
    loading is not strict.

    Args:
        bank (PrototypeBank): What is to be filled.
        state (dict): The whole state dict.
        prefix (str): Where the bank's part begins.
    """
    offsets, prototypes = state.get(f'{prefix}offsets'), state.get(f'{prefix}prototypes')
    if offsets is not None and len(offsets) != bank.num_classes + 1:
        raise ValueError(
            f'{prefix}offsets: the checkpoint has prototypes of {len(offsets) - 1} primitives, '
            f'the model {bank.num_classes}. Load it with the space it was trained with.')
    if prototypes is None:
        return
    if prototypes.shape[1:] != (bank.dim, ):
        raise ValueError(
            f'{prefix}prototypes: the checkpoint has prototypes with {prototypes.shape[-1]} '
            f'channels, the model has {bank.dim}: model.head.in_channels differs from the '
            "checkpoint's.")
    if isinstance(bank.num_prototypes, int) and \
            len(prototypes) != bank.num_classes * bank.num_prototypes:
        per_class = f'{len(prototypes) / bank.num_classes:g}'
        raise ValueError(
            f'{prefix}prototypes: the checkpoint has {len(prototypes)} prototypes of '
            f'{bank.num_classes} primitives ({per_class} each), the model wants '
            f'{bank.num_prototypes} each: set model.head.bank.num_prototypes to what the '
            'checkpoint was trained with.')


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f'bank.{name} must be one of {allowed}, got {value!r}.')
