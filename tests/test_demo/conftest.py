"""Models of the page: zero-shot CLIP, and an untrained ClusPro with a bank."""
import pytest
import torch
from mmengine.registry import DefaultScope

from mmcluspro import load
from mmcluspro.artefact.spec import describe
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.demo.demo_command import zero_shot_model
from mmcluspro.demo.examples import draw_examples
from mmcluspro.demo.logic import Classifier
from mmcluspro.engine.launch import read_config
from mmcluspro.registry import MODELS


@pytest.fixture(scope='session')
def zero_shot():
    return Classifier(zero_shot_model('cpu'))


@pytest.fixture(scope='session')
def cluspro_file(tmp_path_factory):
    """A checkpoint with random weights and prototypes, and a bias that validation chose."""
    cfg = read_config('cluspro_shapes.py')
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = MODELS.build(cfg.model)
    for parameter in model.neck.parameters():  # f_a, f_o and f_c start out equal
        torch.nn.init.normal_(parameter, std=0.2)
    for branch in ('attr', 'obj'):
        bank = model.head.bank(branch)
        labels = torch.arange(bank.num_classes).repeat_interleave(8)
        bank.initialise(torch.randn(len(labels), bank.dim), labels)
    path = tmp_path_factory.mktemp('model') / 'cluspro.pth'
    torch.save(dict(state_dict=model.state_dict(), meta=dict(
        description=describe(cfg), dataset_meta=dict(
            space=ShapesCZSL.make_space('train').to_dict(),
            known_pairs=ShapesCZSL.make_space('all').pairs.tolist()),
        calibration=dict(closed=dict(
            bias=0.1, threshold=None, temperature=0.8, seen_bias=0.7)))), path)
    return path


@pytest.fixture(scope='session')
def cluspro(cluspro_file):
    return Classifier(load(cluspro_file, 'cpu'))


@pytest.fixture(scope='session')
def examples(zero_shot, tmp_path_factory):
    return draw_examples(zero_shot.model.space, tmp_path_factory.mktemp('examples'))
