"""Fields that a model refuses, and what it says about them."""
import numpy as np
import pytest
import torch
from torch import nn

from mmcluspro.errors import FileError
from mmcluspro.models.backbones import ProjectedBackbone
from mmcluspro.models.backbones.dino import DINOv2, _summary
from mmcluspro.models.clip import _check
from mmcluspro.models.heads.base import _build_losses
from mmcluspro.models.necks import PathEmbedder
from mmcluspro.models.prototypes import PrototypeBank
from mmcluspro.models.prototypes.assign import local_aware_assign
from mmcluspro.models.state import check_state_keys
from mmcluspro.models.structures import Features
from mmcluspro.models.text.tower import TokenFrame
from mmcluspro.models.text.words import load_word_vectors
from mmcluspro.models.zoo.msci import MultiStageTraction


@pytest.mark.parametrize('build, words', [
    (lambda: PathEmbedder(4, 4, paths=()), r"neck.paths must name some of .*, got \[\]"),
    (lambda: PathEmbedder(4, 4, paths=['shape']), r"neck.paths must name some of .*'shape'"),
    (lambda: PathEmbedder(4, 4, dropout=1.0), r'neck.dropout must lie in \[0, 1\), got 1.0'),
    (lambda: PathEmbedder(4, 4)(torch.ones(2, 3)), r'neck.in_channels=4 expects f of shape '
     r'\(B, 4\), got \(2, 3\); set it to the width of the backbone'),
    (lambda: DINOv2(num_registers=-1), 'backbone.num_registers must not be negative, got -1'),
    (lambda: MultiStageTraction(100), 'head.in_channels must be a multiple of 64, got 100'),
    (lambda: MultiStageTraction(64, dropout=1.0), r'head.dropout must lie in \[0, 1\), got 1.0'),
    (lambda: local_aware_assign(torch.ones(1, 2), torch.zeros(1, dtype=torch.long),
                                torch.ones(1, 2), 1, scope='image'),
     "assigner.scope must be 'class' or 'batch', got 'image'"),
    (lambda: ProjectedBackbone(dict(type='mmpretrain.LeNet5'), 84, pool=None, pretrained='x.pt'),
     'backbone.pretrained has a projection: set backbone.out_dim, too'),
    (lambda: _build_losses(2 * [dict(type='torch.nn.Identity')]),
     r"head.losses\[1\] is called 'identity' like another one: set its name"),
    (lambda: check_state_keys(nn.Linear(1, 1), {3: torch.ones(1)}),
     'does not fit the model: 3 must be tensors under a name'),
    (lambda: check_state_keys(nn.Linear(1, 1), dict(weight='x')),
     'does not fit the model: weight must be tensors under a name'),
])
def test_a_wrong_field_is_named_with_its_value(build, words):
    with pytest.raises(ValueError, match=words):
        build()


@pytest.mark.parametrize('kind, text, fields, words', [
    ('CAILAHead', dict(type='mmcluspro.CAILAText', prompt=dict(learn=(), names='tokens')),
     dict(img_dropout=1.0), r'head.img_dropout must lie in \[0, 1\), got 1.0'),
    ('PLIDHead', dict(type='mmcluspro.PLIDText', num_texts=3, prompt=dict(share_context=True)),
     dict(beta=(1.0, 0.0)), r'head.beta must be two positive numbers, got \(1.0, 0.0\)'),
    ('PLIDHead', dict(type='mmcluspro.PLIDText', num_texts=3, prompt=dict(share_context=True)),
     dict(smoothing=1.0), r'head.smoothing must lie in \[0, 1\), got 1.0'),
    ('CDSHead', {}, dict(in_channels=64, gamma=3.0), r'head.gamma must lie in \[0, 2\], got 3.0'),
    ('DFSPHead', dict(prompt=dict(share_context=True)), dict(in_channels=64, chunk_size=0),
     'head.chunk_size must be at least 1, got 0'),
    ('ThreePathHead', dict(prompt=dict(type='mmcluspro.GraphPrompt', graph_dropout=1.0,
                                       names='mean')),
     {}, r'prompt.graph_dropout must lie in \[0, 1\), got 1.0'),
])
def test_a_wrong_field_of_a_head_is_named(kind, text, fields, words, clip_head):
    with pytest.raises(ValueError, match=words):
        clip_head(kind, text, **fields)


