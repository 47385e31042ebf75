"""Necks: f → (f_a, f_o, f_c)."""
from .primitive_adapter import PrimitiveAdapter, PrimitiveMLP

__all__ = ['PrimitiveAdapter', 'PrimitiveMLP']
