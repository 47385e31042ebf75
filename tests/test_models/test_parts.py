"""Parts of a classifier as modules: the same model as from configs."""
import doctest

import pytest
import torch

from mmcluspro.datasets import CompositionSpace
from mmcluspro.models import classifier
from mmcluspro.models.backbones import CLIPVision
from mmcluspro.models.classifier import CompositionalClassifier
from mmcluspro.models.heads import ThreePathHead
from mmcluspro.models.text import CLIPText

TINY = dict(arch='tiny_clip', pretrained='tiny_clip')
SPACE = CompositionSpace(['wet', 'dry'], ['cat', 'dog'], [[0, 0], [0, 1], [1, 0]],
                         [True, True, False])


def test_the_example_of_the_class_runs():
    failed, tried = doctest.testmod(classifier)
    assert (failed, tried > 5) == (0, True)


def test_modules_score_as_configs_do():
    text = CLIPText(SPACE.attributes, SPACE.objects, **TINY)
    of_modules = CompositionalClassifier(
        SPACE, CLIPVision(**TINY), ThreePathHead(SPACE, text, fusion='composition'))
    of_configs = CompositionalClassifier(
        SPACE, dict(type='mmcluspro.CLIPVision', **TINY),
        dict(type='mmcluspro.ThreePathHead', fusion='composition',
             text=dict(type='mmcluspro.CLIPText', **TINY)))
    of_configs.load_state_dict(of_modules.state_dict(), strict=False)
    images = torch.rand(3, 3, 48, 48)
    with torch.no_grad():
        assert of_modules.eval()(images).equal(of_configs.eval()(images))


def test_a_text_side_of_other_names_is_refused():
    text = CLIPText(['wet'], ['cat'], **TINY)
    with pytest.raises(ValueError, match='head.text has other attributes or objects'):
        ThreePathHead(SPACE, text)
