"""Child registries of mmengine's root ones, with scope ``mmcluspro``.

Configs keep ``default_scope='mmpretrain'`` and write our parts as
``mmcluspro.X``: mmengine then imports this package by itself.
"""
from mmengine.registry import DATASETS as MMENGINE_DATASETS
from mmengine.registry import HOOKS as MMENGINE_HOOKS
from mmengine.registry import METRICS as MMENGINE_METRICS
from mmengine.registry import MODELS as MMENGINE_MODELS
from mmengine.registry import TRANSFORMS as MMENGINE_TRANSFORMS
from mmengine.registry import Registry

MODELS = Registry('model', parent=MMENGINE_MODELS, scope='mmcluspro', locations=['mmcluspro.models'])
DATASETS = Registry(
    'dataset', parent=MMENGINE_DATASETS, scope='mmcluspro', locations=['mmcluspro.datasets'])
TRANSFORMS = Registry(
    'transform', parent=MMENGINE_TRANSFORMS, scope='mmcluspro', locations=['mmcluspro.datasets'])
METRICS = Registry(
    'metric', parent=MMENGINE_METRICS, scope='mmcluspro', locations=['mmcluspro.evaluation'])
HOOKS = Registry('hook', parent=MMENGINE_HOOKS, scope='mmcluspro', locations=['mmcluspro.engine'])
