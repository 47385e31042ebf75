"""What a description refuses, and where the weights of its towers come from."""
import threading

import pytest
from torch import nn

from mmcluspro.artefact.load import _space
from mmcluspro.artefact.spec import Refusal, describe
from mmcluspro.artefact.towers import _towers, given_weights, limited
from mmcluspro.errors import FileError
from mmcluspro.fields import Left, fields_of
from mmcluspro.models.sources import DINO_FILES, FILE, TINY

DINO = 'dino_vitbase16_pretrain'
MODEL = dict(type='mmcluspro.CompositionalClassifier', backbone=dict(type='ResNet', depth=18),
             head=dict(type='mmcluspro.CGEHead', text=dict(type='mmcluspro.GraphText')))


@pytest.mark.parametrize('model, words', [
    (None, 'the config has no field model with a head'),
    (dict(MODEL, head=None), 'the config has no field model with a head'),
    (dict(MODEL, type='ImageClassifier'), "model.type is 'ImageClassifier'"),
    (dict(MODEL, data_preprocessor=dict(type='OwnPixels')),
     "model.data_preprocessor.type is 'OwnPixels'; 'ClsDataPreprocessor' is known"),
    (dict(MODEL, backbone=dict(type=3)), 'type must be text, got 3'),
])
def test_a_refusal_says_what_and_where(model, words):
    with pytest.raises(Refusal, match=words):
        describe(dict(model=model))


@pytest.mark.parametrize('given, name', [
    (f'/weights/{DINO}.pth', DINO), ('own.pth', FILE), (None, None)])
def test_dino_weights_are_named_without_their_path(given, name):
    backbone = dict(type='mmcluspro.DINO', pretrained=given)
    assert describe(dict(model=dict(MODEL, backbone=backbone)))['model']['backbone'][
        'pretrained'] == name


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


def test_numbers_are_counted_in_one_thread_and_where_there_are_some():
    with limited(10, 'x.pth'):
        nn.Linear(4, 2, bias=False).register_buffer('mask', None)
        other = threading.Thread(target=nn.Linear, args=(100, 100))
        other.start()
        other.join()
        with pytest.raises(FileError, match='x.pth.*more than 10 numbers'):
            nn.Linear(3, 1)


def test_labels_of_a_checkpoint_are_there_and_not_endless(monkeypatch):
    for dataset in (None, {}, dict(space=[])):
        with pytest.raises(ValueError, match='space is missing'):
            _space(dataset)
    monkeypatch.setattr('mmcluspro.artefact.load.MOST_PAIRS', 3)
    space = dict(attributes=['a', 'b'], objects=['c', 'd'], pairs=[[0, 0]], seen=[True])
    with pytest.raises(ValueError, match='2 attributes x 2 objects are more than 3 pairs'):
        _space(dict(space=space))


class Root:

    def __init__(self, b=(2, ), e: Left = 0, **kwargs):
        pass


class Stop:

    def __init__(self, c=3):
        pass


@pytest.mark.parametrize('base, names', [(Root, ['a', 'b', 'd']), (Stop, ['a', 'c', 'd'])])
def test_fields_are_gathered_as_far_as_they_are_handed_on(base, names):
    class Part(base):
        fixed = ('e', )

        def __init__(self, a=1, d=(5, ), **kwargs):
            pass

    class Child(Part):
        pass

    found = fields_of(Child)
    assert sorted(found) == names and found['d'].default == [5]
