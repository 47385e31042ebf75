"""Handing models out: published checkpoints, ONNX files, tables of text features."""
from .publish import publish

__all__ = ['publish']
