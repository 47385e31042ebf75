"""One line from a checkpoint to a table, and the conventions of mmpretrain's inferencers."""
import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import mmcluspro
from mmcluspro.utils.device import find_device


def test_one_line_gives_what_the_inferencer_gives(trained, inferencer, pictures):
    answers = mmcluspro.predict(trained[0], pictures[:3], device='cpu', top_k=2)
    assert answers == inferencer.predict(inputs=pictures[:3], top_k=2)
    assert len(answers[0].pairs) == 2


def test_dicts_have_lists_and_survive_json(inferencer, pictures):
    (answer, ) = inferencer.predict(pictures[0], top_k=2)
    plain = answer.to_dict()
    assert isinstance(plain['pairs'], list) and isinstance(plain['attributes'], list)
    assert json.loads(json.dumps(plain)) == plain
    assert inferencer.predict(pictures[0], top_k=2).to_dicts() == [plain]


def test_a_frame_has_a_row_per_image(inferencer, pictures, tmp_path):
    pandas = pytest.importorskip('pandas')
    (tmp_path / 'x.png').write_text('no picture')
    answers = inferencer.predict([*pictures[:2], str(tmp_path / 'x.png')], top_k=2)
    frame = answers.to_frame()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == 3
    assert frame.attribute_1[0] == answers[0].best.attribute
    assert frame.probability_2[1] == answers[1].pairs[1].probability
    assert frame.error[2] == 'not an image, or damaged' and pandas.isna(frame.object_1[2])


def test_without_pandas_the_package_is_named(inferencer, pictures, monkeypatch):
    answers = inferencer.predict(pictures[0])
    monkeypatch.setitem(sys.modules, 'pandas', None)
    with pytest.raises(ImportError, match='pip install pandas'):
        answers.to_frame()


def test_data_samples_are_those_of_mmpretrain(inferencer, pictures, tmp_path):
    (tmp_path / 'x.png').write_text('no picture')
    good, bad = inferencer.samples([pictures[0], str(tmp_path / 'x.png')])
    (answer, ) = inferencer.predict(pictures[0], top_k=len(inferencer.classes))
    assert good.pred_score.shape == (len(inferencer.classes), )
    assert good.pred_score.sum() == pytest.approx(1, abs=1e-4)
    place = int(good.pred_label)
    assert good.pred_score.argmax() == place
    assert good.pred_score[place] == pytest.approx(answer.best.probability, rel=1e-5)
    assert inferencer.classes[place] == good.pred_class == (
        f'{answer.best.attribute} {answer.best.object}')
    assert bad.error == 'not an image, or damaged' and bad.img_path.endswith('x.png')


def test_rgb_and_bgr_arrays_and_pil_images_agree(inferencer, pictures):
    rgb = np.ascontiguousarray(pictures[0][..., ::-1])
    wanted = inferencer.predict(pictures[0])[0].pairs
    assert inferencer.predict(rgb, channels='RGB')[0].pairs == wanted
    assert inferencer.predict(Image.fromarray(rgb))[0].pairs == wanted
    assert inferencer.predict(rgb)[0].pairs != wanted


def test_a_device_that_is_not_there_is_a_message(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    assert find_device(None) == find_device('cpu') == torch.device('cpu')
    with pytest.raises(ValueError, match='torch sees no GPU. Use --device cpu'):
        find_device('cuda')
    with pytest.raises(ValueError, match="'cpu', 'cuda', 'cuda:1' or 'mps', got 'gpu'"):
        find_device('gpu')
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 2)
    with pytest.raises(ValueError, match='this machine has 2 GPUs, the first is cuda:0'):
        find_device('cuda:2')
