"""Predicting with a trained model."""
from .inferencer import CZSLInferencer, predict
from .model import load_model
from .result import NameScore, PairScore, Prediction, Predictions

__all__ = ['CZSLInferencer', 'NameScore', 'PairScore', 'Prediction', 'Predictions', 'load_model',
           'predict']
