"""Configs by name: a method of ``configs/methods`` on a dataset of ``configs/_base_/datasets``.

``csp_cgqa.py`` is no file: it is ``methods/csp.py`` read for the dataset ``cgqa``. A method file is
a config of mmengine in which

- ``dataset`` is the name of the dataset, as a variable and in ``_base_`` as ``{dataset}``;
- ``{stored}`` in ``_base_`` is the file that reads stored features: ``{dataset}_features.py``, or
  the dataset's own where there is no such file;
- ``_base_`` may be a dict with bases by dataset; of several, later ones change earlier ones;
- ``on`` has what differs between datasets, and is merged last;
- ``datasets`` lists the only datasets, or families of them, that the method is for;
- ``variants`` has changes to the method by name, with the fields of a method file in each;
- variables of its own have a name with a leading ``_``.

A key of ``_base_`` and ``on`` is a dataset or a family: what a dataset file says in ``family``,
such as ``shapes`` (both versions) and ``photographs`` (settings chosen on Fashion), or
``published`` where it says nothing (the settings of the publication).
"""
import ast
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache
from inspect import Parameter, signature
from multiprocessing import Lock
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from mmengine.config import Config, ConfigDict
from mmengine.utils import import_modules_from_strings

from mmcluspro.models.pixels import Pixels, tower_pixels
from mmcluspro.registry import DATASETS, MODELS
from mmcluspro.utils.files import configs_folder

from .messages import NO_ROOM, ConfigError

# Ends of a method's name that stand behind the dataset, as in ``cge_utzappos_finetuned``.
VARIANTS = ('released', 'finetuned', 'tokens')
ENVIRONMENT = re.compile(r'{{\s*\$(\w+)\s*:([^}]*?)\s*}}')


def dataset_names() -> list[str]:
    """The datasets that a name may end with: files with a label space, the longest names first."""
    folder = configs_folder() / '_base_' / 'datasets'
    names = [path.stem for path in folder.glob('*.py') if 'space' in _assigned(path)]
    return sorted(names, key=lambda name: (-len(name), name))


def config_names() -> list[str]:
    """The names of all configs, such as ``cluspro_shapes.py`` (a file) and ``csp_cgqa.py``."""
    folder = configs_folder()
    everywhere = [name for name in dataset_names() if not name.startswith('own_data')
                  and (family(name) != 'photographs' or name == 'fashion')]
    put_together = {f'{joined(name, dataset)}.py'
                    for name, (path, variant) in _methods(folder / 'methods').items()
                    for dataset in _meant_datasets(_datasets(path, variant)) or everywhere}
    return sorted(put_together.union(path.name for path in folder.rglob('*.py')
                                     if not {'_base_', 'methods'} & set(path.parts)))


def joined(method: str, dataset: str) -> str:
    """The name of a method on a dataset.

    Examples:
        >>> joined('csp', 'cgqa'), joined('cge_finetuned', 'cgqa')
        ('csp_cgqa', 'cge_cgqa_finetuned')
    """
    first, _, variant = method.rpartition('_')
    return f'{first}_{dataset}_{variant}' if variant in VARIANTS else f'{method}_{dataset}'


class Method(NamedTuple):
    """What a config without a file is put together from.

    Attributes:
        path (Path): Method file.
        variant (str): A name in its ``variants``, or empty.
        dataset (str): Name of a file in ``_base_/datasets``.
    """
    path: Path
    variant: str
    dataset: str


def find_method(path: Path) -> Method | None:
    """What a config without a file is put together from; None if there is no such method.

    Args:
        path (Path): A name such as ``csp_cgqa.py``; its folder is the current one, one of the
            shipped configs, or that of an own method file.
    """
    shipped = configs_folder()
    ours = path.parent == Path() or path.parent.resolve().is_relative_to(shipped.resolve())
    folders = [shipped / 'methods'] * ours + [path.parent] * is_method(path)
    for dataset in dataset_names():
        first, found, rest = path.stem.partition(f'_{dataset}')
        if found and (not rest or rest[1:] in VARIANTS):
            for folder in folders:
                method = _methods(folder).get(first + rest)
                if method:
                    return Method(*method, dataset)
    return None


