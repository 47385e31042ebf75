"""Loads the checkpoints, images and names that the flags of a picture command ask for."""
from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

import torch
from matplotlib.figure import Figure
from mmengine.config import Config
from torch import Tensor

from mmcluspro.api import load
from mmcluspro.artefact import TrainedModel
from mmcluspro.artefact.load import read_checkpoint
from mmcluspro.cli.flags import model_options
from mmcluspro.datasets import CompositionSpace, CZSLDataset
from mmcluspro.engine.hooks.console import weight_files
from mmcluspro.engine.launch import read_config
from mmcluspro.errors import FileError
from mmcluspro.utils.device import find_device

from .style import save

BRANCHES = {'attr': 'attribute', 'obj': 'object'}


def open_checkpoints(paths: Sequence[str], args: argparse.Namespace) -> tuple[
        list[TrainedModel], CZSLDataset]:
    """Loads checkpoints, and the images of ``args.phase`` that the first one was trained on.

    Args:
        paths (Sequence[str]): Checkpoints of the same label space.
        args (argparse.Namespace): Flags of :func:`~mmcluspro.cli.flags.add_run_flags`.

    Returns:
        tuple: The models, and the dataset.
    """
    if args.batch_size < 1:
        raise ValueError(f'--batch-size must be at least 1, got {args.batch_size}.')
    if args.cfg_options and not args.config:
        raise ValueError('--cfg-options changes fields of --config FILE, which is not given.')
    find_device(args.device)
    if not args.config and not args.data_root:
        _check_place(paths[0], args)
    models = [_open(path, args, alone=len(paths) == 1) for path in paths]
    dataset = open_phase(models[0], args.phase, args)
    labels = dataset.space.attributes, dataset.space.objects
    for path, model in zip(paths, models):
        if (model.space.attributes, model.space.objects) != labels:
            raise ValueError(
                f'{path} knows {len(model.space.attributes)} attributes and '
                f'{len(model.space.objects)} objects, the {args.phase} images of {paths[0]} have '
                f'{len(labels[0])} and {len(labels[1])}, or others: all checkpoints must be '
                'trained on the same data.')
    return models, dataset


def _check_place(path: str, args: argparse.Namespace) -> None:
    """Raises an error before the model is built if the folder of own images is not known."""
    try:
        data = read_checkpoint(path).spec(tuple(args.imports)).get('data') or {}
    except FileError:  # said when the model is loaded
        return
    if data.get('type') != 'TableCZSL':
        return
    near = sorted(Path(path).parent.glob('*.py'))
    name = shlex.quote(str(near[0])) if near else 'FILE'
    raise ValueError(f'{path} does not say where its images are. Give the config of the training: '
                     f'--config {name}.')


def open_phase(model: TrainedModel, phase: str, args: argparse.Namespace) -> CZSLDataset:
    """The images of a phase that a model was trained on.

    Args:
        model (TrainedModel): Of :func:`open_checkpoints`.
        phase (str): 'train', 'val' or 'test'.
        args (argparse.Namespace): Flags of :func:`~mmcluspro.cli.flags.add_run_flags`.
    """
    return model.dataset(phase, _config(args) if args.config else None,
                         **(dict(data_root=args.data_root) if args.data_root else {}))


def _config(args: argparse.Namespace) -> Config:
    config = read_config(args.config)
    config.merge_from_dict(args.cfg_options or {})
    return config


def _open(path: str, args: argparse.Namespace, alone: bool) -> TrainedModel:
    own = model_options(args)
    del own['config']
    if alone and args.config and _has_features(_config(args)):
        with suppress(ValueError, KeyError):  # a config that was changed after the training
            return load(path, args.device, config=_config(args), **own)
    if args.config and own['weights'] is None:  # what the user's own config names is trusted
        own['weights'] = weight_files(_config(args).get('model') or {}) or None
    try:
        return load(path, args.device, **own)
    except FileError:  # a backbone of the user's, which only the config can name
        if not args.config:
            raise
        return load(path, args.device, config=_config(args), **own)


def _has_features(config: Config) -> bool:
    """Whether the features of the images are stored, so that the tower need not run."""
    dataset = (config.get('test_dataloader') or {}).get('dataset') or {}
    return bool(dataset.get('features')) and Path(dataset['features']).is_dir()


def run_names(paths: Sequence[str], names: Sequence[str] | None) -> list[str]:
    """Names of the runs in pictures: the given ones, or the names of their folders."""
    if names is not None:
        if len(names) != len(paths):
            raise ValueError(f'--names has {len(names)} names for {len(paths)} runs.')
        found = list(names)
    else:
        found = [Path(path).resolve().parent.name if Path(path).suffix else
                 Path(path).resolve().name for path in paths]
        if len(set(found)) < len(found):
            found = [f'{name} {Path(path).stem}' for name, path in zip(found, paths)]
    if len(set(found)) < len(found):
        raise ValueError(f'Two runs have the same name ({", ".join(found)}): give --names.')
    return found


def save_and_say(figure: Figure, out: str | Path) -> None:
    """Writes PNG and SVG, and prints their paths."""
    for path in save(figure, out):
        print(path)


def names_of(space: CompositionSpace, branch: str) -> tuple[str, ...]:
    """The attributes of a space for 'attr', its objects for 'obj'."""
    return space.attributes if branch == 'attr' else space.objects


def find_primitive(space: CompositionSpace, name: str) -> list[tuple[str, int]]:
    """Branch and index of a name; both branches if it is an attribute and an object.

    Args:
        space (CompositionSpace): Where to look.
        name (str): 'red', or 'attr:orange' and 'obj:orange' for one of the two.
    """
    prefix, _, rest = name.partition(':')
    branches = [prefix] if prefix in BRANCHES and rest else list(BRANCHES)
    wanted = rest if len(branches) == 1 else name
    found = [(branch, names_of(space, branch).index(wanted)) for branch in branches
             if wanted in names_of(space, branch)]
    if not found:
        known = [known for branch in branches for known in names_of(space, branch)]
        close = get_close_matches(wanted, known, n=3)
        words = ' or '.join(BRANCHES[branch] for branch in branches)
        raise ValueError(
            f'{wanted!r} is not an {words} of the checkpoint.'
            + (f' Did you mean {" or ".join(close)}?' if close else f' It knows, for example, '
               f'{", ".join(known[:5])}.'))
    return found


def most_frequent(labels: Tensor, num_classes: int, count: int) -> list[int]:
    """The ``count`` classes with most labels, in order of their index; absent ones never.

    Args:
        labels (Tensor): Shape (N,).
        num_classes (int): C.
        count (int): How many at most.
    """
    if count < 1:
        raise ValueError(f'The number of primitives must be at least 1, got {count}.')
    sizes = torch.bincount(labels, minlength=num_classes)
    order = sizes.argsort(descending=True, stable=True)[:count]
    return sorted(order[sizes[order] > 0].tolist())


def split_by_branch(space: CompositionSpace, names: Sequence[str]) -> dict[str, list[int]]:
    """Indices of the asked names by branch, in the order given, each once."""
    chosen: dict[str, list[int]] = {branch: [] for branch in BRANCHES}
    for name in names:
        for branch, index in find_primitive(space, name):
            if index not in chosen[branch]:
                chosen[branch].append(index)
    return chosen
