"""Answers without images, and configs that are no models."""
import numpy as np
import pytest
import torch
from mmengine.config import Config

from mmcluspro import load
from mmcluspro.artefact.images import Item, Preprocessor
from mmcluspro.artefact.results import rank
from mmcluspro.datasets import CompositionSpace
from mmcluspro.evaluation import Calibration
from mmcluspro.models import Candidates
from mmcluspro.models.structures import Scores

SPACE = CompositionSpace(['a', 'b'], ['x', 'y'], [[0, 0], [1, 1]], [True, False])


def test_a_config_without_a_head_builds_no_model(trained):
    for fields in ({}, dict(model=dict(backbone=dict(type='x')))):
        with pytest.raises(ValueError, match='best.pth has no field model with a head'):
            load(trained[0], config=Config(fields))


@pytest.mark.parametrize('images', [0, 2])
def test_every_image_gets_a_row(images):
    scores = Scores(torch.tensor([[0.9, 0.1]]).expand(images, 2))
    rows = list(rank(scores, Candidates.from_space(SPACE), Calibration(), 'log', 1))
    assert len(rows) == images
    for pairs, attributes, objects in rows:
        assert (pairs[0].attribute, pairs[0].object, pairs[0].seen) == ('a', 'x', True)
        assert attributes[0].name == 'a' and objects[0].name == 'x'


def test_a_pipeline_of_the_users_own_prepares_pictures():
    seen = []

    def pipeline(results):
        seen.append((results['img_shape'], results['ori_shape']))
        return dict(inputs=torch.ones(3, 2, 2))

    reader = object.__new__(Preprocessor)
    reader.pipeline, reader.decoder, reader.background = pipeline, 'cv2', None
    image, error = reader(Item('x', np.zeros((4, 6, 3), np.uint8), 'BGR'))
    assert error is None and image.equal(torch.ones(3, 2, 2)) and seen == [((4, 6), (4, 6))]
