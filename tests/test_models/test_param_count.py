"""The 8.7M trainable parameters of the released architecture on ViT-L/14, image side."""
import torch

from mmcluspro.registry import MODELS


def trainable(module):
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def build(**cfg):
    with torch.device('meta'):
        return MODELS.build(cfg)


def test_48_adapters_of_width_64():
    backbone = build(type='mmcluspro.CLIPVision', arch='ViT-L-14',
                     peft=dict(type='mmcluspro.Bottleneck', width=64))

    assert trainable(backbone) == 6_343_680 == 48 * (1024 * 64 + 64 + 64 * 1024 + 1024)
    assert backbone.out_dim == 768
    assert {p.device.type for p in backbone.parameters()} == {'meta'}


def test_four_stages_with_batchnorm():
    neck = build(type='mmcluspro.PrimitiveAdapter', in_channels=768, stages=2, norm='BN',
                 dropout=0.5, residual=False)

    assert trainable(neck) == 2_368_512 == 4 * (768 * 768 + 768 + 2 * 768)


def test_lora_of_rank_16_on_all_targets():
    backbone = build(type='mmcluspro.CLIPVision', arch='ViT-L-14',
                     peft=dict(type='mmcluspro.LoRA', rank=16))

    assert trainable(backbone) == 24 * 16 * (4 * 2 * 1024 + 2 * (1024 + 4096))


def test_a_tower_without_peft_trains_nothing():
    assert trainable(build(type='mmcluspro.CLIPVision', arch='ViT-L-14')) == 0
