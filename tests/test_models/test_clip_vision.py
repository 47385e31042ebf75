import copy

import pytest
import torch
from torch import nn

from mmcluspro.models.backbones import CLIPVision, ProjectedBackbone
from mmcluspro.models.clip import load_clip
from mmcluspro.models.peft import injected_modules
from mmcluspro.registry import MODELS

LORA = dict(type='mmcluspro.LoRA', rank=2, drop_rate=0.5)
BOTTLENECK = dict(type='mmcluspro.Bottleneck', width=4)


def weights_file(path, arch):
    torch.manual_seed(0)
    model = load_clip(arch)
    torch.save(model.state_dict(), path / 'weights.pt')
    return str(path / 'weights.pt'), model


@pytest.mark.parametrize('arch, side, dim', [
    ('small_gelu', 32, 24), ('small_norm', 32, 24), ('small_rn', 64, 32), ('small_timm', 224, 24)])
def test_f_is_the_image_feature_of_clip(tmp_path, arch, side, dim):
    path, model = weights_file(tmp_path, arch)
    backbone = MODELS.build(dict(type='mmcluspro.CLIPVision', arch=arch, pretrained=path))
    images = torch.randn(2, 3, side, side)

    outputs = backbone.train()(images)

    assert len(outputs) == 1 and outputs[0].shape == (2, dim) and backbone.out_dim == dim
    assert torch.equal(outputs[0], model.encode_image(images))
    assert not any(p.requires_grad for p in backbone.parameters())
    assert not any(m.training for m in backbone.visual.modules())
    backbone.init_weights()
    assert torch.equal(backbone(images)[0], outputs[0])


def test_batchnorm_statistics_of_a_frozen_tower_stay():
    backbone = CLIPVision('small_rn').train()
    before = {name: b.clone() for name, b in backbone.named_buffers() if 'running' in name}

    backbone(torch.randn(4, 3, 64, 64))

    assert before
    assert all(torch.equal(b, before[name]) for name, b in backbone.named_buffers()
               if name in before)


@pytest.mark.parametrize('peft', [LORA, BOTTLENECK])
def test_injected_modules_follow_train_and_the_tower_does_not(peft):
    backbone = CLIPVision('small_gelu', peft=peft)
    injected = {id(child) for module in injected_modules(backbone) for child in module.modules()}

    for mode in (True, False, True):
        backbone.train(mode)
        for module in backbone.visual.modules():
            assert module.training == (mode and id(module) in injected)

    trained = {id(p) for module in injected_modules(backbone) for p in module.parameters()}
    assert trained == {id(p) for p in backbone.parameters() if p.requires_grad}


def test_an_unfrozen_tower_trains_all():
    backbone = CLIPVision('small_gelu', frozen=False).train()

    assert all(p.requires_grad for p in backbone.parameters())
    assert all(m.training for m in backbone.modules())


@pytest.mark.parametrize('peft', [None, LORA, BOTTLENECK])
def test_tokens_are_projected_and_start_with_f(peft):
    torch.manual_seed(0)
    plain = CLIPVision('small_gelu', peft=peft).eval()
    backbone = copy.deepcopy(plain)
    backbone.visual.output_tokens = backbone.out_tokens = True
    images = torch.randn(2, 3, 32, 32)

    tokens, f = backbone(images)

    assert tokens.shape == (2, 1 + 16, 24)
    assert torch.equal(f, plain(images)[0]) and torch.equal(tokens[:, 0], f)
    visual = backbone.visual
    expected = visual.ln_post(visual.transformer(visual._embeds(images))) @ visual.proj
    torch.testing.assert_close(tokens, expected, atol=1e-6, rtol=1e-5)
    assert len(CLIPVision('small_gelu', out_tokens=True)(images)) == 2


def test_a_tower_without_tokens_is_refused_by_name():
    with pytest.raises(ValueError, match="out_tokens .* arch='small_rn' is neither"):
        CLIPVision('small_rn', out_tokens=True)


@pytest.mark.parametrize('options', [
    {}, dict(with_cp=True), dict(peft=LORA), dict(out_tokens=True)])
def test_raw_tokens_of_layers_lead_to_f(options):
    torch.manual_seed(0)
    backbone = CLIPVision('small_gelu', out_layers=(0, -1), **options).eval()
    images = torch.randn(2, 3, 32, 32)

    features = backbone(images)

    visual, last = backbone.visual, len(backbone.visual.transformer.resblocks) - 1
    assert list(features.extra) == ['layer_0', f'layer_{last}'] and last > 0
    raw = features.extra[f'layer_{last}']
    assert raw.shape == (2, 1 + 16, visual.transformer.width)
    torch.testing.assert_close(visual.ln_post(raw[:, 0]) @ visual.proj, features.composition)
    first = visual.transformer.resblocks[0](visual._embeds(images))
    torch.testing.assert_close(features.extra['layer_0'], first)
    assert (features.tokens is None) == ('out_tokens' not in options)
    # Nothing stays behind that listens.
    assert not any(block._forward_hooks for block in visual.transformer.resblocks)


def test_gradients_go_through_raw_tokens_of_checkpointed_blocks():
    grads = []
    for with_cp in (False, True):
        torch.manual_seed(0)
        backbone = CLIPVision('small_gelu', frozen=False, out_layers=(0, ), with_cp=with_cp)
        images = torch.randn(2, 3, 32, 32)
        backbone.train()(images).extra['layer_0'].square().mean().backward()
        grads.append(backbone.visual.conv1.weight.grad)
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize('arch, layers, message', [
    ('small_gelu', (99, ), r'backbone\.out_layers must lie in .* got 99'),
    ('small_rn', (0, ), 'needs a vision transformer'),
])
def test_layers_that_are_not_there_are_named(arch, layers, message):
    with pytest.raises(ValueError, match=message):
        CLIPVision(arch, out_layers=layers)


