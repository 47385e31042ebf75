"""What is described is what is built, for every config; nothing else is."""
import itertools

import numpy as np
import pytest
import torch
from mmengine.dataset import Compose
from mmengine.registry import DefaultScope
from mmpretrain.models.backbones import VisionTransformer
from mmpretrain.registry import TRANSFORMS

from mmcluspro.artefact.spec import Refusal, checked, describe, describe_pipeline
from mmcluspro.artefact.towers import build_model, predicting
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.datasets.pictures import apply_steps
from mmcluspro.engine.configs import config_names
from mmcluspro.engine.launch import read_config
from mmcluspro.features import CachedFeatures
from mmcluspro.fields import Left, Options, Part, fields_of
from mmcluspro.models.backbones.frozen import FrozenTower
from mmcluspro.models.heads import CompositionHead
from mmcluspro.models.necks import Neck
from mmcluspro.models.peft import Bottleneck, LoRA
from mmcluspro.models.prototypes import PrototypeBank
from mmcluspro.models.text import SoftPrompt
from mmcluspro.models.text.encoder import TextEncoder
from mmcluspro.registry import DATASETS, MODELS

SMALL = [name for name in config_names() if 'shapes' in name and 'large' not in name]


@pytest.mark.parametrize('end', ['utzappos', 'mitstates', 'cgqa', 'shapes', 'fashion', ''])
def test_every_config_is_described(end):
    ends = ('utzappos', 'mitstates', 'cgqa', 'shapes', 'fashion')
    names = [name for name in config_names()
             if (end in name if end else not any(other in name for other in ends))]
    assert names
    for name in names:
        description = checked(describe(read_config(name)))
        assert description['preparation']['decoder'] == 'cv2', name
        assert description['data']['type'] in DATASETS.module_dict, name
        assert checked(description) == description, name
        assert 'http' not in repr(description) and '/' not in repr(description), name


@pytest.mark.parametrize('name', SMALL)
def test_the_model_of_a_description_is_that_of_the_config(name):
    cfg = read_config(name)
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
    cfg = read_config('cluspro_shapes.py')
    cfg.model.head.bank = dict(num_prototypes=5, assigner=dict(type=f'mmcluspro.{assigner}'))
    space = ShapesCZSL.make_space('all')
    cfg.model.space = space.to_dict()
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = MODELS.build(cfg.model)
    state = model.state_dict()
    built = build_model(checked(describe(cfg))['model'], space, state, 'x', {})

    state = predicting(state, built)
    assert list(built.state_dict()) == list(state)
    built.load_state_dict(state)


def test_defaults_are_written_out():
    """A later version with other defaults must build the same model."""
    model = describe(read_config('cluspro_shapes.py'))['model']
    assert model['neck']['norm'] == 'LN' and model['neck']['stages'] == 1
    assert model['backbone']['frozen'] is True and 'targets' in model['backbone']['peft']
    assert model['head']['text']['prompt']['context'] == 'a photo of'
    assert model['head']['bank'] == dict(num_prototypes=5)
    for part in (model['neck'], model['backbone'], model['head'], model['head']['text'],
                 model['head']['text']['prompt'], model['backbone']['peft']):
        fields = fields_of(MODELS.module_dict[part['type']])
        assert set(part) == {'type'} | {name for name, field in fields.items()
                                        if not isinstance(field.kind, Left)}, part['type']


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
    from mmcluspro.datasets.pictures import INTERPOLATIONS
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


# Other tests register classes of their own.
OURS = {kind: owner for kind, owner in MODELS.module_dict.items()
        if owner.__module__.startswith('mmcluspro.')}


@pytest.mark.parametrize('wrong', [
    float('nan'), float('inf'), -1, 10**12, 'x' * 5000, [1] * 5000, {'a': 1}, {1: 2}, b'x',
    object(), 2.5, dict(type='os.system')])
def test_no_field_takes_what_is_out_of_its_range(wrong):
    """Every field of every class: refused, or a harmless text, number or dict of names."""
    free = {'temperature', 'alpha', 'scale', 'gamma', 'evidence', 'mean', 'std',
            'product_weight', 'proxy_weight', 'text_weight', 'joint_weight'}
    for kind, owner in OURS.items():
        for name, field in fields_of(owner).items():
            if field.kind is None or isinstance(field.kind, (Left, Part, Options)):
                continue
            try:
                got = field.kind(wrong, f'{kind}.{name}')
            except Refusal as refusal:
                assert f'{kind}.{name}' in str(refusal)
            else:
                # Of readable: words for a raw name 'type'; nothing there is built.
                assert name in free and isinstance(got, (int, float)) or (
                    name == 'readable' and isinstance(got, dict)) or (
                    kind == 'TOMCATHead' and wrong == 2.5)  # settings of its stream


def test_every_field_of_every_part_says_what_a_file_may_hold():
    """A field without a declaration cannot be described: these are all there are."""
    described = {kind for kind, owner in OURS.items() if issubclass(
        owner, (FrozenTower, VisionTransformer, Neck, CompositionHead, TextEncoder, SoftPrompt,
                LoRA, Bottleneck, PrototypeBank))}
    assert len(described) > 45
    free = {(kind, name) for kind in described
            for name, field in fields_of(OURS[kind]).items() if field.kind is None
            if not issubclass(OURS[kind], VisionTransformer)}
    assert free == {('PLIDText', 'descriptions')}  # a path: such a model predicts with its config
