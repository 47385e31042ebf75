"""CPF: its attention recomputed image by image, what learns, and what it asks the tower for."""
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from mmcluspro.models import Candidates
from mmcluspro.models.structures import Features

from .conftest import untouched

LAYERS = ('layer_2', 'layer_10')


def make(clip_head, **fields):
    return clip_head('CPFHead', in_channels=64, **dict(dict(shallow=2), **fields))


def images(word_batch, size=4):
    f, samples = word_batch(size, 64)
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randn(size, 6, 64, generator=generator)
    extra = {name: torch.randn(size, 6, 64, generator=generator) for name in LAYERS[::-1]}
    return Features(f, tokens=torch.cat([f[:, None], tokens[:, 1:]], dim=1), extra=extra), samples


def by_hand(head, features, candidates):
    """Logits of attributes, objects and pairs, image by image."""
    objects = head.text(head.train_candidates.text_pairs)[1]
    texts = head.text(candidates.text_pairs)
    rows = [[], [], []]
    for i, v in enumerate(features.composition):
        patches = features.tokens[i, 1:]
        shallow = torch.stack([head.join(torch.cat([features.extra[name][i, j] for name in LAYERS]))
                               for j in range(1, 6)])
        weights = torch.softmax(
            torch.stack([torch.dot(head.to_text(v), t) for t in objects]) / 8, 0)
        query = sum(w * t for w, t in zip(weights, objects))
        weights = torch.softmax(
            torch.stack([torch.dot(query, head.to_text(p)) for p in patches]) / 8, 0)
        v_o = v + sum(w * p for w, p in zip(weights, patches))
        weights = torch.softmax(torch.stack([torch.dot(v_o, p) for p in shallow]) / 8, 0)
        v_a = sum(w * p for w, p in zip(weights, shallow))
        v_c = head.compose.weight @ torch.cat([v_a, v_o]) + head.compose.bias
        for row, x, text in zip(rows, (v_a, v_o, v_c), texts):
            row.append(head.text.logit_scale.exp() * F.cosine_similarity(x[None], text))
    return [torch.stack(row) for row in rows]


@torch.no_grad()
def test_scores_add_three_probabilities(clip_head, word_batch):
    head, (features, _) = make(clip_head).eval(), images(word_batch)
    candidates = head.known_candidates
    attr, obj, pair = (part.softmax(1) for part in by_hand(head, features, candidates))
    want = torch.stack([pair[:, i] + attr[:, a] + obj[:, o]
                        for i, (a, o) in enumerate(candidates.pairs.tolist())], dim=1)
    scores = head.score(features, candidates)
    torch.testing.assert_close(scores.pair, want, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(scores.object, obj, rtol=1e-4, atol=1e-5)


def test_the_losses_have_their_weights_and_everything_learns(clip_head, word_batch):
    head, (features, samples) = make(clip_head), images(word_batch)
    losses, labels = head.loss(features, samples), head.labels(samples)
    for name, weight, logits in zip(('attr', 'obj', 'pair'), (0.6, 0.4, 1.0), by_hand(
            head, features, head.train_candidates)):
        torch.testing.assert_close(losses[f'{name}_loss'],
                                   weight * F.cross_entropy(logits, labels[name]),
                                   rtol=1e-4, atol=1e-4)
    sum(losses.values()).backward()
    assert not untouched(head)


@torch.no_grad()
def test_a_score_does_not_depend_on_the_other_pairs(clip_head, word_batch, word_space):
    """The objects that describe an image are those of training, whatever is asked."""
    head, (features, _) = make(clip_head).eval(), images(word_batch)
    names = [(word_space[0].attributes[a], word_space[0].objects[o])
             for a, o in word_space[0].pairs[[2, 5]].tolist()]
    listed = Candidates.from_names(head.text, head.space, names)
    torch.testing.assert_close(head.logits(features, listed).composition,
                               head.logits(features, head.known_candidates).composition[:, [2, 5]])


def test_wrong_layers_and_fields_are_named(clip_head, word_batch):
    head, (features, _) = make(clip_head), images(word_batch)
    with pytest.raises(ValueError, match=r'got 0 layers: set backbone\.out_tokens'):
        head(replace(features, extra={}))
    with pytest.raises(ValueError, match=r'width 64, got 96: set backbone\.project_layers'):
        head(replace(features, extra={name: torch.randn(4, 6, 96) for name in LAYERS}))
    with pytest.raises(ValueError, match=r'head\.shallow must be at least 1'):
        make(clip_head, shallow=0)
    with pytest.raises(ValueError, match=r"head\.fusion must be 'probability'"):
        make(clip_head, fusion='logits')
    with pytest.raises(ValueError, match='CPFHead cannot be exported'):
        head.portable()