def test_a_loss_cannot_have_the_name_of_one_of_the_head(clip_head, word_batch):
    head = clip_head('ThreePathHead')
    head.losses['pair'] = nn.Identity()
    feature, samples = word_batch(3, 64)
    with pytest.raises(ValueError, match="head.losses has a loss called 'pair', which "
                       'ThreePathHead has already: give it another name'):
        head.loss(Features(feature, feature, feature), samples)


@pytest.mark.parametrize('state, words', [
    ({3: torch.ones(1)}, 'key 3: a name expected'),
    ({'w': torch.ones(1).to_sparse()}, "key 'w': it claims more numbers than the file holds"),
    ({'w': torch.ones(1).expand(9)}, "key 'w': it claims more numbers than the file holds"),
    ({'w': torch.tensor([torch.nan])}, "key 'w': a value is not finite"),
])
def test_weights_are_tensors_of_their_own_under_names(state, words):
    with pytest.raises(FileError) as caught:
        _check(state, 'clip.pt')
    assert 'clip.pt' in str(caught.value) and words.split(': ')[1] in str(caught.value)
    assert words.split(':')[0] in str(caught.value)


@pytest.mark.parametrize('arrays, words', [
    (dict(words=np.array(['red', 'cat']), vectors=np.ones((3, 2))), r'vectors is \(3, 2\)'),
    (dict(words=np.array([1, 2]), vectors=np.ones((2, 2))), r'words is int64 \(2,\)'),
    (dict(words=np.array(['red']), vectors=np.ones(1)), r'vectors is \(1,\)'),
    (dict(red=np.ones(2), cat=np.ones(3)), r'its vectors have .*widths.* \[2, 3\]'),
    (dict(red=np.array([True, False])), "word 'red'.*numbers expected, got bool"),
])
def test_word_vectors_of_an_npz_are_checked(arrays, words, tmp_path):
    np.savez(tmp_path / 'words.npz', **arrays)
    with pytest.raises(FileError, match=rf'(?s)words\.npz.*{words}'):
        load_word_vectors(tmp_path / 'words.npz', ['red', 'cat'])


@pytest.mark.parametrize('content, words', [
    ({}, 'a dict with nothing'), (dict(b=1, a=2), 'a dict with a, b'), ([1], 'a list')])
def test_a_file_without_weights_is_summarised(content, words):
    assert _summary(content) == words


def test_a_tokenizer_whose_texts_end_differently_is_refused():
    class Odd:
        def __call__(self, texts, context_length):
            ends = {'': [9, 9, 9], 'a': [1, 9, 9]}
            return torch.tensor([[7, *ends.get(text, [1, 2, 3])] for text in texts])

    frame = TokenFrame(Odd(), 4, 10)
    assert frame.ids([]) == [] and frame._rows([]) == []
    assert frame.ids(['a']) == [[1]]
    with pytest.raises(ValueError, match='Prompts cannot be put together from the ids of Odd: a '
                       'text is not followed by what follows an empty one. Use another arch'):
        frame.ids(['b'])


def test_a_bank_takes_a_state_without_prototypes():
    bank = PrototypeBank(2, 3, num_prototypes='share')
    before = {name: value.clone() for name, value in bank.state_dict().items()}
    bank.load_state_dict({}, strict=False)
    assert all(value.equal(before[name]) for name, value in bank.state_dict().items())
    assert before['prototypes'].shape == (0, 3)
