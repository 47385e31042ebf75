"""ClusPro for MMPretrain: compositional zero-shot learning with CLIP.

Importing the package checks that the OpenMMLab packages are there and changes nothing outside it.
The names below are imported when they are first used.
"""
from typing import Any

from .requirements import check_requirements
from .version import __version__

check_requirements()

__all__ = ['CZSLInferencer', '__version__', 'load_model', 'predict', 'safe_loading']


def __getattr__(name: str) -> Any:
    if name in ('CZSLInferencer', 'load_model', 'predict'):
        from . import apis
        return getattr(apis, name)
    if name == 'safe_loading':
        from .engine.checkpoint import safe_loading
        return safe_loading
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
