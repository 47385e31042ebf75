"""Towers of many families, with random weights: pixels, features, LoRA, tokens, words, files."""
import copy
import importlib.util
import io
import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import open_clip
import pytest
import timm
import torch
from mmengine.registry import DefaultScope
from open_clip import factory
from PIL import Image
from torch import nn

import mmcluspro
from mmcluspro.artefact import TrainedModel
from mmcluspro.artefact.images import list_images
from mmcluspro.artefact.spec import describe_pipeline
from mmcluspro.cli import main
from mmcluspro.datasets.pictures import apply_steps
from mmcluspro.engine.configs import merge_options, pixel_notes
from mmcluspro.engine.launch import read_config
from mmcluspro.errors import DownloadError
from mmcluspro.export.image_side import ImageSide, write_onnx
from mmcluspro.export.text_table import describe
from mmcluspro.models import get_tokenizer
from mmcluspro.models.backbones import CLIPVision, ProjectedBackbone, TimmVision
from mmcluspro.models.classifier import run_images
from mmcluspro.models.clip import load_clip
from mmcluspro.models.peft import LowRank, merge, unmerge
from mmcluspro.models.pixels import Pixels, tower_pixels
from mmcluspro.models.sources import recognise
from mmcluspro.models.text import CLIPText
from mmcluspro.registry import DATASETS, MODELS

SLOW = pytest.mark.slow
TAGS = {
    'ViT-B-32': 'laion2b_s34b_b79k', 'ViT-B-32-quickgelu': 'openai', 'RN50': 'openai',
    'ViT-L-14': 'laion2b_s32b_b82k', 'ViT-L-14-CLIPA': 'datacomp1b', 'ViT-B-16-SigLIP': 'webli',
    'ViT-B-32-SigLIP2-256': 'webli', 'PE-Core-T-16-384': 'meta', 'EVA02-B-16': 'merged2b_s8b_b131k',
    'MobileCLIP-S1': 'datacompdr', 'MobileCLIP2-S0': 'dfndr2b',
    'convnext_base': 'laion400m_s13b_b51k', 'coca_ViT-B-32': 'laion2b_s13b_b90k',
    'ViTamin-S': 'datacomp1b'}
QUICK = ('ViT-B-32', 'ViT-B-32-SigLIP2-256', 'PE-Core-T-16-384')
ARCHS = [arch if arch in QUICK else pytest.param(arch, marks=SLOW) for arch in TAGS]
CONSUMER = Path(__file__).parents[2] / 'docs' / 'examples' / 'onnx_predict.py'
LORA = dict(type='mmcluspro.LoRA', rank=4)


@pytest.fixture
def towers(monkeypatch):
    """A function that makes an architecture shallow: two blocks, one of text, few words."""
    def shallow(name, create=timm.create_model, **fields):
        if name.startswith(('vit_', 'eva')):
            fields['depth'] = 2
        return create(name, **fields)

    def reduce(arch):
        config = copy.deepcopy(open_clip.get_model_config(arch))
        vision, text = config['vision_cfg'], config['text_cfg']
        text['layers'] = 1
        if 'hf_tokenizer_name' in text:
            text['vocab_size'] = 64
        if isinstance(vision.get('layers'), int):
            vision['layers'] = 2
        if 'multimodal_cfg' in config:
            config['multimodal_cfg']['layers'] = 1
        monkeypatch.setitem(factory._MODEL_CONFIGS, arch, config)
        return arch

    monkeypatch.setattr(timm, 'create_model', shallow)
    get_tokenizer.cache_clear()
    yield reduce
    get_tokenizer.cache_clear()


@pytest.fixture
def published(towers, tmp_path, monkeypatch):
    """A function that makes a tag of a shallow architecture, whose download has random weights."""
    def publish(arch):
        towers(arch)
        torch.manual_seed(0)
        file = str(tmp_path / 'weights.pt')
        weights = open_clip.create_model(arch).state_dict()
        if 'text_decoder.text_projection' in weights:  # CoCa's, which open_clip leaves as it comes
            weights['text_decoder.text_projection'].zero_()
        torch.save(weights, file)
        for place in ('open_clip.factory', 'open_clip.pretrained'):
            monkeypatch.setattr(f'{place}.download_pretrained', lambda *_, **__: file)
        monkeypatch.setattr('mmcluspro.models.clip.reachable', lambda *_: True)
        return TAGS[arch]
    return publish


