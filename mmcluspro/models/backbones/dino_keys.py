"""From the keys of a DINO checkpoint to those of mmpretrain's VisionTransformer."""
import re
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from mmcluspro.errors import listed

BRANCHES = ('teacher', 'student')
# Whatever was around the network when it was saved: DDP, and DINO's multi-crop wrapper.
WRAPPERS = ('module.', 'backbone.')
RULES = (
    (r'^patch_embed\.proj\.', 'patch_embed.projection.'),
    (r'^blocks\.(\d+)\.norm([12])\.', r'layers.\1.ln\2.'),
    (r'^blocks\.(\d+)\.mlp\.fc1\.', r'layers.\1.ffn.layers.0.0.'),
    (r'^blocks\.(\d+)\.mlp\.fc2\.', r'layers.\1.ffn.layers.1.'),
    (r'^blocks\.(\d+)\.attn\.', r'layers.\1.attn.'),
    (r'^blocks\.(\d+)\.ls1\.gamma$', r'layers.\1.attn.gamma1.weight'),
    (r'^blocks\.(\d+)\.ls2\.gamma$', r'layers.\1.ffn.gamma2.weight'),
    (r'^norm\.', 'ln1.'),
)


def dino_weights(content: Any, branch: str = 'teacher',
                 name: str = 'The file') -> dict[str, Tensor]:
    """Extracts the network from a DINO file, under its plain keys.

    Args:
        content (Any): The published backbone (a state dict), or a training checkpoint with
            ``teacher`` and ``student``.
        branch (str): Which of the two to take. Defaults to 'teacher', the one DINO evaluates.
        name (str): What messages call the file.

    Returns:
        dict[str, Tensor]: ``blocks.0.attn.qkv.weight`` and so on. The projection head of DINO's
        training (``head.*`` beside ``backbone.*``) is left out.
    """
    if isinstance(content, Mapping) and any(key in content for key in BRANCHES):
        if branch not in content:
            raise ValueError(f'{name} has no {branch!r} network: set backbone.branch to '
                             f'{[key for key in BRANCHES if key in content][0]!r}.')
        content = content[branch]
    elif isinstance(content, Mapping) and isinstance(content.get('state_dict'), Mapping):
        content = content['state_dict']
    if not isinstance(content, Mapping) or not content or not all(
            isinstance(value, Tensor) for value in content.values()):
        raise ValueError(
            f'{name} contains no DINO weights: expected a dict of tensors, or a dict with one '
            f'under "teacher" or "student", got {_summary(content)}.')
    weights = {re.sub(r'^module\.', '', key): value for key, value in content.items()}
    if any(key.startswith('backbone.') for key in weights):
        weights = {key: value for key, value in weights.items() if not key.startswith('head.')}
    return {_unwrapped(key): value for key, value in weights.items()}


def _unwrapped(key: str) -> str:
    while key.startswith(WRAPPERS):
        key = key.split('.', 1)[1]
    return key


def _summary(content: Any) -> str:
    if isinstance(content, Mapping):
        return f'a dict with {", ".join(sorted(map(str, content))[:5]) or "nothing"}'
    return f'a {type(content).__name__}'


def to_mmpretrain(key: str) -> str:
    """The key of mmpretrain's VisionTransformer for one of DINO's; unknown ones stay."""
    for pattern, replacement in RULES:
        key, count = re.subn(pattern, replacement, key)
        if count:
            break
    return key


def check_weights(weights: Mapping[str, Tensor], own: Mapping[str, Tensor], name: str,
                  arch: Any, free: Iterable[str] = ()) -> None:
    """Refuses weights with a key too few, too many or of another shape.

    Args:
        weights (Mapping): From :func:`dino_weights`, with DINO's keys.
        own (Mapping): State dict of the model, with mmpretrain's keys.
        name (str): What messages call the file.
        arch (Any): What messages call the model.
        free (Iterable[str]): Keys whose shape may differ.
    """
    known = {to_mmpretrain(key): key for key in weights}
    problems = [f'{key} is missing' for key in own if key not in known]
    problems += [f'{key} is unexpected' for converted, key in known.items() if converted not in own]
    problems += [
        f'{key} is {tuple(weights[key].shape)} in the file and {tuple(own[converted].shape)} in '
        f'the model' for converted, key in known.items()
        if converted in own and converted not in free
        and weights[key].shape != own[converted].shape]
    if problems:
        raise ValueError(
            f'{name} does not fit backbone.arch={arch!r}: {listed(problems, sign="; ")}.')
