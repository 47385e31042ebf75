"""What a description refuses, and where the weights of its towers come from."""
import threading

import pytest
import torch
from torch import nn

from mmcluspro.apis.checkpoint_file import _space
from mmcluspro.apis.config_text import LENGTH, parse_config
from mmcluspro.description import Refusal, defaults
from mmcluspro.description import build as module
from mmcluspro.description.budget import LARGEST_DINO, _tower, limited
from mmcluspro.description.build import _check_towers, _text, _towers, given_weights
from mmcluspro.description.convert import _kept, _kind, _model, _part, describe
from mmcluspro.description.data import check_data, describe_data
from mmcluspro.description.fields import needs
from mmcluspro.description.foreign import DEPTH, _plain
from mmcluspro.description.preparation import check_preparation
from mmcluspro.description.weights import DINO_FILES, FILE, TINY, dino_source
from mmcluspro.errors import FileError

RESIZE = dict(step='resize', size=8, edge='short', backend='pillow', interpolation='bicubic')
DINO = 'dino_vitbase16_pretrain'


@pytest.mark.parametrize('run, words', [
    (lambda: describe({}), 'the config has no field model with a head'),
    (lambda: describe(dict(model=dict(head=None))), 'the config has no field model with a head'),
    (lambda: _model(dict(type='ImageClassifier')), "model.type is 'ImageClassifier'"),
    (lambda: _model(dict(type='mmcluspro.CompositionalClassifier',
                         data_preprocessor=dict(type='OwnPixels'))),
     "model.data_preprocessor.type is 'OwnPixels'; 'ClsDataPreprocessor' is known"),
    (lambda: _kind(dict(type=3)), 'type must be text, got 3'),
    (lambda: needs(dict(a=1), ('a', 'b'), 'here'), 'here lacks the field b'),
    (lambda: check_data(dict(type='UTZappos', split='a/b'), 'data'),
     'data.split is the name of a folder in the data, without a path'),
    (lambda: check_data(dict(type='UTZappos', split='..'), 'data'), 'without a path'),
    (lambda: _plain([], 'bank', None, 0), 'bank is nested too deeply'),
    (lambda: _plain(object, 'bank', None, DEPTH), 'bank must be plain data'),
    (lambda: check_preparation(dict(decoder='cv2', steps=[
        dict(step='crop', size=[8, 8], edge='short')])),
     r'preparation.steps\[0\] has fields that a crop does not have'),
    (lambda: check_preparation(dict(decoder='cv2', steps=[dict(step='crop', size=8)])),
     r'preparation.steps\[0\].size must be one number with an edge, two without'),
    (lambda: check_preparation(dict(decoder='cv2', steps=[dict(RESIZE, edge=None)])),
     'must be one number with an edge, two without'),
])
def test_a_refusal_says_what_and_where(run, words):
    with pytest.raises(Refusal, match=words):
        run()


def test_lists_of_a_users_part_are_plain_data():
    assert _plain((1, [None, 'a'], dict(b=2.5)), 'x', None, DEPTH) == [1, [None, 'a'], dict(b=2.5)]
    assert describe_data(dict(type='OwnData'), _kind) is None
    assert describe_data(dict(type='mmcluspro.UTZappos', split='..'), _kind) is None
    assert _kept(7, 'bank') == 7 and dino_source(None) is None
    assert dino_source(f'/weights/{DINO}.pth') == DINO and dino_source('own.pth') == FILE


def test_a_function_for_names_is_described_as_its_rule():
    found = _part(dict(type='mmcluspro.CLIPText', readable='mmcluspro.datasets.dotted_name'))
    assert found['readable'] == 'dots'
    assert _part(dict(type='mmcluspro.CLIPText', readable='own.rule'))['readable'] == 'own.rule'


def test_weights_are_given_for_parts_that_there_are():
    with pytest.raises(ValueError, match="weights has the keys .*, got 'image'"):
        given_weights(dict(image='a.pt'))
    assert given_weights(None) == {}
    assert given_weights(dict(text='a.pt')) == dict(text='a.pt', projection='a.pt')
    assert given_weights('a.pt') == dict(backbone='a.pt', text='a.pt', projection='a.pt')


