"""Files of a stranger: what a description tries to make the reader do."""
import socket
import sys
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope

from mmcluspro import load
from mmcluspro.artefact.spec import describe
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.engine.launch import read_config
from mmcluspro.errors import FileError
from mmcluspro.registry import MODELS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope='module')
def good():
    """Config, weights and labels of a small model."""
    cfg = read_config(ROOT / 'configs' / 'baseline_shapes.py')
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        weights = MODELS.build(cfg.model).state_dict()
    return cfg, weights, ShapesCZSL(phase='train', lazy_init=True).metainfo


@pytest.fixture
def attack(good, tmp_path, monkeypatch):
    """Writes a file with changed config fields; nothing may connect."""
    def refuse(*args, **kwargs):
        raise AssertionError('the file made the machine connect')
    monkeypatch.setattr(socket.socket, 'connect', refuse)
    monkeypatch.chdir(tmp_path)
    cfg, weights, dataset_meta = good

    def write(change):
        changed = Config(cfg.to_dict())
        change(changed)
        meta = dict(dataset_meta=dict(dataset_meta), description=written_by_hand(changed),
                    cfg="__import__('os').mkdir('owned')")  # text for people, which nobody runs
        torch.save(dict(state_dict=weights, meta=meta), tmp_path / 'evil.pth')
        return tmp_path / 'evil.pth'

    return write


def written_by_hand(cfg):
    """The same attack in the words of a description, past our own writer's care."""
    found = describe(cfg)
    if 'no_preparation' in found:
        steps = cfg.test_dataloader.dataset.pipeline[:-1]
        found['preparation'] = dict(decoder='cv2', steps=[dict(step) for step in steps])
    for part, source in ((found['model']['backbone'], cfg.model.backbone),
                         (found['model']['head'].get('text', {}), cfg.model.head.get('text', {}))):
        part.update({name: source[name] for name in ('pretrained', 'init_cfg') if name in source})
    return found


def pipeline(*steps):
    def change(cfg):
        cfg.test_dataloader.dataset.pipeline = [*steps, dict(type='PackInputs')]
    return change


COMMAND = "float32 if not __import__('os').mkdir('owned') else 0"


def test_an_expression_in_a_pipeline_is_never_evaluated(attack, tmp_path):
    path = attack(pipeline(dict(type='torchvision/ConvertImageDtype', dtype=COMMAND)))
    with pytest.raises(ValueError):
        load(path, 'cpu').prepare.steps  # noqa: B018
    assert not (tmp_path / 'owned').exists()


@pytest.mark.parametrize('readable', [
    'mmcluspro.datasets.names.resolve_readable', 'os.system', 'mmcluspro.cli.main'])
def test_a_function_of_the_files_choice_is_never_called(readable, attack, tmp_path, monkeypatch):
    (tmp_path / 'evil_module.py').write_text("open('owned', 'w')")
    monkeypatch.syspath_prepend(tmp_path)

    def change(cfg):
        cfg.model.head.text.readable = readable
    with pytest.raises(FileError, match='readable'):
        load(attack(change))
    assert not (tmp_path / 'owned').exists() and 'evil_module' not in sys.modules


@pytest.mark.parametrize('part', [
    dict(type='TIMMBackbone', model_name='resnet18', pretrained=True,
         pretrained_cfg=dict(url='http://evil.example/w.pth')),
    dict(type='mmpretrain.TIMMBackbone', model_name='hf-hub:evil/model', pretrained=True),
    dict(type='mmcluspro.CLIPVision', arch='hf-hub:evil/model', pretrained=None),
    dict(type='mmcluspro.CLIPVision', arch='local-dir:/etc', pretrained=None),
    dict(type='mmpretrain.ResNet', depth=18,
         init_cfg=dict(type='Pretrained', checkpoint='http://evil.example/w.pth')),
    dict(type='HuggingFaceBackbone', model_name='evil/model'),
])
def test_no_address_is_fetched(part, attack):
    def change(cfg):
        cfg.model.backbone = part
    with pytest.raises(ValueError):  # or a state dict that does not fit
        load(attack(change))


@pytest.mark.parametrize('value', ['http://evil.example/w.pt', '/etc/passwd', '../secret.pt'])
def test_no_path_of_the_file_is_opened(value, attack, monkeypatch):
    from mmcluspro.models import clip
    read = []
    monkeypatch.setattr(clip, 'read_weights', lambda path: read.append(path))

    def change(cfg):
        cfg.model.backbone.pretrained = value
        cfg.model.head.text.pretrained = value
    with pytest.raises(FileError):
        load(attack(change))
    assert not read


@pytest.mark.parametrize('kind', [
    'os.system', 'mmengine.load', 'mmcluspro.engine.launch.os.system', 'subprocess.run',
    'mmpretrain.ImageClassifier', 'LoRA', 'torch.load'])
@pytest.mark.parametrize('place', ['backbone', 'neck', 'head', 'text', 'peft'])
def test_no_class_of_the_files_choice_is_built(place, kind, attack):
    def change(cfg):
        part = dict(type=kind, command='mkdir owned', file='owned', rank=1)
        if place == 'text':
            cfg.model.head.text = part
        elif place == 'peft' and kind != 'LoRA':
            cfg.model.backbone.peft = part
        else:
            cfg.model['head' if place == 'peft' else place] = part
    with pytest.raises(FileError, match='refused'):
        load(attack(change))


def test_a_scope_is_refused(attack):
    def change(cfg):
        cfg.model.backbone.peft._scope_ = 'evil'
        cfg.model.backbone.peft.rank = 10**9
    with pytest.raises(FileError, match='refused'):
        load(attack(change))
