import importlib
import json
from pathlib import Path

import open_clip
import pytest
import torch
from mmengine.registry import DefaultScope
from open_clip.transformer import QuickGELU
from torch import nn

from mmcluspro.engine.launch import read_config
from mmcluspro.models import clip, get_tokenizer
from mmcluspro.models.clip import load_clip
from mmcluspro.registry import MODELS
from mmcluspro.utils.files import WEIGHTS


def save(path, state, **extra):
    torch.save(dict(state_dict=state, **extra) if extra else state, path)
    return str(path)


def activation(model):
    return type(model.visual.transformer.resblocks[0].mlp.gelu)


@pytest.fixture
def source():
    torch.manual_seed(0)
    return open_clip.create_model('small_gelu')


class Archive(nn.Module):
    """OpenAI's way of shipping: half precision and three scalars among the weights."""

    def __init__(self, model):
        super().__init__()
        model = model.half()
        for name, child in model.named_children():
            self.add_module(name, child)
        for name, parameter in model.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        for name, value in (('input_resolution', 32), ('context_length', 16), ('vocab_size', 512)):
            self.register_buffer(name, torch.tensor(value))

    def forward(self, x):
        return x + self.logit_scale


def save_archive(path, model):
    torch.jit.trace(Archive(model), torch.ones(1, dtype=torch.half)).save(str(path))
    return str(path)


@pytest.mark.parametrize('wrap', ['plain', 'checkpoint', 'module', 'safetensors'])
def test_a_file_in_any_of_open_clips_forms_gives_the_same_model(tmp_path, source, wrap):
    state = source.state_dict()
    if wrap == 'safetensors':
        from safetensors.torch import save_file
        path = str(tmp_path / 'weights.safetensors')
        save_file(state, path)
    elif wrap == 'module':
        path = save(tmp_path / 'w.pt', {f'module.{k}': v for k, v in state.items()}, epoch=3)
    elif wrap == 'checkpoint':
        path = save(tmp_path / 'w.bin', state, name='run')
    else:
        path = save(tmp_path / 'w.pt', state)

    model = load_clip('small_gelu', path)

    for key, value in model.state_dict().items():
        assert torch.equal(value, state[key]), key
    assert not model.training and not any(p.requires_grad for p in model.parameters())
    image, text = torch.randn(2, 3, 32, 32), torch.randint(512, (2, 16))
    source.eval().requires_grad_(False)
    assert torch.equal(model.encode_image(image), source.encode_image(image))
    assert torch.equal(model.encode_text(text), source.encode_text(text))


def test_half_precision_becomes_single(tmp_path, source):
    path = save(tmp_path / 'w.pt', source.half().state_dict())

    model = load_clip('small_gelu', path)

    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert torch.equal(model.visual.proj, source.visual.proj.float())


@pytest.mark.parametrize('arch', ['small_vit', 'small_vit-quickgelu'])
@pytest.mark.parametrize('form', ['archive', 'state dict'])
def test_openai_weights_bring_quickgelu(tmp_path, source, arch, form):
    path = save_archive(tmp_path / 'w.pt', source)
    if form == 'state dict':
        path = save(tmp_path / 's.pt', torch.jit.load(path).state_dict())

    model = load_clip(arch, path)

    assert activation(model) is QuickGELU
    assert torch.equal(model.visual.conv1.weight, source.visual.conv1.weight.float())


@pytest.mark.parametrize('kwargs', [
    dict(arch='small_vit', quickgelu=False), dict(arch='small_gelu')])
def test_openai_weights_with_gelu_are_refused(tmp_path, source, kwargs):
    path = save_archive(tmp_path / 'w.pt', source)

    with pytest.raises(ValueError, match=r"pretrained='.*w\.pt' means QuickGELU"):
        load_clip(pretrained=path, **kwargs)


