"""Predicting with a trained model."""
from .model import load_model

__all__ = ['load_model']
