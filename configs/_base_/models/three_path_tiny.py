"""The three-path baseline on the shipped tiny CLIP: LoRA, adapters, soft prompts."""
model = dict(
    type='mmcluspro.CompositionalClassifier',
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