@pytest.fixture(scope='session')
def vocabulary(tmp_path_factory):
    """A sentencepiece vocabulary of a few words, as SigLIP's: the end is 1, no start."""
    library = pytest.importorskip('sentencepiece')
    words = np.array(['a', 'photo', 'of', 'wet', 'dry', 'cat', 'dog', 'old', 'fur', 'red', 'boots',
                      'striped', 'sky', 'blue'])
    choose = np.random.default_rng(0).choice
    content = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter([' '.join(choose(words, 6)) for _ in range(400)]), vocab_size=60,
        model_writer=content, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, hard_vocab_limit=False,
        minloglevel=2)
    path = tmp_path_factory.mktemp('words') / 'words.model'
    path.write_bytes(content.getvalue())
    return str(path)


@pytest.fixture(scope='session')
def photos(tmp_path_factory):
    """Ten pictures of many sizes, and their table."""
    folder = tmp_path_factory.mktemp('photos')
    generator = np.random.default_rng(0)
    rows = ['image,attribute,object,split']
    for i in range(10):
        small = Image.fromarray(generator.integers(0, 256, (7, 9, 3), np.uint8))
        size = 200 + 31 * i, 460 - 27 * i
        small.resize(size, Image.Resampling.BICUBIC).save(folder / f'{i}.png')
        rows.append(f'{i}.png,{"wet" if i % 2 else "dry"},{"cat" if i % 4 < 2 else "dog"},'
                    f'{("train", "val", "test")[i % 3]}')
    (folder / 'table.csv').write_text('\n'.join(rows))
    (folder / 'all.csv').write_text('\n'.join(
        f'{row.rpartition(",")[0]},{"split" if not i else "test"}' for i, row in enumerate(rows)))
    return folder


def zero_shot(arch, tag, photos, vocabulary):
    """Training-free CLIP on the photographs, by the options of a command line."""
    cfg = read_config('clip_zeroshot.py', dataset='own_data')
    merge_options(cfg, {
        'clip.arch': arch, 'clip.pretrained': tag,
        'clip.tokenizer': vocabulary if 'hf_tokenizer_name' in open_clip.get_model_config(
            arch)['text_cfg'] else None,
        'data.data_root': str(photos), 'data.table': 'table.csv'})
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        return cfg, MODELS.build(cfg.model).eval()


@pytest.mark.parametrize('arch', ARCHS)
def test_features_are_open_clips_including_preprocessing(
        arch, published, photos, vocabulary, tmp_path):
    tag = published(arch)
    theirs, _, prepare = open_clip.create_model_and_transforms(arch, tag)
    files = [str(photos / f'{i}.png') for i in range(10)]
    with torch.no_grad():
        expected = theirs.eval().encode_image(torch.stack([
            prepare(Image.open(file)) for file in files]), normalize=False)

    cfg, network = zero_shot(arch, tag, photos, vocabulary)

    # Evaluation: the dataset of the config, through its pipeline.
    spec = dict(cfg.test_dataloader.dataset)
    found = {}
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        for phase in ('train', 'val', 'test'):
            data = DATASETS.build(dict(spec, phase=phase, test_mode=True))
            samples = [data[i] for i in range(len(data))]
            batch = dict(inputs=[sample['inputs'] for sample in samples],
                         data_samples=[sample['data_samples'] for sample in samples])
            features = next(iter(run_images(network, [batch]))).features.composition
            found.update(zip([Path(sample['data_samples'].img_path).name for sample in samples],
                             features))
    assert_features(torch.stack([found[f'{i}.png'] for i in range(10)]), expected)

    # Prediction from files, and the demo's from pictures.
    model = TrainedModel.of(network, cfg)
    for inputs in (files, [Image.open(file) for file in files]):
        prepared = [model.prepare(item) for item in list_images(inputs)]
        assert_features(model.features([image for image, _ in prepared]).composition, expected)

    # ONNX: pixels of the example that has neither torch nor this package.
    if arch not in QUICK:
        return
    runtime = pytest.importorskip('onnxruntime')
    preprocessing, notes = describe(model)
    assert not notes
    write_onnx(ImageSide(network), tmp_path / 'side.onnx', preprocessing['size'], {})
    module = importlib.util.spec_from_file_location('consumer', CONSUMER)
    consumer = importlib.util.module_from_spec(module)
    module.loader.exec_module(consumer)
    images = np.stack([consumer.read_image(file, **preprocessing) for file in files])
    unit, = runtime.InferenceSession(tmp_path / 'side.onnx', providers=[
        'CPUExecutionProvider']).run(None, dict(image=images))
    assert_features(torch.from_numpy(unit), nn.functional.normalize(expected, dim=1))


