"""The configs of Table 9 from images to stored features, on a small DINO and a few pictures."""
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.registry import DATASETS, MODELS, init_default_scope
from PIL import Image

import mmcluspro.models  # noqa: F401  (registers the parts)
from mmcluspro.datasets import write_layout
from mmcluspro.engine.launch import build_runner, read_config

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 8
TOWER = dict(arch=dict(embed_dims=WIDTH, num_layers=1, num_heads=2, feedforward_channels=8))
PAIRS = dict(train=[('Faux.Fur', 'Boots.Ankle'), ('Wool', 'Shoes.Clogs.and.Mules')],
             val=[('Wool', 'Boots.Ankle')], test=[('Faux.Fur', 'Shoes.Clogs.and.Mules')])


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """Six pictures in the published layout, DINO's file and word vectors."""
    root = tmp_path_factory.mktemp('dino')
    rows, rng = [], np.random.default_rng(0)
    for phase, pairs in PAIRS.items():
        for attr, obj in pairs:
            for number in range(2 if phase == 'train' else 1):
                rows.append(dict(image=f'{attr}_{obj}/{number}.png', attr=attr, obj=obj, set=phase))
                path = root / 'data' / 'images' / rows[-1]['image']
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(rng.integers(256, size=(40, 32, 3), dtype=np.uint8)).save(path)
    write_layout(root / 'data', rows, PAIRS)
    words = ['fake', 'faux', 'fur', 'wool', 'boots', 'ankle', 'shoes', 'clogs', 'mules']
    np.savez(root / 'words.npz', words=np.array(words), vectors=rng.normal(size=(9, 5)))
    torch.manual_seed(0)
    tower = MODELS.build(dict(type='mmcluspro.DINO', img_size=224, **TOWER))
    names = {'layers.0.ffn.layers.0.0.': 'blocks.0.mlp.fc1.', 'patch_embed.projection.':
             'patch_embed.proj.', 'layers.0.ffn.layers.1.': 'blocks.0.mlp.fc2.',
             'layers.0.ln': 'blocks.0.norm', 'layers.0.': 'blocks.0.', 'ln1.': 'norm.'}
    weights = {}
    for key, value in tower.state_dict().items():
        start = next((start for start in names if key.startswith(start)), None)
        weights[names[start] + key[len(start):] if start else key] = torch.randn_like(value)
    torch.save(weights, root / 'dino.pth')
    return root


def small(name, folder):
    """A config of Table 9 with the small tower and the pictures of ``folder``."""
    cfg = read_config(ROOT / 'configs' / f'{name}.py')
    cfg.model.space.data_root = str(folder / 'data')
    cfg.model.head.text.path = str(folder / 'words.npz')
    inner = cfg.model.backbone.backbone
    tower = inner.get('backbone', inner)
    tower.update(pretrained=str(folder / 'dino.pth'), **TOWER)
    cfg.model.backbone.update(in_channels=WIDTH)
    for phase in PAIRS:
        dataset = cfg[f'{phase}_dataloader'].dataset
        dataset.data_root = str(folder / 'data')
        if 'features' in dataset:
            dataset.features = inner.features = str(folder / 'features')
    return cfg


def extract(cfg, folder, *arguments):
    cfg.dump(folder / 'config.py')
    path = ROOT / 'tools' / 'extract_features.py'
    spec = importlib.util.spec_from_file_location('extract_features', path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, 'argv', ['extract_features.py', str(folder / 'config.py'), '--workers',
                                    '0', *map(str, arguments)])
        tool.main()


@pytest.mark.parametrize('data', ['utzappos', pytest.param('cgqa', marks=pytest.mark.slow)])
@pytest.mark.parametrize('method', [pytest.param('baseline', marks=pytest.mark.slow), 'cluspro'])
def test_features_equal_images(folder, data, method, capsys):
    images = small(f'dino_{method}_{data}', folder)
    cached = small(f'frozen_dino_{method}_{data}', folder)
    init_default_scope('mmpretrain')

    extract(images, folder, '--out', folder / 'features')
    extract(cached, folder)  # its own folder, and the same features: nothing is left to do

    assert ', 0 of them new' in capsys.readouterr().out
    models = [MODELS.build(cfg.model) for cfg in (images, cached)]
    models[1].init_weights()
    models[1].load_state_dict(models[0].state_dict())
    for model in models:
        model.eval()
    for phase, count in dict(train=4, val=1, test=1).items():
        outputs = []
        for cfg, model in zip((images, cached), models):
            settings = dict(cfg[f'{phase}_dataloader'].dataset, pipeline=cached.test_pipeline)
            dataset = DATASETS.build(settings)
            assert len(dataset) == count
            inputs = torch.stack([dataset[i]['inputs'] for i in range(count)])
            with torch.no_grad():
                data = model.data_preprocessor(dict(inputs=inputs))
                outputs.append(model.head(model.extract_feat(data['inputs'])))
        assert inputs.shape == (count, WIDTH)
        torch.testing.assert_close(outputs[1], outputs[0], atol=1e-5, rtol=1e-5)
    assert not models[1].backbone.backbone.built


def test_dino_and_word_vectors_on_a_pretended_gpu(cuda, folder, tmp_path):
    cfg = small('dino_cluspro_utzappos', folder)
    cfg.merge_from_dict({
        'train_cfg.max_epochs': 1, 'train_dataloader.batch_size': 4, 'work_dir': str(tmp_path),
        'launcher': 'none', 'log_level': 'WARNING'})
    for phase in PAIRS:
        cfg[f'{phase}_dataloader'].update(
            num_workers=0, persistent_workers=False, collate_fn=dict(type='default_collate'))
    runner = build_runner(cfg)
    runner.train()
    assert runner.test()['czsl/auc'] >= 0
    assert runner.model.head.device.type == 'cuda' and not cuda.faults
