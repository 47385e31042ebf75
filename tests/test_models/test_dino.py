"""DINO's weights in mmpretrain's transformer, against a plain forward with DINO's own keys."""
import argparse
import math

import pytest
import torch
from torch.nn import functional as F

from mmcluspro.models.backbones import DINO
from mmcluspro.registry import MODELS

WIDTH, HEADS, DEPTH, PATCH, SIDE = 12, 3, 2, 4, 8
ARCH = dict(embed_dims=WIDTH, num_layers=DEPTH, num_heads=HEADS, feedforward_channels=20)


def make_weights(side=SIDE, seed=0):
    """A file of the published layout, small."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator) / math.sqrt(shape[-1])
    weights = {
        'cls_token': draw(1, 1, WIDTH),
        'pos_embed': draw(1, 1 + (side // PATCH)**2, WIDTH),
        'patch_embed.proj.weight': draw(WIDTH, 3, PATCH, PATCH),
        'patch_embed.proj.bias': draw(WIDTH),
    }
    layers = {'attn.qkv': (3 * WIDTH, WIDTH), 'attn.proj': (WIDTH, WIDTH),
              'mlp.fc1': (20, WIDTH), 'mlp.fc2': (WIDTH, 20)}
    for i in range(DEPTH):
        for name, shape in layers.items():
            weights[f'blocks.{i}.{name}.weight'] = draw(*shape)
            weights[f'blocks.{i}.{name}.bias'] = draw(shape[0])
        for name in ('norm1', 'norm2'):
            weights[f'blocks.{i}.{name}.weight'] = 1 + draw(WIDTH)
            weights[f'blocks.{i}.{name}.bias'] = draw(WIDTH)
    weights['norm.weight'], weights['norm.bias'] = 1 + draw(WIDTH), draw(WIDTH)
    return weights


def plain_forward(w, images):
    """The class token of DINO's network, written out."""
    norm = lambda x, name: F.layer_norm(x, (WIDTH, ), w[f'{name}.weight'], w[f'{name}.bias'], 1e-6)
    linear = lambda x, name: x @ w[f'{name}.weight'].T + w[f'{name}.bias']
    patches = images.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH)  # (B, 3, h, w, P, P)
    patches = patches.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
    x = patches @ w['patch_embed.proj.weight'].flatten(1).T + w['patch_embed.proj.bias']
    x = torch.cat([w['cls_token'].expand(len(x), -1, -1), x], dim=1) + w['pos_embed']
    for i in range(DEPTH):
        qkv = linear(norm(x, f'blocks.{i}.norm1'), f'blocks.{i}.attn.qkv')
        heads = []
        for head in range(HEADS):
            part = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
            q, k, v = (t[..., part] for t in qkv.split(WIDTH, dim=-1))
            weights = (q @ k.transpose(1, 2) / math.sqrt(WIDTH // HEADS)).softmax(dim=-1)
            heads.append(weights @ v)
        x = x + linear(torch.cat(heads, dim=-1), f'blocks.{i}.attn.proj')
        hidden = linear(norm(x, f'blocks.{i}.norm2'), f'blocks.{i}.mlp.fc1')
        hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
        x = x + linear(hidden, f'blocks.{i}.mlp.fc2')
    return norm(x, 'norm')[:, 0]


def prefixed(weights, prefix):
    return {prefix + key: value for key, value in weights.items()}


HEAD = {'head.mlp.0.weight': torch.ones(2, 2), 'head.last_layer.weight_g': torch.ones(2)}
OTHER = make_weights(seed=1)
LAYOUTS = {
    'published': lambda w: w,
    'half precision': lambda w: w,
    'module.': lambda w: prefixed(w, 'module.'),
    'backbone.': lambda w: {**prefixed(w, 'backbone.'), **HEAD},
    'module.backbone.': lambda w: prefixed({**prefixed(w, 'backbone.'), **HEAD}, 'module.'),
    'state_dict': lambda w: {'state_dict': w, 'epoch': 3},
    'training': lambda w: {
        'teacher': {**prefixed(w, 'backbone.'), **HEAD},
        'student': prefixed({**prefixed(OTHER, 'backbone.'), **HEAD}, 'module.'),
        'epoch': 100, 'args': argparse.Namespace(arch='vit_base', lr=1e-4)},
}


def build(path, **kwargs):
    return MODELS.build(dict(type='mmcluspro.DINO', arch=ARCH, patch_size=PATCH, img_size=SIDE,
                             pretrained=None if path is None else str(path), **kwargs))


def save(folder, content):
    torch.save(content, folder / 'dino.pth')
    return folder / 'dino.pth'


@pytest.mark.parametrize('layout', LAYOUTS)
@pytest.mark.parametrize('branch', ['teacher', 'student'])
def test_equals_the_plain_forward(tmp_path, layout, branch):
    weights = make_weights()
    if layout == 'half precision':
        weights = {key: value.half().float() for key, value in weights.items()}
        path = save(tmp_path, {key: value.half() for key, value in weights.items()})
    else:
        path = save(tmp_path, LAYOUTS[layout](weights))
    images = torch.randn(3, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(2))

    backbone = build(path, branch=branch)
    backbone.eval()

    wanted = OTHER if (layout, branch) == ('training', 'student') else weights
    torch.testing.assert_close(
        backbone(images)[-1], plain_forward(wanted, images), atol=1e-5, rtol=1e-5)
    assert not any(p.requires_grad for p in backbone.parameters())


def test_it_keeps_its_weights_and_leaves_the_random_numbers_alone(tmp_path):
    path = save(tmp_path, make_weights())
    torch.manual_seed(0)
    wanted = torch.rand(1)

    torch.manual_seed(0)
    backbone = build(path)
    backbone.init_weights()

    assert torch.rand(1).equal(wanted)
    assert backbone.pos_embed.equal(make_weights()['pos_embed'])


def test_another_image_size_resamples_the_positions(tmp_path):
    path = save(tmp_path, make_weights(side=16))
    backbone = build(path)
    assert backbone.pos_embed.shape == (1, 5, WIDTH)
    assert backbone.pos_embed[:, 0].equal(make_weights(side=16)['pos_embed'][:, 0])


@pytest.mark.parametrize('change, message', [
    (lambda w: w.pop('blocks.1.mlp.fc1.bias'), r'layers\.1\.ffn\.layers\.0\.0\.bias is missing'),
    (lambda w: w.pop('norm.weight'), r'ln1\.weight is missing'),
    (lambda w: w.pop('pos_embed'), 'pos_embed is missing'),
    (lambda w: w.update({'blocks.2.norm1.bias': w['norm.bias']}),
     r'blocks\.2\.norm1\.bias is unexpected'),
    (lambda w: w.update({'head.weight': w['norm.bias']}), r'head\.weight is unexpected'),
    (lambda w: w.update({'blocks.0.attn.proj.bias': torch.ones(5)}),
     r'attn\.proj\.bias is \(5,\) in the file and \(12,\) in the model'),
    (lambda w: w.update(pos_embed=torch.ones(1, 7, WIDTH)), r'pos_embed is \(1, 7, 12\)'),
    (lambda w: w.update(epoch=3), 'contains no DINO weights: .* got a dict with'),
])
def test_faults_of_a_file_are_named(tmp_path, change, message):
    weights = make_weights()
    change(weights)
    with pytest.raises(ValueError, match=message):
        build(save(tmp_path, weights))


def test_other_faults(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.pth' does not exist.*facebookresearch"):
        build(tmp_path / 'nowhere.pth')
    with pytest.raises(ValueError, match=r"backbone\.branch must be one of .* got 'both'"):
        build(None, branch='both')
    path = save(tmp_path, {'student': make_weights()})
    with pytest.raises(ValueError, match="no 'teacher' network: set backbone.branch to 'student'"):
        build(path)


def test_frozen_weights_stay_out_of_checkpoints_and_come_back(tmp_path):
    from mmcluspro.models import compact_state_hooks
    path = save(tmp_path, make_weights())
    projected = lambda: MODELS.build(dict(
        type='mmcluspro.ProjectedBackbone', in_channels=WIDTH, out_dim=7, pool=None,
        backbone=dict(type='mmcluspro.DINO', arch=ARCH, patch_size=PATCH, img_size=SIDE,
                      pretrained=str(path))))
    first, second = projected(), projected()
    compact_state_hooks(first)
    compact_state_hooks(second)

    state = first.state_dict()
    second.load_state_dict(state)

    assert set(state) == {'proj.weight', 'proj.bias', 'backbone.restorable_fingerprint'}
    images = torch.randn(2, 3, SIDE, SIDE)
    assert first.eval()(images)[0].equal(second.eval()(images)[0])
    save(tmp_path, OTHER)
    third = projected()
    compact_state_hooks(third)
    with pytest.raises(ValueError, match='those of this model are others'):
        third.load_state_dict(state)


def test_vit_b16_has_the_keys_of_the_published_file():
    """ViT-B/16: 150 tensors (12 of each block, 6 around them), 85,798,656 numbers."""
    with torch.device('meta'):
        backbone = DINO()
    assert len(backbone.state_dict()) == 12 * 12 + 6
    assert sum(p.numel() for p in backbone.parameters()) == 85_798_656
