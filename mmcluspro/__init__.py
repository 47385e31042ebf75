"""ClusPro for MMPretrain: compositional zero-shot learning with CLIP.

Importing the package checks that the OpenMMLab packages are there, and makes
mmengine read checkpoints without running code
(:mod:`mmcluspro.engine.checkpoint`). ``CZSLInferencer`` and ``load_model``
are imported when they are asked for.
"""
from typing import Any

from .requirements import check_requirements
from .version import __version__

check_requirements()

from .engine.checkpoint import register_safe_loaders  # noqa: E402

register_safe_loaders()

__all__ = ['CZSLInferencer', '__version__', 'load_model']


def __getattr__(name: str) -> Any:
    if name in ('CZSLInferencer', 'load_model'):
        from . import apis
        return getattr(apis, name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