def _methods(folder: Path) -> dict[str, tuple[Path, str]]:
    """Method files by the names of the methods, and the variant that a name means."""
    found = {}
    for path in sorted(folder.glob('*.py')):
        if path.stem.startswith('_'):  # has what methods share, or variants of a plain config
            found.update({variant: (path, variant) for variant in _variants(path)})
        else:
            found[path.stem] = path, ''
            found.update({f'{path.stem}_{variant}': (path, variant)
                          for variant in _variants(path)})
    return found


def _variants(path: Path) -> dict[str, tuple[str, ...]]:
    """The variants in a method file, with the datasets that they are for."""
    table = _assigned(path).get('variants')
    fields = {entry.arg: entry.value for entry in getattr(table, 'keywords', [])}
    return {name: next((tuple(ast.literal_eval(inner.value))
                        for inner in getattr(value, 'keywords', []) if inner.arg == 'datasets'), ())
            for name, value in fields.items() if name}


def is_method(path: Path) -> bool:
    """Whether a file needs a dataset to become a config."""
    return path.parent.name == 'methods'


def stands_on_method(path: Path) -> bool:
    """Whether a config names one without a file, such as ``csp_cgqa.py``, as its base."""
    return not path.is_file() or path.suffix == '.py' and any(
        not base.is_file() and find_method(base) for base in _bases(path, ''))


def read_method(path: Path) -> Config:
    """Puts a method and a dataset together, or a config that stands on them.

    Args:
        path (Path): A file, or what :func:`find_method` finds.
    """
    cfg = Config()
    _merge(path, '', cfg)
    if cfg.get('custom_imports'):
        import_modules_from_strings(**cfg.custom_imports)
    return Config(cfg.to_dict(), cfg_text=str(path), filename=str(path))


def _merge(path: Path, dataset: str, merged: Config) -> None:
    """Merges a config into what is below it."""
    variant, found = '', None if path.is_file() else find_method(path)
    if found:
        path, variant, dataset = found
        only = _datasets(path, variant)
        if only and dataset not in _meant_datasets(only):
            raise ConfigError(f'{" ".join([path.stem, variant]).strip()} has no settings for '
                              f'{dataset}, only for {", ".join(only)}.')
    if not is_method(path) and not stands_on_method(path):
        merged.merge_from_dict(Config.fromfile(path).to_dict(), allow_list_keys=False)
        return
    for base in _bases(path, dataset):
        _merge(base, dataset, merged)
    body = [node for node in _parsed(path).body if _target(node) != '_base_']
    names: dict[str, Any] = dict(_base_=merged, dataset=dataset)
    exec(compile(ast.Module(body, []), str(path), 'exec'), names)
    _merge_fields({name: value for name, value in names.items() if name != 'dataset'
                   and not name.startswith('_') and not isinstance(value, ModuleType)},
                  dataset, merged)
    if variant:
        fields = dict(names['variants'][variant])
        if '_base_' in fields:
            _merge(path.parent / fields.pop('_base_'), dataset, merged)
        _merge_fields(fields, dataset, merged)


def _merge_fields(fields: dict[str, Any], dataset: str, merged: Config) -> None:
    own = {name: value for name, value in fields.items()
           if name not in ('on', 'datasets', 'variants')}
    for each in (own, *_meant(fields.get('on', {}), dataset)):
        merged.merge_from_dict(each, allow_list_keys=False)


def _meant(table: Mapping[str, Any], dataset: str) -> list[Any]:
    """The values of a table that are meant for a dataset, the most special one last."""
    keys = (family(dataset), dataset)
    return [table[key] for key in dict.fromkeys(keys) if key in table]


def family(dataset: str) -> str:
    """Whose settings a dataset has.

    Examples:
        >>> family('shapes_large'), family('cgqa')
        ('shapes', 'published')
    """
    path = _dataset_file(dataset)
    return str(path.is_file() and _value(path, 'family') or 'published')


