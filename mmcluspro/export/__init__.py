"""Exports models: ONNX files, tables of text features."""
from .export_command import export_model, main

__all__ = ['export_model']
