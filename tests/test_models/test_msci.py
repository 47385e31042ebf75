"""MSCI: its stages recomputed text by text, what learns, and which layers it asks for."""
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from mmcluspro.models.backbones import CLIPVision
from mmcluspro.models.structures import Features

from .conftest import untouched

LOW, HIGH = ('layer_0', 'layer_1', 'layer_2'), ('layer_9', 'layer_10')


def make(clip_head, **fields):
    return clip_head('MSCIHead', in_channels=64, **dict(
        dict(low=3, high=2, dropout=0.0), **fields))


def images(word_batch, size=4):
    (attr, obj, f), samples = [word_batch(size, 64, seed)[0] for seed in (1, 2, 3)], \
        word_batch(size, 64)[1]
    generator = torch.Generator().manual_seed(4)
    extra = {name: torch.randn(size, 5, 64, generator=generator) for name in (*HIGH, *LOW)}
    return Features(f, attr, obj, extra=extra), samples


def stage(layer, q, tokens):
    """Attention with one head of width 64 and MLP, written out for one text."""
    weights = torch.softmax(tokens @ layer.key.weight.T @ (layer.query.weight @ q) / 8, dim=0)
    q = q + layer.out(weights @ (tokens @ layer.value.weight.T))
    hidden = layer.mlp[0](layer.norm(q))
    return q + layer.mlp[3](hidden * torch.sigmoid(1.702 * hidden))


def by_hand(head, features, texts, path):
    """Logits of one path, image by image and text by text."""
    part, rows = head.traction, []
    for i, f in enumerate(getattr(features, path)):
        tokens = []
        for names, join, norm in zip((LOW, HIGH), part.aggregators, part.norms):
            x = torch.cat([features.extra[name][i] for name in names], dim=1)
            tokens.append(norm(torch.relu(join[1](join[0](x)))))
        row = []
        for t in texts:
            first = stage(part.stages[0], t, tokens[0])
            second = stage(part.stages[1], first, tokens[1])
            drawn = t + part.scales[0] * first + part.scales[1] * second
            row.append(head.text.logit_scale.exp() * F.cosine_similarity(f, drawn, dim=0))
        rows.append(torch.stack(row))
    return torch.stack(rows)


@torch.no_grad()
def test_scores_are_those_of_the_formula(clip_head, word_batch):
    head = make(clip_head, chunk_size=7).eval()
    features, _ = images(word_batch)
    candidates = head.known_candidates
    attr, obj, pair = (by_hand(head, features, texts, path) for texts, path in zip(
        head.text(candidates.text_pairs), ('attribute', 'object', 'composition')))
    want = pair + attr.softmax(1)[:, candidates.pairs[:, 0]] * obj.softmax(1)[
        :, candidates.pairs[:, 1]]
    torch.testing.assert_close(head.score(features, candidates).pair, want, rtol=1e-4, atol=1e-4)
    assert head.link == 'identity'


@pytest.mark.parametrize('with_cp', (False, True))
def test_the_losses_are_three_cross_entropies_and_everything_learns(clip_head, word_batch,
                                                                    with_cp):
    head = make(clip_head, with_cp=with_cp)
    features, samples = images(word_batch)
    losses, labels = head.loss(features, samples), head.labels(samples)
    texts = head.text(head.train_candidates.text_pairs)
    for name, path, text in zip(('attr', 'obj', 'pair'), ('attribute', 'object', 'composition'),
                                texts):
        torch.testing.assert_close(losses[f'{name}_loss'], F.cross_entropy(
            by_hand(head, features, text, path), labels[name]), rtol=1e-4, atol=1e-4)
    sum(losses.values()).backward()
    assert not untouched(head)


def test_one_layer_has_no_aggregator_and_without_scale_it_is_three_paths(clip_head, word_batch):
    head = make(clip_head, low=1, high=1, scale=0.0).eval()
    plain = clip_head('ThreePathHead', fusion='logits').eval()
    for scale in head.traction.scales:
        scale.data.zero_()
    plain.text = head.text
    features, _ = images(word_batch)
    assert not [name for name, _ in head.named_parameters() if 'aggregators' in name]
    torch.testing.assert_close(head(features), plain(features), rtol=1e-4, atol=1e-4)


def test_wrong_layers_and_fields_are_named(clip_head, word_batch):
    head, (features, _) = make(clip_head), images(word_batch)
    few = replace(features, extra={'layer_0': features.extra['layer_0']})
    with pytest.raises(ValueError, match=r'got 1 layers: set backbone\.out_layers'):
        head(few)
    wide = {name: torch.randn(4, 5, 96) for name in (*LOW, *HIGH)}
    with pytest.raises(ValueError, match=r'width 64, got 96: set backbone\.project_layers'):
        head(replace(features, extra=wide))
    with pytest.raises(ValueError, match=r'head\.low must be at least 1'):
        make(clip_head, low=0)
    with pytest.raises(ValueError, match='MSCIHead cannot be exported'):
        head.portable()


@torch.no_grad()
def test_projected_layers_end_with_the_tokens_of_the_tower():
    tower = CLIPVision('tiny_clip', 'tiny_clip', out_tokens=True, out_layers=[0, -1],
                       project_layers=True)
    found = tower(torch.randn(2, 3, 48, 48))
    torch.testing.assert_close(found.extra['layer_3'], found.tokens)
    assert found.extra['layer_0'].shape == found.tokens.shape
    raw = CLIPVision('tiny_clip', 'tiny_clip', out_layers=[0])
    torch.manual_seed(0)
    pictures = torch.randn(2, 3, 48, 48)
    torch.testing.assert_close(
        tower(pictures).extra['layer_0'],
        tower.visual.ln_post(raw(pictures).extra['layer_0']) @ tower.visual.proj)