def _dataset_file(name: str) -> Path:
    return configs_folder() / '_base_' / 'datasets' / f'{name}.py'


def _meant_datasets(named: tuple[str, ...]) -> list[str]:
    """The datasets that a method lists by their names or families."""
    known = dataset_names()
    return [name for name in known if name in named
            or family(name) in named and family(name) not in known]


def _bases(path: Path, dataset: str) -> list[Path]:
    """The files below a method file."""
    bases = _value(path, '_base_')
    if isinstance(bases, dict):
        meant = _meant(bases, dataset)
        if not meant:
            raise ConfigError(f'{path} has no settings for {dataset}: its _base_ names '
                              f'{", ".join(bases)}.')
        bases = meant[-1]
    features = f'{dataset}_features'
    stored = features if _dataset_file(features).is_file() else dataset
    return [path.parent / ENVIRONMENT.sub(_of_environment, name).replace('{dataset}', dataset)
            .replace('{stored}', stored) for name in ([bases] if isinstance(bases, str) else bases)]


def _of_environment(place: re.Match[str]) -> str:
    return os.environ.get(place[1], place[2])


def _datasets(path: Path, variant: str = '') -> tuple[str, ...]:
    """What a method file, or the method that it changes, says in ``datasets``."""
    bases = _value(path, '_base_')
    own = _variants(path).get(variant) or tuple(_value(path, 'datasets'))
    if own or isinstance(bases, dict):
        return own
    below = [path.parent / name for name in ([bases] if isinstance(bases, str) else bases)]
    return next(filter(None, (_datasets(base) for base in below if base.is_file())), ())


def _value(path: Path, name: str) -> Any:
    """What a file sets a name to, without its other fields."""
    node = _assigned(path).get(name)
    return () if node is None else eval(compile(ast.Expression(node), str(path), 'eval'), {})


def _assigned(path: Path) -> dict[str, ast.expr]:
    """The names that a config file sets, with their values."""
    return {_target(node): node.value for node in _parsed(path).body
            if isinstance(node, ast.Assign)}


def _target(node: ast.stmt) -> str:
    return getattr(node.targets[0], 'id', '') if isinstance(node, ast.Assign) else ''


def _parsed(path: Path) -> ast.Module:
    return _tree(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=256)
def _tree(path: Path, changed: int) -> ast.Module:
    return ast.parse(path.read_text(encoding='utf-8'), str(path))


PHASES = ('train', 'val', 'test')
OF_A_PHASE = ('phase', 'pipeline')


def complete(cfg: Config | ConfigDict) -> None:
    """Fills in what a config need not repeat, and puts its fields ``data`` and ``clip`` in place.

    Args:
        cfg (Config | ConfigDict): Changed in place; what is complete stays as it is.
    """
    fill_in(cfg)
    place_data(cfg)
    place_clip(cfg)
    place_pixels(cfg)


def place_data(cfg: Config | ConfigDict) -> None:
    """Puts the field ``data`` into ``model.space``, ``space`` and the datasets of the loaders.

    With a ``type``, ``data`` replaces the data of the config; without one it changes single fields
    of it, such as ``data_root``. Other fields of a dataset (``phase``, ``pipeline``, ``indices`` …)
    stay. What the labels do not depend on, such as ``check_images``, goes to the datasets only.
    The field itself is taken out.

    Args:
        cfg (Config | ConfigDict): Changed in place.
    """
    data = cfg.pop('data', None)
    if data is None:
        return
    if not isinstance(data, dict):
        raise ConfigError(
            "The config field data must be a dict such as dict(type='mmcluspro.TableCZSL', "
            f"data_root='photos', table='table.csv'), got {data!r}.")
    misplaced = [name for name in OF_A_PHASE if name in data]
    if misplaced:
        raise ConfigError(
            f'The config field data is the same for all phases; {misplaced[0]} belongs '
            'to train_dataloader.dataset, val_dataloader.dataset and test_dataloader.dataset.')
    before = cfg.model.get('space') or {}
    after: dict[str, Any] = dict(data) if 'type' in data else {**before, **data}
    for phase in PHASES:
        loader = cfg.get(f'{phase}_dataloader')
        if loader is not None:
            loader.dataset = _replace(loader.dataset, before, after)
    cfg.model.space = _of_the_labels(after)
    if 'space' in cfg:
        cfg.space = _of_the_labels(after)


