"""Cross-modal traction against a plain loop over images, texts and heads."""
import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from mmcluspro.models.heads import CrossModalTraction


def make_case(dim=128, images=3, texts=5, tokens=7, seed=0, **options):
    torch.manual_seed(seed)
    traction = CrossModalTraction(dim, **options)
    for name, parameter in traction.named_parameters():
        if 'norm' in name or name == 'scale':  # ones and zeros would hide them
            parameter.data.add_(0.3 * torch.randn_like(parameter))
    return traction, normalize(torch.randn(texts, dim), dim=1), torch.randn(images, tokens, dim)


def array(tensor):
    return tensor.detach().double().numpy()


def layer_norm(x, norm):
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return y * array(norm.weight) + array(norm.bias)


def plain_attention(layer, q, patches):
    """softmax(q kᵀ / √64) v of one text over the tokens of one image, head by head."""
    query, key, value = (x @ array(linear.weight).T for x, linear in (
        (q, layer.query), (patches, layer.key), (patches, layer.value)))
    read = np.empty_like(q)
    for start in range(0, len(q), 64):
        own = slice(start, start + 64)
        weight = np.exp(key[:, own] @ query[own] / 8)
        read[own] = weight / weight.sum() @ value[:, own]
    return read @ array(layer.out.weight).T + array(layer.out.bias)


def plain_traction(traction, text, tokens):
    patches = layer_norm(array(tokens), traction.norm)
    q = array(text)
    for layer in traction.layers:
        q = q + plain_attention(layer, q, patches)
        first, last = layer.mlp[0], layer.mlp[-1]
        hidden = layer_norm(q, layer.norm) @ array(first.weight).T + array(first.bias)
        hidden = hidden / (1 + np.exp(-1.702 * hidden))
        q = q + hidden @ array(last.weight).T + array(last.bias)
    drawn = array(text) + array(traction.scale) * q
    return drawn / np.linalg.norm(drawn)


@pytest.mark.parametrize('images, texts, tokens', [(3, 5, 7), (1, 1, 1), (2, 1, 4)])
@pytest.mark.parametrize('dim, num_layers', [(64, 1), (128, 2), (192, 3)])
def test_equals_a_loop_over_images_and_texts(dim, num_layers, images, texts, tokens):
    traction, text, token = make_case(dim, images, texts, tokens, num_layers=num_layers)

    got = traction(text, traction.remember(token))

    assert got.shape == (images, texts, dim)
    for i in range(images):
        for j in range(texts):
            expected = plain_traction(traction, text[j], token[i])
            np.testing.assert_allclose(array(got[i, j]), expected, atol=2e-6)


@pytest.mark.parametrize('dim', [64, 512, 768])
def test_its_size_is_known(dim):
    with torch.device('meta'):
        traction = CrossModalTraction(dim)

    layer = 4 * dim * dim + dim + 2 * dim + 8 * dim * dim + 5 * dim
    assert sum(p.numel() for p in traction.parameters()) == 2 * layer + 2 * dim + dim
    assert traction.scale.shape == (dim, )


def test_it_starts_near_the_text_and_with_its_own_defaults():
    traction = CrossModalTraction(64)

    assert len(traction.layers) == 2
    assert torch.equal(traction.scale, torch.full((64, ), 0.1))
    assert all(m.p == 0 for m in traction.modules() if isinstance(m, torch.nn.Dropout))


def test_without_scale_the_texts_stay():
    traction, text, token = make_case()
    traction.scale.data.zero_()

    got = traction(text, traction.remember(token))

    torch.testing.assert_close(got, text.expand(3, -1, -1))


def test_dropout_only_in_training():
    traction, text, token = make_case(dropout=0.5)
    draw = lambda: traction(text, traction.remember(token))

    assert not draw().equal(draw())
    traction.eval()
    assert draw().equal(draw())


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_autocast_keeps_the_sum_in_full_precision(dtype):
    traction, text, token = make_case()
    expected = traction(text, traction.remember(token))

    with torch.autocast('cpu', dtype=dtype):
        got = traction(text, traction.remember(token.to(dtype)))

    assert got.dtype == torch.float32
    torch.testing.assert_close(got, expected, atol=2e-2, rtol=0)
    torch.testing.assert_close(got.norm(dim=-1), torch.ones(3, 5))


@pytest.mark.parametrize('options, message', [
    (dict(dim=24), r'head\.in_channels must be a multiple of 64, got 24'),
    (dict(num_layers=0), r'head\.traction\.num_layers .* got 0'),
    (dict(dropout=1.0), r'head\.traction\.dropout .* got 1\.0')])
def test_wrong_options_name_the_field(options, message):
    with pytest.raises(ValueError, match=message):
        CrossModalTraction(**{'dim': 64, **options})
