"""Photographs of a fashion shop: colours of article types, from Kaggle's public set."""
from .dataset import Fashion
from .selection import Rule, draw_version
from .styles import Product, read_styles
from .versions import VERSION, Version, read_version, write_version

__all__ = [
    'Fashion', 'Product', 'Rule', 'VERSION', 'Version', 'draw_version', 'read_styles',
    'read_version', 'write_version'
]
