"""Builds the network of a checked description, with its frozen towers, in bounded memory.

Each field of a description has bounds, but their product does not: 64 layers of width 8192 pass,
and would take 200 GB. Every parameter of a prediction model comes from the file or from a tower
that is named, so that the sum of both bounds the model.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any

from mmengine.registry import DefaultScope
from torch import Tensor
from torch.nn.modules import module as nn_module

from mmcluspro.datasets import CompositionSpace
from mmcluspro.errors import DownloadError, FileError, reason_of, sentence_of
from mmcluspro.fields import PLACES, fields_of
from mmcluspro.models.clip import one_clip
from mmcluspro.models.sources import (
    DEFAULT,
    DINO_FILES,
    FILE,
    TINY,
    ClipSource,
    clip_numbers,
    tag_activation,
)
from mmcluspro.models.state import restorable_keys
from mmcluspro.models.text.words import WordTableText
from mmcluspro.registry import MODELS
from mmcluspro.utils.digest import FINGERPRINT

from .spec import buildable, class_of

SPARE = 20_000_000  # numbers: the shipped tower, tables made of it
LARGEST_DINO = 1_200_000_000
LARGEST_UNKNOWN = 1_000_000_000  # of a tower whose file is not there: the message about it is next


def allowed_numbers(description: Mapping[str, Any], state: Mapping[str, Tensor],
                    weights: Mapping[str, Any]) -> int:
    """How many numbers the model of a description may have.

    Args:
        description (Mapping): Field ``model`` of a checked description.
        state (Mapping[str, Tensor]): The weights of the file.
        weights (Mapping): Files that the user gave.
    """
    # Twice: LoRA, for one, registers the weight of a layer again.
    held = 2 * sum(value.numel() for value in state.values())
    return SPARE + held + 2 * sum(_tower(part, bool(weights)) for part in _parts(description))


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for entry in value.values():
            yield from _parts(entry)


def _tower(part: dict[str, Any], given: bool) -> int:
    if part.get('pretrained') in (None, TINY):
        return 0
    owner = class_of(part)
    field = fields_of(owner).get('pretrained') if owner else None
    if field and isinstance(field.kind, ClipSource):
        found = clip_numbers(part.get('arch', DEFAULT))
        return min(found, LARGEST_UNKNOWN) if part['pretrained'] == FILE and not given else found
    return LARGEST_DINO


@contextmanager
def limited(numbers: int, name: str) -> Iterator[None]:
    """Inside the block, this thread builds modules of at most so many numbers.

    Args:
        numbers (int): Parameters and buffers together.
        name (str): What messages call the checkpoint.
    """
    left, thread = numbers, get_ident()

    def count(module: Any, key: str, value: Tensor | None) -> None:
        nonlocal left
        if value is None or get_ident() != thread:
            return
        left -= value.numel()
        if left < 0:
            raise FileError(
                name, f'the description asks for a model of more than {numbers:,} numbers, and '
                'the file holds fewer', 'It is damaged, or made to exhaust the memory: take a file '
                'from another source.', 'meta.description')

    handles = [nn_module.register_module_parameter_registration_hook(count),
               nn_module.register_module_buffer_registration_hook(count)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


Weights = Mapping[str, str | Path]
REMEDY = ('It is damaged, or was not written by mmcluspro: take another file. If it is yours, give '
          'its config with --config FILE (config=…).')


def given_weights(weights: str | Path | Mapping[str, str | Path] | None) -> dict[str, str]:
    """Files by the part of the model that needs them.

    Args:
        weights (str | Path | Mapping, optional): One file for both towers, or files by 'backbone'
            (image tower), 'text' (text tower), 'projection' (after the image tower; the file of
            the text tower where it is not given), 'words' (word vectors) and 'tokenizer'.
    """
    if weights is None:
        return {}
    if isinstance(weights, (str, Path)):
        return dict.fromkeys(('backbone', 'text', 'projection'), str(weights))
    unknown = [name for name in weights if name not in PLACES]
    if unknown:
        raise ValueError(f'weights has the keys {", ".join(PLACES)}, got {unknown[0]!r}.')
    found = {name: str(path) for name, path in weights.items()}
    return dict({'projection': found['text']} if 'text' in found else {}, **found)


def build_model(description: Mapping[str, Any], space: CompositionSpace,
                state: Mapping[str, Tensor], name: str, weights: Weights) -> Any:
    """The model, with the weights of its frozen towers.

    Args:
        description (Mapping): Field ``model`` of what :func:`~.convert.checked` returned.
        space (CompositionSpace): Its labels.
        state (Mapping[str, Tensor]): The weights that are going to be loaded.
        name (str): What messages call the checkpoint.
        weights (Mapping[str, str]): Files that the user gave, see :func:`given_weights`.
    """
    head = dict(description['head'])
    head['text'] = _text(head.get('text'), state, weights, name)
    backbone = _towers(description['backbone'], weights.get('backbone'))
    if backbone['type'] == 'ProjectedBackbone' and description['backbone'].get('pretrained'):
        backbone['pretrained'] = weights.get('projection')
    budget = limited(allowed_numbers(description, state, weights), name)
    parts = dict(
        type='mmcluspro.CompositionalClassifier', space=space.to_dict(),
        data_preprocessor=dict(description['pixels']), backbone=buildable(backbone),
        neck=buildable(description.get('neck')), head=buildable(head))
    try:
        with DefaultScope.overwrite_default_scope('mmpretrain'), budget, one_clip():
            model = MODELS.build(parts)
    except (FileError, DownloadError):
        raise
    except ValueError as error:  # a class refuses its fields, in words
        raise FileError(name, f'the described model cannot be built: {sentence_of(error)}', REMEDY,
                        'meta.description') from error
    except (AssertionError, ArithmeticError, AttributeError, LookupError, RuntimeError,
            TypeError) as error:
        raise FileError(name, f'the described parts do not fit each other ({reason_of(error)})',
                        REMEDY, 'meta.description') from error
    _check_towers(model, description, state, name, weights)
    return model


def predicting(state: Mapping[str, Tensor], model: Any) -> dict[str, Tensor]:
    """The weights without what a description leaves out: losses and the queues of prototypes.

    Args:
        state (Mapping[str, Tensor]): Weights of a checkpoint.
        model (CompositionalClassifier): That loads them; what it knows stays.
    """
    known, training = model.state_dict(), tuple(f'head.{part}.' for part in model.head.unscored)
    return {key: value for key, value in state.items()
            if key in known or not key.startswith(training)}


def _text(text: Any, state: Mapping[str, Tensor], weights: Weights, name: str) -> Any:
    owner = class_of(text) if isinstance(text, dict) else None
    if owner is None or not issubclass(owner, WordTableText):
        found = _towers(text, weights.get('text'))
        if isinstance(found, dict) and found.get('tokenizer') is not None:
            if 'tokenizer' not in weights:
                raise FileError(
                    name, 'the tokenizer of its text tower came from a file that is not part of '
                    'the checkpoint', 'Give that file with --weights tokenizer=FILE (weights='
                    "dict(tokenizer='FILE') in Python)", 'description')
            found['tokenizer'] = str(weights['tokenizer'])
        return found
    vectors = state.get('head.text.attr_table.vectors')
    width = vectors.shape[1] if isinstance(vectors, Tensor) and vectors.ndim == 2 else 300
    return dict(text, path=weights.get('words'), width=width)


def _towers(part: Any, file: str | Path | None) -> Any:
    """Puts the user's file, or the address of a published one, in the place of its name."""
    if not isinstance(part, dict):
        return part
    found = {name: _towers(value, file) for name, value in part.items()}
    source = found.get('pretrained')
    if source in DINO_FILES:
        found['pretrained'] = str(file) if file else DINO_FILES[source]
    elif file and source is not None and source != TINY:
        if source != FILE and found.get('quickgelu') is None:  # the tag says it, the file may not
            found['quickgelu'] = tag_activation(found.get('arch', DEFAULT), source)
        found['pretrained'] = str(file)
    elif source == FILE:
        found['pretrained'] = None
    return found


