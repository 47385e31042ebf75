"""PLID: descriptions, the upper bound against the published K × K covariances, fusion, export."""
import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from mmcluspro.errors import FileError
from mmcluspro.models.structures import Features
from mmcluspro.models.zoo.plid import TEMPLATES, smoothed, upper_bound
from mmcluspro.registry import MODELS

from .conftest import untouched

TEXT = dict(type='mmcluspro.PLIDText', num_texts=3, attn_dropout=0.0,
            prompt=dict(share_context=True))


def make(clip_head, text=None, **fields):
    return clip_head('PLIDHead', dict(TEXT, **(text or {})), **fields)


def images(word_batch, size=7):
    feature, samples = word_batch(size, 64)
    return Features(feature, torch.randn(size, 64), torch.randn(size, 64)), samples


def covariances(samples):
    """Diagonals of all covariances between classes, (D, C, C), divided by N + 1 as published."""
    centred = samples - samples.mean(dim=1, keepdim=True)
    found = torch.zeros(samples.shape[2], len(samples), len(samples))
    for i in range(len(samples)):
        for j in range(len(samples)):
            found[:, i, j] = (centred[i] * centred[j]).sum(dim=0) / (samples.shape[1] + 1)
    return found


def bound_by_hand(image, samples, labels):
    sigma = covariances(samples)
    return torch.stack([torch.stack([
        (x**2 * (sigma[:, y, y] + sigma[:, j, j] - 2 * sigma[:, y, j])).sum()
        for j in range(len(samples))]) for x, y in zip(image, labels.tolist())])


def test_upper_bound_against_all_covariances():
    samples, labels = torch.randn(5, 4, 6), torch.tensor([0, 3, 3])
    image = F.normalize(torch.randn(3, 6), dim=1)
    got = upper_bound(image, samples, labels)
    torch.testing.assert_close(got, bound_by_hand(image, samples, labels))
    assert got.gather(1, labels[:, None]).abs().max() < 1e-6 and (got > -1e-6).all()


@torch.no_grad()
def test_texts_read_their_descriptions(clip_head):
    head = make(clip_head)
    pairs = head.train_candidates.text_pairs
    text, names = head.text, (head.text.attributes, head.text.objects)
    plain = super(type(text), text).embed('composition', text.parts(), pairs)
    got = head.texts(head.train_candidates)
    for number, (a, o) in enumerate(pairs.tolist()):
        sentences = [t.format(names[0][a], names[1][o]) for t in TEMPLATES[:3]]
        d = text.encode_sentences(sentences)
        expected = text.enhance(plain[number][None, None], d[None])[0, 0]
        torch.testing.assert_close(got.composition[number], F.normalize(expected, dim=0),
                                   rtol=1e-4, atol=1e-5)
    for column, table in enumerate((got.attribute, got.object)):
        owner = head.train_candidates.pairs[:, column]
        mean = torch.stack([got.composition[owner == i].mean(0) for i in range(len(table))])
        torch.testing.assert_close(table, F.normalize(mean, dim=1))


@pytest.mark.parametrize('group', [False, True])
def test_losses_under_the_upper_bound(clip_head, word_batch, group):
    head = make(clip_head, loss_weights=dict(attr=0.1, obj=0.2), group_objects=group)
    features, samples = images(word_batch)
    step = head.step(features, head.labels(samples))
    losses = head.terms(step)

    described = head.text.describe(head.train_candidates.text_pairs)
    scale, pairs = head.text.logit_scale.exp(), head.train_candidates.pairs
    for name, path, column, weight in (('attr', 'attribute', 0, 0.1), ('obj', 'object', 1, 0.2),
                                       ('pair', 'composition', None, 1.0)):
        text = getattr(step.texts, path)
        base = described if column is None else torch.stack(
            [described[pairs[:, column] == i].mean(0) for i in range(len(text))])
        drawn = F.normalize(text[:, None] + base, dim=2)
        image = F.normalize(step.features.paths[path], dim=1)
        label = step.labels[name]
        if name == 'pair' and group:
            drawn = torch.stack([drawn[pairs[:, 1] == i].mean(0) for i in range(5)])
            bound = bound_by_hand(image, drawn, pairs[label, 1])[:, pairs[:, 1]]
        else:
            bound = bound_by_hand(image, drawn, label)
        expected = F.cross_entropy(getattr(step.logits, path) + 0.5 * scale**2 * bound, label)
        torch.testing.assert_close(losses[f'{name}_loss'], weight * expected, rtol=1e-4, atol=1e-4)
    sum(losses.values()).backward()
    assert not untouched(head)
    assert {name.split('.')[1] for name, p in head.named_parameters() if p.requires_grad} == {
        'prompt', 'enhance'}


def test_the_released_block(clip_head):
    """Its MLP has dropout at the end, too: nothing of the last bias is left."""
    x, y = torch.randn(2, 3, 64), torch.randn(2, 5, 64)
    for released in (False, True):
        block = make(clip_head, dict(released=released)).text.enhance.train()
        block.mlp[2].p = 1.0
        block.mlp[3].bias.data.fill_(100.0)
        assert bool((block(x, y) > 50).all()) != released


