import pytest
import torch
from torch import nn

from mmcluspro.models.necks import PrimitiveAdapter
from mmcluspro.models.structures import Features
from mmcluspro.registry import MODELS


@pytest.mark.parametrize('batch', [1, 7])
@pytest.mark.parametrize('options', [
    dict(), dict(stages=3, hidden=5, act='GELU'), dict(residual=False, norm=None),
    dict(residual=False, stages=2, hidden=6), dict(norm=None, dropout=0.0)])
def test_shapes_and_the_untouched_composition(batch, options):
    neck = MODELS.build(dict(type='mmcluspro.PrimitiveAdapter', in_channels=8, **options))
    f, tokens = torch.randn(batch, 8), torch.zeros(batch, 3, 8)

    features = neck((tokens, f))

    assert features.tokens is tokens and features.composition is f
    assert features.attribute.shape == features.object.shape == (batch, 8)
    assert all(torch.equal(x, y) for x, y in zip(
        neck.eval()(f).paths.values(), neck((f, )).paths.values()))


def test_what_else_the_backbone_gave_is_handed_on():
    f, layer = torch.randn(2, 8), torch.randn(2, 5, 16)

    features = PrimitiveAdapter(8)(Features(f, extra={'layer_3': layer}))

    assert features.extra['layer_3'] is layer and features.attribute is not None


@pytest.mark.parametrize('norm', ['LN', 'BN', None])
@pytest.mark.parametrize('stages', [1, 2])
def test_a_residual_neck_starts_at_f_and_learns(norm, stages):
    torch.manual_seed(0)
    neck = PrimitiveAdapter(8, hidden=4, stages=stages, norm=norm)
    f, target = torch.randn(16, 8), torch.randn(16, 8)
    assert all(torch.equal(x, f) for x in neck(f).paths.values())
    optimiser = torch.optim.Adam(neck.parameters(), lr=0.01)

    losses = []
    for _ in range(60):
        f_a, f_o, _ = neck(f).paths.values()
        loss = (f_a - target).square().mean() + (f_o + target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())

    assert losses[-1] < 0.8 * losses[0]
    assert not torch.allclose(f_a, f_o, atol=0.1)


def test_the_released_form_is_linear_batchnorm_relu_twice():
    torch.manual_seed(0)
    neck = PrimitiveAdapter(8, stages=2, norm='BN', dropout=0.5, residual=False).eval()
    f = torch.randn(5, 8)
    layers = [m for m in neck.object.modules() if isinstance(m, (nn.Linear, nn.BatchNorm1d))]
    for norm in (layers[1], layers[3]):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)

    x = f
    for linear, norm in (layers[:2], layers[2:]):
        x = x @ linear.weight.T + linear.bias
        x = (x - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
        x = x.clamp(min=0)

    torch.testing.assert_close(neck(f).object, x)


def test_layer_norm_does_not_couple_images():
    neck = PrimitiveAdapter(8, norm='LN', dropout=0.0, residual=False)
    f = torch.randn(6, 8)

    torch.testing.assert_close(neck(f).attribute[:2], neck(f[:2]).attribute)


@pytest.mark.parametrize('options, message', [
    (dict(norm='GN'), r"neck\.norm .* got 'GN'"), (dict(act='Tanh'), r"neck\.act .* got 'Tanh'"),
    (dict(stages=0), r'neck\.stages .* got 0'), (dict(dropout=1.0), r'neck\.dropout .* got 1\.0')])
def test_wrong_options_name_the_field(options, message):
    with pytest.raises(ValueError, match=message):
        PrimitiveAdapter(8, **options)


def test_batch_norm_refuses_to_train_on_one_image():
    neck = PrimitiveAdapter(8, norm='BN')
    with pytest.raises(ValueError, match=r"neck\.norm='BN' .* train_dataloader\.drop_last=True"):
        neck(torch.randn(1, 8))
    assert neck.eval()(torch.randn(1, 8)).attribute.shape == (1, 8)


@pytest.mark.parametrize('shape', [(2, 7), (2, 3, 8)])
def test_another_width_is_refused(shape):
    with pytest.raises(ValueError, match=r'neck\.in_channels=8 .* got \(2, '):
        PrimitiveAdapter(8)(torch.zeros(shape))
