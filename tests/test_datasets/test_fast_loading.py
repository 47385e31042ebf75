"""Reduced decoding, and pixels that are kept."""
import os

import cv2
import numpy as np
import pytest
from mmcv.transforms import Compose
from mmengine.registry import init_default_scope
from PIL import Image

from mmcluspro.datasets import KeepPrepared, LoadReduced

STEPS = [dict(type='LoadImageFromFile'),
         dict(type='mmpretrain.ResizeEdge', scale=32, edge='short', backend='pillow',
              interpolation='bicubic'),
         dict(type='mmpretrain.CenterCrop', crop_size=32)]


@pytest.fixture
def photo(tmp_path):
    """A smooth JPEG of 320 x 256."""
    init_default_scope('mmpretrain')
    x, y = np.meshgrid(np.linspace(0, 6, 320), np.linspace(0, 5, 256))
    pixels = np.stack([np.sin(x), np.cos(y), np.sin(x + y)], axis=2) * 100 + 128
    path = tmp_path / 'photo.jpg'
    Image.fromarray(pixels.astype(np.uint8)).save(path, quality=95)
    return path


def load(path, **options):
    return LoadReduced(**options)(dict(img_path=str(path)))['img']


@pytest.mark.parametrize('size, spare, shape', [
    (32, 2, (64, 80)), (16, 2, (32, 40)), (32, 1, (32, 40)), (64, 2, (128, 160)),
    (65, 2, (256, 320)), (200, 1, (256, 320))])
def test_the_short_edge_stays_large_enough(photo, size, spare, shape):
    assert load(photo, size=size, spare=spare).shape == (*shape, 3)


def test_after_resizing_there_is_little_difference(photo):
    small, whole = (cv2.resize(image, (40, 32), interpolation=cv2.INTER_AREA).astype(int)
                    for image in (load(photo, size=32), cv2.imread(str(photo))))
    assert 0 < np.abs(small - whole).max() <= 6


def test_other_formats_are_decoded_whole(photo, tmp_path):
    Image.open(photo).save(tmp_path / 'photo.png')
    assert load(tmp_path / 'photo.png', size=8).shape == (256, 320, 3)


def test_a_size_of_zero_is_refused():
    with pytest.raises(ValueError, match='LoadReduced needs a positive size'):
        LoadReduced(0)


def test_prepared_pixels_are_those_of_the_pipeline_and_are_read_again(photo, tmp_path):
    info = dict(img_path=str(photo), attr_label=3)
    wanted = Compose(STEPS)(dict(info))['img']
    keep = KeepPrepared(STEPS, str(tmp_path / 'kept'))
    first = keep(dict(info))
    keep.steps = None  # must not be needed again
    second = keep(dict(info))
    for found in (first, second):
        assert (found['img'] == wanted).all() and found['attr_label'] == 3
        assert found['img_shape'] == (32, 32)
    assert len([*(tmp_path / 'kept').rglob('*.npy')]) == 1


def test_a_changed_image_other_steps_and_damage_are_noticed(photo, tmp_path):
    folder = tmp_path / 'kept'
    info = dict(img_path=str(photo))
    KeepPrepared(STEPS, str(folder))(dict(info))
    (kept, ) = folder.rglob('*.npy')
    for damaged in (kept.read_bytes()[:100], b'', b'text'):
        kept.write_bytes(damaged)
        assert KeepPrepared(STEPS, str(folder))(dict(info))['img'].shape == (32, 32, 3)
    assert KeepPrepared(STEPS[:2], str(folder))(dict(info))['img'].shape == (32, 40, 3)
    Image.new('RGB', (50, 40), (10, 20, 30)).save(photo)
    os.utime(photo, ns=(1, 1))
    assert (KeepPrepared(STEPS, str(folder))(dict(info))['img'][16, 16] == (30, 20, 10)).all()


def test_random_steps_are_refused(tmp_path):
    with pytest.raises(ValueError, match='KeepPrepared.steps must give the same .* RandomFlip'):
        KeepPrepared([*STEPS, dict(type='RandomFlip', prob=0.5)], str(tmp_path))