def test_the_released_block_starts_at_random():
    for released in (False, True):
        text = MODELS.build(dict(TEXT, attributes=['red'], objects=['cat'], arch='tiny_clip',
                                 released=released))
        assert bool(text.enhance.attn.out_proj.weight.any()) == released


def test_texts_keep_their_length_as_released(clip_head, word_batch):
    features, samples = images(word_batch)
    for released in (False, True):
        head = make(clip_head, dict(released=released))
        step = head.step(features, head.labels(samples))
        described = head.text.describe(step.candidates.text_pairs)
        for vectors in (step.texts.composition, described):
            assert bool(((vectors.norm(dim=-1) - 1).abs() < 1e-4).all()) != released
        scored = head.texts(step.candidates)
        assert all(((text.norm(dim=1) - 1).abs() < 1e-4).all() for text in scored)


def test_smoothing_stays_inside_the_attribute():
    owner, label = torch.tensor([0, 0, 1, 0, 2]), torch.tensor([3, 2, 0])  # 1 has a single pair
    torch.testing.assert_close(smoothed(label, owner, 0.2), torch.tensor([
        [0.1, 0.1, 0.0, 0.8, 0.0], [0.0, 0.0, 0.8, 0.0, 0.0], [0.8, 0.1, 0.0, 0.1, 0.0]]))


def test_the_loss_of_pairs_is_smoothed(clip_head, word_batch):
    features, samples = images(word_batch)
    losses = []
    for smoothing in (0.0, 0.3):
        head = make(clip_head, smoothing=smoothing)
        torch.manual_seed(0)
        losses.append(head.terms(head.step(features, head.labels(samples))))
    assert losses[0]['attr_loss'] == losses[1]['attr_loss']
    assert (losses[0]['pair_loss'] - losses[1]['pair_loss']).abs() > 1e-3


@torch.no_grad()
def test_scores_fuse_logits_and_numpy_agrees(clip_head, word_batch):
    head = make(clip_head).eval()
    features, _ = images(word_batch, 3)
    got, texts = head(features), head.texts(head.known_candidates)
    l_a, l_o, l_c = (head.text.logit_scale.exp() * F.normalize(f, dim=1) @ t.T for f, t in zip(
        (features.attribute, features.object, features.composition), texts))
    pairs = head.known_candidates.pairs
    logits = torch.stack([0.9 * l_c[:, j] + 0.1 * (l_a[:, a] + l_o[:, o])
                          for j, (a, o) in enumerate(pairs.tolist())], 1)
    torch.testing.assert_close(got, logits.softmax(1))
    table = dict(zip(('text_a', 'text_o', 'text_c'), (t.numpy() for t in texts)),
                 pairs=pairs.numpy())
    unit = {name: F.normalize(f, dim=1).numpy() for name, f in features.paths.items()}
    np.testing.assert_allclose(head.portable().score(unit, table), got.numpy(), atol=1e-5)


def test_descriptions_of_a_file(clip_head, tmp_path):
    path = tmp_path / 'words.json'
    path.write_text(json.dumps({'red,bag': ['one bag', 'two bags', 'three', 'four']}))
    head = make(clip_head, dict(descriptions=str(path)))
    names = head.text.attributes, head.text.objects
    sentences = head.text.sentences(head.train_candidates.text_pairs)
    assert len(sentences) == 3 * len(head.train_candidates)
    for number, (a, o) in enumerate(head.train_candidates.pairs.tolist()):
        part = sentences[3 * number:3 * number + 3]
        if (names[0][a], names[1][o]) == ('red', 'bag'):
            assert part == ['one bag', 'two bags', 'three']
        else:
            assert part[0] == f'a photo of a {names[0][a]} {names[1][o]}'


@pytest.mark.parametrize('content', ['{', '[]', '{"red": ["a", "b", "c"]}', '{"red,bag": ["a"]}',
                                     '{"red,bag": [1, 2, 3]}'])
def test_a_damaged_file_is_named(clip_head, tmp_path, content):
    path = tmp_path / 'words.json'
    path.write_text(content)
    with pytest.raises(FileError, match=r'words\.json'):
        make(clip_head, dict(descriptions=str(path)))


def test_refusals(clip_head):
    with pytest.raises(ValueError, match=r"PLIDHead needs head\.text\.type='mmcluspro\.PLIDText'"):
        clip_head('PLIDHead')
    with pytest.raises(ValueError, match=r'text\.num_texts must lie in \[1, 8\], .*got 9'):
        make(clip_head, dict(num_texts=9))
    with pytest.raises(ValueError, match=r'text\.templates need \{0\}'):
        make(clip_head, dict(templates=['a photo'] * 3))
    # str.format would fill gigabytes, or look into objects.
    for field in ('{0:>999999999}', '{0.__class__}', '{0!r:{1}}', '{', '}'):
        with pytest.raises(ValueError, match='and no other brackets'):
            make(clip_head, dict(num_texts=1, templates=[f'{{0}} {{1}} {field}']))