def fill_in(cfg: Config | ConfigDict) -> None:
    """Fills in what a config need not repeat: the label space, and widths between parts.

    The space is that of the training set (of the test set where nothing is trained); the neck and
    the head read features as wide as the backbone makes them.

    Args:
        cfg (Config | ConfigDict): Changed in place; what it says itself stays.
    """
    model = cfg.get('model')
    if not model or 'head' not in model:
        return
    if 'space' not in model:
        loader = cfg.get('train_dataloader') or cfg.get('test_dataloader')
        if loader:
            model.space = cfg.get('space') or _of_the_labels(loader.dataset)
    MODELS.import_from_location()
    width = _out_width(model.get('backbone') or {})
    for part in (model.get('neck'), model.head):
        if part and width and 'in_channels' not in part and _takes_width(part):
            part.in_channels = width
        width = (part or {}).get('out_channels', width)


def _takes_width(part: ConfigDict) -> bool:
    """Whether a part of the package has ``in_channels``; others say it themselves."""
    scope, _, name = str(part.get('type')).rpartition('.')
    made = MODELS.module_dict.get(name) if scope == 'mmcluspro' else None
    return made is not None and any('in_channels' in signature(cls.__init__).parameters
                                    for cls in made.__mro__ if '__init__' in vars(cls))


def _out_width(backbone: Mapping[str, Any]) -> int | None:
    """Width of the features of a backbone's config, None if it is not known."""
    kind = str(backbone.get('type')).rpartition('.')[2]
    if kind == 'CachedFeatures':
        return _out_width(backbone['backbone'])
    if kind == 'ProjectedBackbone':
        return backbone.get('out_dim') or backbone.get('in_channels')
    return _width(backbone['arch']) if kind in ('CLIPVision', 'CAILAVision') else None


def merge_options(cfg: Config, options: Mapping[str, Any]) -> None:
    """Merges options of the command line; ``data`` and ``clip`` first: others can refine them.

    Args:
        cfg (Config): Changed in place.
        options (Mapping): Values by dotted key.
    """
    ours = {key: value for key, value in options.items()
            if key.partition('.')[0] in ('data', 'clip', 'pixels')}
    with following_tower(cfg):
        cfg.merge_from_dict(ours)
        complete(cfg)
        cfg.merge_from_dict({key: value for key, value in options.items() if key not in ours})


def _of_the_labels(data: dict[str, Any]) -> ConfigDict:
    """The fields that ``make_space`` of the dataset takes."""
    kind = data.get('type')
    dataset = DATASETS.get(kind) if isinstance(kind, str) else kind
    make_space = getattr(dataset, 'make_space', None)
    if make_space is None:
        return ConfigDict(data)  # building the space says what is wrong
    parameters = signature(make_space).parameters
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return ConfigDict(data)
    return ConfigDict({name: value for name, value in data.items()
                       if name == 'type' or name in parameters})


def _replace(dataset: ConfigDict, before: dict[str, Any], after: dict[str, Any]) -> ConfigDict:
    if 'dataset' in dataset:  # a wrapper such as RepeatDataset
        return ConfigDict(dataset, dataset=_replace(dataset.dataset, before, after))
    kept = {name: value for name, value in dataset.items() if name not in before}
    return ConfigDict(kept, **after)


KEYS = ('arch', 'pretrained', 'quickgelu', 'tokenizer')


