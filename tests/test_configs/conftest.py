"""Every config, cut down: the tiny tower, and Shapes exported in the layout of its data."""

import numpy as np
import pytest
import torch

from mmcluspro.datasets import ShapesCZSL
from mmcluspro.datasets.names import readable_name
from mmcluspro.engine.launch import read_config
from mmcluspro.models.backbones import CLIPVision
from mmcluspro.models.text import CLIPText
from mmcluspro.registry import MODELS

WIDE, TINY = (768, 512, 256), 64
WORDS = 8  # width of the word vectors
LARGE, SMALL = 224, 48
TRAIN = list(range(0, 800, 50))
VAL = list(range(0, 1020, 64))  # seen and unseen pairs


def shrink(node, vectors, projection):
    """Swaps towers, widths and files in place, wherever they are in a model's config."""
    if isinstance(node, (list, tuple)):
        for item in node:
            shrink(item, vectors, projection)
    if not isinstance(node, dict):
        return
    kind = str(node.get('type', '')).rpartition('.')[2]
    node.pop('readable', None)
    owner = MODELS.module_dict.get(kind)
    if isinstance(owner, type) and issubclass(owner, (CLIPVision, CLIPText)):
        node.update(arch='tiny_clip', pretrained='tiny_clip')
        layers = node.get('out_layers', ())
        if any(not -4 <= layer < 4 for layer in layers):  # the tiny tower has four blocks
            node.update(out_layers=list(range(len(layers))))
    elif kind == 'DINO':
        node.update(pretrained=None, img_size=SMALL, arch=dict(
            embed_dims=TINY, num_layers=1, num_heads=1, feedforward_channels=TINY))
    elif kind == 'DINOv2':  # its class token and the mean of its patches are TINY wide together
        node.update(pretrained=None, img_size=28, arch=dict(
            embed_dims=TINY // 2, num_layers=12, num_heads=1, feedforward_channels=TINY))
    elif kind == 'CachedFeatures':
        node.update(features='nowhere')  # there may be real ones of the large backbone
    elif kind == 'ProjectedBackbone' and node.get('pretrained'):
        node.update(pretrained=str(projection))
    elif kind == 'ADEHead':  # a stored feature may hold several tokens
        node.update(num_heads=2, in_channels=TINY // node.get('num_tokens', 1))
    elif kind == 'ResNet':  # the smallest there is
        node.update(depth=18, stem_channels=TINY // 8, base_channels=TINY // 8, init_cfg=None)
    elif node.get('path', 'tiny_clip') != 'tiny_clip':
        node.update(path=str(vectors))
    if kind == 'CAPEText':
        node.update(num_heads=2)  # divides two of the narrow word vectors
    for key, value in node.items():
        if isinstance(value, int) and value in (*WIDE, LARGE):
            node[key] = TINY if value in WIDE else SMALL
        elif isinstance(value, int) and value in (300, 50):  # of word vectors
            node[key] = WORDS
        else:
            shrink(value, vectors, projection)


def in_patches(node):
    """Pictures in whole patches of DINOv2, 14 px, in place."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, int) and value == SMALL:
            node[key] = 3 * 14
        elif isinstance(value, (dict, list)):
            in_patches(value)


@pytest.fixture(scope='session')
def published(tmp_path_factory):
    """Shapes as PNG files in the layout of the published data, and as a table."""
    root = tmp_path_factory.mktemp('published')
    ShapesCZSL().export(root)
    rows = torch.load(root / 'metadata_compositional-split-natural.t7', weights_only=True)
    lines = [f"images/{row['image']},{row['attr']},{row['obj']},{row['set']}" for row in rows]
    (root / 'table.csv').write_text('\n'.join(['image,attribute,object,split', *lines]))
    return root


@pytest.fixture(scope='session')
def vectors(tmp_path_factory):
    """Word vectors of all names of Shapes."""
    names = {name for version in ('shapes-v2', 'shapes-large-v2')
             for space in [ShapesCZSL.make_space('all', version)]
             for name in (*space.attributes, *space.objects)}
    words = sorted({word for name in names for word in readable_name(name).split()})
    path = tmp_path_factory.mktemp('vectors') / 'words.txt'
    numbers = np.random.default_rng(0).normal(size=(len(words), WORDS))
    path.write_text(''.join(f'{word} {" ".join(f"{x:.4f}" for x in row)}\n'
                            for word, row in zip(words, numbers)))
    return path


@pytest.fixture(scope='session')
def projection(tmp_path_factory):
    """The projection of a pre-trained image tower."""
    path = tmp_path_factory.mktemp('projection') / 'clip.pt'
    weight = torch.randn(TINY, TINY, generator=torch.Generator().manual_seed(0))
    torch.save({'visual.proj.weight': weight, 'visual.proj.bias': torch.zeros(TINY)}, path)
    return path


@pytest.fixture
def small_config(published, vectors, projection, tmp_path, monkeypatch):
    """Reads a config and cuts it down to one iteration each of training and validation."""
    # Its text is not made pretty, which a run does four times.
    monkeypatch.setattr('mmengine.config.config.FormatCode', lambda text, **_: (text, True))

    def read(name):
        cfg = read_config(name)
        shrink(cfg._cfg_dict['model'], vectors, projection)
        for phase, indices in dict(train=TRAIN, val=VAL, test=VAL).items():
            loader = cfg._cfg_dict.get(f'{phase}_dataloader')
            if loader is None:
                continue
            shrink(loader['dataset'], vectors, projection)
            if 'DINOv2' in str(cfg.model):
                in_patches(loader['dataset']['pipeline'])
            loader.update(batch_size=len(indices), num_workers=0, persistent_workers=False,
                          collate_fn=dict(type='default_collate'))
            # Images instead of stored features, which have their own tests.
            loader['dataset'].pop('features', None)
            loader['dataset'].pop('check_images', None)
            loader['dataset']['indices'] = indices
        if 'data_root' in cfg.space:
            for node in (cfg.model.space, *(cfg[f'{phase}_dataloader'].dataset
                                            for phase in ('train', 'val', 'test')
                                            if cfg.get(f'{phase}_dataloader'))):
                node.data_root = str(published)
                node.pop('split', None)
                node.pop('table', None)
                node.type = 'mmcluspro.UTZappos'  # whose split has the name of the exported one
        if cfg.train_cfg is not None:
            cfg.train_cfg = dict(by_epoch=True, max_epochs=1, val_interval=1)
        cfg.merge_from_dict(dict(
            work_dir=str(tmp_path), launcher='none', log_level='WARNING',
            # Pictures of curves and checkpoints have their own tests.
            default_hooks=dict(checkpoint=None, curve=None)))
        return cfg

    return read