def assert_features(ours, theirs):
    """Equal to 1e-5 of the largest feature, and different among the pictures."""
    size = theirs.abs().max()
    assert theirs.var(0).max() > 0
    torch.testing.assert_close(ours / size, theirs / size, rtol=0, atol=1e-5)


@pytest.mark.parametrize('arch', ARCHS)
def test_lora_learns_in_every_layer_and_merges(arch, towers):
    targets = dict(targets=['conv1', 'conv3']) if arch == 'RN50' else {}
    torch.manual_seed(0)
    backbone = CLIPVision(towers(arch), peft=dict(LORA, drop_rate=0.1, **targets)).train()
    for name, parameter in backbone.named_parameters():
        if name.endswith('bn3.weight'):  # zero at the start of a ResNet: its blocks do nothing
            parameter.data.fill_(0.5)
    size = backbone.own_pixels.size
    images = torch.randn(2, 3, size, size)
    learned = {name: p for name, p in backbone.named_parameters() if p.requires_grad}
    optimizer = torch.optim.SGD(learned.values(), 0.1)

    f, = backbone(images)
    (f * torch.randn_like(f)).sum().backward()
    optimizer.step()

    assert learned and all('.lora.' in name for name in learned)
    assert all(p.grad.abs().sum() > 0 for name, p in learned.items() if name.endswith('.b'))
    backbone.eval()
    for update in backbone.modules():
        if isinstance(update, LowRank):
            nn.init.normal_(update.b, std=0.02)
    with torch.no_grad():
        apart, = backbone(images)
        assert merge(backbone) > 0
        together, = backbone(images)
        unmerge(backbone)
        assert torch.equal(backbone(images)[0], apart)
    torch.testing.assert_close(together / apart.abs().max(), apart / apart.abs().max(),
                               rtol=0, atol=1e-5)


@pytest.mark.parametrize('arch, width', [
    ('ViT-B-32-SigLIP2-256', 768), ('PE-Core-T-16-384', 192),
    pytest.param('EVA02-B-16', 768, marks=SLOW)])
