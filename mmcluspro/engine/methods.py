"""Configs by name: a method of ``configs/methods`` on a dataset of ``configs/_base_/datasets``.

``csp_cgqa.py`` is no file: it is ``methods/csp.py`` read for the dataset ``cgqa``. A method file is
a config of mmengine in which

- ``dataset`` is the name of the dataset, as a variable and in ``_base_`` as ``{dataset}``;
- ``_base_`` may be a dict with bases by dataset; of several, later ones change earlier ones;
- ``on`` has what differs between datasets, and is merged last;
- ``datasets`` lists the only datasets that the method is for;
- ``variants`` has changes to the method by name, with the fields of a method file in each;
- variables of its own have a name with a leading ``_``.

A key of ``_base_`` and ``on`` is a dataset or several at once: ``shapes`` (both versions),
``fashion``, ``published`` (all others, the settings of the publication).
"""
import ast
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from mmengine.config import Config
from mmengine.utils import import_modules_from_strings

from mmcluspro.utils.files import configs_folder

from .messages import ConfigError

# Ends of a method's name that stand behind the dataset, as in ``cge_utzappos_finetuned``.
VARIANTS = ('released', 'finetuned', 'tokens')
ENVIRONMENT = re.compile(r'{{\s*\$(\w+)\s*:([^}]*?)\s*}}')
SMALL = ('shapes', 'fashion')


def dataset_names() -> list[str]:
    """The datasets that a name may end with: files with a label space, the longest names first."""
    folder = configs_folder() / '_base_' / 'datasets'
    names = [path.stem for path in folder.glob('*.py') if 'space' in _assigned(path)]
    return sorted(names, key=lambda name: (-len(name), name))


def config_names() -> list[str]:
    """The names of all configs, such as ``cluspro_shapes.py`` (a file) and ``csp_cgqa.py``."""
    folder = configs_folder()
    everywhere = [name for name in dataset_names() if not name.startswith('own_data')]
    put_together = {f'{joined(name, dataset)}.py'
                    for name, (path, variant) in _methods(folder / 'methods').items()
                    for dataset in _datasets(path, variant) or everywhere}
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
        if only and dataset not in only:
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
    first = dataset.partition('_')[0]
    keys = (first if first in SMALL else 'published', dataset)
    return [table[key] for key in dict.fromkeys(keys) if key in table]


def _bases(path: Path, dataset: str) -> list[Path]:
    """The files below a method file."""
    bases = _value(path, '_base_')
    if isinstance(bases, dict):
        meant = _meant(bases, dataset)
        if not meant:
            raise ConfigError(f'{path} has no settings for {dataset}: its _base_ names '
                              f'{", ".join(bases)}.')
        bases = meant[-1]
    return [path.parent / ENVIRONMENT.sub(_of_environment, name).replace('{dataset}', dataset)
            for name in ([bases] if isinstance(bases, str) else bases)]


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
