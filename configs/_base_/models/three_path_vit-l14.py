"""The three-path baseline on CLIP ViT-L/14: LoRA, adapters, soft prompts (Eq. 1-6).

The paper names LoRA and "a separate MLP" and gives no numbers for them. Ours: rank, alpha and
dropout of LoRA, and the form of the adapters. Dropout on the names is that of the released code.
"""
model = dict(
    type='mmcluspro.CompositionalClassifier',
    backbone=dict(
        type='mmcluspro.CLIPVision',
        arch='ViT-L-14',
        pretrained='openai',
        # Activations are computed again in backward: fits 24 GB (docs/training.md).
        with_cp=True,
        peft=dict(type='mmcluspro.LoRA', rank=16, alpha=16, drop_rate=0.1)),
    neck=dict(type='mmcluspro.PrimitiveAdapter'),
    head=dict(
        type='mmcluspro.ThreePathHead',
        text=dict(
            type='mmcluspro.CLIPText',
            arch='ViT-L-14',
            pretrained='openai',
            prompt=dict(type='mmcluspro.SoftPrompt', attr_dropout=0.3))))
