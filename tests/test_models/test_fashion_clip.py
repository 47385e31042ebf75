"""fashion_clip: a text tower and a projection beside a locked DINOv2, and how it is pre-trained."""
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mmcluspro.datasets import write_layout
from mmcluspro.features import PhaseWriter, frozen_encoder, start_folder
from mmcluspro.models import compact_state_hooks, get_tokenizer
from mmcluspro.models.clip import TextHalf, load_clip
from mmcluspro.registry import MODELS

TOOLS = Path(__file__).resolve().parents[2] / 'tools'
WIDTH, DEPTH, PATCH, SIDE = 12, 2, 4, 12
PAIRS = {'train': [('Red', 'Tops'), ('Navy_Blue', 'Ties')],
         'val': [('Red', 'Tops'), ('Red', 'Ties')],
         'test': [('Navy_Blue', 'Ties'), ('Navy_Blue', 'Tops')]}
DINO = dict(type='mmcluspro.DINOv2', patch_size=PATCH, img_size=SIDE, arch=dict(
    embed_dims=WIDTH, num_layers=DEPTH, num_heads=3, feedforward_channels=24))
FACTS = dict(backbone={}, pool='cls_avg', weights={}, fingerprint=0, pipeline=[], preprocessor={},
             dtype='float32', shard_size=64)


