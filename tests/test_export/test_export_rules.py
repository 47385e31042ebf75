"""Tables, files and preparations that an export refuses or describes, on a real model."""
import numpy as np
import pytest
import torch
from mmpretrain.models.utils import ClsDataPreprocessor

from mmcluspro import load
from mmcluspro.errors import FileError
from mmcluspro.export.export_command import export_model
from mmcluspro.export.image_side import ImageSide
from mmcluspro.export.text_table import TEXTS, describe, read_table, write_table

RESIZE = dict(step='resize', size=40, edge='short', backend='pillow', interpolation='bilinear')
CROP = dict(step='crop', size=[32, 32])
NUMBERS = dict(mean=[10.0, 20.0, 30.0], std=[4.0, 5.0, 6.0])


@pytest.fixture
def model(checkpoints):
    """A model whose tower takes 48 pixels; a test may change it."""
    return load(checkpoints(), 'cpu')


@pytest.mark.parametrize('steps, size, resize, notes', [
    ([], 48, 48, 0), ([CROP], 32, 48, 0), ([RESIZE, CROP], 32, 40, 0), ([RESIZE], 48, 40, 0),
    ([dict(RESIZE, edge='long')], 48, 48, 1), ([dict(RESIZE, backend='cv2')], 48, 40, 1),
    (None, 48, 48, 1)])
def test_the_size_of_pictures_comes_from_the_steps_or_the_tower(steps, size, resize, notes, model):
    model.spec = dict(model.spec, preparation=None if steps is None else dict(steps=steps))
    found, said = describe(model)
    assert (found['size'], found['resize'], len(said)) == (size, resize, notes)
    assert found['background'] == [255, 255, 255]
    if steps == [dict(RESIZE, edge='long')]:
        assert said[0].startswith('The table cannot describe a resize with edge=long and size=40')


@pytest.mark.parametrize('to_rgb', [True, False])
@pytest.mark.parametrize('numbers', [{}, NUMBERS])
def test_pictures_enter_the_graph_as_the_model_wants_them(to_rgb, numbers, model):
    model.network.data_preprocessor = ClsDataPreprocessor(**numbers, to_rgb=to_rgb)
    found, _ = describe(model)
    assert found['channels'] == ('RGB' if to_rgb else 'BGR')
    assert found['mean'] == (NUMBERS['mean'] if numbers else [0.0] * 3)
    rgb = torch.randint(256, (2, 48, 48, 3), dtype=torch.uint8,
                        generator=torch.Generator().manual_seed(0))
    # The graph takes RGB; a checkpoint in torch gets BGR, as mmcv reads pictures.
    theirs = model.features(list(rgb.flip(3).permute(0, 3, 1, 2)))
    with torch.no_grad():
        mine = ImageSide(model.network).eval().features(rgb)
    torch.testing.assert_close(mine.composition, theirs.composition)


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


def test_a_graph_that_differs_from_torch_is_not_kept(checkpoints, tmp_path, monkeypatch):
    monkeypatch.setattr('mmcluspro.export.export_command.TOLERANCE', 0.0)
    pytest.importorskip('onnxruntime')
    with pytest.raises(ValueError, match='m.onnx was not written: its features differ'):
        export_model(checkpoints('zero_shot'), tmp_path / 'm.onnx')
    assert list(tmp_path.iterdir()) == []
