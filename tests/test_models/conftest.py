import json

import open_clip
import pytest

TEXT = dict(context_length=16, vocab_size=512, width=32, heads=2, layers=2)
VIT = dict(image_size=32, patch_size=8, width=48, head_width=12, layers=2)
CONFIGS = {
    # The pair with and without the suffix: an architecture with weights of both activations.
    'small_vit': dict(embed_dim=24, vision_cfg=VIT, text_cfg=TEXT),
    'small_vit-quickgelu': dict(embed_dim=24, vision_cfg=VIT, text_cfg=TEXT, quick_gelu=True),
    'small_gelu': dict(embed_dim=24, vision_cfg=VIT, text_cfg=TEXT),
    'small_norm': dict(embed_dim=24, vision_cfg=VIT | dict(qk_norm=True), text_cfg=TEXT),
    'small_rn': dict(
        embed_dim=32, text_cfg=TEXT,
        vision_cfg=dict(image_size=64, layers=[1, 1, 1, 1], width=16, patch_size=None)),
    'small_timm': dict(
        embed_dim=24, text_cfg=TEXT,
        vision_cfg=dict(timm_model_name='vit_tiny_patch16_224', timm_pool='', timm_proj='linear',
                        timm_model_pretrained=False, image_size=64)),
}


@pytest.fixture(scope='session', autouse=True)
def small_configs(tmp_path_factory):
    """Small architectures under open_clip names, so that nothing is downloaded."""
    folder = tmp_path_factory.mktemp('open_clip')
    for name, config in CONFIGS.items():
        (folder / f'{name}.json').write_text(json.dumps(config))
    open_clip.add_model_config(folder)
    return tuple(CONFIGS)
