"""TOMCAT: the stream recomputed image by image, when it moves, and what learns in training."""
import pytest
import torch
from torch.nn import functional as F

from mmcluspro.models import Candidates
from mmcluspro.models.structures import Features

from .conftest import untouched

PROMPT = dict(prompt=dict(share_context=True))


def make(clip_head, **fields):
    return clip_head('TOMCATHead', PROMPT, **dict(dict(
        capacity=2, alpha=0.7, beta=4.0, theta=1.5, test_lr=0.05, align_weight=2.0), **fields))


def images(word_batch, size=8, seed=1):
    return Features(word_batch(size, 64, seed)[0])


def unit(x):
    return x / x.norm()


def by_hand(head, features, candidates):
    """Scores of a stream, with loops, dictionaries and AdamW written out."""
    texts = head.text.encode_pairs(candidates.text_pairs).detach()
    scale, (count, width) = float(head.text.logit_scale.exp()), texts.shape
    residuals = [torch.zeros(count, width), torch.zeros(count, width)]
    first = [torch.zeros(count, width) for _ in residuals]
    second = [torch.zeros(count, width) for _ in residuals]
    queue, rows = {}, []
    for turn, f in enumerate(features.composition, start=1):
        f = unit(f)
        r_t, r_v = (residual.clone().requires_grad_() for residual in residuals)
        t = [unit(texts[c] + r_t[c] / (1 + torch.exp(1.5 * torch.dot(f, texts[c]))))
             for c in range(count)]
        plain = scale * torch.stack([torch.dot(f, x) for x in t]).detach()
        p = plain.exp() / plain.exp().sum()
        doubt, best = float(-(p * p.log()).sum()), int(plain.argmax())
        queue[best] = sorted([*queue.get(best, []), (doubt, f)], key=lambda x: x[0])[:2]
        logits, drawn = [scale * torch.dot(f, x) for x in t], {}
        for c, kept in queue.items():
            mean = sum(x for _, x in kept) / len(kept)
            drawn[c] = unit(mean + r_v[c] / (1 + torch.exp(1.5 * torch.dot(f, mean))))
            logits[c] = logits[c] + 0.7 * torch.exp(-4.0 * (1 - torch.dot(f, drawn[c])))
        p = torch.stack(logits).softmax(0)
        rows.append(p.detach())
        loss = -(p * p.log()).sum()
        for one, other in ((drawn, dict(enumerate(t))), (dict(enumerate(t)), drawn)):
            for c in queue:
                near = {d: torch.exp(scale * torch.dot(one[c], other[d])) for d in queue}
                loss = loss - 2.0 * torch.log(near[c] / sum(near.values())) / len(queue) / 2
        grads = torch.autograd.grad(loss, (r_t, r_v))
        for i, grad in enumerate(grads):
            first[i] = 0.9 * first[i] + 0.1 * grad
            second[i] = 0.999 * second[i] + 0.001 * grad**2
            step = (first[i] / (1 - 0.9**turn)) / (
                (second[i] / (1 - 0.999**turn)).sqrt() + 1e-3)
            residuals[i] = residuals[i] * (1 - 0.05 * 1e-3) - 0.05 * step
    return torch.stack(rows)


