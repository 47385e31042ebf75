"""Handing models out: published checkpoints, ONNX files, tables of text features."""
from .command import export_model, main
from .publish import publish

__all__ = ['export_model', 'main', 'publish']
