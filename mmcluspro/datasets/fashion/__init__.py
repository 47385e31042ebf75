"""Photographs of a fashion shop: colours of article types, from Kaggle's public set."""
from .dataset import Fashion
from .styles import Product, read_styles
from .versions import VERSION, Version, read_version, write_version

__all__ = [
    'Fashion', 'Product', 'VERSION', 'Version', 'read_styles', 'read_version', 'write_version'
]
