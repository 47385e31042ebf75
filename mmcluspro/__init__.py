"""ClusPro for MMPretrain: compositional zero-shot learning with CLIP.

Importing the package changes nothing outside it, and imports nothing: the names below, which
:mod:`mmcluspro.api` describes, are imported when they are first used.
"""
from typing import Any

from .requirements import check_requirements
from .version import __version__

__all__ = ['Data', 'Prediction', 'TrainedModel', '__version__', 'create_model', 'load',
           'load_dataset', 'predict', 'safe_loading', 'test', 'train']


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    check_requirements()
    if name == 'safe_loading':
        from .engine.resuming import safe_loading
        return safe_loading
    from mmcluspro import api
    return getattr(api, name)


def __dir__() -> list[str]:
    return __all__