def _check_towers(model: Any, description: Mapping[str, Any], state: Mapping[str, Tensor],
                  name: str, weights: Weights) -> None:
    """Raises an error if weights are neither in the checkpoint nor given by the user."""
    kept = restorable_keys(model)
    lost = [f'backbone.{key}' for key, _ in model.backbone.named_parameters()
            if f'backbone.{key}' not in {*state, *kept}]
    inner = description['backbone'].get('backbone') or description['backbone']
    held = any(key.startswith('backbone.') and not key.startswith('backbone.proj.')
               and not key.endswith(FINGERPRINT) for key in state)
    if lost and not held and not _uses_file(description['backbone']):
        raise FileError(
            name, f'it was trained on stored features, and the backbone {inner.get("type")} that '
            'made them is not part of it', 'Give the config of the training with --config FILE '
            '(config=…), which says where its weights are.', 'state_dict')
    for place, part, prefix in (('backbone', description['backbone'], 'backbone.'),
                                ('text', description['head'].get('text'), 'head.text.')):
        if not _uses_file(part) or place in weights:
            continue
        own = {f'{prefix}{key}' for key, value in
               model.get_submodule(prefix[:-1]).named_parameters() if not value.requires_grad}
        if own - state.keys():
            raise FileError(
                name, f'the frozen weights of the {place} came from a file that is not part of '
                'the checkpoint', f'Give that file with --weights {place}=FILE (weights='
                f"dict({place}='FILE') in Python)", 'description')


def _uses_file(part: Any) -> bool:
    return isinstance(part, dict) and (
        part.get('pretrained') == FILE or any(map(_uses_file, part.values())))
