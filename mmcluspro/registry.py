"""Child registries of mmengine's root ones, with scope ``mmcluspro``.

Configs keep ``default_scope='mmpretrain'`` and write our parts as
``mmcluspro.X``: mmengine then imports this package by itself.
"""
import re
from difflib import get_close_matches
from importlib import import_module
from inspect import signature

from mmengine.registry import DATASETS as MMENGINE_DATASETS
from mmengine.registry import HOOKS as MMENGINE_HOOKS
from mmengine.registry import LOOPS as MMENGINE_LOOPS
from mmengine.registry import METRICS as MMENGINE_METRICS
from mmengine.registry import MODELS as MMENGINE_MODELS
from mmengine.registry import OPTIM_WRAPPERS as MMENGINE_OPTIM_WRAPPERS
from mmengine.registry import OPTIMIZERS as MMENGINE_OPTIMIZERS
from mmengine.registry import RUNNERS as MMENGINE_RUNNERS
from mmengine.registry import TRANSFORMS as MMENGINE_TRANSFORMS
from mmengine.registry import Registry


class HelpfulRegistry(Registry):
    """A registry that suggests what to write when a name is not found."""

    def get(self, key: str) -> type | None:
        """Same as the parent's, but raises a KeyError with a hint.

        Args:
            key (str): Name with or without scope.

        Returns:
            type: The registered class, or None for a dotted path, which mmengine then imports as an
                object.
        """
        found = super().get(key)
        name = key.removeprefix(f'{self.scope}.')
        if found is None and '.' not in name:
            raise KeyError(f'mmcluspro has no {self.name} named {name!r}. {hint(name, self.name)}')
        return found


MODELS = HelpfulRegistry(
    'model', parent=MMENGINE_MODELS, scope='mmcluspro', locations=['mmcluspro.models'])
DATASETS = HelpfulRegistry(
    'dataset', parent=MMENGINE_DATASETS, scope='mmcluspro', locations=['mmcluspro.datasets'])
TRANSFORMS = HelpfulRegistry(
    'transform', parent=MMENGINE_TRANSFORMS, scope='mmcluspro', locations=['mmcluspro.datasets'])
METRICS = HelpfulRegistry(
    'metric', parent=MMENGINE_METRICS, scope='mmcluspro', locations=[
        'mmcluspro.evaluation.metric', 'mmcluspro.evaluation.prediction',
        'mmcluspro.evaluation.ranking'])
HOOKS = HelpfulRegistry(
    'hook', parent=MMENGINE_HOOKS, scope='mmcluspro',
    locations=['mmcluspro.engine.hooks', 'mmcluspro.visualization.run_hooks'])
RUNNERS = HelpfulRegistry(
    'runner', parent=MMENGINE_RUNNERS, scope='mmcluspro', locations=['mmcluspro.engine.runner'])
LOOPS = HelpfulRegistry(
    'loop', parent=MMENGINE_LOOPS, scope='mmcluspro',
    locations=['mmcluspro.engine.cross_validation'])
OPTIM_WRAPPERS = HelpfulRegistry(
    'optim_wrapper', parent=MMENGINE_OPTIM_WRAPPERS, scope='mmcluspro',
    locations=['mmcluspro.engine.optim'])
OPTIMIZERS = HelpfulRegistry(
    'optimizer', parent=MMENGINE_OPTIMIZERS, scope='mmcluspro',
    locations=['mmcluspro.engine.optim'])

_ALL = {registry.name: registry
        for registry in (MODELS, DATASETS, TRANSFORMS, METRICS, HOOKS, RUNNERS, LOOPS,
                         OPTIM_WRAPPERS, OPTIMIZERS)}


def hint(key: str, kind: str) -> str:
    """Explains which scope, import or package a name needs.

    Args:
        key (str): The name without scope that was not found.
        kind (str): Name of the registry that was asked, for example 'model'.

    Returns:
        str: A sentence or two with what to write in the config.
    """
    for name, registry in _ALL.items():
        registry.import_from_location()
        if key in registry.module_dict:
            if name == kind:
                return f"Write type='mmcluspro.{key}' in the config."
            return f"'mmcluspro.{key}' is a {name}, not a {kind}: it is in the wrong field."
    if kind in _ALL:
        import_module('mmpretrain.registry')
        root = _ALL[kind].parent
        for scope, sibling in root.children.items():
            if scope == 'mmcluspro':
                continue
            sibling.import_from_location()
            if key in sibling.module_dict:
                return f"Write type='{scope}.{key}' in the config."
        close = get_close_matches(key, _ALL[kind].module_dict, n=3)
        if close:
            return 'Did you mean ' + ' or '.join(f"'mmcluspro.{name}'" for name in close) + '?'
        names = ', '.join(sorted(_ALL[kind].module_dict))
    else:
        names = ''
    own = ("If it is yours, import it with custom_imports=dict(imports=['your_package']) in the "
           'config.')
    return f'{own} The names here: {names}.' if names else own


def explain(error: BaseException) -> str | None:
    """Turns mmengine's errors on a wrong type or field of a config into a fix.

    Args:
        error (BaseException): What building from a config raised.

    Returns:
        str | None: What to change, or None for another kind of error.
    """
    field = re.search(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", str(error))
    if field:
        return f'The config sets {field[2]!r}, a field that {field[1]} does not have.' + _fields(
            field[1], field[2])
    found = re.search(r'(\S+) is not in the (\S+)::(\S+) registry', str(error))
    if not found:
        return None
    key, scope, kind = found.groups()
    key = key.strip('\'"').split('.')[-1]
    return f'{key!r} is not in the {kind} registry of {scope}. {hint(key, kind)}'


def _fields(owner: str, wrong: str) -> str:
    """Lists what a class of ours takes."""
    for registry in _ALL.values():
        if owner in registry.module_dict:
            takes = list(signature(registry.module_dict[owner]).parameters)
            close = get_close_matches(wrong, takes, n=1)
            meant = f' Did you mean {close[0]!r}?' if close else ''
            return f'{meant} It takes: {", ".join(takes)}.'
    return ''
