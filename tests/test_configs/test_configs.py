"""Every config builds at real size; trainable parameters on UT-Zappos are counted part by part."""
import re
from math import gcd
from pathlib import Path

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope

from mmcluspro.datasets import CompositionSpace, ShapesCZSL, readable_name
from mmcluspro.datasets.photographs import read_version
from mmcluspro.engine.configs import config_names, dataset_names
from mmcluspro.engine.launch import read_config

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
DATASET = re.compile(f'_({"|".join(dataset_names())}|own_data_tiny)')
METHODS = {method: [name for name in config_names() if DATASET.sub('', name, 1) == method]
           for method in sorted({DATASET.sub('', name, 1) for name in config_names()})}


ZAPPOS = (
    'Canvas Cotton Faux.Fur Faux.Leather Full.grain.leather Hair.Calf Leather Nubuck Nylon '
    'Patent.Leather Rubber Satin Sheepskin Suede Synthetic Wool',
    'Boots.Ankle Boots.Knee.High Boots.Mid-Calf Sandals Shoes.Boat.Shoes Shoes.Clogs.and.Mules '
    'Shoes.Flats Shoes.Heels Shoes.Loafers Shoes.Oxfords Shoes.Sneakers.and.Athletic.Shoes '
    'Slippers')
SIZES = {'UTZappos': (16, 12, 83, 33), 'MITStates': (115, 245, 1262, 700),
         'CGQA': (413, 674, 5592, 2175), 'TableCZSL': (3, 2, 3, 1)}