@pytest.mark.parametrize('part, file, found', [
    (dict(pretrained=DINO), None, dict(pretrained=DINO_FILES[DINO])),
    (dict(pretrained=DINO), 'own.pth', dict(pretrained='own.pth')),
    (dict(arch='ViT-B-32', pretrained='openai'), 'own.pt',
     dict(arch='ViT-B-32', pretrained='own.pt', quickgelu=True)),
    (dict(arch='ViT-B-32', pretrained='laion2b_s34b_b79k'), 'own.pt',
     dict(arch='ViT-B-32', pretrained='own.pt', quickgelu=False)),
    (dict(arch='ViT-B-32', pretrained='openai', quickgelu=False), 'own.pt',
     dict(arch='ViT-B-32', pretrained='own.pt', quickgelu=False)),
    (dict(pretrained=FILE), 'own.pt', dict(pretrained='own.pt')),
    (dict(pretrained=FILE), None, dict(pretrained=None)),
    (dict(pretrained=TINY), 'own.pt', dict(pretrained=TINY)),
    ('a name', 'own.pt', 'a name'),
])
def test_a_given_file_takes_the_place_of_a_name(part, file, found):
    assert _towers(part, file) == found


class OwnText:
    """A class that the user's import brought in."""


def test_a_text_side_of_the_users_own_keeps_its_fields():
    text = dict(type=OwnText, chunk_size=3, pretrained=None)
    assert _text(text, {}, {}) == text
    assert 'chunk_size' not in _text(dict(type='CLIPText', chunk_size=3), {}, {})


@pytest.mark.parametrize('pretrained, expected', [(FILE, 'text.pt'), (None, 'kept')])
def test_a_projection_is_read_from_the_file_of_the_projection(pretrained, expected, monkeypatch):
    built = []
    monkeypatch.setattr(module, 'MODELS', type('M', (), dict(
        build=staticmethod(lambda parts: built.append(parts)))))
    monkeypatch.setattr(module, '_check_towers', lambda *args: None)
    monkeypatch.setattr(module, 'allowed_numbers', lambda *args: 10)
    backbone = dict(type='ProjectedBackbone', pretrained=pretrained, backbone=dict(type='ResNet'))
    space = type('S', (), dict(to_dict=lambda self: {}))()
    module.build_model(dict(head=dict(type='CGEHead', text=None), pixels={}, backbone=backbone),
                       space, {}, 'x.pth', dict(projection='text.pt'))
    assert built[0]['backbone'].get('pretrained') == (expected if pretrained else None)


def test_a_backbone_that_nobody_holds_is_named():
    model = nn.Module()
    model.backbone, model.head = nn.Linear(2, 2), nn.Module()
    description = dict(backbone=dict(type='ResNet'), head=dict(text=None))
    with pytest.raises(FileError, match='x.pth.*it was trained on stored features, and the '
                       'backbone ResNet that made them is not part of it'):
        _check_towers(model, description, {'head.w': torch.ones(1)}, 'x.pth', {})
    held = {f'backbone.{name}': value for name, value in model.backbone.state_dict().items()}
    _check_towers(model, description, held, 'x.pth', {})


def test_a_tower_that_is_not_of_clip_may_be_as_large_as_dino():
    assert _tower(dict(type='DINOv2', pretrained=FILE), False) == LARGEST_DINO
    assert _tower(dict(type='DINOv2', pretrained=None), False) == 0
    assert _tower(dict(type='ResNet'), True) == 0


def test_numbers_are_counted_in_one_thread_and_where_there_are_some():
    with limited(10, 'x.pth'):
        nn.Linear(4, 2, bias=False).register_buffer('mask', None)
        other = threading.Thread(target=nn.Linear, args=(100, 100))
        other.start()
        other.join()
        with pytest.raises(FileError, match='x.pth.*more than 10 numbers'):
            nn.Linear(3, 1)


@pytest.mark.parametrize('text', [None, 'a' * (LENGTH + 1)])
def test_a_config_is_text_of_some_length(text):
    with pytest.raises(FileError, match=f'x.pth.*text of at most {LENGTH:,} characters expected'):
        parse_config(text, 'x.pth')


def test_labels_of_a_checkpoint_are_there_and_not_endless(monkeypatch):
    for dataset in (None, {}, dict(space=[])):
        with pytest.raises(ValueError, match='space is missing'):
            _space(dataset)
    monkeypatch.setattr('mmcluspro.apis.checkpoint_file.MOST_PAIRS', 3)
    space = dict(attributes=['a', 'b'], objects=['c', 'd'], pairs=[[0, 0]], seen=[True])
    with pytest.raises(ValueError, match='2 attributes x 2 objects are more than 3 pairs'):
        _space(dict(space=space))


class Root:

    def __init__(self, b=(2, ), **kwargs):
        pass


class Stop:

    def __init__(self, c=3):
        pass


@pytest.mark.parametrize('base, found', [(Root, dict(a=1, b=[2])), (Stop, dict(a=1, c=3))])
def test_defaults_are_gathered_as_far_as_fields_are_handed_on(base, found, monkeypatch):
    class Part(base):

        def __init__(self, a=1, **kwargs):
            pass

    class Child(Part):
        pass

    monkeypatch.setattr(defaults.MODELS, 'get', lambda name: Child)
    assert defaults._defaults('Child') == found