def test_adapters_and_tokens_in_towers_of_timm(arch, width, towers):
    torch.manual_seed(0)
    backbone = CLIPVision(towers(arch), out_tokens=True, out_layers=(0, -1), project_layers=False,
                          peft=dict(type='mmcluspro.Bottleneck', width=8)).eval()
    plain = CLIPVision(arch).eval()
    plain.load_state_dict(backbone.state_dict(), strict=False)
    side = backbone.own_pixels.size
    images = torch.randn(2, 3, side, side)
    with torch.no_grad():
        found, (f, ) = backbone(images), plain(images)
        # A picture of one patch over and over: alone it gives what all of them give together.
        alone = backbone.visual.trunk.forward_features(images)

    patches = (side // backbone.visual.trunk.patch_embed.patch_size[0]) ** 2
    size = f.abs().max()
    torch.testing.assert_close(found.composition / size, f / size, rtol=0, atol=1e-5)
    assert found.tokens.shape == (2, 1 + patches, f.shape[1])
    assert torch.equal(found.tokens[:, 0], found.composition)
    assert {name: tuple(x.shape) for name, x in found.extra.items()} == {
        'layer_0': (2, 1 + patches, width), 'layer_1': (2, 1 + patches, width)}
    trunk = backbone.visual.trunk
    with torch.no_grad():
        last = trunk.norm(found.extra['layer_1'][:, 1:])
    torch.testing.assert_close(last, alone[:, trunk.num_prefix_tokens:])
    backbone.train()
    out = backbone(images)
    out.tokens.square().sum().backward()
    learned = [(name, p) for name, p in backbone.named_parameters() if p.requires_grad]
    assert len(learned) == 16 and all(
        p.grad.abs().sum() > 0 for name, p in learned if '.up.' in name)


@pytest.mark.parametrize('arch', [
    'MobileCLIP2-S0', pytest.param('convnext_base', marks=SLOW)])
def test_a_token_of_convolutions_is_the_feature_of_a_map_that_repeats_its_place(arch):
    torch.manual_seed(0)
    backbone = CLIPVision(arch, out_tokens=True).eval()
    side, (trunk, head) = backbone.own_pixels.size, (backbone.visual.trunk, backbone.visual.head)
    with torch.no_grad():
        tokens, f = backbone(image := torch.randn(1, 3, side, side))
        places = trunk.forward_features(image)
        height, width = places.shape[2:]
        expected = [head(trunk.forward_head(places[..., row:row + 1, column:column + 1].expand(
            -1, -1, height, width))) for row in range(height) for column in range(width)]
    assert height == width == side // 32 and torch.equal(tokens[:, 0], f)
    expected = torch.stack(expected, dim=1)
    assert expected.std(1).max() > 0
    torch.testing.assert_close(tokens[:, 1:], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize('fields, message', [
    (dict(peft=dict(type='mmcluspro.Bottleneck')), 'needs transformer blocks .* has none. Use '),
    (dict(out_layers=(0, )), 'out_layers needs a vision transformer'),
])
def test_what_means_nothing_for_convolutions_is_refused_by_name(fields, message):
    with torch.device('meta'), pytest.raises(ValueError, match=message):
        CLIPVision('convnext_base', **fields)


def test_pixels_follow_the_tower_and_what_the_config_says_itself_stays(tmp_path):
    cfg = read_config('cluspro_own_data.py')
    assert cfg.model.data_preprocessor['mean'] == [122.7709383, 116.7460125, 104.09373615]
    assert cfg.test_pipeline[1] == dict(type='ResizeEdge', scale=224, edge='short',
                                        backend='pillow', interpolation='bicubic')

    merge_options(cfg, {'clip.arch': 'ViT-B-16-SigLIP2-384', 'clip.pretrained': 'webli'})

    assert cfg.model.data_preprocessor == dict(mean=[127.5] * 3, std=[127.5] * 3, to_rgb=True)
    for phase in ('train', 'val', 'test'):
        steps = cfg[f'{phase}_dataloader'].dataset.pipeline
        assert [step['type'] for step in steps if 'Crop' in step['type']] == []
        assert steps[1] == dict(type='Resize', scale=(384, 384), backend='pillow',
                                interpolation='bicubic')
    assert pixel_notes(cfg) == []

    file = tmp_path / 'own.py'
    file.write_text("_base_ = '{{$MMCLUSPRO_CONFIGS:configs}}/cluspro_own_data.py'\n"
                    "clip = dict(arch='PE-Core-B-16', pretrained='meta')\n"
                    "pixels = dict(size=336, interpolation='bicubic')\n"
                    'model = dict(data_preprocessor=dict(std=[1.0, 2.0, 3.0]))\n')
    own = read_config(file)
    assert own.test_pipeline[1] == dict(type='Resize', scale=(336, 336), backend='pillow',
                                        interpolation='bicubic')
    assert own.model.data_preprocessor['mean'] == [127.5] * 3
    notes = pixel_notes(own)
    assert any('the test pipeline has Resize(scale=(336, 336)' in note for note in notes)


def test_a_file_has_the_pixels_of_most_tags_of_its_architecture(tmp_path):
    assert tower_pixels(dict(type='mmcluspro.CLIPVision', arch='ViT-L-14', pretrained='a.pt')) == (
        tower_pixels(dict(type='mmcluspro.CLIPVision', arch='ViT-L-14', pretrained='openai')))
    assert tower_pixels(dict(type='mmcluspro.CLIPVision', arch='ViT-L-14',
                             pretrained='laion2b_s32b_b82k')).mean == (127.5, ) * 3
    found = tower_pixels(dict(type='mmcluspro.CLIPVision', arch='MobileCLIP2-S0',
                              pretrained='mine.pt'))
    assert (found.mean, found.std, found.size, found.interpolation) == (
        (0, ) * 3, (255, ) * 3, 256, 'bilinear')


@pytest.mark.parametrize('mode', ['shortest', 'longest', 'squash'])
@pytest.mark.parametrize('size', [(300, 200), (201, 333), (97, 64)])
def test_every_way_of_resizing_is_open_clips(mode, size):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), np.uint8))
    config = open_clip.transform.PreprocessCfg(
        size=128, resize_mode=mode, interpolation='bilinear', fill_color=77, mean=(0, 0, 0),
        std=(1, 1, 1))
    expected = open_clip.transform.image_transform_v2(config, is_train=False)(image)
    pixels = Pixels.of().replace(dict(size=128, resize_mode=mode, interpolation='bilinear',
                                      fill_color=77))
    found = apply_steps(np.asarray(image), describe_pipeline(pixels.steps())['steps'])
    assert np.array_equal(found, (expected.numpy() * 255).round().transpose(1, 2, 0))


