"""ClusPro for MMPretrain: compositional zero-shot learning with CLIP.

Importing the package checks that the OpenMMLab packages are there, and makes
mmengine read checkpoints without running code
(:mod:`mmcluspro.engine.checkpoint`).
"""
from .requirements import check_requirements
from .version import __version__

check_requirements()

from .engine.checkpoint import register_safe_loaders  # noqa: E402

register_safe_loaders()

__all__ = ['__version__']