def test_a_file_without_marks_needs_a_word_on_the_activation(tmp_path, source):
    path = save(tmp_path / 'w.pt', source.state_dict())

    with pytest.raises(ValueError, match=r"Set quickgelu=True \(or arch='small_vit-quickgelu'\)"):
        load_clip('small_vit', path)
    assert activation(load_clip('small_vit', path, quickgelu=False)) is nn.GELU
    assert activation(load_clip('small_vit', path, quickgelu=True)) is QuickGELU
    assert activation(load_clip('small_vit-quickgelu', path)) is QuickGELU
    with pytest.raises(ValueError, match='quickgelu=False means GELU'):
        load_clip('small_vit-quickgelu', path, quickgelu=False)


@pytest.mark.parametrize('arch, tag, quickgelu', [
    ('ViT-L-14-quickgelu', 'laion2b_s32b_b82k', None), ('ViT-L-14', 'openai', False),
    ('ViT-L-14', 'laion2b_s32b_b82k', True), ('RN50-quickgelu', 'openai', False)])
def test_a_tag_that_contradicts_is_refused_before_the_download(monkeypatch, arch, tag, quickgelu):
    def fail(tag):
        raise AssertionError('downloaded')

    monkeypatch.setattr(clip.open_clip_pretrained, 'download_pretrained', fail)
    with pytest.raises(ValueError, match=f"pretrained='{tag}' means .*GELU"):
        load_clip(arch, tag, quickgelu=quickgelu)


@pytest.mark.parametrize('tag_quickgelu', [True, False])
def test_a_tag_chooses_the_activation(monkeypatch, tmp_path, source, tag_quickgelu):
    path = save(tmp_path / 'w.pt', source.state_dict())
    known = open_clip.pretrained._PRETRAINED
    monkeypatch.setitem(known, 'small_vit', {'ours': dict(quick_gelu=tag_quickgelu)})
    monkeypatch.setattr(clip.open_clip_pretrained, 'download_pretrained', lambda tag: path)

    model = load_clip('small_vit', 'ours')

    assert activation(model) is (QuickGELU if tag_quickgelu else nn.GELU)
    assert torch.equal(model.visual.proj, source.visual.proj)


def test_a_failed_download_says_what_to_do(monkeypatch):
    def fail(tag):
        raise OSError('no route to host')

    monkeypatch.setattr(clip.open_clip_pretrained, 'download_pretrained', fail)
    with pytest.raises(RuntimeError, match=r"(?s)no route to host.*arch='ViT-L-14'"):
        load_clip('ViT-L-14', 'openai')


def test_without_a_network_the_hub_is_not_asked_again_and_again(monkeypatch):
    constants = importlib.import_module('huggingface_hub.constants')

    def fail(tag):
        assert constants.HF_HUB_OFFLINE is True
        raise OSError('not in the cache')

    def refuse(*args, **kwargs):
        raise OSError('no network')

    monkeypatch.setattr('mmcluspro.utils.download.getproxies', dict)
    monkeypatch.setattr('socket.create_connection', refuse)
    monkeypatch.setattr(clip.open_clip_pretrained, 'download_pretrained', fail)
    with pytest.raises(RuntimeError, match='not in the cache'):
        load_clip('ViT-L-14', 'openai')
    assert not constants.HF_HUB_OFFLINE


@pytest.mark.parametrize('img_size', [16, 48])
@pytest.mark.parametrize('half', [False, True])
def test_another_image_size_resamples_the_positions(tmp_path, source, img_size, half):
    if half:  # stored in half precision, resampled in single
        source = source.half()
    path = save(tmp_path / 'w.pt', source.state_dict())
    source = source.float()

    model = load_clip('small_gelu', path, img_size=img_size)

    old, new = source.visual.positional_embedding, model.visual.positional_embedding
    grid = img_size // 8
    expected = nn.functional.interpolate(
        old[1:].T.reshape(1, 48, 4, 4), size=(grid, grid), mode='bicubic', antialias=True)
    assert torch.equal(new[0], old[0])
    torch.testing.assert_close(new[1:], expected[0].flatten(1).T, atol=1e-6, rtol=1e-6)
    assert model.encode_image(torch.randn(1, 3, img_size, img_size)).shape == (1, 24)


