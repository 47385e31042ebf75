"""DINOv2 as an ONNX graph, at another size than that of its positions."""
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from mmengine.registry import DefaultScope
from torch import nn

from mmcluspro.export.export_command import open_session
from mmcluspro.export.image_side import ImageSide, write_onnx
from mmcluspro.models.backbones import DINOv2
from mmcluspro.registry import MODELS

PATHS = ('attribute', 'object', 'composition')
SIZE = 28  # 7 x 7 patches; the positions are 5 x 5


def make_side(registers):
    """The image side of the route of own photographs, small, with random weights."""
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        backbone, neck, pixels = map(MODELS.build, (
            dict(type='mmcluspro.ProjectedBackbone', in_channels=24, out_dim=8, pool='cls_avg',
                 frozen=True, peft=None, backbone=dict(
                     type='mmcluspro.DINOv2', img_size=20, patch_size=4, out_type='raw',
                     num_registers=registers, arch=dict(
                         embed_dims=12, num_layers=2, num_heads=3, feedforward_channels=24))),
            dict(type='mmcluspro.PrimitiveAdapter', in_channels=8),
            dict(type='ClsDataPreprocessor', mean=[120.0] * 3, std=[60.0] * 3, to_rgb=True)))
    for part in (backbone, neck):
        for parameter in part.parameters():
            nn.init.normal_(parameter, std=0.3)
    head = SimpleNamespace(portable=lambda: SimpleNamespace(paths=PATHS))
    return ImageSide(SimpleNamespace(
        head=head, data_preprocessor=pixels, backbone=backbone, neck=neck)).eval()


@pytest.mark.parametrize('registers', [0, 4])
def test_features_are_those_of_torch_for_every_batch_size(registers, tmp_path):
    side = make_side(registers)
    write_onnx(side, tmp_path / 'dinov2.onnx', SIZE, {})

    session = open_session(tmp_path / 'dinov2.onnx', 1)
    for batch in (1, 3, 5):
        pixels = np.random.default_rng(batch).integers(0, 256, (batch, SIZE, SIZE, 3), np.uint8)
        with torch.no_grad():
            expected = side(torch.from_numpy(pixels))
        for mine, theirs in zip(session.run(None, {'image': pixels}), expected, strict=True):
            np.testing.assert_allclose(mine, theirs.numpy(), atol=1e-5)


def test_positions_are_weights_of_the_file_and_the_model_resamples_afterwards(tmp_path):
    side = make_side(4)
    write_onnx(side, tmp_path / 'dinov2.onnx', SIZE, {})

    assert 'Resize' not in {node.op_type for node in onnx.load(tmp_path / 'dinov2.onnx').graph.node}
    tower, = (part for part in side.modules() if isinstance(part, DINOv2))
    assert [tower.positions((grid, grid)).shape[1] for grid in (3, 7)] == [10, 50]


@pytest.mark.filterwarnings('ignore::torch.jit.TracerWarning')
def test_a_trace_keeps_the_batch_size_free_and_the_grid_fixed():
    tower = make_side(0).backbone.backbone
    traced = torch.jit.trace(tower, torch.rand(2, 3, SIZE, SIZE), check_trace=False)
    images = torch.rand(3, 3, SIZE, SIZE)
    torch.testing.assert_close(traced(images), tower(images))
