import copy
import io

import pytest
import torch
from mmengine.model import ExponentialMovingAverage
from mmengine.runner.checkpoint import get_state_dict, load_checkpoint, save_checkpoint
from mmengine.runner.checkpoint import load_state_dict as mmengine_load
from torch import nn

from mmcluspro.models.backbones import CLIPVision
from mmcluspro.models.clip import load_clip
from mmcluspro.models.necks import PrimitiveAdapter
from mmcluspro.models.peft import merge, unmerge
from mmcluspro.models.state import (
    check_state_keys,
    compact_state_hooks,
    declare_restorable,
    fingerprint,
    restorable_keys,
)

PEFT = dict(lora=dict(type='mmcluspro.LoRA', rank=2),
            bottleneck=dict(type='mmcluspro.Bottleneck', width=4))


class Model(nn.Module):
    """Stands for the classifier: a tower, a trained neck, a buffer, one that is not saved."""

    def __init__(self, pretrained, peft='lora', full_state=False, strict=True):
        super().__init__()
        self.backbone = CLIPVision('small_gelu', pretrained, peft=PEFT[peft])
        self.neck = PrimitiveAdapter(24, norm='BN')
        self.register_buffer('prototypes', torch.randn(3, 24))
        self.register_buffer('cache', torch.randn(2), persistent=False)
        compact_state_hooks(self, full_state, strict)

    def forward(self, x):
        return torch.cat([*self.neck(self.backbone(x)).paths.values(), self.prototypes])


def trained(pretrained, seed=0, **kwargs):
    torch.manual_seed(seed)
    model = Model(pretrained, **kwargs)
    for parameter in model.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=0.2)
    return model.eval()


def by_torch(source, target, **kwargs):
    file = io.BytesIO()
    torch.save(source.state_dict(), file)
    file.seek(0)
    target.load_state_dict(torch.load(file, weights_only=True), **kwargs)


def by_mmengine(source, target, path, **kwargs):
    path = str(path / 'checkpoint.pth')
    save_checkpoint(dict(state_dict=get_state_dict(source)), path)
    load_checkpoint(target, path, **kwargs)


@pytest.fixture(scope='module')
def clip(tmp_path_factory):
    path = tmp_path_factory.mktemp('clip') / 'clip.pt'
    torch.manual_seed(5)
    torch.save(load_clip('small_gelu').state_dict(), path)
    return str(path)


@pytest.fixture
def images():
    return torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize('peft', PEFT)
@pytest.mark.parametrize('how', ['torch', 'mmengine'])
@pytest.mark.parametrize('full', [(False, False), (True, False), (False, True), (True, True)])
def test_outputs_after_loading_are_bit_identical(clip, images, tmp_path, peft, how, full):
    source = trained(clip, peft=peft, full_state=full[0])
    target = trained(clip, seed=1, peft=peft, full_state=full[1])
    assert not torch.equal(source(images), target(images))

    if how == 'torch':
        by_torch(source, target)
    else:
        by_mmengine(source, target, tmp_path, strict=True)

    assert torch.equal(source(images), target(images))


def test_a_checkpoint_holds_what_is_trained_and_the_buffers(clip):
    model = trained(clip)

    keys = set(model.state_dict())

    parameters = {name for name, p in model.named_parameters() if p.requires_grad}
    buffers = {name for name, _ in model.named_buffers()} - {'cache'}
    assert keys == parameters | buffers == set(get_state_dict(model))
    full = set(trained(clip, full_state=True).state_dict())
    assert full == {name for name, _ in model.named_parameters()} | buffers


@pytest.mark.parametrize('prefix', ['', 'student.'])
def test_inside_another_module_and_below_a_prefix(clip, images, prefix):
    source, target = trained(clip), trained(clip, seed=1)
    if prefix:
        outer, other = nn.ModuleDict(dict(student=source)), nn.ModuleDict(dict(student=target))
    else:
        outer, other = source, target

    state = outer.state_dict()
    assert not any('conv1' in key for key in state)
    other.load_state_dict(state)

    assert torch.equal(source(images), target(images))
    assert set(source.state_dict(prefix='a.b.')) == {f'a.b.{key}' for key in source.state_dict()}


def test_weights_of_a_random_tower_are_saved(images):
    source, target = trained(None), trained(None, seed=1)

    by_torch(source, target)

    assert 'backbone.visual.conv1.weight' in source.state_dict()
    assert torch.equal(source(images), target(images))


def test_an_average_of_the_model_saves_the_same_keys(clip, images):
    source = trained(clip)
    average = ExponentialMovingAverage(source)  # its copy has no parameter that requires grad
    target = ExponentialMovingAverage(trained(clip, seed=1))

    state = average.state_dict()
    assert {key[7:] for key in state if key.startswith('module.')} == set(source.state_dict())
    target.load_state_dict(state)

    assert torch.equal(target.module(images), source(images))