@pytest.mark.parametrize('inference', (False, True))
def test_scores_are_those_of_the_stream(clip_head, word_batch, inference):
    head = make(clip_head).eval()
    features, candidates = images(word_batch), head.known_candidates
    with torch.inference_mode() if inference else torch.no_grad():
        head.adapt(features)
        got = head.score(features, candidates).pair
    torch.testing.assert_close(got, by_hand(head, features, candidates), rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_batches_do_not_matter_and_worlds_have_streams_of_their_own(clip_head, word_batch):
    head = make(clip_head).eval()
    features, candidates = images(word_batch), head.known_candidates
    world = Candidates.from_space(head.space.open_world())
    want = {}
    for pairs in (candidates, world):
        head.forget_adaptation()
        head.adapt(features)
        want[pairs] = head.score(features, pairs).pair
    head.forget_adaptation()
    rows = {candidates: [], world: []}
    for part in features.composition.split(3):
        part = Features(part)
        head.adapt(part)
        for pairs in rows:
            rows[pairs].append(head.score(part, pairs).pair)
    for pairs, found in rows.items():
        torch.testing.assert_close(torch.cat(found), want[pairs], rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_only_announced_images_move_it_once_and_it_forgets(clip_head, word_batch):
    head, plain = make(clip_head).eval(), make(clip_head, test_time=False).eval()
    features, candidates = images(word_batch), head.known_candidates
    others = images(word_batch, seed=2)
    before = plain.score(others, candidates).pair
    torch.testing.assert_close(head.score(others, candidates).pair, before)

    head.adapt(features)
    first = head.score(features, candidates).pair
    assert torch.equal(head.score(features, candidates).pair, first)
    after = head.score(others, candidates).pair
    assert not torch.allclose(after, before, atol=1e-3)
    assert torch.equal(head.score(others, candidates).pair, after)
    head.forget_adaptation()
    torch.testing.assert_close(head.score(others, candidates).pair, before)
    head.adapt(features)
    head.score(features, candidates)
    head.train().eval()
    torch.testing.assert_close(head.score(others, candidates).pair, before)


def test_training_is_that_of_one_soft_prompt(clip_head, word_batch):
    head = make(clip_head)
    feature, samples = word_batch(6, 64)
    losses = head.loss((feature, ), samples)
    texts = head.text.encode_pairs(head.train_candidates.text_pairs)
    logits = head.text.logit_scale.exp() * F.normalize(feature, dim=1) @ texts.T
    assert set(losses) == {'pair_loss'}
    torch.testing.assert_close(losses['pair_loss'],
                               F.cross_entropy(logits, head.labels(samples)['pair']))
    losses['pair_loss'].backward()
    assert untouched(head) == []


def test_export_is_refused_with_the_stream_only(clip_head):
    with pytest.raises(ValueError, match='TOMCATHead cannot be exported'):
        make(clip_head).portable()
    assert make(clip_head, test_time=False).portable().paths == ('composition', )


@pytest.mark.parametrize('fields, message', [
    (dict(capacity=0), r'head\.capacity must be at least 1'),
    (dict(theta=-1.0), r'head\.theta must not be negative'),
    (dict(test_eps=0.0), r'head\.test_eps must be positive')])
def test_wrong_fields_are_named(clip_head, fields, message):
    with pytest.raises(ValueError, match=message):
        make(clip_head, **fields)


def test_memory_is_bounded_over_any_number_of_images(clip_head, word_batch, monkeypatch):
    monkeypatch.setattr('mmcluspro.models.zoo.tomcat.MOST_PAIRS', 3)
    head = make(clip_head).eval()
    candidates = head.known_candidates
    for seed in range(4):
        features = images(word_batch, 16, seed)
        head.adapt(features)
        assert head.score(features, candidates).pair.isfinite().all()
    stream = head._streams[candidates]
    assert len(stream.queue) == len(stream.means) == 3 < len(candidates)
    kept = [image for queue in stream.queue.values() for _, image in queue]
    assert len(kept) <= 3 * 2
    assert all(image.untyped_storage().nbytes() == 64 * 4 for image in kept), 'views of batches'


def test_an_image_that_is_not_finite_moves_nothing(clip_head, word_batch):
    head, features = make(clip_head).eval(), images(word_batch)
    candidates = head.known_candidates
    head.adapt(features)
    expected = head.score(features, candidates).pair
    head.forget_adaptation()
    broken = torch.cat([features.composition[:3], torch.full((1, 64), torch.nan),
                        features.composition[3:]])
    spoilt = Features(broken)
    head.adapt(spoilt)
    got = head.score(spoilt, candidates).pair
    assert got[3].isnan().all()
    torch.testing.assert_close(got[[0, 1, 2, 4, 5, 6, 7, 8]], expected)
