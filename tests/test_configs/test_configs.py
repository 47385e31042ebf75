"""Every config builds; the paper's parameter count comes out to the number."""
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mmcluspro.datasets import CompositionSpace

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
FILES = sorted(path.relative_to(CONFIGS) for path in CONFIGS.rglob('*.py')
               if '_base_' not in path.parts)


def small_space():
    return CompositionSpace(['Canvas', 'Faux.Fur', 'wet'], ['Boots.Ankle', 'cat'],
                            [[0, 0], [1, 0], [1, 1], [2, 1]], [True, True, True, False])


def without_files(node, vectors):
    """Takes the weights out of a model's config, and puts in small word vectors."""
    for key, value in node.items():
        if isinstance(value, dict):
            without_files(value, vectors)
        elif key == 'pretrained':
            node[key] = None
        elif key == 'path':
            node[key] = vectors


def build(path, space, vectors=None):
    """The model of a config, without weights, on the meta device."""
    cfg = Config.fromfile(CONFIGS / path)
    init_default_scope('mmpretrain')
    cfg.model.space = None
    model = cfg.model.to_dict()
    without_files(model, vectors)
    model['space'] = space
    with torch.device('meta'):
        return MODELS.build(model)


@pytest.fixture(scope='module')
def words(tmp_path_factory):
    """Word vectors of the names of :func:`small_space`."""
    path = tmp_path_factory.mktemp('words') / 'words.txt'
    path.write_text(''.join(f'{word} 1 2 3\n' for word in (
        'canvas', 'faux', 'fur', 'wet', 'boots', 'ankle', 'cat')))
    return str(path)


@pytest.mark.parametrize('path', FILES, ids=str)
def test_it_builds_and_its_parts_name_the_same_data(path, words):
    cfg = Config.fromfile(CONFIGS / path)
    space = {'type': cfg.space.type, **cfg.space}
    assert cfg.model.space == cfg.space
    for phase in ('train', 'val', 'test'):
        if cfg.get(f'{phase}_dataloader') is not None:
            dataset = cfg[f'{phase}_dataloader'].dataset
            assert dataset.phase == phase
            assert {key: dataset[key] for key in space} == space
    model = build(path, small_space(), words)
    learns = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert (learns == 0) == (cfg.train_cfg is None)
    if cfg.model.head.text.type == 'mmcluspro.CLIPText':
        tower = cfg.model.backbone.get('backbone', cfg.model.backbone)
        assert cfg.model.head.text.arch == tower.arch


@pytest.mark.parametrize('path', FILES, ids=str)
def test_bases_are_one_hop_away_and_names_are_unique(path):
    text = (CONFIGS / path).read_text()
    hops = [line.strip(" ',") for line in text.splitlines() if '_base_/' in line]
    for hop in hops:
        base = (CONFIGS / path).parent / hop
        assert '_base_ =' not in base.read_text(), f'{path} → {hop} goes further'
    assert [other.name for other in FILES].count(path.name) == 1


UT_ATTRIBUTES = [f'attribute{i}' for i in range(16)]
UT_OBJECTS = [f'object{i}' for i in range(12)]


def test_the_released_preset_has_the_papers_parameter_count():
    pairs = [[a, o] for a in range(16) for o in range(12)][:83]
    space = CompositionSpace(UT_ATTRIBUTES, UT_OBJECTS, pairs, [True] * 83)

    model = build('cluspro_utzappos_released.py', space)

    count = lambda module: sum(p.numel() for p in module.parameters() if p.requires_grad)
    assert count(model.backbone) == 6_343_680  # 48 adapters of width 64
    assert count(model.neck) == 2_368_512  # four 768 → 768 stages with BatchNorm
    assert count(model.head) == 21_504 + 6_912  # vocabulary and contexts
    assert count(model) == 8_740_608