def test_a_copy_fills_in_its_own_weights(clip, images):
    model = trained(clip)
    state = model.state_dict()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for p in model.backbone.visual.parameters():
            p.zero_()

    twin.load_state_dict(state)

    assert not torch.equal(twin(images), model(images))
    assert twin.backbone.visual.conv1.weight.abs().max() > 0


@pytest.mark.parametrize('full_state', [False, True])
@pytest.mark.parametrize('keep', [True, False])
def test_saving_a_merged_model_saves_the_unmerged(clip, images, full_state, keep):
    source, target = trained(clip, full_state=full_state), trained(clip, seed=1)
    expected = source(images)
    merge(source, keep)

    by_torch(source, target)
    unmerge(source)

    torch.testing.assert_close(target(images), expected, atol=0 if keep else 1e-5, rtol=0)


@pytest.mark.parametrize('change, message', [
    (('drop', 'neck.attribute.proj.weight'), r'missing neck\.attribute\.proj\.weight\.'),
    (('drop', 'prototypes'), r'missing prototypes'),
    (('add', 'head.weight'), r'unexpected head\.weight'),
    (('shape', 'neck.object.proj.bias'), r'wrong shape neck\.object\.proj\.bias \(1,\) instead'),
    (('drop', '.lora.'), r'missing .*\.lora\..* and \d+ more')])
@pytest.mark.parametrize('how', ['torch', 'mmengine', 'check'])
def test_a_missing_or_surplus_key_is_named(clip, change, message, how):
    state = trained(clip).state_dict()
    kind, key = change
    for name in [name for name in state if key in name] if kind == 'drop' else []:
        del state[name]
    if kind != 'drop':
        state[key] = torch.zeros(1)
    target = trained(clip, seed=1)

    with pytest.raises(ValueError, match=message):
        if how == 'torch':
            target.load_state_dict(state)
        elif how == 'mmengine':
            mmengine_load(target, state)
        else:
            check_state_keys(target, state)


def test_not_strict_leaves_it_to_the_caller(clip):
    state = trained(clip).state_dict()
    del state['prototypes']
    target = trained(clip, seed=1, strict=False)

    missing = target.load_state_dict(state, strict=False).missing_keys

    assert missing == ['prototypes']
    with pytest.raises(RuntimeError, match='prototypes'):
        target.load_state_dict(state)


def test_other_frozen_weights_are_refused_unless_the_file_has_them(clip, tmp_path, images):
    state = torch.load(clip, weights_only=True)
    state['visual.conv1.weight'][0, 0, 0, 0] += 1e-3
    torch.save(state, tmp_path / 'other.pt')
    other = str(tmp_path / 'other.pt')

    with pytest.raises(ValueError, match='left out the frozen weights of backbone'):
        by_torch(trained(clip), trained(other))
    with pytest.raises(ValueError, match=r'missing backbone\.visual\..* and \d+ more'):
        by_torch(trained(clip), trained(None))
    source = trained(clip, full_state=True)
    for target in (trained(other), trained(None)):
        by_torch(source, target)
        assert torch.equal(source(images), target(images))


def test_another_image_size_may_load_the_checkpoint(clip):
    source = trained(clip)
    torch.manual_seed(0)
    target = CLIPVision('small_gelu', clip, img_size=48, peft=PEFT['lora'])

    compact_state_hooks(target)
    target.load_state_dict({key.removeprefix('backbone.'): value for key, value
                            in source.state_dict().items() if key.startswith('backbone.')})

    learnt = {name: p for name, p in target.named_parameters() if p.requires_grad}
    assert learnt
    for name, parameter in learnt.items():
        assert parameter.equal(source.backbone.get_parameter(name)), name


def test_what_is_unfrozen_later_is_saved(clip):
    model = trained(clip)
    model.backbone.visual.proj.requires_grad_(True)

    assert 'backbone.visual.proj' in model.state_dict()
    assert 'backbone.visual.proj' not in restorable_keys(model)


def test_fingerprint_sees_a_bit_a_name_and_a_shape():
    base = torch.arange(6.0)
    changed = base.clone()
    changed[3] = torch.nextafter(changed[3], torch.tensor(10.0))
    prints = {int(fingerprint(case)) for case in (
        dict(a=base), dict(a=changed), dict(b=base), dict(a=base.view(2, 3)), {},
        dict(a=base, b=base))}

    assert len(prints) == 6
    assert torch.equal(fingerprint(dict(a=base, b=changed)), fingerprint(dict(b=changed, a=base)))
    assert torch.equal(fingerprint(dict(a=base.half())), fingerprint(dict(a=base)))


def test_meta_device():
    with torch.device('meta'):
        linear = nn.Linear(2, 2).requires_grad_(False)
        declare_restorable(linear)
        compact_state_hooks(linear)

    assert set(linear.state_dict()) == {'restorable_fingerprint'}


def test_buffers_that_are_unset_may_come_with_the_file():
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer('bank', None)

    lazy = Lazy()
    check_state_keys(lazy, dict(bank=torch.zeros(2)))
    check_state_keys(lazy, {})
    with pytest.raises(ValueError, match='unexpected banks'):
        check_state_keys(lazy, dict(banks=torch.zeros(2)))
