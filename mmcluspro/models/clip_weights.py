"""Reads a file of CLIP weights, without running code from it, and fills a model with them."""
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import torch
from open_clip.convert import convert_state_dict
from open_clip.model import convert_to_custom_text_state_dict, resize_pos_embed
from torch import Tensor, nn

from mmcluspro.errors import FileError, reason_of
from mmcluspro.utils.archive import check_archive

from .torchscript import is_torchscript, read_torchscript

REMEDY = ('Set pretrained to an open_clip state dict or checkpoint (.pt, .bin, .safetensors) or an '
          'OpenAI archive; if it should be one, download it again.')

# Scalars that OpenAI stored next to its weights; no other CLIP file has them.
OPENAI_KEYS = ('input_resolution', 'context_length', 'vocab_size')
_shared: ContextVar[dict[Path, tuple[dict[str, Tensor], bool]] | None] = ContextVar(
    'shared_weights', default=None)


@contextmanager
def shared_reading() -> Iterator[None]:
    """Inside the block, each file of weights is read once: image and text tower share it."""
    token = _shared.set({})
    try:
        yield
    finally:
        _shared.reset(token)


def read_weights(path: str | Path) -> tuple[dict[str, Tensor], bool]:
    """Reads a file of CLIP weights; inside :func:`shared_reading`, once.

    Args:
        path (str | Path): See :func:`_read`.

    Returns:
        tuple[dict[str, Tensor], bool]: The weights in float32 and whether the file bears OpenAI's
        marks (see ``OPENAI_KEYS``).
    """
    known, path = _shared.get(), Path(path)
    if known is None:
        return _read(path)
    if path not in known:
        known[path] = _read(path)
    weights, from_openai = known[path]
    return dict(weights), from_openai


def _read(path: Path) -> tuple[dict[str, Tensor], bool]:
    """Reads open_clip files (``.bin``, ``.pt``, ``.safetensors``) and OpenAI's archives.

    Args:
        path (str | Path): A state dict, a training checkpoint holding one under
            ``state_dict`` (with or without ``module.`` prefixes), a safetensors
            file or a TorchScript archive.
    """
    if path.suffix == '.safetensors':
        found: object = _read_safetensors(path)
    else:
        found = read_torchscript(path) if is_torchscript(path) else _read_pickle(path)
    state = _check(found, path)
    state = {key.removeprefix('module.'): value for key, value in state.items()}
    from_openai = all(key in state for key in OPENAI_KEYS)
    weights = {key: value.float() if value.is_floating_point() else value
               for key, value in state.items() if key not in OPENAI_KEYS}
    return weights, from_openai


def fill_weights(model: nn.Module, weights: dict[str, Tensor], arch: str, pretrained: str | None,
                 resample: bool) -> None:
    """Loads weights strictly, after the conversions between open_clip's own formats.

    Args:
        model (nn.Module): open_clip's model.
        weights (dict[str, Tensor]): From ``read_weights``.
        arch (str): Name of the model, for messages.
        pretrained (str | None): Name of the weights, for messages.
        resample (bool): Resample the positional embedding of images to the size of the model.
    """
    weights = convert_state_dict(model, weights)
    if 'positional_embedding' in weights and not hasattr(model, 'positional_embedding'):
        weights = convert_to_custom_text_state_dict(weights)
    own = model.state_dict()
    for key in ('logit_scale', 'logit_bias'):  # a scalar in some files, one element in others
        if key in weights and key in own:
            weights[key] = weights[key].reshape(own[key].shape)
    if resample:
        resize_pos_embed(weights, model)
    problems = [f'{key} is missing' for key in own if key not in weights]
    problems += [f'{key} is unexpected' for key in weights if key not in own]
    problems += [f'{key} is {tuple(weights[key].shape)} in the file and {tuple(value.shape)} in '
                 f'the model' for key, value in own.items()
                 if key in weights and weights[key].shape != value.shape]
    if problems:
        more = f' and {len(problems) - 5} more' if len(problems) > 5 else ''
        hint = (' Set img_size to resample the positional embedding.'
                if any('visual.positional_embedding is (' in p for p in problems) else '')
        raise ValueError(
            f'pretrained={pretrained!r} does not fit arch={arch!r}: '
            f'{"; ".join(problems[:5])}{more}.{hint}')
    model.load_state_dict(weights)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file
    try:
        return load_file(path)
    except Exception as error:  # its errors have no common base
        raise FileError(path, f'it is not a safetensors file, or damaged ({reason_of(error)})',
                        REMEDY) from error


def _read_pickle(path: Path) -> dict[str, Tensor]:
    check_archive(path, str(path))
    try:
        content = torch.load(path, map_location='cpu', weights_only=True)
    except Exception as error:
        raise FileError(path, f'it cannot be read as plain weights ({reason_of(error)}); files '
                        'that carry other Python objects are refused', REMEDY) from error
    return content.get('state_dict', content) if isinstance(content, dict) else content


def _check(state: object, path: Path) -> dict[str, Tensor]:
    """Names and tensors, no larger than what holds them, and finite."""
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise FileError(
            path, 'it holds no state dict: expected a dict of tensors, or a dict with one under '
            f'"state_dict", got {type(state).__name__}', REMEDY)
    for key, value in state.items():
        if not isinstance(key, str):
            what = 'a name expected'
        elif value.layout != torch.strided or (
                value.numel() * value.element_size() > value.untyped_storage().nbytes()):
            what = 'it claims more numbers than the file holds'
        elif value.is_floating_point() and not bool(value.isfinite().all()) and (
                not key.endswith('attn_mask')):
            what = 'a value is not finite'
        else:
            continue
        raise FileError(path, what, REMEDY, f'key {key!r}'[:200])
    return state
