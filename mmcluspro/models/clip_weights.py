"""Reads a file of CLIP weights, without running code from it, and fills a model with them."""
import zipfile
from pathlib import Path

import torch
from open_clip.convert import convert_state_dict
from open_clip.model import convert_to_custom_text_state_dict, resize_pos_embed
from torch import Tensor, nn

# Scalars that OpenAI stored next to its weights; no other CLIP file has them.
OPENAI_KEYS = ('input_resolution', 'context_length', 'vocab_size')


def read_weights(path: str | Path) -> tuple[dict[str, Tensor], bool]:
    """Reads open_clip files (``.bin``, ``.pt``, ``.safetensors``) and OpenAI's archives.

    Args:
        path (str | Path): A state dict, a training checkpoint holding one under
            ``state_dict`` (with or without ``module.`` prefixes), a safetensors
            file or a TorchScript archive.

    Returns:
        tuple[dict[str, Tensor], bool]: The weights in float32 and whether the file
        bears OpenAI's marks (see ``OPENAI_KEYS``).
    """
    path = Path(path)
    if path.suffix == '.safetensors':
        from safetensors.torch import load_file
        state = load_file(path)
    elif _is_torchscript(path):
        state = _read_torchscript(path)
    else:
        state = _read_pickle(path)
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
    problems += [f'{key} is surplus' for key in weights if key not in own]
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


def _is_torchscript(path: Path) -> bool:
    """Whether the file is a zip with TorchScript sources (``torch.save`` writes none)."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any('/code/' in name for name in archive.namelist())


def _read_torchscript(path: Path) -> dict[str, Tensor]:
    # torch.load(weights_only=True) refuses TorchScript, the format of OpenAI's own files, so
    # torch.jit.load it must be. Its unpickler resolves no Python names and calls no method but
    # __setstate__ (in the TorchScript interpreter), so an archive without one runs nothing.
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            source = '/code/' in name and name.endswith('.py')  # not its debug records
            if source and b'def __setstate__' in archive.read(name):
                raise ValueError(
                    f'pretrained={str(path)!r} is a TorchScript archive with code that runs on '
                    'loading (__setstate__); refused. Save its state dict with torch.save.')
    return dict(torch.jit.load(str(path), map_location='cpu').state_dict())


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location='cpu', weights_only=True)
    except Exception as error:
        raise ValueError(
            f'pretrained={str(path)!r} cannot be read as plain weights: {error}. Expected an '
            'open_clip state dict or checkpoint (.pt, .bin, .safetensors) or an OpenAI archive; '
            'files that carry other Python objects are refused.') from error
    state = content.get('state_dict', content) if isinstance(content, dict) else content
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise ValueError(
            f'pretrained={str(path)!r} holds no state dict: expected a dict of tensors, or a dict '
            f'with one under "state_dict", got {type(state).__name__}.')
    return state
