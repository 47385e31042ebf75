"""Every config builds; trainable parameters on UT-Zappos are counted part by part."""
import ast
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mmcluspro.datasets import CompositionSpace

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
FILES = sorted(path.relative_to(CONFIGS) for path in CONFIGS.rglob('*.py')
               if '_base_' not in path.parts)
PARTS = ['datasets', 'schedules', '_base_']  # beside the model


def small_space():
    return CompositionSpace(['Canvas', 'Faux.Fur', 'wet'], ['Boots.Ankle', 'cat'],
                            [[0, 0], [1, 0], [1, 1], [2, 1]], [True, True, True, False])


def without_files(node, vectors):
    """Takes weights and words of other names out of a model's config; puts in small vectors."""
    node.pop('readable', None)
    for key, value in node.items():
        if isinstance(value, dict):
            without_files(value, vectors)
        elif key == 'pretrained':
            node[key] = None
        elif key == 'path':
            node[key] = vectors


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
    model = build(cfg, small_space(), words)
    # A projection learns only where no file gives it, and the files were taken out.
    learns = [name for name, p in model.named_parameters() if p.requires_grad
              and not (name.startswith('backbone.proj.') and cfg.model.backbone.get('pretrained'))]
    assert (not learns) == (cfg.train_cfg is None)
    if cfg.model.head.text.get('arch') == 'fashion_clip':
        assert cfg.model.head.text.pretrained == cfg.model.backbone.pretrained
    elif 'arch' in cfg.model.head.text:
        tower = cfg.model.backbone.get('backbone', cfg.model.backbone)
        assert cfg.model.head.text.arch == tower.arch


def bases(path):
    """The files that a config names in ``_base_``."""
    tree = ast.parse(path.read_text())
    found = [ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)
             and getattr(node.targets[0], 'id', '') == '_base_']
    names = found[0] if found else []
    return [(path.parent / name).resolve()
            for name in ([names] if isinstance(names, str) else names)]


def parts(path):
    """The folders of the parts of a config: its own, or those of the config that it varies."""
    below = bases(path)
    varied = [other for other in below if '_base_' not in other.parts]
    assert len(varied) <= 1, f'{path} varies {len(varied)} configs'
    return [folder for other in varied for folder in parts(other)] + [
        part.parent.name for part in below if part not in varied]


def settled(part):
    """Whether a part extends only parts of its own folder."""
    return all(below.parent == part.parent and settled(below) for below in bases(part))


@pytest.mark.parametrize('path', FILES, ids=str)
def test_a_config_lists_its_parts_or_varies_one_config_and_names_are_unique(path):
    listed = parts(CONFIGS / path)
    # A variant may add the part with ClusPro's head.
    assert listed[1:1 + len(PARTS)] == PARTS or listed[1] == 'settings'
    assert {listed[0], *listed[2:]} <= {'models', *PARTS}
    assert [other.name for other in FILES].count(path.name) == 1


@pytest.mark.parametrize('part', sorted((CONFIGS / '_base_').glob('*/*.py')),
                         ids=lambda part: f'{part.parent.name}/{part.stem}')
def test_a_part_extends_its_own_folder_and_a_setting_lists_data_schedule_and_runtime(part):
    if part.parent.name == 'settings':
        assert [below.parent.name for below in bases(part)] == PARTS
    else:
        assert settled(part)


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

    model = build(Config.fromfile(CONFIGS / path), space)

    count = lambda module: sum(p.numel() for p in module.parameters() if p.requires_grad)
    assert count(model.backbone) == tower
    assert count(model.neck) == adapters
    assert count(model.head) == 21_504 + 6_912  # vocabulary and contexts
    assert count(model) == {'cluspro_utzappos_released.py': 8_740_608}.get(path, 9_471_744)
