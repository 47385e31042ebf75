"""ClusPro for MMPretrain: compositional zero-shot learning with CLIP."""
from .version import __version__

__all__ = ['__version__']
