"""What is described is what is built, for every config; nothing else is."""
import itertools
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.registry import DefaultScope
from mmpretrain.registry import TRANSFORMS

from mmcluspro.datasets import ShapesCZSL
from mmcluspro.datasets.pixels import apply_steps
from mmcluspro.description import (
    Refusal,
    Schema,
    build_model,
    checked,
    describe,
    describe_pipeline,
    predicting,
)
from mmcluspro.engine.hooks import DescriptionHook
from mmcluspro.features import CachedFeatures
from mmcluspro.registry import MODELS

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
FILES = sorted(path for path in CONFIGS.rglob('*.py') if '_base_' not in path.parts)
SMALL = [path for path in FILES if 'shapes' in path.name and 'large' not in path.name]


@pytest.mark.parametrize('path', FILES, ids=lambda path: path.stem)
def test_every_config_is_described(path):
    description = checked(describe(Config.fromfile(path)))
    assert description['preparation']['decoder'] == 'cv2'
    assert description['data']['type'] in (
        'UTZappos', 'MITStates', 'CGQA', 'ShapesCZSL', 'TableCZSL', 'Fashion')
    assert checked(description) == description
    assert 'http' not in repr(description) and '/' not in repr(description)


@pytest.mark.parametrize('path', SMALL, ids=lambda path: path.stem)
def test_the_model_of_a_description_is_that_of_the_config(path):
    cfg = Config.fromfile(path)
    space = ShapesCZSL.make_space('all')
    cfg.model.space = space.to_dict()
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        expected = MODELS.build(cfg.model)
    state = expected.state_dict()
    model = build_model(checked(describe(cfg))['model'], space, state, 'x.pth', {})
    state = predicting(state, model)
    assert list(model.state_dict()) == list(state)
    assert type(model.head) is type(expected.head)
    if isinstance(expected.backbone, CachedFeatures):  # training takes it from the folder
        state['backbone.restorable_fingerprint'] = model.backbone.restorable_fingerprint
    model.load_state_dict(state, strict=False)
    images = torch.randn(2, 3, 48, 48)
    with torch.no_grad():
        got, want = (m.eval().head.score(m.extract_feat(images), model.head.known_candidates).pair
                     for m in (model, expected))
    assert got.equal(want)


@pytest.mark.parametrize('assigner', ['LocalAwareOT', 'ClassicalOT', 'CosineAssigner'])
def test_a_bank_loads_whatever_its_queue(assigner):
    """Its size comes from the assigner, which prediction does not build."""
    cfg = Config.fromfile(next(path for path in SMALL if path.stem == 'cluspro_shapes'))
    cfg.model.head.bank = dict(num_prototypes=5, assigner=dict(type=f'mmcluspro.{assigner}'))
    space = ShapesCZSL.make_space('all')
    cfg.model.space = space.to_dict()
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = MODELS.build(cfg.model)
    checkpoint = dict(meta={})
    DescriptionHook().before_save_checkpoint(SimpleNamespace(cfg=cfg, model=model), checkpoint)

    state = model.state_dict()
    built = build_model(checked(checkpoint['meta']['description'])['model'], space, state, 'x', {})

    state = predicting(state, built)
    assert list(built.state_dict()) == list(state)
    built.load_state_dict(state)


def test_defaults_are_written_out():
    """A later version with other defaults must build the same model."""
    model = describe(Config.fromfile(CONFIGS / 'cluspro_shapes.py'))['model']
    assert model['neck']['norm'] == 'LN' and model['neck']['stages'] == 1
    assert model['backbone']['frozen'] is True and model['backbone']['peft']['targets']
    assert model['head']['text']['prompt']['context'] == 'a photo of'
    assert model['head']['bank'] == dict(num_prototypes=5)
    schema = Schema()
    for part in (model['neck'], model['backbone'], model['head'], model['head']['text'],
                 model['head']['text']['prompt'], model['backbone']['peft']):
        fields, _ = schema.table[part['type']]
        assert set(part) == {*fields, 'type'} - {'chunk_size'}, part['type']