@pytest.mark.parametrize('peft', [dict(LORA, drop_rate=0.0), dict(BOTTLENECK, dropout=0.0)])
def test_checkpointing_gives_the_same_gradients(peft):
    torch.manual_seed(0)
    backbone = CLIPVision('small_gelu', peft=peft).train()
    for p in backbone.parameters():
        if p.requires_grad:
            nn.init.normal_(p, std=0.1)
    saving = CLIPVision('small_gelu', peft=peft, with_cp=True).train()
    saving.load_state_dict(backbone.state_dict())
    images = torch.randn(2, 3, 32, 32)

    for model in (backbone, saving):
        model(images)[0].square().sum().backward()

    for (name, p), other in zip(backbone.named_parameters(), saving.parameters()):
        if p.requires_grad:
            torch.testing.assert_close(p.grad, other.grad, msg=name)
            assert p.grad.abs().max() > 0


@pytest.mark.parametrize('arch', ['small_rn', 'small_norm'])
def test_checkpointing_without_plain_blocks_is_refused(arch):
    with pytest.raises(ValueError, match=f"with_cp is not available .* arch='{arch}'"):
        CLIPVision(arch, with_cp=True)


@pytest.mark.parametrize('targets', [['attn.q'], ['attnpool.q_proj']])
def test_lora_without_a_target_in_the_tower_is_refused(targets):
    # The layers of a ResNet's attention pool are never called: an update would do nothing.
    with pytest.raises(ValueError, match=r"matches nothing. There are: layer1.\*.conv1"):
        CLIPVision('small_rn', peft=dict(LORA, targets=targets))


def test_a_tower_without_attention_and_mlps_is_refused_by_name():
    with pytest.raises(ValueError, match='neither attention nor MLPs in ModifiedResNet. Use a '
                       'vision transformer or ConvNeXt, or name layers with peft.targets'):
        CLIPVision('small_rn', peft=LORA)


def test_lora_in_a_timm_tower():
    backbone = CLIPVision('small_timm', peft=dict(LORA, targets=['attn.qkv', 'mlp.fc1'])).train()

    backbone(torch.randn(1, 3, 224, 224))[0].sum().backward()

    trained = [p for p in backbone.parameters() if p.requires_grad]
    assert len(trained) == 2 * 2 * 12 and all(p.grad is not None for p in trained)


def test_compiled_equals_eager():
    torch.manual_seed(0)
    backbone = CLIPVision('small_gelu', peft=dict(LORA, drop_rate=0.0)).train()
    images = torch.randn(2, 3, 32, 32)
    compiled = torch.compile(backbone, backend='eager', fullgraph=True)

    torch.testing.assert_close(compiled(images)[0], backbone(images)[0], atol=1e-5, rtol=1e-5)


RESNET = dict(type='ResNet', depth=18)
VIT = dict(type='mmpretrain.VisionTransformer', arch='deit-tiny', img_size=32, patch_size=16)


@pytest.mark.parametrize('backbone, in_channels, pool', [
    (RESNET, 512, 'avg'), (dict(VIT, out_type='cls_token'), 192, None),
    (dict(VIT, out_type='raw'), 192, 'cls'), (dict(VIT, out_type='featmap'), 192, 'avg'),
    (dict(VIT, out_type='raw'), 192, 'avg')])
def test_an_mmpretrain_backbone_in_its_place(backbone, in_channels, pool):
    torch.manual_seed(0)
    model = MODELS.build(dict(type='mmcluspro.ProjectedBackbone', backbone=backbone,
                              in_channels=in_channels, out_dim=24, pool=pool)).train()
    images = torch.randn(2, 3, 32, 32)

    (f, ) = model(images)

    feature = model.backbone(images)[-1]
    if feature.ndim == 4:
        feature = feature.flatten(2).mean(-1)
    elif feature.ndim == 3:
        feature = feature[:, 0] if pool == 'cls' else feature.mean(1)
    torch.testing.assert_close(f, model.proj(feature))
    assert {n for n, p in model.named_parameters() if p.requires_grad} == {
        'proj.weight', 'proj.bias'}
    assert not any(m.training for m in model.backbone.modules()) and model.proj.training


def test_a_projected_backbone_can_train_or_take_lora():
    trained = ProjectedBackbone(RESNET, 512, 24, frozen=False).train()
    assert all(m.training for m in trained.modules())

    model = ProjectedBackbone(dict(VIT, out_type='cls_token'), 192, 24,
                              peft=dict(LORA, targets=['attn.qkv'])).train()
    model.init_weights()
    model(torch.randn(2, 3, 32, 32))[0].sum().backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    assert sum(p.requires_grad for p in model.parameters()) == 2 + 2 * 12


def test_wrong_widths_and_pools_name_the_field():
    images = torch.randn(1, 3, 32, 32)
    with pytest.raises(ValueError, match=r'in_channels=500, .* ResNet has 512 channels'):
        ProjectedBackbone(RESNET, 500, 24)(images)
    with pytest.raises(ValueError, match=r"pool='cls' does not fit .*\(1, 512, 1, 1\)"):
        ProjectedBackbone(RESNET, 512, 24, pool='cls')(images)
    with pytest.raises(ValueError, match=r"backbone\.pool .* got 'max'"):
        ProjectedBackbone(RESNET, 512, 24, pool='max')
