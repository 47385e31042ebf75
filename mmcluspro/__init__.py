"""ClusPro for MMPretrain: compositional zero-shot learning with CLIP.

Importing the package checks that the OpenMMLab packages are there and changes nothing outside it.
The names below are imported when they are first used.
"""
from typing import Any

from .requirements import check_requirements
from .version import __version__

check_requirements()

__all__ = ['TrainedModel', '__version__', 'load', 'predict', 'safe_loading']


def __getattr__(name: str) -> Any:
    if name == 'safe_loading':
        from .engine.checkpoint import safe_loading
        return safe_loading
    if name in __all__:
        from mmcluspro import apis
        return getattr(apis, name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
