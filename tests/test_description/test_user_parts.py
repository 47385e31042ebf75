"""What only the user may name: modules, configs, and the weights of frozen towers."""
import argparse
import sys
from pathlib import Path

import pytest
import torch
from mmengine.registry import MODELS as ROOT
from mmengine.registry import DefaultScope

from mmcluspro import load
from mmcluspro.artefact.spec import Refusal, checked, describe, import_modules
from mmcluspro.cli.flags import add_model_flags, model_options
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.engine.hooks import DescriptionHook
from mmcluspro.engine.launch import read_config
from mmcluspro.errors import FileError
from mmcluspro.registry import MODELS
from mmcluspro.utils.files import WEIGHTS

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
TINY = WEIGHTS / 'tiny_clip.pt'


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A package of the user's with a neck of its own."""
    (tmp_path / 'own_parts.py').write_text('''
from mmcluspro.models.necks import PrimitiveAdapter
from mmcluspro.registry import MODELS

@MODELS.register_module()
class OwnNeck(PrimitiveAdapter):
    def __init__(self, shift, inner=None, **kwargs):
        super().__init__(**kwargs)
        self.shift, self.inner = shift, inner
''')
    monkeypatch.syspath_prepend(tmp_path)
    yield 'own_parts'
    sys.modules.pop('own_parts', None)
    MODELS.module_dict.pop('OwnNeck', None)


def write(path, description=None, change=lambda cfg: None, **meta):
    cfg = read_config(CONFIGS / 'baseline_shapes.py')
    change(cfg)
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = MODELS.build(cfg.model)
    dataset_meta = ShapesCZSL(phase='train', lazy_init=True).metainfo
    meta = dict(dict(description=description or describe(cfg), dataset_meta=dataset_meta), **meta)
    torch.save(dict(state_dict=model.state_dict(), meta=meta), path)
    return model


def own_neck(cfg):
    cfg.model.neck = dict(type='mmcluspro.OwnNeck', shift=0.5, in_channels=64,
                          inner=dict(type='mmcluspro.LoRA', rank=3))


def test_a_class_of_another_package_needs_the_users_word(module, tmp_path):
    __import__(module)
    path = tmp_path / 'own.pth'
    write(path, change=own_neck)
    with pytest.raises(FileError, match=r"neck\.type is 'OwnNeck'.*--import"):
        load(path)  # although it is registered in this process
    with pytest.raises(FileError, match='OwnNeck'):
        load(path, imports=['json'])
    model = load(path, imports=[module]).network
    assert type(model.neck).__name__ == 'OwnNeck' and model.neck.shift == 0.5


@pytest.fixture
def tagger(tmp_path, monkeypatch):
    """A project with a registry, a scope and a head of its own."""
    (tmp_path / 'tagger_parts.py').write_text('''
from typing import Annotated
from mmengine.registry import MODELS as ROOT, Registry
from mmcluspro.fields import Unsaved, number
from mmcluspro.models.heads import ThreePathHead

PARTS = Registry('model', parent=ROOT, scope='tagger', locations=['tagger_parts'])

@PARTS.register_module()
class ScaledHead(ThreePathHead):
    def __init__(self, *args, factor: Annotated[float, number(0, 10)] = 1.0,
                 noise: Unsaved[float] = 0.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.factor = factor
''')
    monkeypatch.syspath_prepend(tmp_path)
    yield 'tagger_parts'
    sys.modules.pop('tagger_parts', None)
    ROOT.children.pop('tagger', None)


@pytest.mark.parametrize('scope, kind', [
    ('mmpretrain', 'tagger.ScaledHead'), ('tagger', 'ScaledHead')])
def test_a_head_of_another_projects_registry_predicts(scope, kind, tagger, tmp_path):
    __import__(tagger)

    def change(cfg):
        cfg.default_scope = scope
        cfg.model.head.update(type='tagger.ScaledHead', factor=2.0, noise=0.3)
    path = tmp_path / 'scaled.pth'
    cfg = read_config(CONFIGS / 'baseline_shapes.py')
    change(cfg)
    cfg.model.head.type = kind
    found = describe(cfg)['model']['head']
    assert found['type'] == 'tagger.ScaledHead' and 'noise' not in found
    write(path, change=change)
    with pytest.raises(FileError, match=r"head\.type is 'tagger\.ScaledHead'.*--import"):
        load(path)
    assert load(path, imports=[tagger]).network.head.factor == 2.0
    for wrong in (dict(factor=11.0), dict(noise=0.1), dict(type='tagger.parts.ScaledHead')):
        with pytest.raises(Refusal):
            checked(dict(format=1, model=dict(describe(cfg)['model'], head=dict(found, **wrong))),
                    (tagger, ))


@pytest.mark.parametrize('name', ['torch', 'mmpretrain.models', 'timm', 'os'])
def test_other_packages_cannot_be_opened_to_a_file(name):
    with pytest.raises(ValueError, match='--import is for a module of your own.*--config'):
        import_modules([name])


