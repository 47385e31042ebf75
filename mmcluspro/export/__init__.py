"""Exports models: published checkpoints, ONNX files, tables of text features."""
from .export_command import export_model, main
from .publish import publish

__all__ = ['export_model', 'main', 'publish']
