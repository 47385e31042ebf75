"""A checkpoint describes its model as plain data with a closed schema (docs/checkpoints.md).

:mod:`.schema` lists the classes and fields, :mod:`.convert` describes a config, :mod:`.build`
builds what was described.
"""
from .build import build_model, given_weights, predicting
from .convert import checked, describe, pipeline_of
from .fields import Refusal
from .foreign import import_modules
from .preparation import describe_pipeline
from .schema import FORMAT, Schema

__all__ = ['FORMAT', 'Refusal', 'Schema', 'build_model', 'checked', 'describe',
           'describe_pipeline', 'given_weights', 'import_modules', 'pipeline_of', 'predicting']