def test_a_timm_tower_takes_another_image_size(tmp_path):
    timm_model = open_clip.create_model('small_timm')
    path = save(tmp_path / 'w.pt', timm_model.state_dict())

    model = load_clip('small_timm', path, img_size=96)

    assert model.encode_image(torch.randn(1, 3, 96, 96)).shape == (1, 24)


@pytest.mark.parametrize('change, message', [
    (dict(drop='visual.proj'), r'visual\.proj is missing'),
    (dict(add=('extra.weight', torch.zeros(2))), r'extra\.weight is unexpected'),
    (dict(add=('visual.proj', torch.zeros(48, 8))),
     r'visual\.proj is \(48, 8\) in the file and \(48, 24\) in the model'),
    (dict(add=('visual.positional_embedding', torch.zeros(10, 48))), r'Set img_size to resample'),
])
def test_weights_that_do_not_fit_name_the_key(tmp_path, source, change, message):
    state = source.state_dict()
    state.pop(change.get('drop'), None)
    state.update([change['add']] if 'add' in change else [])

    with pytest.raises(ValueError, match=message):
        load_clip('small_gelu', save(tmp_path / 'w.pt', state))


class Bomb:
    def __reduce__(self):
        return pytest.fail, ('the file ran code', )


def test_a_pickle_with_code_is_refused(tmp_path, source):
    path = save(tmp_path / 'w.pt', dict(source.state_dict(), bomb=Bomb()))

    with pytest.raises(ValueError, match='it was refused, because it names'):
        load_clip('small_gelu', path)


def test_names_that_do_not_exist(tmp_path):
    with pytest.raises(ValueError, match=r"arch='ViT-L14'.*ViT-L-14"):
        load_clip('ViT-L14')
    with pytest.raises(FileNotFoundError, match=r'/none\.pt.*nor a tag of small_gelu'):
        load_clip('small_gelu', str(tmp_path / 'none.pt'))
    with pytest.raises(FileNotFoundError, match='laion2b_s32b_b82k'):
        load_clip('ViT-L-14', 'laion2b')


def test_something_else_than_weights_is_refused(tmp_path):
    with pytest.raises(ValueError, match='got list'):
        load_clip('small_gelu', save(tmp_path / 'w.pt', [1, 2]))


def test_meta_device_and_tokenizer():
    with torch.device('meta'):
        model = load_clip('ViT-L-14')

    assert {p.device.type for p in model.parameters()} == {'meta'}
    assert get_tokenizer('small_vit')(['wet cat']).shape == (1, 16)


def test_tiny_clip_is_shipped():
    model = load_clip('tiny_clip', 'tiny_clip')

    config = json.loads((clip.CONFIGS / 'tiny_clip.json').read_text())
    assert model.visual.output_dim == config['embed_dim']


def test_both_towers_of_a_classifier_share_one_reading(monkeypatch):
    read, load = [], torch.load
    monkeypatch.setattr(torch, 'load', lambda file, **kwargs: read.append(
        Path(file).name) or load(file, **kwargs))
    cfg = read_config('baseline_shapes.py')
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = MODELS.build(cfg.model)
    assert read == ['tiny_clip.pt']
    weights = load(WEIGHTS / 'tiny_clip.pt', weights_only=True)
    text, image = model.head.text.state_dict(), model.backbone.state_dict()
    for state, name in ((text, 'token_embedding.weight'), (image, 'visual.conv1.weight')):
        found = next(value for key, value in state.items() if key.endswith(name))
        assert found.equal(weights[name].float())
    MODELS.build(cfg.model)
    assert read == ['tiny_clip.pt'] * 2  # nothing is kept in memory