PIPELINES = [
    [dict(type='ResizeEdge', scale=224, edge='short', backend='pillow',
          interpolation='bicubic'), dict(type='CenterCrop', crop_size=224)],
    [dict(type='ResizeEdge', scale=48), dict(type='CenterCrop', crop_size=(40, 32))],
    [dict(type='ResizeEdge', scale=64, edge='long', backend='cv2', interpolation='area')],
    [dict(type='ResizeEdge', scale=33, edge='height', backend='pillow',
          interpolation='lanczos')],
    [dict(type='Resize', scale=(61, 37), interpolation='bicubic'),
     dict(type='CenterCrop', crop_size=50)],
    [dict(type='Resize', scale=31, backend='pillow', interpolation='bilinear')],
    [dict(type='CenterCrop', crop_size=31)],
    [],
]


@pytest.mark.parametrize('steps', PIPELINES)
@pytest.mark.parametrize('shape', [(48, 48), (301, 200), (200, 301), (31, 97), (224, 225)])
def test_pixels_are_those_of_mmpretrain_bit_by_bit(steps, shape):
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        pipeline = Compose([TRANSFORMS.build(step) for step in [*steps, dict(type='PackInputs')]])
    expected = pipeline(dict(img=image, img_shape=shape, ori_shape=shape))['inputs']
    got = apply_steps(image, describe_pipeline(steps)['steps'])
    assert got.dtype == np.uint8 and np.array_equal(got.transpose(2, 0, 1), expected.numpy())


@pytest.mark.parametrize('size', [(1, 1), (7, 7), (8, 7), (224, 231)])
def test_every_interpolation_of_both_libraries(size):
    from mmcluspro.datasets.pixels import INTERPOLATIONS
    image = np.random.default_rng(1).integers(0, 256, (*size, 3), dtype=np.uint8)
    for backend, interpolation in itertools.chain.from_iterable(
            zip(itertools.repeat(b), names) for b, names in INTERPOLATIONS.items()):
        step = dict(type='ResizeEdge', scale=16, backend=backend, interpolation=interpolation)
        with DefaultScope.overwrite_default_scope('mmpretrain'):
            expected = TRANSFORMS.build(step)(dict(img=image))['img']
        assert np.array_equal(apply_steps(image, describe_pipeline([step])['steps']), expected)


@pytest.mark.parametrize('step', [
    dict(type='torchvision/ToTensor'), dict(type='mmcv.transforms.Resize', scale=1),
    dict(type='Lighting'), dict(type='ResizeEdge', scale='big'), dict(type='ResizeEdge', scale=0),
    dict(type='ResizeEdge', scale=10**9), dict(type='CenterCrop', crop_size=8, auto_pad=True),
    dict(type='ResizeEdge', scale=8, interpolation='hamming'), dict(scale=3), 'Resize',
    dict(type='Resize', scale=(3, 4), keep_ratio=True), dict(type='Resize', scale_factor=2.0),
    dict(type='LoadImageFromFile', backend_args=dict(backend='http')),
])
def test_other_steps_are_refused(step):
    with pytest.raises(Refusal):
        describe_pipeline([step])


@pytest.mark.parametrize('wrong', [
    float('nan'), float('inf'), -1, 10**12, 'x' * 5000, [1] * 5000, {'a': 1}, {1: 2}, b'x',
    object(), 2.5, dict(type='os.system')])
def test_no_field_takes_what_is_out_of_its_range(wrong):
    """Every field of every class: refused, or a harmless text, number or dict of names."""
    schema = Schema()
    for kind, (fields, _) in schema.table.items():
        for name, check in fields.items():
            try:
                got = check(wrong, f'{kind}.{name}')
            except Refusal as refusal:
                assert f'{kind}.{name}' in str(refusal)
            else:
                # Of readable: words for a raw name 'type'; nothing there is built.
                assert (name, type(got)) in {('temperature', float), ('readable', dict)} or (
                    (kind, name, type(got)) in {
                        ('LoRA', 'alpha', float), ('Bottleneck', 'scale', int),
                        ('Bottleneck', 'scale', float), ('CDSHead', 'gamma', float),
                        ('ClusProPlusHead', 'evidence', float)}) or (
                            kind == 'TOMCATHead' and wrong == 2.5)  # settings of its stream