@pytest.mark.parametrize('arch', ['ViT-B-16-SigLIP', 'ViT-B-32-SigLIP2-256'])
def test_words_of_a_tokenizer_file_without_start_token(arch, towers, vocabulary):
    text = CLIPText(['wet', 'dry'], ['cat', 'dog'], towers(arch), tokenizer=vocabulary,
                    prompt=dict(names='tokens', learn=()))
    pairs = torch.tensor([[0, 0], [1, 1]])
    ids = get_tokenizer(arch, vocabulary)(['a photo of wet cat', 'a photo of dry dog'])
    with torch.no_grad():
        expected = nn.functional.normalize(text.tower.text(ids), dim=1)

    assert not text.prefix_tree and text.tower.context_length == 64
    assert float(text.logit_bias) == -10
    torch.testing.assert_close(text.encode_pairs(pairs), expected)
    learns = CLIPText(['wet', 'dry'], ['cat', 'dog'], arch, tokenizer=vocabulary)
    sum(features.sum() for features in learns(pairs)).backward()
    assert all(p.grad.abs().sum() > 0 for p in learns.prompt.parameters())


def test_a_trained_checkpoint_asks_for_its_tokenizer_and_knows_another(
        towers, vocabulary, photos, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'torch'))
    arch = towers('ViT-B-32-SigLIP2-256')
    torch.save(open_clip.create_model(arch).state_dict(), 'weights.pt')
    here = shutil.copy(vocabulary, tmp_path / 'here.model')
    data = mmcluspro.load_dataset(photos / 'table.csv')
    model = mmcluspro.create_model('csp', data, clip=dict(
        arch=arch, pretrained=str(tmp_path / 'weights.pt'), tokenizer=str(here)))
    mmcluspro.train(model, data, epochs=1, work_dir='run')
    files = [str(photos / f'{i}.png') for i in range(4)]
    new = [('red', 'boots'), ('blue', 'sky')]
    expected = [answer.best for answer in model.predict(files, workers=0, pairs=new)]
    saved = model.save('folder/')
    model.save('alone.safetensors', standalone=True)
    elsewhere = here.rename(tmp_path / 'elsewhere.model')
    get_tokenizer.cache_clear()

    for path in (model.name, saved):
        with warnings.catch_warnings():
            warnings.filterwarnings('error', message='.*is not the tokenizer')
            again = mmcluspro.load(path, 'cpu', weights=dict(tokenizer=elsewhere))
        found = again.predict(files, workers=0, pairs=new)
        assert [answer.best for answer in found] == expected
    with pytest.raises(ValueError, match='Give that file with --weights tokenizer=FILE'):
        mmcluspro.load(saved, 'cpu')
    assert main(['predict', 'alone.safetensors', files[0], '--weights', f'tokenizer={elsewhere}',
                 '--device', 'cpu']) == 0
    assert f'{files[0]}: ' in capsys.readouterr().out
    content = elsewhere.read_bytes()
    elsewhere.write_bytes(content + b'\x1a\x00')
    for path in (model.name, saved, 'alone.safetensors'):
        with pytest.warns(UserWarning, match='elsewhere.model is not the tokenizer file that'):
            mmcluspro.load(path, 'cpu', weights=dict(tokenizer=elsewhere))


