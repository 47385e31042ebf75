"""A checkpoint describes its model as plain data with a closed schema (docs/checkpoints.md).

Classes declare their fields (:mod:`mmcluspro.fields`). :mod:`.parts` compares a file with them,
:mod:`.convert` describes a config, :mod:`.build` builds what was described.
"""
from mmcluspro.fields import Refusal

from .build import build_model, given_weights, predicting
from .convert import FORMAT, checked, describe, pipeline_of
from .parts import import_modules
from .preparation import describe_pipeline

__all__ = ['FORMAT', 'Refusal', 'build_model', 'checked', 'describe', 'describe_pipeline',
           'given_weights', 'import_modules', 'pipeline_of', 'predicting']
