"""Predicting with a trained model."""
from .inferencer import CZSLInferencer
from .model import load_model
from .result import NameScore, PairScore, Prediction

__all__ = ['CZSLInferencer', 'NameScore', 'PairScore', 'Prediction', 'load_model']