@pytest.fixture(scope='module')
def tool():
    """tools/pretrain_fashion_clip.py as a module."""
    sys.path.insert(0, str(TOOLS))
    spec = importlib.util.spec_from_file_location('tool', TOOLS / 'pretrain_fashion_clip.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(TOOLS))


@pytest.fixture(scope='module')
def shop(tmp_path_factory):
    """A small shop: ten photographs of each pair and phase, with titles, and stored features."""
    root = tmp_path_factory.mktemp('shop')
    rows = [dict(image=f'{attr}_{obj}/{phase}{i}.jpg', attr=attr, obj=obj, set=phase,
                 title=f'{phase}brand{i} Men {attr.replace("_", " ")} {obj[:-1]}, No. {i}!')
            for phase, pairs in PAIRS.items() for attr, obj in pairs for i in range(10)]
    for row in rows:
        path = root / 'images' / row['image']
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new('RGB', (6, 8)).save(path)
    write_layout(root, rows, PAIRS, 'fashion-v1')
    start_folder(root / 'features', FACTS)
    generator = np.random.default_rng(0)
    for phase in PAIRS:
        names = [row['image'] for row in rows if row['set'] == phase]
        writer = PhaseWriter(root / 'features', phase, names)
        writer.write(range(len(names)), generator.normal(size=(len(names), 2 * WIDTH)).astype(
            np.float32))
    return root, rows


@pytest.fixture(scope='module')
def weights(shop, tool, tmp_path_factory):
    """The file of a pre-training of two epochs."""
    out = tmp_path_factory.mktemp('weights') / 'fashion_clip.pt'
    tool.main(['--data', str(shop[0]), '--features', str(shop[0] / 'features'), '--out', str(out),
               '--batch-size', '8', '--epochs', '2'])
    return out


def test_only_training_images_of_seen_pairs_are_used(shop, tool, monkeypatch):
    root, rows = shop
    opened = []
    original = tool.FeatureStore
    monkeypatch.setattr(tool, 'FeatureStore', lambda folder, phase: opened.append(phase) or
                        original(folder, phase))

    data = tool.read_training(root, root / 'features')

    assert opened == ['train']
    by_name = {row['image']: row for row in rows}
    assert len(data.names) == 20 and {by_name[name]['set'] for name in data.names} == {'train'}
    assert {(by_name[name]['attr'], by_name[name]['obj']) for name in data.names} == set(
        PAIRS['train'])
    assert data.titles == [by_name[name]['title'].lower() for name in data.names]
    assert not any('valbrand' in title or 'testbrand' in title for title in data.titles)
    assert data.features.shape == (20, 2 * WIDTH)


def test_a_training_row_of_an_unseen_pair_is_refused(shop, tool, tmp_path):
    root, rows = shop
    (tmp_path / 'features').symlink_to(root / 'features')
    write_layout(tmp_path, rows, PAIRS, 'fashion-v1')
    wrong = [dict(row, set='train') if row['obj'] == 'Ties' else row for row in rows]
    torch.save(wrong, tmp_path / 'metadata_fashion-v1.t7')
    with pytest.raises(ValueError, match=r'Red Ties\) is unseen'):
        tool.read_training(tmp_path, tmp_path / 'features')


def test_the_file_is_small_and_the_same_for_the_same_seed(shop, tool, weights, tmp_path):
    again = tmp_path / 'again.pt'
    tool.main(['--data', str(shop[0]), '--features', str(shop[0] / 'features'), '--out', str(again),
               '--batch-size', '8', '--epochs', '2'])
    assert weights.stat().st_size < 12e6
    first, second = (torch.load(path, weights_only=True) for path in (weights, again))
    assert first.keys() == second.keys()
    assert all(first[key].equal(second[key]) for key in first)
    assert set(first) > {'logit_scale', 'visual.proj.weight', 'visual.proj.bias'}


def test_training_lowers_the_loss_and_moves_used_tokens_only(shop, tool):
    root, _ = shop
    data = tool.read_training(root, root / 'features')
    args = tool.parse_args(['--batch-size', '20', '--epochs', '1', '--lr', '0'])
    before = tool.train(data, args)
    args.lr, args.epochs = 2e-1, 25  # the rate is still in its warm-up
    after = tool.train(data, args)
    used = tool.get_tokenizer('fashion_clip')([tool.PREFIX, *data.titles]).unique()
    moved = (before['text.token_embedding.weight'] != after['text.token_embedding.weight']).any(1)
    assert set(moved.nonzero()[:, 0].tolist()) <= set(used.tolist()) and moved.sum() > 10

    def loss(state):
        model = TextHalf(256, dict(context_length=32, vocab_size=49408, width=96, heads=4,
                                   layers=4)).eval()
        model.load_state_dict({key: value for key, value in state.items() if 'visual' not in key})
        ids = get_tokenizer('fashion_clip')(data.titles)
        image = data.features @ state['visual.proj.weight'].T + state['visual.proj.bias']
        with torch.no_grad():
            return float(tool.clip_loss(image, model.encode_text(ids), torch.tensor(10.0), ids))

    assert loss(after) < loss(before) - 0.3


def test_captions_may_be_cut_behind_the_longest(tool):
    torch.manual_seed(0)
    towers = tool.Towers(8, 0.0).eval()
    ids = get_tokenizer('fashion_clip')(['red tops!', 'a navy blue tie, no. 5'])
    with torch.no_grad():
        torch.testing.assert_close(towers.encode_text(ids[:, :12]), towers.text(ids))


def test_words_are_left_out_but_never_all(tool):
    draws = tool.random.Random(0)
    texts = {tool.vary('a b c', 0.9, 0.5, draws) for _ in range(200)}
    assert {'c', 'a photo of c', 'b', 'a b'} <= texts
    assert all(set(text.removeprefix(tool.PREFIX).split()) <= set('abc') and text for text in texts)


def test_the_text_side_reads_the_file_and_its_prefix_tree_is_exact(weights):
    names = dict(attributes=['Navy_Blue', 'Red'], objects=['Tops', 'Casual_Shoes', 'Ties'])
    build = lambda **kwargs: MODELS.build(dict(
        type='mmcluspro.CLIPText', arch='fashion_clip', pretrained=str(weights), **names,
        prompt=dict(names='tokens', learn=()), **kwargs)).eval()
    pairs = torch.cartesian_prod(torch.arange(2), torch.arange(3))
    tree, whole = build(), build(prefix_tree=False)
    assert tree.prefix_tree and not whole.prefix_tree
    with torch.no_grad():
        for path in ('attribute', 'object', 'composition'):
            one, two = (text.embed(path, text.parts(), pairs if path == 'composition' else None)
                        for text in (tree, whole))
            torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-4)
        ids = get_tokenizer('fashion_clip')(['a photo of navy blue tops'])
        expected = load_clip('fashion_clip', str(weights)).encode_text(ids)[0]
        torch.testing.assert_close(tree.embed('composition', tree.parts(), pairs)[0], expected,
                                   atol=1e-4, rtol=1e-4)


def projected(weights, **kwargs):
    return MODELS.build(dict(
        type='mmcluspro.ProjectedBackbone', backbone=DINO, in_channels=2 * WIDTH, out_dim=256,
        pool='cls_avg', pretrained=None if weights is None else str(weights), **kwargs))


def test_the_image_side_reads_its_projection_and_keeps_it_frozen(weights):
    state = torch.load(weights, weights_only=True)
    torch.manual_seed(0)
    model = projected(weights, peft=dict(type='mmcluspro.LoRA', rank=2, targets=['attn.qkv']))
    assert model.proj.weight.equal(state['visual.proj.weight'].float())
    assert {name for name, p in model.named_parameters() if p.requires_grad} == {
        f'backbone.layers.{i}.attn.qkv.lora.{matrix}' for i in range(DEPTH) for matrix in 'ab'}
    compact_state_hooks(model)
    saved = model.state_dict()
    assert 'proj.restorable_fingerprint' in saved and 'proj.weight' not in saved


