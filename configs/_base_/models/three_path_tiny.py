"""The three-path baseline on the shipped tiny CLIP: LoRA, adapters, soft prompts."""
model = dict(
    type='mmcluspro.CompositionalClassifier',
    data_preprocessor=dict(
        mean=[122.7709383, 116.7460125, 104.09373615],
        std=[68.5005327, 66.6321579, 70.32316305],
        to_rgb=True),
    backbone=dict(
        type='mmcluspro.CLIPVision',
        arch='tiny_clip',
        pretrained='tiny_clip',
        peft=dict(type='mmcluspro.LoRA', rank=16, alpha=16)),
    neck=dict(type='mmcluspro.PrimitiveAdapter'),
    head=dict(
        type='mmcluspro.ThreePathHead',
        text=dict(
            type='mmcluspro.CLIPText',
            arch='tiny_clip',
            pretrained='tiny_clip',
            prompt=dict(type='mmcluspro.SoftPrompt', attr_dropout=0.3))))
