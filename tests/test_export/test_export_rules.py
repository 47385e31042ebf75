"""Tables, files and preparations that an export refuses or describes."""
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from mmcluspro.artefact import TrainedModel
from mmcluspro.errors import FileError
from mmcluspro.export.export_command import TOLERANCE, _judge
from mmcluspro.export.image_side import ImageSide
from mmcluspro.export.text_table import TEXTS, describe, read_table, write_table

RESIZE = dict(step='resize', size=40, edge='short', backend='pillow', interpolation='bilinear')
CROP = dict(step='crop', size=[32, 32])


def model(image_size=None, to_rgb=True, normalise=True, **description):
    pixels = SimpleNamespace(to_rgb=to_rgb, _enable_normalize=normalise,
                             mean=torch.tensor([1., 2., 3.])[:, None, None],
                             std=torch.tensor([4., 5., 6.])[:, None, None])
    backbone = nn.Module()
    backbone.visual = SimpleNamespace(image_size=image_size)
    return TrainedModel(SimpleNamespace(backbone=backbone, data_preprocessor=pixels), description)


@pytest.mark.parametrize('image_size, preparation, size, resize, notes', [
    ((48, 48), dict(steps=[]), 48, 48, 0), (48, dict(steps=[]), 48, 48, 0),
    (None, dict(steps=[RESIZE]), 40, 40, 0), (None, dict(steps=[CROP]), 32, 32, 0),
    (None, dict(steps=[RESIZE, CROP]), 32, 40, 0),
    (48, dict(steps=[dict(RESIZE, edge='long')]), 48, 48, 1),
    (48, dict(steps=[dict(RESIZE, edge=None, size=[40, 40])]), 40, 40, 0),
    (48, dict(steps=[dict(RESIZE, edge=None, size=[50, 50]), CROP]), 32, 50, 0),
    (48, dict(steps=[dict(RESIZE, backend='cv2')]), 48, 40, 1),
    (48, None, 48, 48, 1),
])
def test_the_size_of_pictures_comes_from_the_steps_or_the_tower(image_size, preparation, size,
                                                                resize, notes):
    found, said = describe(model(image_size, preparation=preparation))
    assert (found['size'], found['resize'], len(said)) == (size, resize, notes)
    assert found['mean'] == [1, 2, 3] and found['std'] == [4, 5, 6]
    assert found['background'] == [255, 255, 255]
    if preparation and preparation['steps'][:1] == [dict(RESIZE, edge='long')]:
        assert said[0].startswith('The table cannot describe a resize with edge=long and size=40')


def test_channels_and_background_are_those_of_the_model():
    found, _ = describe(model(8, to_rgb=False, normalise=False,
                              preparation=dict(steps=[], background=None)))
    assert found['channels'] == 'BGR' and found['background'] is None
    assert found['mean'] == [0, 0, 0] and found['std'] == [1, 1, 1]


def test_a_model_of_unknown_size_is_refused():
    with pytest.raises(ValueError, match='The image size of the model is unknown: the preparation '
                       'of its pictures has neither a resize nor a crop'):
        describe(model(preparation=dict(steps=[])))


@pytest.mark.parametrize('to_rgb, normalise, expected', [
    (True, True, [0, 0, 0]), (False, True, [0.5, 0, -1 / 3]), (True, False, [1, 2, 3]),
    (False, False, [3, 2, 1])])
def test_pictures_enter_as_the_model_wants_them(to_rgb, normalise, expected):
    side = object.__new__(ImageSide)
    nn.Module.__init__(side)
    side.pixels = model(to_rgb=to_rgb, normalise=normalise).network.data_preprocessor
    side.backbone, side.neck = (lambda x: x.mean(dim=(2, 3))), None
    image = torch.tensor([1, 2, 3], dtype=torch.uint8).expand(1, 4, 4, 3)
    torch.testing.assert_close(side.features(image).composition,
                               torch.tensor([expected], dtype=torch.float32))


def table():
    return {name: np.ones(2) for name in (
        *TEXTS, 'attributes', 'objects', 'pairs', 'seen', 'feasible', 'info')}


def test_a_table_is_whole_and_as_it_was_written(tmp_path):
    path = tmp_path / 'x.npz'
    write_table(table(), path)
    assert set(read_table(path)) == set(table())
    content = dict(np.load(path))
    np.savez(path, **{name: value for name, value in content.items() if name != 'seen'})
    with pytest.raises(FileError, match=r'x\.npz.*it is not a table of mmcluspro export: seen is '
                       'missing'):
        read_table(path)
    for change in (dict(content, seen=np.zeros(2)),
                   {name: value for name, value in content.items() if name != 'digest'}):
        np.savez(path, **change)
        with pytest.raises(FileError, match='its content does not fit its digest'):
            read_table(path)


class Difference(SimpleNamespace):

    def __array__(self, *args, **kwargs):
        return np.array([self.features, self.scores])


@pytest.mark.parametrize('features, scores, name, good', [
    (TOLERANCE / 2, 0.0, 'fp32', True), (2 * TOLERANCE, 0.0, 'fp32', False),
    (2 * TOLERANCE, 0.0, 'int8', True), (0.0, float('nan'), 'int8', False)])
def test_a_graph_that_differs_from_torch_is_not_kept(features, scores, name, good, capsys):
    found = Difference(features=features, scores=scores)
    if good:
        _judge(found, name, Path('m.onnx'))
        assert f'm.onnx ({name})' in capsys.readouterr().out
    else:
        with pytest.raises(ValueError, match='m.onnx was not written: its features differ'):
            _judge(found, name, Path('m.onnx'))