def real_space(space):
    """The vocabulary of a config's data: its names where they are known, its size elsewhere."""
    kind = space.type.rpartition('.')[2]
    if kind == 'ShapesCZSL':
        return ShapesCZSL.make_space('all', space.version)
    if kind in ('Fashion', 'Grocery', 'PlantVillage'):
        return CompositionSpace.from_lists(read_version(space.split).pairs(), 'all')
    attributes, objects, seen, unseen = SIZES[kind]
    names = [[f'{name}{i}' for i in range(size)]
             for name, size in (('attribute', attributes), ('object', objects))]
    if kind == 'UTZappos':
        names = [words.split() for words in ZAPPOS]
    # All primitives are in the first diagonals of the table, which are seen.
    pairs = [[i % attributes, (i + i // (attributes * objects // gcd(attributes, objects)))
              % objects] for i in range(seen + unseen)]
    return CompositionSpace(*names, pairs, [True] * seen + [False] * unseen)


def without_files(node, vectors):
    """Takes the weights of files out of a model's config; puts in narrow word vectors."""
    for key, value in node.items():
        if isinstance(value, dict):
            without_files(value, vectors)
        elif key == 'pretrained':
            node[key] = None
        elif key == 'path' and value not in (None, 'tiny_clip'):
            node[key] = vectors(value)


def build(cfg, space, vectors=None):
    """The model of a config, without weights, on the meta device."""
    init_default_scope('mmpretrain')
    cfg.model.space = None
    model = cfg.model.to_dict()
    without_files(model, vectors)
    model['space'] = space
    # mmpretrain's ResNet reads numbers while it is built.
    with torch.device('cpu' if 'mmpretrain.ResNet' in str(model['backbone']) else 'meta'):
        return MODELS.build(model)


CAPITALS = ('Canvas Cotton Leather Nubuck Nylon Rubber Satin Sheepskin Suede Synthetic Wool '
            'Sandals Slippers')
BOTH = ('fake fur thick grainy leather hair shiny ankle boots knee high midcalf boat clogs shoes '
        'flats heels loafers oxford sneakers')
FASTTEXT = 'faux full grain calf patent mid and mules athletic oxfords'
NOT_IN_GLOVE = ('nubuck churidar jeggings kurtas tshirts moisturisers alpro oatly yoggi soyghurt '
                'oatghurt')


@pytest.fixture(scope='module')
def words(tmp_path_factory):
    """Files with the single words of all names: GloVe has lower case only and no nubuck."""
    folder = tmp_path_factory.mktemp('words')
    names, given = set[str](), set[str]()
    for split, dataset in (('fashion-v1', 'fashion'), ('fashion-v2', 'fashion_v2'),
                           ('grocery-v1', 'grocery'), ('plantvillage-v1', 'plantvillage')):
        space = CompositionSpace.from_lists(read_version(split).pairs(), 'all')
        names.update(space.attributes, space.objects)
        given.update(read_config(f'cge_{dataset}.py').model.head.text.readable.values())
    both = ' '.join([
        BOTH, *(f'{kind}{i}' for kind in ('attribute', 'object') for i in range(700)),
        *given, *map(readable_name, names)])
    there = dict(word2vec=f'{both} {CAPITALS}', glove=f'{both} {CAPITALS.lower()}',
                 crawl=f'{both} {CAPITALS.lower()} {FASTTEXT}')
    for name, known in there.items():
        known = set(known.split()) - set(NOT_IN_GLOVE.split() if name == 'glove' else ())
        (folder / name).write_text(''.join(f'{word} 1 2 3\n' for word in sorted(known)))
    return lambda path: str(folder / next((name for name in there if name in path), 'word2vec'))


@pytest.mark.parametrize('method', METHODS)
def test_it_builds_and_its_parts_name_the_same_data(method, words):
    for name in METHODS[method]:
        cfg = read_config(name)
        space = {'type': cfg.space.type, **cfg.space}
        assert cfg.model.space == cfg.space, name
        for phase in ('train', 'val', 'test'):
            if cfg.get(f'{phase}_dataloader') is not None:
                dataset = cfg[f'{phase}_dataloader'].dataset
                assert dataset.phase == phase, name
                assert {key: dataset[key] for key in space} == space, name
        model = build(cfg, real_space(cfg.space), words)
        # A projection learns only where no file gives it, and the files were taken out.
        given = 'backbone.proj.' if cfg.model.backbone.get('pretrained') else 'none'
        learns = [key for key, p in model.named_parameters()
                  if p.requires_grad and not key.startswith(given)]
        assert (not learns) == (cfg.train_cfg is None), name
        if cfg.model.head.text.get('arch') == 'fashion_clip':
            assert cfg.model.head.text.pretrained == cfg.model.backbone.pretrained, name
        elif 'arch' in cfg.model.head.text:
            tower = cfg.model.backbone.get('backbone', cfg.model.backbone)
            assert cfg.model.head.text.arch == tower.arch, name


def test_a_name_is_one_config_and_a_part_extends_its_own_folder():
    names = config_names()
    assert len(names) == len(set(names)) > 230
    files = [path for path in CONFIGS.rglob('*.py') if not {'methods', '_base_'} & set(path.parts)]
    assert {path.name for path in files} <= set(names)
    below = [word for path in (CONFIGS / '_base_').rglob('*.py')
             for word in re.findall(r"_base_ = '([^']*)'", path.read_text())]
    assert below and not any('/' in word for word in below)


@pytest.mark.parametrize('path, tower, adapters', [
    # 48 bottleneck adapters of width 64, four 768 → 768 stages with BatchNorm: the paper's 8.7M.
    ('cluspro_utzappos_released.py', 6_343_680, 2_368_512),
    # LoRA of rank 16 on all linear layers of 24 blocks, twice two 768 → 768 layers and a LayerNorm.
    ('cluspro_utzappos.py', 7_077_888, 2_365_440),
    ('baseline_utzappos.py', 7_077_888, 2_365_440)])
def test_trainable_parameters_on_ut_zappos_part_by_part(path, tower, adapters):
    pairs = [[a, o] for a in range(16) for o in range(12)][:83]
    space = CompositionSpace([f'attribute{i}' for i in range(16)],
                             [f'object{i}' for i in range(12)], pairs, [True] * 83)

    model = build(read_config(path), space)

    count = lambda module: sum(p.numel() for p in module.parameters() if p.requires_grad)
    assert count(model.backbone) == tower
    assert count(model.neck) == adapters
    assert count(model.head) == 21_504 + 6_912  # vocabulary and contexts
    assert count(model) == {'cluspro_utzappos_released.py': 8_740_608}.get(path, 9_471_744)
