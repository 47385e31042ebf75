"""CAPE: attention between pairs, recomputed head by head."""
import math

import pytest
import torch
from torch.nn import functional as F

TEXT = dict(out_dim=8, num_heads=3, hidden_dim=10, temperature=0.1)
ONE_PATH = dict(fusion='composition', loss_weights=dict(attr=0, obj=0))


def literal(text, pairs):
    """The formula of the docstring, in loops over heads and pairs."""
    a, o = F.normalize(text.attr_table(), dim=1), F.normalize(text.obj_table(), dim=1)
    x = torch.stack([torch.cat([a[i], o[j]]) for i, j in pairs.tolist()])
    z = text.norm_in(x)
    width, heads = x.shape[1], text.num_heads
    q, k, v = text.qkv(z).split(width, dim=1)
    heard = torch.zeros_like(z)
    for head in range(heads):
        part = slice(head * width // heads, (head + 1) * width // heads)
        for i in range(len(x)):
            energy = torch.stack([q[i, part] @ k[j, part] for j in range(len(x))])
            heard[i, part] = energy.softmax(dim=0) @ v[:, part] / math.sqrt(width)
    u = text.norm_attn(z + text.attn_proj(heard))
    last = text.norm_mlp(u + text.mlp(u))
    return F.normalize(text.last(last), dim=1)


@pytest.mark.parametrize('count', [1, 8, 12])
@pytest.mark.parametrize('chunk_size', [3, 100])
def test_it_is_the_formula(word_head, word_space, count, chunk_size):
    text = word_head('ThreePathHead', 'CAPEText', dict(TEXT, chunk_size=chunk_size),
                     **ONE_PATH).text.eval()
    pairs = word_space[0].pairs[:count]
    with torch.no_grad():
        torch.testing.assert_close(text.encode_pairs(pairs), literal(text, pairs))


def test_a_pair_depends_on_the_others(word_head, word_space):
    text = word_head('ThreePathHead', 'CAPEText', TEXT, **ONE_PATH).text.eval()
    pairs = word_space[0].pairs
    with torch.no_grad():
        text.attn_proj.weight.mul_(20)
        all_of_them, some = text.encode_pairs(pairs), text.encode_pairs(pairs[:4])
    assert (all_of_them[:4] - some).abs().max() > 1e-3


def test_gradients_reach_everything_that_learns(word_head, word_batch):
    head = word_head('ThreePathHead', 'CAPEText', dict(TEXT, learn_vectors=True), **ONE_PATH)
    feats, samples = word_batch()
    feats.requires_grad_()
    losses = head.loss((feats, ), samples)
    assert losses.keys() == {'pair_loss'}
    losses['pair_loss'].backward()
    assert not [name for name, p in head.named_parameters()
                if p.requires_grad and (p.grad is None or not p.grad.any())]
    assert feats.grad.abs().sum(dim=1).all()


def test_heads_must_divide_the_width(word_head):
    with pytest.raises(ValueError, match='text.num_heads must divide 12'):
        word_head('ThreePathHead', 'CAPEText', dict(TEXT, num_heads=5), **ONE_PATH)
