"""The closed schema: the classes that a checkpoint may describe, and their fields.

A part is a dict with ``type`` and some of the fields below. Only what prediction needs is here:
losses, assigners and dropout belong to training. A class or field that is not in the table is
refused, and a path or an address has no field at all.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import clip_zoo_schema as clip_zoo
from .fields import (
    Check,
    Refusal,
    choice,
    either,
    flag,
    integer,
    items,
    mapping,
    needs,
    number,
    optional,
    record,
    shown,
    text,
)
from .foreign import foreign_part
from .weights import FILE, check_clip_weights, clip_arch, dino_weights
from .zoo_schema import FEASIBILITY, HEADS, NECKS, TEXTS, heads

FORMAT = 1
WIDTH = integer(1, 8192)
SIDE = integer(1, 1024)  # with the patches, it bounds the tokens
PACKAGES = {'VisionTransformer': 'mmpretrain', 'ResNet': 'mmpretrain'}
VIT_ARCHS = ('s', 'small', 'b', 'base', 'l', 'large', 'h', 'huge', 'deit-t', 'deit-tiny', 'deit-s',
             'deit-small', 'deit-b', 'deit-base', 'dinov2-s', 'dinov2-small', 'dinov2-g',
             'dinov2-giant', 'eva-g', 'eva-giant')


class Schema:
    """Checks descriptions.

    Args:
        imports (Sequence[str]): Modules that the user named: their registered classes may stand
            in a description, with plain data as fields. Defaults to (), none.
    """

    def __init__(self, imports: Sequence[str] = ()) -> None:
        self.imports = tuple(imports)
        peft = optional(self.part('LoRA', 'Bottleneck'))
        prompt = optional(self.part('SoftPrompt', *clip_zoo.PROMPTS))
        readable = optional(either(choice('words', 'dots'), mapping(text(), text())))
        side = self.part('CLIPText', 'WordVectorText', *clip_zoo.TEXTS, *TEXTS)
        targets = items(text(100), 1, 50)
        vit: dict[str, Check] = dict(
            arch=either(choice(*VIT_ARCHS), record(
                embed_dims=WIDTH, num_layers=integer(1, 64), num_heads=integer(1, 256),
                feedforward_channels=integer(1, 32768))),
            img_size=either(SIDE, items(SIDE, 2, 2)), patch_size=integer(2, 512),
            out_type=choice('raw', 'cls_token', 'featmap', 'avg_featmap'), final_norm=flag,
            with_cls_token=flag, qkv_bias=flag, pre_norm=flag,
            interpolate_mode=choice('bicubic', 'bilinear', 'nearest'))
        three_paths: dict[str, Check] = dict(
            text=side, fusion=choice('probability', 'logits', 'composition'),
            feasibility=FEASIBILITY)
        clustered: dict[str, Check] = dict(
            three_paths, in_channels=WIDTH, branches=items(choice('attr', 'obj'), 0, 2),
            # Files of before say queue_size, too, which prediction does not use.
            bank=optional(record(
                num_prototypes=either(integer(1, 1000), choice('share', 'auto')),
                queue_size=optional(integer(0, 100_000)))))
        vision: dict[str, Check] = dict(
            arch=clip_arch, pretrained=optional(text(100)), img_size=optional(SIDE),
            quickgelu=optional(flag), peft=peft, frozen=flag, out_tokens=flag,
            out_layers=items(integer(-256, 256), 0, 256), project_layers=flag)
        clip_text: dict[str, Check] = dict(
            arch=clip_arch, pretrained=optional(text(100)), prompt=prompt,
            chunk_size=integer(1, 1 << 20), prefix_tree=flag, readable=readable,
            quickgelu=optional(flag))
        soft: dict[str, Check] = dict(
            context=text(), learn=items(choice('context', 'vocabulary'), 0, 2),
            names=choice('mean', 'tokens'), share_context=flag)
        zoo = (NECKS, TEXTS, heads(side), clip_zoo.backbones(vision), clip_zoo.prompts(soft),
               clip_zoo.texts(clip_text), clip_zoo.heads(side))
        self.table: dict[str, tuple[dict[str, Check], tuple[str, ...]]] = {
            'CLIPVision': (vision, ()),
            'DINO': (dict(vit, pretrained=dino_weights, branch=choice('teacher', 'student')), ()),
            'DINOv2': (dict(
                vit, pretrained=dino_weights, branch=choice('teacher', 'student'),
                num_registers=integer(0, 64), offset=optional(number(0, 1)),
                antialias=optional(flag)), ()),
            'VisionTransformer': (vit, ()),
            'ResNet': (dict(depth=choice(18, 34, 50, 101, 152),
                            out_indices=items(integer(0, 3), 1, 4)), ('depth', )),
            'ProjectedBackbone': (dict(
                backbone=self.part('DINO', 'DINOv2', 'CLIPVision', 'VisionTransformer', 'ResNet'),
                in_channels=WIDTH, out_dim=optional(WIDTH),
                pool=optional(choice('avg', 'cls', 'cls_avg')),
                pretrained=optional(choice(FILE)), out_tokens=flag,
                out_layers=items(integer(-256, 256), 0, 256),
                frozen=flag, peft=peft), ('backbone', 'in_channels')),
            'LoRA': (dict(rank=integer(1, 1024), alpha=number(0, 1e6), targets=targets), ()),
            'Bottleneck': (dict(width=WIDTH, scale=number(-1e6, 1e6), targets=targets), ()),
            'PrimitiveAdapter': (dict(
                in_channels=WIDTH, hidden=optional(WIDTH), stages=integer(1, 16),
                norm=optional(choice('BN', 'LN')), act=choice('ReLU', 'GELU'), residual=flag),
                ('in_channels', )),
            'ThreePathHead': (three_paths, ('text', )),
            'ClusProHead': (clustered, ('text', 'in_channels')),
            'ClusProPlusHead': (dict(clustered, evidence=number(0, 1e6)), ('text', 'in_channels')),
            'TroikaHead': (dict(
                three_paths, in_channels=WIDTH, chunk_size=integer(1, 1 << 24),
                traction=optional(record(num_layers=integer(1, 32), scale=number(-1e6, 1e6)))),
                ('text', 'in_channels')),
            'CLIPText': (clip_text, ()),
            'SoftPrompt': (soft, ()),
            'WordVectorText': (dict(
                out_dim=WIDTH, hidden_dim=WIDTH, temperature=number(1e-6, 1e6),
                chunk_size=integer(1, 1 << 24), readable=readable, norm=flag, last_act=flag), ()),
            **{kind: (entry.fields, entry.needed)
               for part in zoo for kind, entry in part.items()},
        }

    def part(self, *names: str) -> Check:
        """One of our classes, or one of a module that the user named."""
        def check(value: Any, where: str) -> dict:
            if not isinstance(value, dict) or not isinstance(value.get('type'), str):
                raise Refusal(f'{where} must be a dict with a type, got {shown(value)}')
            kind = value['type']
            if kind not in names:
                return foreign_part(value, where, self, names)
            fields, needed = self.table[kind]
            found = record(**fields)({k: v for k, v in value.items() if k != 'type'}, where)
            needs(found, needed, where)
            if kind in clip_zoo.TOWERS:
                check_clip_weights(found, where)
            return dict(found, type=kind)
        return check

    def model(self, value: Any) -> dict:
        """The field ``model``: pixels, backbone, neck and head."""
        channels = optional(items(number(-1e6, 1e6), 3, 3))
        found = record(
            pixels=record(mean=channels, std=channels, to_rgb=flag),
            backbone=self.part('CLIPVision', 'ProjectedBackbone', 'DINO', 'DINOv2',
                               'VisionTransformer', 'ResNet', *clip_zoo.BACKBONES),
            neck=optional(self.part('PrimitiveAdapter', *NECKS)),
            head=self.part('ThreePathHead', 'ClusProHead', 'ClusProPlusHead', 'TroikaHead',
                           *HEADS, *clip_zoo.HEADS))(value, 'model')
        needs(found, ('pixels', 'backbone', 'head'), 'model')
        return found

    def any_part(self, value: Any, where: str) -> dict:
        """Any class of the table, inside a class of the user's."""
        return self.part(*self.table)(value, where)
