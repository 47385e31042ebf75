"""CANet: attributes of each image, image by image."""
import pytest
import torch
from torch.nn import functional as F

from mmcluspro.models.zoo.canet import CANetNeck

TEXT = dict(out_dim=8, hidden_dim=9, temperature=0.1)
WIDTH = 10


def parts(word_head, **fields):
    head = word_head('CANetHead', 'WordVectorText', TEXT, in_channels=WIDTH, dim=8, dropout=0.0,
                     **fields)
    return head, CANetNeck(WIDTH, 8, dropout=0.0)


def literal(head, neck, f, candidates):
    """Cosines of one image f (WIDTH,) with attributes, objects and pairs: Eq. 2-8 of CANet."""
    f_a, f_o, f_c = (neck.embed[path](f) for path in ('attribute', 'object', 'composition'))
    t_a, t_o, t_c = head.text(candidates.pairs)
    d_o = torch.stack([torch.cosine_similarity(f_o, text, dim=0) for text in t_o])
    best = t_o[int(d_o.argmax())]
    beta = head.condition(torch.cat([best, f]))
    adapter, d_a = head.adapter, []
    for attribute in t_a:
        state = adapter.first(attribute) * adapter.first_scale(beta)
        state = F.layer_norm(state, (16, ), *adapter.between[0].parameters()).relu()
        state = adapter.second(state) * adapter.second_scale(beta)
        d_a.append(torch.cosine_similarity(f_a, state, dim=0))
    d_c = torch.stack([torch.cosine_similarity(f_c, text, dim=0) for text in t_c])
    return torch.stack(d_a), d_o, d_c


def test_scores_image_by_image(word_head, word_batch):
    head, neck = parts(word_head, alpha=0.3)
    feats, _ = word_batch(4, WIDTH)
    candidates = head.known_candidates
    with torch.no_grad():
        got = head.score(neck(feats), candidates)
        for row, f in enumerate(feats):
            d_a, d_o, d_c = literal(head, neck, f, candidates)
            for place, (attr, obj) in enumerate(candidates.pairs.tolist()):
                expected = 0.7 * (d_c[place] + 1) / 2 + 0.3 * (d_a[attr] + 1) / 2 * (
                    d_o[obj] + 1) / 2
                torch.testing.assert_close(got.pair[row, place], expected)
    assert head.link == 'identity'


def test_losses(word_head, word_batch):
    head, neck = parts(word_head)
    feats, samples = word_batch(5, WIDTH)
    with torch.no_grad():
        got = head.loss(neck(feats), samples)
        expected = dict.fromkeys(('attr', 'obj', 'pair'), 0.0)
        for f, sample in zip(feats, samples):
            cosines = literal(head, neck, f, head.train_candidates)
            for name, cosine in zip(expected, cosines):
                label = sample.get(f'{name}_label')
                expected[name] -= float((cosine / 0.1).log_softmax(0)[label]) / 5
    assert got['attr_loss'].item() == pytest.approx(expected['attr'] / 2, rel=1e-4)
    assert got['obj_loss'].item() == pytest.approx(expected['obj'] / 2, rel=1e-4)
    assert got['pair_loss'].item() == pytest.approx(expected['pair'], rel=1e-4)


def test_gradients_reach_everything_that_learns(word_head, word_batch):
    head, neck = parts(word_head)
    feats, samples = word_batch(9, WIDTH)
    sum(head.loss(neck(feats), samples).values()).backward()
    for part in (head, neck):
        assert not [name for name, p in part.named_parameters()
                    if p.requires_grad and (p.grad is None or not p.grad.any())]


def test_what_is_refused(word_head, word_batch):
    head, _ = parts(word_head)
    feats, _ = word_batch(2)
    with pytest.raises(ValueError, match='CANetHead cannot be exported'):
        head.portable()
    with pytest.raises(ValueError, match='mmcluspro.CANetNeck'):
        head.score((feats, feats, feats), head.known_candidates)
    with pytest.raises(ValueError, match='head.alpha'):
        parts(word_head, alpha=2)


def test_the_published_composer_of_pairs(word_head):
    """Linear, LayerNorm, ReLU, dropout, linear, ReLU, as in the code of its authors."""
    text = word_head('CANetHead', 'WordVectorText', dict(
        out_dim=5, hidden_dim=12, dropout=0.5, norm=True, last_act=True), in_channels=8,
        dim=5).text.eval()
    first, norm, _, _, last, _ = text.composer
    both = torch.cat([part[i] for part, i in zip(text.parts(), (1, 2))])
    hidden = first.weight @ both + first.bias
    hidden = (hidden - hidden.mean()) / (hidden.var(unbiased=False) + norm.eps).sqrt()
    want = (last.weight @ hidden.clamp_min(0) + last.bias).clamp_min(0)
    torch.testing.assert_close(text.encode_pairs(torch.tensor([[1, 2]]))[0],
                               want / want.norm().clamp_min(1e-12))
