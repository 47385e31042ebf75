"""The model of a page that was started without a checkpoint: the shipped tiny CLIP, untrained."""
import torch
from mmengine.registry import DefaultScope

from mmcluspro.artefact import TrainedModel
from mmcluspro.engine.launch import read_config
from mmcluspro.registry import MODELS
from mmcluspro.utils.device import find_device
from mmcluspro.utils.files import configs_folder

CONFIG = 'clip_zeroshot_shapes.py'


def zero_shot_model(device: str | torch.device | None = None) -> TrainedModel:
    """Zero-shot CLIP on the pairs of Shapes, without training or loading anything."""
    # By its path: a config is a program, and the current folder may be a stranger's.
    config = read_config(configs_folder() / CONFIG)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        network = MODELS.build(config.model)
    return TrainedModel.of(network.to(find_device(device)).eval(), config)
