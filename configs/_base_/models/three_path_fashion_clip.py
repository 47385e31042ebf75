"""The three-path baseline on fashion_clip: DINOv2-S with LoRA, adapters, soft prompts."""
_base_ = 'fashion_words.py'
dinov2 = dict(
    type='mmcluspro.DINOv2', arch='small',
    pretrained='data/weights/dinov2_vits14_pretrain.pth')
model = dict(
    type='mmcluspro.CompositionalClassifier',
    backbone=dict(
        type='mmcluspro.ProjectedBackbone',
        backbone=dinov2,
        in_channels=768,
        out_dim=256,
        pool='cls_avg',
        pretrained='data/weights/fashion_clip.pt',
        peft=dict(
            type='mmcluspro.LoRA', rank=16, alpha=16,
            targets=['attn.qkv', 'attn.proj', 'ffn.layers.0.0', 'ffn.layers.1'])),
    neck=dict(type='mmcluspro.PrimitiveAdapter'),
    head=dict(
        type='mmcluspro.ThreePathHead',
        text=dict(
            type='mmcluspro.CLIPText',
            arch='fashion_clip',
            pretrained='data/weights/fashion_clip.pt',
            readable=_base_.readable,
            prompt=dict(type='mmcluspro.SoftPrompt'))))
