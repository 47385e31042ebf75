"""Necks: f → (f_a, f_o, f_c)."""
from .path_embedder import PathEmbedder
from .primitive_adapter import PrimitiveAdapter, PrimitiveMLP

__all__ = ['PathEmbedder', 'PrimitiveAdapter', 'PrimitiveMLP']