def place_clip(cfg: Config | ConfigDict) -> None:
    """Puts the field ``clip`` into the image tower, the text tower and the widths between them.

    ``clip=dict(arch='ViT-B-32', pretrained='openai')`` takes another CLIP, a text such as
    ``clip='weights/ViT-L-14.pt'`` other weights of the same one. The field itself is taken out.

    Args:
        cfg (Config | ConfigDict): Changed in place.
    """
    clip = cfg.pop('clip', None)
    if clip is None:
        return
    fields: dict[str, Any] = dict(pretrained=clip) if isinstance(clip, str) else clip
    if not isinstance(fields, dict) or not set(fields) <= set(KEYS):
        raise ConfigError(
            "The config field clip must be a file, or a dict such as dict(arch='ViT-B-32', "
            f"pretrained='openai') with the fields {', '.join(KEYS)}, got {clip!r}.")
    towers = (('model.backbone', cfg.model.backbone, ('CLIPVision', 'CAILAVision')),
              ('model.head.text', cfg.model.head.text, ('CLIPText', 'CAILAText', 'PLIDText')))
    for place, tower, kinds in towers:
        if str(tower.get('type')).rpartition('.')[2] not in kinds:
            raise ConfigError(f'The config field clip is for models with two towers of CLIP, but '
                              f'{place} is {tower.get("type")}.')
    with following_tower(cfg):
        for place, tower, _ in towers:
            tower.update(fields if place == 'model.head.text' else {
                name: value for name, value in fields.items() if name != 'tokenizer'})
    if 'arch' in fields:
        width = _width(fields['arch'])
        for part in (cfg.model.get('neck'), cfg.model.head):
            if part is not None and 'in_channels' in part:
                part.in_channels = width


TOWER_PIXELS = 'mmcluspro.TowerPixels'  # a step of a pipeline


def place_pixels(cfg: Config | ConfigDict) -> None:
    """Puts what the image tower says of its pictures into ``data_preprocessor`` and the pipelines.

    A step ``dict(type='mmcluspro.TowerPixels')`` becomes those that bring a picture to the tower's
    size; mean and deviation are filled in. What the config says itself stays. The field ``pixels``
    replaces single facts, such as ``pixels=dict(size=336)``, and is taken out.

    Args:
        cfg (Config | ConfigDict): Changed in place.
    """
    own, model = cfg.pop('pixels', None), cfg.get('model')
    if not model or 'backbone' not in model:
        return
    found = tower_pixels(model.backbone)
    if own is not None and (found is None or not isinstance(own, dict)):
        raise ConfigError(f'The config field pixels must be a dict such as dict(size=336), for an '
                          f'image tower that says its pixels; got {own!r}.')
    pixels = (found or Pixels.of()).replace(own or {})
    if found is not None:
        model.data_preprocessor = {**pixels.normalisation(),
                                   **(model.get('data_preprocessor') or {}),
                                   **(pixels.normalisation() if own else {})}
    _replace_steps(cfg, [dict(type=TOWER_PIXELS)], pixels.steps())


@contextmanager
def following_tower(cfg: Config | ConfigDict) -> Iterator[None]:
    """Replaces what was filled in from the image tower if the tower changes inside the block."""
    before = tower_pixels(cfg.get('model', {}).get('backbone'))
    yield
    after = tower_pixels(cfg.get('model', {}).get('backbone'))
    if before is None or after is None or before == after:
        return
    said = cfg.model.get('data_preprocessor') or {}
    for (name, old), new in zip(before.normalisation().items(), after.normalisation().values()):
        if said.get(name) == old:
            said[name] = new
    _replace_steps(cfg, before.steps(), after.steps())


def _replace_steps(cfg: Config | ConfigDict, old: list[dict], new: list[dict]) -> None:
    for name in [*cfg]:
        if name.endswith(('_dataloader', '_pipeline')):
            cfg[name] = _with_steps(cfg[name], old, new)


def _with_steps(value: Any, old: list[dict], new: list[dict]) -> Any:
    """A part of a config, with other steps where its pipelines have the old ones."""
    if isinstance(value, dict):
        for name in [*value]:
            value[name] = _with_steps(value[name], old, new)
    elif isinstance(value, (list, tuple)) and any(isinstance(entry, dict) for entry in value):
        steps = [_with_steps(entry, old, new) for entry in value]
        for start in range(len(steps)):
            if steps[start:start + len(old)] == old:
                steps[start:start + len(old)] = [ConfigDict(step) for step in new]
                break
        return steps
    return value