def test_a_tokenizer_json_reads_like_its_library(tmp_path, towers):
    library = pytest.importorskip('tokenizers')
    model = library.Tokenizer(library.models.WordLevel(
        {'</s>': 1, '<pad>': 0, '<unk>': 2, 'wet': 3, 'cat': 4}, unk_token='<unk>'))
    model.pre_tokenizer = library.pre_tokenizers.Whitespace()
    model.post_processor = library.processors.TemplateProcessing(
        single='$A </s>', special_tokens=[('</s>', 1)])
    path = tmp_path / 'tokenizer.json'
    model.save(str(path))
    arch = towers('ViT-B-32-SigLIP2-256')

    assert get_tokenizer(arch, str(path))(['Wet, cat!'])[0, :5].tolist() == [3, 4, 1, 0, 0]
    get_tokenizer.cache_clear()
    (tmp_path / 'tokenizer_config.json').write_text(json.dumps(dict(pad_token='</s>')))
    assert get_tokenizer(arch, str(path))(['wet'], context_length=4).tolist() == [[3, 1, 1, 1]]
    (tmp_path / 'broken.json').write_text('{')
    with pytest.raises(ValueError, match='it is no tokenizer'):
        get_tokenizer(arch, str(tmp_path / 'broken.json'))


def test_without_extra_network_or_file_one_sentence_says_what_is_missing(monkeypatch):
    arch, find = 'ViT-B-16-SigLIP', importlib.import_module

    def missing(name, *rest):
        if name == 'transformers':
            raise ModuleNotFoundError(name)
        return find(name, *rest)

    monkeypatch.setattr('mmcluspro.models.text.tokenizer.import_module', missing)
    with pytest.raises(ImportError, match=r'needs transformers, which is not installed: .*\[hf\]'):
        get_tokenizer(arch)
    monkeypatch.setattr('mmcluspro.models.text.tokenizer.import_module', lambda _: None)
    monkeypatch.setattr('mmcluspro.models.text.tokenizer.reachable', lambda _: False)
    with pytest.raises(DownloadError, match='Fetch .*timm/ViT-B-16-SigLIP/resolve/main/tokenizer'
                       '.json elsewhere, and give it in the config: clip=dict'):
        get_tokenizer(arch)
    with pytest.raises(FileNotFoundError, match="text.tokenizer='none.json' does not exist"):
        get_tokenizer(arch, 'none.json')


@pytest.mark.parametrize('arch, kind, shape, class_token', [
    ('vit_tiny_patch16_224', 'raw', (2, 197, 192), True),
    ('vit_small_patch16_dinov3.lvd1689m', 'raw', (2, 257, 384), True),
    ('vit_pe_spatial_tiny_patch16_512.fb', 'raw', (2, 1025, 192), True),
    ('vit_base_patch32_siglip_256.v2_webli', 'raw', (2, 65, 768), False),
    ('convnext_atto', 'featmap', (2, 320, 7, 7), None),
    ('convnext_atto', 'pooled', (2, 320), None)])
