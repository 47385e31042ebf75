"""What a user calls: the lines of a notebook."""
from mmcluspro.artefact import NameScore, PairScore, Prediction, Predictions, TrainedModel

from .calls import load, predict

__all__ = ['NameScore', 'PairScore', 'Prediction', 'Predictions', 'TrainedModel', 'load',
           'predict']
