"""The trained model: what a file holds, and everything that is asked of it."""
from .results import NameScore, PairScore, Prediction, Predictions
from .trained import TrainedModel

__all__ = ['NameScore', 'PairScore', 'Prediction', 'Predictions', 'TrainedModel']
