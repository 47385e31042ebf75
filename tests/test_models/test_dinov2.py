"""DINOv2 against a plain forward with the published keys, positions resampled by hand."""
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from mmcluspro.models.backbones import DINOv2
from mmcluspro.models.peft import merge
from mmcluspro.registry import MODELS

WIDTH, HEADS, DEPTH, PATCH, SIDE, HIDDEN = 12, 3, 2, 4, 20, 24
ARCH = dict(embed_dims=WIDTH, num_layers=DEPTH, num_heads=HEADS, feedforward_channels=HIDDEN)
REAL = Path(os.environ.get('DINOV2_WEIGHTS', Path(__file__).resolve().parents[3] / 'shared' /
                           'weights' / 'dinov2_vits14_fp16.pt'))


def make_weights(registers=0, seed=0):
    """A file of the published layout, small: 5 x 5 positions, layer scale, mask token."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator) / math.sqrt(shape[-1])
    weights = {
        'cls_token': draw(1, 1, WIDTH),
        'mask_token': draw(1, WIDTH),
        'pos_embed': draw(1, 1 + (SIDE // PATCH)**2, WIDTH),
        'patch_embed.proj.weight': draw(WIDTH, 3, PATCH, PATCH),
        'patch_embed.proj.bias': draw(WIDTH),
        'norm.weight': 1 + draw(WIDTH), 'norm.bias': draw(WIDTH),
    }
    layers = {'attn.qkv': (3 * WIDTH, WIDTH), 'attn.proj': (WIDTH, WIDTH),
              'mlp.fc1': (HIDDEN, WIDTH), 'mlp.fc2': (WIDTH, HIDDEN)}
    for i in range(DEPTH):
        for name, shape in layers.items():
            weights[f'blocks.{i}.{name}.weight'] = draw(*shape)
            weights[f'blocks.{i}.{name}.bias'] = draw(shape[0])
        for name in ('norm1', 'norm2'):
            weights[f'blocks.{i}.{name}.weight'] = 1 + draw(WIDTH)
            weights[f'blocks.{i}.{name}.bias'] = draw(WIDTH)
        for name in ('ls1', 'ls2'):
            weights[f'blocks.{i}.{name}.gamma'] = 1 + draw(WIDTH)
    if registers:
        weights['register_tokens'] = draw(1, registers, WIDTH)
    return weights


def cubic(x, a):
    """The cubic convolution kernel (Keys, 1981) with parameter a."""
    x = np.abs(x)
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * (x**3 - 5 * x**2 + 8 * x - 4)
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def resampling_matrix(old, new, scale, antialias):
    """Weights (new, old) of one axis; pixel centres lie at halves.

    Without antialiasing, torch repeats the border and has a = -0.75; with it, Pillow's way:
    a = -0.5, the kernel as wide as the step, and weights that are normalised instead.
    """
    centres = (np.arange(new) + 0.5) / scale - 0.5
    if antialias:
        width = max(1 / scale, 1)
        weights = cubic((np.arange(old)[None] - centres[:, None]) / width, -0.5)
        return weights / weights.sum(axis=1, keepdims=True)
    weights = np.zeros((new, old))
    for row, centre in enumerate(centres):
        for tap in range(math.floor(centre) - 1, math.floor(centre) + 3):
            weights[row, min(max(tap, 0), old - 1)] += cubic(tap - centre, -0.75)
    return weights


def positions(pos_embed, grid, offset, antialias):
    """pos_embed for grid = (h, w), shape (1 + h · w, C), in double precision."""
    embedding = pos_embed[0].double().numpy()
    side = math.isqrt(len(embedding) - 1)
    patches = embedding[1:].reshape(side, side, -1)
    if tuple(grid) != (side, side):
        rows, columns = (resampling_matrix(side, n, (n + offset) / side, antialias) for n in grid)
        patches = np.einsum('ai,bj,ijc->abc', rows, columns, patches)
    return torch.from_numpy(np.concatenate([embedding[:1], patches.reshape(grid[0] * grid[1], -1)]))


def plain_forward(w, images, heads, offset=0.1, antialias=False):
    """All tokens after the last norm, class and patches, in double precision."""
    w, images = {key: value.double() for key, value in w.items()}, images.double()
    width, patch = w['patch_embed.proj.weight'].shape[0], w['patch_embed.proj.weight'].shape[-1]
    norm = lambda x, name: F.layer_norm(x, (width, ), w[f'{name}.weight'], w[f'{name}.bias'], 1e-6)
    linear = lambda x, name: x @ w[f'{name}.weight'].T + w[f'{name}.bias']
    patches = images.unfold(2, patch, patch).unfold(3, patch, patch)  # (B, 3, h, w, P, P)
    grid = tuple(patches.shape[2:4])
    patches = patches.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
    x = patches @ w['patch_embed.proj.weight'].flatten(1).T + w['patch_embed.proj.bias']
    x = torch.cat([w['cls_token'].expand(len(x), -1, -1), x], dim=1)
    x = x + positions(w['pos_embed'], grid, offset, antialias)
    registers = w.get('register_tokens', x.new_zeros(1, 0, width))
    x = torch.cat([x[:, :1], registers.expand(len(x), -1, -1), x[:, 1:]], dim=1)
    for i in range(sum(key.endswith('norm1.weight') for key in w)):
        qkv = linear(norm(x, f'blocks.{i}.norm1'), f'blocks.{i}.attn.qkv')
        q, k, v = qkv.unflatten(-1, (3, heads, width // heads)).permute(2, 0, 3, 1, 4)
        attention = (q @ k.transpose(2, 3) / math.sqrt(width // heads)).softmax(dim=-1) @ v
        attention = linear(attention.transpose(1, 2).flatten(2), f'blocks.{i}.attn.proj')
        x = x + w[f'blocks.{i}.ls1.gamma'] * attention
        hidden = linear(norm(x, f'blocks.{i}.norm2'), f'blocks.{i}.mlp.fc1')
        hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
        x = x + w[f'blocks.{i}.ls2.gamma'] * linear(hidden, f'blocks.{i}.mlp.fc2')
    x = norm(x, 'norm')
    return torch.cat([x[:, :1], x[:, 1 + registers.shape[1]:]], dim=1)


def build(path, **kwargs):
    return MODELS.build(dict(type='mmcluspro.DINOv2', arch=ARCH, patch_size=PATCH, img_size=SIDE,
                             pretrained=None if path is None else str(path), **kwargs))


@pytest.fixture
def weights_file(tmp_path):
    def save(content):
        torch.save(content, tmp_path / 'dinov2.pth')
        return tmp_path / 'dinov2.pth'

    return save


def draw_images(height, width, batch=2):
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize('size', [(20, 20), (12, 8), (8, 12), (28, 24), (4, 4)])
@pytest.mark.parametrize('registers', [0, 4])
def test_equals_the_plain_forward(weights_file, size, registers):
    weights = make_weights(registers)
    backbone = build(weights_file(weights), num_registers=registers)
    backbone.eval()
    images = draw_images(*size)

    tokens, = backbone(images)

    options = dict(offset=0.0, antialias=True) if registers else {}
    expected = plain_forward(weights, images, HEADS, **options)
    torch.testing.assert_close(tokens.double(), expected, atol=1e-5, rtol=1e-5)
    assert not any(p.requires_grad for p in backbone.parameters())


@pytest.mark.skipif(not REAL.is_file(), reason='set DINOV2_WEIGHTS to dinov2_vits14')
@pytest.mark.parametrize('size', [(112, 84), (84, 112), (56, 56)])
def test_the_published_weights_equal_the_plain_forward(size):
    weights = torch.load(REAL, weights_only=True)
    backbone = MODELS.build(dict(type='mmcluspro.DINOv2', arch='small', pretrained=str(REAL)))
    backbone.eval()
    images = draw_images(*size, batch=1)

    tokens, = backbone(images)

    torch.testing.assert_close(tokens.double(), plain_forward(weights, images, heads=6),
                               atol=1e-4, rtol=1e-4)


def test_outputs_are_views_of_the_same_tokens(weights_file):
    path = weights_file(make_weights(registers=2))
    images = draw_images(12, 8)
    out = {}
    for kind in ('raw', 'cls_token', 'featmap'):
        backbone = build(path, num_registers=2, out_type=kind)
        backbone.eval()
        out[kind], = backbone(images)
    assert out['raw'].shape == (2, 1 + 3 * 2, WIDTH)
    assert out['cls_token'].equal(out['raw'][:, 0])
    assert out['featmap'].flatten(2).transpose(1, 2).equal(out['raw'][:, 1:])


def test_lora_in_attention_and_mlp_trains_and_merges(weights_file):
    path = weights_file(make_weights())
    model = MODELS.build(dict(
        type='mmcluspro.ProjectedBackbone', in_channels=2 * WIDTH, out_dim=7, pool='cls_avg',
        peft=dict(type='mmcluspro.LoRA', rank=2, targets=[
            'attn.qkv', 'attn.proj', 'ffn.layers.0.0', 'ffn.layers.1']),
        backbone=dict(type='mmcluspro.DINOv2', arch=ARCH, patch_size=PATCH, img_size=SIDE,
                      pretrained=str(path))))
    images = draw_images(12, 8)
    plain = model.eval()(images)[0]
    learns = {name for name, p in model.named_parameters() if p.requires_grad}
    first = 'backbone.layers.0.'
    assert {name.removeprefix(first).rpartition('.lora.')[0] for name in learns
            if name.startswith(first)} == {'attn.qkv', 'attn.proj', 'ffn.layers.0.0',
                                           'ffn.layers.1'}

    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(2):  # B starts at zero, so A moves in the second step
        optimizer.zero_grad()
        model.train()(images)[0].square().sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all()
                   for name, p in model.named_parameters() if name in learns)
        optimizer.step()

    tuned = model.eval()(images)[0]
    assert not torch.allclose(tuned, plain, atol=1e-3)
    assert merge(model) == 4 * DEPTH
    torch.testing.assert_close(model(images)[0], tuned, atol=1e-4, rtol=1e-4)


def test_an_unfrozen_tower_learns_its_positions_through_the_resampling(weights_file):
    model = MODELS.build(dict(
        type='mmcluspro.ProjectedBackbone', in_channels=WIDTH, out_dim=3, pool='cls', frozen=False,
        backbone=dict(type='mmcluspro.DINOv2', arch=ARCH, patch_size=PATCH, img_size=SIDE,
                      pretrained=str(weights_file(make_weights())))))
    model(draw_images(12, 8))[0].sum().backward()
    grad = model.backbone.pos_embed.grad
    assert grad is not None and (grad[0, 1:].abs().sum(dim=1) > 0).sum() > 12


@pytest.mark.parametrize('change, message', [
    (lambda w: w.pop('blocks.1.ls2.gamma'), r'layers\.1\.ffn\.gamma2\.weight is missing'),
    (lambda w: w.update(register_tokens=torch.ones(1, 4, WIDTH)), 'register_tokens is unexpected'),
    (lambda w: w.update(pos_embed=torch.ones(1, 17, WIDTH)),
     r'pos_embed is \(1, 17, 12\) in the file and \(1, 26, 12\) in the model'),
])
def test_faults_of_a_file_are_named(weights_file, change, message):
    weights = make_weights()
    change(weights)
    with pytest.raises(ValueError, match=message):
        build(weights_file(weights))


def test_faults_of_a_config_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"backbone\.arch must be one of small, base, large.*'s'"):
        DINOv2(arch='s')
    with pytest.raises(FileNotFoundError, match='facebookresearch/dinov2 links dinov2_vits14'):
        build(tmp_path / 'nowhere.pth')
    with pytest.raises(ValueError, match='whole patches of 4 px, got 10 x 12'):
        build(None)(draw_images(12, 10))


@pytest.mark.parametrize('arch, registers, numbers', [
    ('small', 0, 22_056_576), ('base', 0, 86_580_480), ('large', 0, 304_368_640),
    ('small', 4, 22_058_112)])
def test_sizes_are_those_of_the_published_files(arch, registers, numbers):
    """14 tensors per block and 6 around them; the files have a mask token besides."""
    with torch.device('meta'):
        backbone = DINOv2(arch, num_registers=registers)
    assert len(backbone.state_dict()) == 14 * backbone.num_layers + 6 + (registers > 0)
    assert sum(p.numel() for p in backbone.parameters()) + backbone.embed_dims == numbers
