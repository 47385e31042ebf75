import json
from pathlib import Path

import open_clip
import pytest
import torch
from mmpretrain.structures import DataSample

from mmcluspro.datasets import CompositionSpace
from mmcluspro.models.structures import Features
from mmcluspro.registry import MODELS

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


ZOO_NAMES = (('black', 'green', 'red', 'white'), ('bag', 'belt', 'boot', 'cap', 'shirt'))
ZOO_SEEN = [(0, 0), (0, 3), (0, 4), (1, 1), (1, 2), (2, 0), (2, 3), (3, 2), (3, 4)]
ZOO_UNSEEN = [(0, 2), (1, 3), (2, 4), (3, 1)]


@pytest.fixture(scope='session')
def word_space(tmp_path_factory):
    """A label space, and a file with word vectors of width 6 for its names and two more."""
    path = tmp_path_factory.mktemp('zoo') / 'words.txt'
    words = (*ZOO_NAMES[0], *ZOO_NAMES[1], 'teal', 'sock')
    numbers = torch.randn(len(words), 6, generator=torch.Generator().manual_seed(5))
    path.write_text(''.join(f'{word} {" ".join(f"{x:.6f}" for x in row)}\n'
                            for word, row in zip(words, numbers.tolist())))
    seen = [True] * len(ZOO_SEEN) + [False] * len(ZOO_UNSEEN)
    return CompositionSpace(*ZOO_NAMES, ZOO_SEEN + ZOO_UNSEEN, seen), str(path)


@pytest.fixture
def word_head(word_space):
    """Builds a head on the space of ``word_space``: (type, text type, its fields, head's)."""
    space, path = word_space

    def build(kind, text, text_fields=None, **fields):
        torch.manual_seed(0)
        return MODELS.build(dict(
            type=f'mmcluspro.{kind}', space=space.to_dict(), **fields,
            text=dict(type=f'mmcluspro.{text}', path=path, **(text_fields or {}))))

    return build


@pytest.fixture
def word_batch(word_space):
    """Random features (n, width) for some names, and samples of seen pairs: (n, names, width)."""
    space, _ = word_space

    def build(size=9, width=8, seed=1):
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randint(len(space.train_pairs), (size, ), generator=generator)
        samples = []
        for row in rows.tolist():
            samples.append(DataSample())
            for name, value in zip(('attr', 'obj'), space.train_pairs[row].tolist()):
                samples[-1].set_field(value, f'{name}_label')
            samples[-1].set_field(row, 'pair_label')
        return torch.randn(size, width, generator=generator), samples

    return build


class WordZoo:
    """A small space, its word vectors, and random images, for heads on stored features."""

    def __init__(self, folder):
        self.space = CompositionSpace(
            ['red', 'old', 'wet'], ['cat', 'dog', 'cup', 'hat'],
            [[a, o] for a in range(3) for o in range(4)], [i % 3 != 1 for i in range(12)])
        self.path = str(folder / 'words.txt')
        numbers = torch.randn(9, 6, generator=torch.Generator().manual_seed(3))
        names = (*self.space.attributes, *self.space.objects, 'new', 'fox')
        Path(self.path).write_text(''.join(
            f'{name} {" ".join(map(str, row.tolist()))}\n' for name, row in zip(names, numbers)))

    def head(self, kind, text, **fields):
        """A head of the registry, with parameters away from their special start."""
        torch.manual_seed(0)
        head = MODELS.build(dict(type=f'mmcluspro.{kind}', space=self.space, **fields, text=dict(
            type=f'mmcluspro.{text.pop("type")}', path=self.path, **text)))
        for parameter in head.parameters():
            if parameter.requires_grad:
                parameter.data.add_(0.1 * torch.randn(parameter.shape))
        return head

    def batch(self, width, size=7, paths=('composition', )):
        """Features of some images and their samples."""
        generator = torch.Generator().manual_seed(2)
        rows = torch.randint(len(self.space.train_pairs), (size, ), generator=generator).tolist()
        samples = []
        for row in rows:
            samples.append(DataSample())
            attr, obj = self.space.train_pairs[row].tolist()
            for name, value in dict(attr=attr, obj=obj, pair=row).items():
                samples[-1].set_field(value, f'{name}_label')
        feature = {path: torch.randn(size, width, generator=generator)
                   for path in sorted({*paths, 'composition'})}
        return Features(**feature), samples


@pytest.fixture
def zoo(tmp_path):
    """Parts for the tests of the zoo's word-vector methods."""
    return WordZoo(tmp_path)


@pytest.fixture
def clip_head(word_space):
    """Builds a head of the CLIP family on the names of ``word_space``, with the tiny text tower.

    All that learns is moved a little: what starts at zero would hide what it multiplies.
    """
    def build(kind, text=None, **fields):
        torch.manual_seed(0)
        head = MODELS.build(dict(
            type=f'mmcluspro.{kind}', space=word_space[0].to_dict(), **fields,
            text=dict(dict(type='mmcluspro.CLIPText', arch='tiny_clip'), **(text or {}))))
        generator = torch.Generator().manual_seed(3)
        for parameter in head.parameters():
            if parameter.requires_grad:
                parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        return head

    return build


def untouched(module):
    """Parameters that should learn and got no gradient."""
    return [name for name, p in module.named_parameters()
            if p.requires_grad and (p.grad is None or not p.grad.any())]