@pytest.mark.parametrize('pool, width', [('cls', WIDTH), ('cls_avg', 2 * WIDTH)])
def test_projected_tokens_add_up_to_the_feature(pool, width):
    torch.manual_seed(0)
    model = MODELS.build(dict(
        type='mmcluspro.ProjectedBackbone', backbone=DINO, in_channels=width, out_dim=7, pool=pool,
        out_tokens=True)).eval()
    images = torch.randn(2, 3, 8, 12)

    tokens, f = model(images)

    assert tokens.shape == (2, 1 + 2 * 3, 7)
    expected = tokens[:, 0] if pool == 'cls' else tokens[:, 0] + tokens[:, 1:].mean(dim=1)
    torch.testing.assert_close(f, expected, atol=1e-5, rtol=1e-5)
    model.out_tokens = False
    assert model(images)[0].equal(f)


@pytest.mark.parametrize('pool, width', [('cls', WIDTH), ('cls_avg', 2 * WIDTH)])
def test_stored_tokens_are_those_of_the_images(pool, width):
    torch.manual_seed(0)
    cfg = dict(type='mmcluspro.ProjectedBackbone', backbone=DINO, in_channels=width, out_dim=7,
               pool=pool, out_tokens=True)
    tower, encode, facts = frozen_encoder(cfg)
    model = MODELS.build(cfg).eval()
    model.backbone = tower
    images = torch.randn(2, 3, 8, 12)
    expected = model(images)

    stored = encode(images)

    assert facts['pool'] == 'tokens' and stored.shape == (2, (1 + 2 * 3) * WIDTH)
    model.backbone = torch.nn.Identity()
    for got, want in zip(model(stored), expected, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize('registers', [0, 2])
@pytest.mark.parametrize('pool, width', [('cls', WIDTH), ('cls_avg', 2 * WIDTH)])
def test_layers_are_projected_as_the_last_one(pool, width, registers):
    torch.manual_seed(0)
    tower = dict(DINO, num_registers=registers, out_indices=list(range(DEPTH)))
    model = MODELS.build(dict(
        type='mmcluspro.ProjectedBackbone', backbone=tower, in_channels=width, out_dim=7,
        pool=pool, out_tokens=True, out_layers=[-1, 0])).eval()
    images = torch.randn(2, 3, 8, 12)

    features = model(images)

    assert sorted(features.extra) == ['layer_0', f'layer_{DEPTH - 1}']
    torch.testing.assert_close(features.extra[f'layer_{DEPTH - 1}'], features.tokens)
    first = model.backbone.ln1(model.backbone(images)[0])
    cls, patches = first[:, :1], first[:, 1:]
    weight, bias = model.proj.weight, model.proj.bias
    parts = [cls @ weight[:, :WIDTH].T + bias,
             patches @ weight[:, -WIDTH:].T + (bias if pool == 'cls' else 0)]
    torch.testing.assert_close(features.extra['layer_0'], torch.cat(parts, dim=1))
    model.out_layers = ()
    assert all(a.equal(b) for a, b in zip(model(images), (features.tokens, features.composition)))


def test_faults_are_named(weights, tmp_path):
    with pytest.raises(ValueError, match=r"arch='fashion_clip' has no image tower of open_clip"):
        MODELS.build(dict(type='mmcluspro.CLIPVision', arch='fashion_clip'))
    with pytest.raises(FileNotFoundError, match=r"nowhere\.pt' does not exist.*docs/fashion\.md"):
        projected(tmp_path / 'nowhere.pt')
    with pytest.raises(ValueError, match=r'proj\.weight is \(256, 24\), expected \(5, 24\)'):
        MODELS.build(dict(type='mmcluspro.ProjectedBackbone', backbone=DINO, out_dim=5,
                          in_channels=2 * WIDTH, pool='cls_avg', pretrained=str(weights)))
    with pytest.raises(ValueError, match="out_tokens needs pool='cls' or 'cls_avg'"):
        MODELS.build(dict(type='mmcluspro.ProjectedBackbone', backbone=DINO, out_dim=5,
                          in_channels=WIDTH, pool='avg', out_tokens=True))
    with pytest.raises(ValueError, match='out_layers needs backbone.out_tokens=True'):
        projected(None, out_layers=[0])
    with pytest.raises(ValueError, match=r'\[-2, 2\) for the 2 blocks of DINOv2, got 2'):
        projected(None, out_tokens=True, out_layers=[2])
    with pytest.raises(ValueError, match='out_layers needs images'):
        MODELS.build(dict(type='mmcluspro.ProjectedBackbone', in_channels=2 * WIDTH, out_dim=5,
                          pool='cls', out_tokens=True, out_layers=[0], backbone=dict(
                              type='mmcluspro.CachedFeatures', features='f', backbone=DINO)))
    model = projected(None, out_tokens=True)
    model.backbone = torch.nn.Identity()
    for size in (2 * WIDTH, 7 * WIDTH + 1):  # one pooled feature, and no whole number of tokens
        with pytest.raises(ValueError, match='hold the tokens if out_tokens was set'):
            model(torch.randn(2, size))
