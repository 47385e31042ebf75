"""DFSP as released: its slip, its limits, and its size; its numbers are in test_oracles.py."""
import pytest
import torch

from mmcluspro.models import Candidates
from mmcluspro.models.structures import Features

from .conftest import untouched

TEXT = dict(type='mmcluspro.DFSPText', prompt=dict(share_context=True))


def make(clip_head, direction='t2i', **fields):
    return clip_head('DFSPReleasedHead', TEXT, direction=direction,
                     **dict(dict(dropout=0.0), **fields))


def images(word_batch, size=4):
    feature, samples = word_batch(size, 64)
    return Features(feature, extra=dict(layer_3=torch.randn(size, 37, 96))), samples


def some(features, rows):
    return Features(features.composition[rows],
                    extra=dict(layer_3=features.extra['layer_3'][rows]))


@torch.no_grad()
@pytest.mark.parametrize('direction', ['t2i', 'i2t', 'BiF'])
def test_only_the_slip_mixes_images(clip_head, word_batch, direction):
    """An image alone, and among others: equal where images are kept apart."""
    features, _ = images(word_batch)
    for mix in (True, False):
        head = make(clip_head, direction, mix_images=mix).eval()
        alone = torch.cat([head(some(features, [i])) for i in range(4)])
        same = torch.allclose(alone, head(features), atol=1e-5)
        assert same == (direction == 't2i' or not mix)


@pytest.mark.parametrize('direction', ['t2i', 'i2t', 'BiF'])
def test_gradients_reach_everything_that_learns(clip_head, word_batch, direction):
    head = make(clip_head, direction, mix_images=False)
    features, samples = images(word_batch)
    sum(head.loss(features, samples).values()).backward()
    left = untouched(head)
    assert not [name for name in left if direction == 't2i' or 'self_text' not in name], left


@torch.no_grad()
def test_the_end_of_the_prompt_is_the_text(clip_head):
    """States before the last norm lead to the features that the text side gives."""
    head = make(clip_head).eval()
    pairs = head.known_candidates.text_pairs
    states = head.text.encode_states(pairs)
    assert states.shape == (len(pairs), 8, 64)
    torch.testing.assert_close(head.texts(head.known_candidates).composition,
                               head.text.encode_pairs(pairs), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize('direction, count', [
    ('t2i', 282_797), ('i2t', 225_040), ('BiF', 346_013)])
def test_parameters(clip_head, direction, count):
    """Counted by hand for 4 attributes, 5 objects and the widths 96 and 64 of the tiny CLIP."""
    def block(width, cross):
        return 12 * width**2 + 9 * width + (3 if cross else 2) * 2 * width

    image, text, tokens, places = 96, 64, 37, 8 * 9
    expected = block(image, False) + block(text, False)
    if direction != 'i2t':
        expected += (text + 1) * image + (places + 1) * tokens + block(image, True)
    if direction != 't2i':
        expected += (image + 1) * text + (tokens + 1) * places + block(text, True)
        expected += (text + 1) * text
    head = make(clip_head, direction)
    assert expected == count == sum(
        p.numel() for name, p in head.named_parameters()
        if p.requires_grad and not name.startswith('text.'))


def test_refusals(clip_head, word_batch):
    with pytest.raises(ValueError, match='head.direction must be one of'):
        make(clip_head, 'both')
    with pytest.raises(ValueError, match=r"needs head\.text\.type='mmcluspro\.DFSPText'"):
        clip_head('DFSPReleasedHead', dict(prompt=dict(share_context=True)))
    with pytest.raises(ValueError, match=r'text\.positions=6 has no room for 7 tokens'):
        clip_head('DFSPReleasedHead', dict(TEXT, positions=6))
    head = make(clip_head).eval()
    features, _ = images(word_batch)
    with pytest.raises(ValueError, match=r'reads 37 tokens of width 96 of the last block'):
        head(Features(features.composition))
    with pytest.warns(UserWarning, match='Not in the training data'):
        new = Candidates.from_names(head.text, head.space, [('teal', head.space.objects[0])])
    with pytest.raises(ValueError, match="cannot answer 'teal': leave these attributes out"):
        head.score(features, new)
    head.text.restore()
