"""The config field ``clip``, which names the CLIP of both towers in one place."""
from typing import Any

from mmengine.config import Config, ConfigDict

from .messages import ConfigError

KEYS = ('arch', 'pretrained', 'quickgelu')


def place_clip(cfg: Config | ConfigDict) -> None:
    """Puts the field ``clip`` into the image tower, the text tower and the widths between them.

    ``clip=dict(arch='ViT-B-32', pretrained='openai')`` takes another CLIP, a text such as
    ``clip='weights/ViT-L-14.pt'`` other weights of the same one. The field itself is taken out.

    Args:
        cfg (Config | ConfigDict): Changed in place.
    """
    clip = cfg.pop('clip', None)
    if clip is None:
        return
    fields: dict[str, Any] = dict(pretrained=clip) if isinstance(clip, str) else clip
    if not isinstance(fields, dict) or not set(fields) <= set(KEYS):
        raise ConfigError(
            "The config field clip must be a file, or a dict such as dict(arch='ViT-B-32', "
            f"pretrained='openai') with the fields {', '.join(KEYS)}, got {clip!r}.")
    towers = (('model.backbone', cfg.model.backbone, ('CLIPVision', 'CAILAVision')),
              ('model.head.text', cfg.model.head.text, ('CLIPText', 'CAILAText', 'PLIDText')))
    for place, tower, kinds in towers:
        if str(tower.get('type')).rpartition('.')[2] not in kinds:
            raise ConfigError(f'The config field clip is for models with two towers of CLIP, but '
                              f'{place} is {tower.get("type")}.')
        tower.update(fields)
    if 'arch' in fields:
        width = _width(fields['arch'])
        for part in (cfg.model.get('neck'), cfg.model.head):
            if part is not None and 'in_channels' in part:
                part.in_channels = width


def _width(arch: str) -> int:
    from mmcluspro.models.clip_loader import arch_config
    return int(arch_config(arch)['embed_dim'])