def test_a_module_that_is_not_there():
    with pytest.raises(ValueError, match='no_such_module: the module cannot be imported'):
        import_modules(['no_such_module'])


@pytest.mark.parametrize('fields', [
    dict(inner=dict(type='os.system')), dict(inner=dict(type='mmpretrain.ResNet', depth=18)),
    dict(_scope_='mmpretrain'), dict(inner={'_scope_': 'x'}), dict(shift=b'x'),
    dict(inner=dict(type='CLIPVision', arch='tiny_clip', pretrained='/etc/passwd'))])
def test_fields_of_an_own_class_are_plain_data(fields, module):
    __import__(module)
    cfg = read_config(CONFIGS / 'baseline_shapes.py')
    own_neck(cfg)
    description = describe(cfg)
    assert checked(description, (module, ))
    description['model']['neck'].update(fields)
    with pytest.raises(Refusal):
        checked(description, (module, ))


def test_a_config_of_the_users_is_built(tmp_path):
    path = tmp_path / 'a.pth'
    write(path, description=dict(format=1, model='nonsense'))
    cfg = read_config(CONFIGS / 'baseline_shapes.py')
    model = load(path, config=cfg)
    assert model.config is cfg and model.spec['model']['backbone']['arch'] == 'tiny_clip'


def from_file(cfg):
    cfg.model.backbone.pretrained = cfg.model.head.text.pretrained = str(TINY)


def test_weights_of_a_local_file_are_given_again(tmp_path):
    path = tmp_path / 'local.pth'
    expected = write(path, change=from_file).eval()
    assert str(TINY) not in str(torch.load(path)['meta'])
    with pytest.raises(FileError, match='the frozen weights of the backbone.*--weights'):
        load(path)
    with pytest.raises(FileError, match='the frozen weights of the text'):
        load(path, weights=dict(backbone=TINY))
    image = torch.randn(1, 3, 48, 48)
    for weights in (TINY, dict(backbone=TINY, text=str(TINY))):
        with torch.no_grad():
            got, want = (m.extract_feat(image).paths.values() for m in (
                load(path, weights=weights).network, expected))
        assert all(a.equal(b) for a, b in zip(got, want))


def test_other_weights_are_found_out(tmp_path):
    path, other = tmp_path / 'local.pth', tmp_path / 'other.pt'
    write(path, change=from_file)
    state = torch.load(TINY)
    state = {key: value.clone() for key, value in state.items()}
    state['visual.proj'] += 1e-3
    torch.save(state, other)
    with pytest.raises(ValueError, match='those of this model are others'):
        load(path, weights=other)


def test_a_checkpoint_with_all_weights_needs_no_file(tmp_path):
    def full(cfg):
        from_file(cfg)
        cfg.model.full_state = True
    written = write(tmp_path / 'full.pth', change=full)
    loaded = dict(load(tmp_path / 'full.pth').network.named_parameters())
    frozen = [name for name, p in written.named_parameters() if not p.requires_grad]
    assert len(frozen) > 50
    for name in frozen:
        torch.testing.assert_close(loaded[name], written.get_parameter(name))


def test_flags():
    parser = argparse.ArgumentParser()
    add_model_flags(parser)
    words = ['--import', 'a', '--import', 'b.c', '--weights', 'backbone=x.pt', 'words=y.bin']
    assert model_options(parser.parse_args(words)) == dict(
        config=None, imports=['a', 'b.c'], weights=dict(backbone='x.pt', words='y.bin'))
    assert model_options(parser.parse_args(['--weights', 'odd=name.pt']))['weights'] == (
        'odd=name.pt')
    with pytest.raises(ValueError, match='--weights takes one file'):
        model_options(parser.parse_args(['--weights', 'a.pt', 'text=b.pt']))


class Runner:
    """What the hook looks at."""
    train_loop = val_loop = None

    def __init__(self, cfg, model):
        self.cfg, self.model, self.said = cfg, model, []
        self.logger = argparse.Namespace(warning=self.said.append)


def test_the_hook_describes_and_spells_functions_out(tmp_path):
    def change(cfg):
        cfg.model.head.text.readable = 'string.capwords'
    cfg = read_config(CONFIGS / 'baseline_shapes.py')
    change(cfg)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        runner = Runner(cfg, MODELS.build(cfg.model))
    checkpoint = dict(meta={})
    DescriptionHook().before_save_checkpoint(runner, checkpoint)
    found = checked(checkpoint['meta']['description'])
    assert found['model']['head']['text']['readable']['red'] == 'Red'
    assert cfg.model.head.text.readable == 'string.capwords'  # the config stays


def test_the_hook_warns_once_about_what_cannot_be_described():
    cfg = read_config(CONFIGS / 'baseline_shapes.py')
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        runner = Runner(cfg, MODELS.build(cfg.model))
    cfg.model.type = 'own.Classifier'
    hook, checkpoint = DescriptionHook(), dict(meta={})
    for _ in range(2):
        hook.before_save_checkpoint(runner, checkpoint)
    assert 'description' not in checkpoint['meta'] and len(runner.said) == 1
    assert '--config FILE' in runner.said[0]