def test_towers_of_timm_without_words(arch, kind, shape, class_token, towers, tmp_path):
    source = timm.create_model(arch, num_classes=0).eval()
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.normal_(std=0.1)
    torch.save(source.state_dict(), tmp_path / 'weights.pt')
    tower = TimmVision(arch, str(tmp_path / 'weights.pt'), out_type=kind).eval()
    side = tower.own_pixels.size
    images = torch.randn(2, 3, side, side)
    with torch.no_grad():
        theirs, (found, ) = source.forward_features(images), tower(images)
        if kind == 'pooled':
            assert torch.equal(found, source.forward_head(theirs, pre_logits=True))
        if class_token is not None:
            patches = theirs[:, source.num_prefix_tokens:]
            assert torch.equal(found[:, 1:], patches)
            first = theirs[:, 0] if class_token else patches.mean(1)
            assert torch.equal(found[:, 0], first)
    data = timm.data.resolve_data_config(pretrained_cfg=source.pretrained_cfg)
    assert tower.own_pixels.mean == tuple(round(255 * value, 8) for value in data['mean'])
    assert tuple(found.shape) == shape and data['input_size'][-1] == side


def test_a_tower_of_timm_inside_a_projection_learns_with_lora(towers):
    backbone = ProjectedBackbone(
        dict(type='mmcluspro.TimmVision', arch='vit_small_patch16_dinov3.lvd1689m'), 768, 32,
        pool='cls_avg', out_tokens=True, out_layers=(0, ), peft=LORA).train()

    found = backbone(torch.randn(2, 3, 256, 256))
    found.composition.sum().backward()

    assert found.extra['layer_0'].shape == (2, 257, 32)
    learned = {name: p for name, p in backbone.named_parameters() if p.requires_grad}
    assert {name.split('.')[-4] for name in learned if 'qkv' in name} == {'qkv'}
    assert all(p.grad.abs().sum() > 0 for name, p in learned.items() if name.endswith('.b'))


def test_weights_of_another_tower_of_timm_are_named(tmp_path):
    torch.save(timm.create_model('convnext_atto', num_classes=0).state_dict(), tmp_path / 'w.pt')
    with pytest.raises(ValueError, match="does not fit backbone.arch='vit_tiny_patch16_224': "
                       '.* is missing'):
        TimmVision('vit_tiny_patch16_224', str(tmp_path / 'w.pt'))
    with pytest.raises(ValueError, match="'vit_tinny' is not an architecture of timm"):
        TimmVision('vit_tinny')


@pytest.mark.parametrize('arch', ['ViT-B-32', 'ViT-B-32-SigLIP2-256', 'PE-Core-T-16-384'])
def test_files_of_clip_are_known_by_their_keys(arch, tmp_path, monkeypatch):
    with torch.device('meta'):
        weights = load_clip(arch).state_dict()
    monkeypatch.setattr('mmcluspro.models.clip.read_weights', lambda _: (weights, False))
    found = recognise(tmp_path / 'mine.bin')
    assert (found.kind, found.arch) == ('clip', arch)


@pytest.mark.parametrize('arch, expected', [
    ('vit_small_patch16_dinov3', ('timm', 'vit_small_patch16_dinov3', 384, 0)),
    ('vit_huge_plus_patch16_dinov3', ('timm', 'vit_huge_plus_patch16_dinov3', 1280, 0)),
    ('vit_base_patch14_dinov2', ('dinov2', 'base', 768, 0)),
    ('vit_small_patch14_reg4_dinov2', ('timm', 'vit_small_patch14_reg4_dinov2', 384, 0))])
def test_files_of_dino_are_known_by_their_keys(arch, expected, tmp_path, monkeypatch):
    with torch.device('meta'):
        weights = timm.create_model(arch, num_classes=0).state_dict()
    monkeypatch.setattr('mmcluspro.models.clip.read_weights', lambda _: (weights, False))
    assert recognise(tmp_path / 'mine.pth') == expected


def test_files_of_nothing_known_are_refused(tmp_path):
    torch.save(dict(a=torch.zeros(3)), tmp_path / 'mine.pt')
    with pytest.raises(ValueError, match='none that is known: DINOv2, DINOv3, or both towers'):
        recognise(tmp_path / 'mine.pt')