def pixel_notes(cfg: Config | ConfigDict) -> list[str]:
    """Where a completed config prepares pictures in another way than its image tower asks for."""
    backbone = (cfg.get('model') or {}).get('backbone')
    pixels = tower_pixels(backbone)
    if pixels is None:
        return []
    said, own = cfg.model.get('data_preprocessor') or {}, pixels.normalisation()
    notes = [f'data_preprocessor.{name} is {said.get(name)}, and {value} for the image tower'
             for name, value in own.items() if said.get(name) != value]
    for phase in ('train', 'test'):
        dataset = (cfg.get(f'{phase}_dataloader') or {}).get('dataset') or {}
        there = [dict(step) for step in dataset.get('pipeline') or () if str(step.get('type'))
                 .rpartition('.')[2] in ('ResizeEdge', 'Resize', 'CenterCrop', 'PrepareImage',
                                         'RandomResizedCrop')]
        if there and there != pixels.steps():
            notes.append(f'the {phase} pipeline has {_in_words(there)}, and '
                         f'{_in_words(pixels.steps())} is what the image tower was trained for')
    return notes


def _in_words(steps: list[dict[str, Any]]) -> str:
    return ', '.join(f'{step["type"]}('
                     + ', '.join(f'{name}={value!r}' for name, value in step.items()
                                 if name not in ('type', 'backend')) + ')' for step in steps)


def _width(arch: str) -> int:
    from mmcluspro.models.clip import arch_config
    return int(arch_config(arch)['embed_dim'])


# What Runner.from_cfg and our tools read; other names are variables of the config's own.
FIELDS = (
    'activation_checkpointing', 'auto_scale_lr', 'clip', 'compile', 'custom_hooks',
    'custom_imports', 'data', 'data_preprocessor', 'default_hooks', 'default_scope',
    'efficient_conv_bn_eval', 'env_cfg', 'experiment_name', 'final_test',
    'find_unused_parameters', 'launcher', 'load_from',
    'log_level', 'log_processor', 'model', 'model_wrapper_cfg', 'optim_wrapper',
    'param_scheduler', 'pixels', 'randomness', 'resume', 'runner_type', 'sync_bn', 'test_cfg',
    'test_dataloader', 'test_evaluator', 'test_pipeline', 'train_cfg', 'train_dataloader',
    'train_pipeline', 'val_cfg', 'val_dataloader', 'val_evaluator', 'val_pipeline',
    'vis_backends', 'visualizer', 'work_dir')


def check_fields(cfg: Config) -> None:
    """Refuses names that look like a misspelled field; mmengine would ignore them.

    Args:
        cfg (Config): Variables of its own may have any name that is not close to a field, or
            begin with an underscore.
    """
    for name in cfg:
        alike = [field for field in FIELDS if abs(len(field) - len(name)) <= 2]
        close = get_close_matches(name, alike, n=1, cutoff=0.75)
        if name not in FIELDS and not name.startswith('_') and close:
            raise ValueError(
                f'The config sets {name!r}, which no part reads. Did you mean {close[0]!r}? If it '
                f'is a variable of yours, call it {"_" + name!r}.')


def check_shared_memory(cfg: Config) -> None:
    """Refuses dataloader workers where shared memory has no room for their semaphores."""
    workers = [(cfg.get(f'{phase}_dataloader') or {}).get('num_workers', 0) for phase in PHASES]
    try:
        # As many as torch makes, all at once.
        _ = [Lock() for _ in range(sum(3 * number + 9 for number in workers if number))]
    except OSError as error:
        raise ValueError(f'{NO_ROOM}.') from error


def check_precision(cfg: Config) -> None:
    """Refuses float16 without a GPU."""
    kind = str((cfg.get('optim_wrapper') or {}).get('type'))
    if kind.endswith('AmpOptimWrapper') and not torch.cuda.is_available():
        raise ValueError(
            'optim_wrapper.type=AmpOptimWrapper (float16) needs a GPU, and torch finds none here. '
            'Use --amp, which trains in bfloat16 on the CPU, or leave it out.')
