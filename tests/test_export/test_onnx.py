"""The exported files against torch, read by the consumer of the docs."""
import importlib.util
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from PIL import Image

from mmcluspro import load
from mmcluspro.artefact.images import list_images
from mmcluspro.artefact.save import publish
from mmcluspro.artefact.spec import describe as describe_config
from mmcluspro.export import export_model
from mmcluspro.export.export_command import largest_difference, main, open_session
from mmcluspro.export.image_side import ImageSide, merged, write_onnx
from mmcluspro.export.text_table import describe
from mmcluspro.models import Candidates
from mmcluspro.models.heads import CompositionHead
from mmcluspro.models.peft.lora import LoRALayer

CONSUMER = Path(__file__).resolve().parents[2] / 'docs' / 'examples' / 'onnx_predict.py'
ALL_KINDS = ['lora', 'bottleneck', 'batch_norm', 'zero_shot', 'csp']


@pytest.fixture(scope='module')
def consumer():
    spec = importlib.util.spec_from_file_location('onnx_predict', CONSUMER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope='session')
def exported(checkpoints, tmp_path_factory):
    """(checkpoint, ONNX file, table) of a kind, made when it is first asked for."""
    folder = tmp_path_factory.mktemp('exported')

    def get(kind='lora'):
        path = folder / f'{kind}.onnx'
        if not path.exists():
            variants = ('fp16', 'int8') if kind in ('lora', 'zero_shot') else ()
            export_model(checkpoints(kind), path, variants=variants)
        return checkpoints(kind), path, dict(np.load(path.with_suffix('.npz')))

    return get


@pytest.fixture(scope='module')
def pictures(tmp_path_factory):
    """Files: of the model's size, wide (the crop begins at 17.5), tall and small."""
    folder = tmp_path_factory.mktemp('pictures')
    generator = np.random.default_rng(0)
    paths = []
    for width, height in [(48, 48), (134, 77), (50, 90), (31, 20)]:
        noise = generator.integers(0, 256, (height // 4 + 1, width // 4 + 1, 3), np.uint8)
        paths.append(folder / f'{width}x{height}.png')
        Image.fromarray(noise).resize((width, height)).save(paths[-1])
    return [str(path) for path in paths]


def images(batch, seed=1):
    return np.random.default_rng(seed).integers(0, 256, (batch, 48, 48, 3), np.uint8)


@pytest.mark.parametrize('kind', ALL_KINDS)
def test_features_and_scores_are_those_of_torch_for_every_batch_size(kind, exported, consumer):
    checkpoint, path, table = exported(kind)
    model, session = load(checkpoint).network, open_session(path, 1)
    info = json.loads(str(table['info']))
    for batch in (1, 3, 17):
        pixels = images(batch, batch)
        features = session.run(None, {'image': pixels})
        bgr = torch.from_numpy(pixels[..., ::-1].copy()).permute(0, 3, 1, 2)
        with torch.no_grad():
            inputs = model.data_preprocessor(dict(inputs=list(bgr)))['inputs']
            feats = model.extract_feat(inputs)
            scores = model.head.score(feats, Candidates.from_space(model.space)).pair.numpy()
        assert len(features) == (1 if kind in ('zero_shot', 'csp') else 3)
        for mine, theirs in zip(features, list(feats.paths.values())[-len(features):]):
            unit = torch.nn.functional.normalize(theirs, dim=1).numpy()
            np.testing.assert_allclose(mine, unit, atol=1e-5)
        np.testing.assert_allclose(
            consumer.pair_scores(features, table, info), scores, atol=1e-4, rtol=0)


@pytest.mark.parametrize('kind', ['lora', 'zero_shot'])
def test_the_consumer_answers_as_the_inferencer_from_files(kind, exported, consumer, pictures):
    checkpoint, path, table = exported(kind)
    info = json.loads(str(table['info']))
    batch = np.stack([consumer.read_image(file, **info['preprocessing']) for file in pictures])
    scores = consumer.pair_scores(open_session(path).run(None, {'image': batch}), table, info)
    chance = consumer.probabilities(scores, table, info)

    inferencer = load(checkpoint, device='cpu')
    for row, answer in zip(chance, inferencer.predict(pictures, top_k=1000, workers=0)):
        mine = {(table['attributes'][a], table['objects'][o]): p
                for (a, o), p in zip(table['pairs'], row)}
        theirs = {(pair.attribute, pair.object): pair.probability for pair in answer.pairs}
        assert mine.keys() == theirs.keys()
        assert max(abs(mine[pair] - theirs[pair]) for pair in theirs) < 1e-4
    assert info['seen_bias'] == 0.5 and info['temperature'] == 0.75  # of the checkpoint


def test_pixels_are_those_of_the_pipeline(exported, consumer, pictures):
    checkpoint, _, table = exported()
    preprocessing = json.loads(str(table['info']))['preprocessing']
    inferencer = load(checkpoint, device='cpu')
    for file in pictures:
        theirs, error = inferencer.prepare(type('Item', (), dict(source=file)))
        assert error is None
        mine = consumer.read_image(file, **preprocessing)
        assert np.array_equal(mine[..., ::-1], theirs.permute(1, 2, 0).numpy())


def test_the_consumer_is_short_and_prints_the_inferencers_best(
        exported, pictures, monkeypatch, capsys):
    assert len(CONSUMER.read_text().splitlines()) <= 80
    assert 'torch' not in CONSUMER.read_text().split('"""')[2]
    checkpoint, path, _ = exported()
    capsys.readouterr()  # what the export printed
    monkeypatch.setattr(
        sys, 'argv', ['onnx_predict.py', str(path), str(path.with_suffix('.npz')), *pictures])
    runpy.run_path(str(CONSUMER), run_name='__main__')

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(pictures)
    for file, line, answer in zip(
            pictures, lines, load(checkpoint, device='cpu').predict(pictures, workers=0)):
        best = answer.pairs[0]
        assert line == f'{file} {best.attribute} {best.object} {best.probability:.3f}'


def test_the_consumer_says_in_words_what_onnxruntime_refuses(exported, pictures, tmp_path, capsys,
                                                            monkeypatch):
    """Such as weights outside of the folder of the file."""
    model = onnx.load(exported()[1])
    weight = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    (tmp_path / 'secret.bin').write_bytes(weight.raw_data)
    onnx.external_data_helper.set_external_data(weight, '../secret.bin')
    weight.ClearField('raw_data')
    path = tmp_path / 'inner' / 'm.onnx'
    path.parent.mkdir()
    path.write_bytes(model.SerializeToString())
    monkeypatch.setattr(sys, 'argv', ['onnx_predict.py', str(path), 'm.npz', *pictures])
    with pytest.raises(SystemExit, match=rf'error: {path} cannot be opened: .*[Ee]xternal data'):
        runpy.run_path(str(CONSUMER), run_name='__main__')


def test_weights_beyond_one_file_are_refused(checkpoints, tmp_path):
    side = ImageSide(load(checkpoints()).network).eval()
    side.register_buffer('more', torch.empty(2**29))  # never written to: takes no memory
    with pytest.raises(ValueError, match=r'has 2.1 GB of weights, .* holds less than 2.1 GB'):
        write_onnx(side, tmp_path / 'x.onnx', 48, {})
    assert not any(tmp_path.iterdir())


def test_another_list_of_pairs_needs_another_table_only(
        exported, consumer, pictures, tmp_path, capsys):
    checkpoint, path, before = exported()
    pairs = [('red', 'star'), ('shiny', 'ring'), ('red', 'teapot')]  # the last two have new words
    (tmp_path / 'pairs.txt').write_text('\n'.join(map(' '.join, pairs)))
    table_file = tmp_path / 'other.npz'
    main([str(checkpoint), '--pairs', str(tmp_path / 'pairs.txt'), '--table-only',
          '--table', str(table_file)])
    assert "note: Not in the training data: object 'ring', 'teapot'" in capsys.readouterr().out
    table = dict(np.load(table_file))
    info = json.loads(str(table['info']))
    assert not list(tmp_path.glob('*.onnx'))
    assert info['weights'] == json.loads(str(before['info']))['weights']

    batch = np.stack([consumer.read_image(file, **info['preprocessing']) for file in pictures])
    scores = consumer.pair_scores(open_session(path).run(None, {'image': batch}), table, info)
    inferencer = load(checkpoint, device='cpu')
    with pytest.warns(UserWarning, match='Not in the training data'):
        answers = inferencer.predict(pictures, pairs=pairs, workers=0)
    for row, answer in zip(consumer.probabilities(scores, table, info), answers):
        best = answer.pairs[0]
        attribute, obj = table['pairs'][row.argmax()]
        assert (table['attributes'][attribute], table['objects'][obj]) == (
            best.attribute, best.object)
        assert row.max() == pytest.approx(best.probability, abs=1e-4)


def test_the_open_world_leaves_out_what_is_not_feasible(checkpoints, tmp_path):
    export_model(checkpoints(), tmp_path / 'open.onnx', world='open', table_only=True)
    table = np.load(tmp_path / 'open.npz')
    candidates = load(checkpoints(), device='cpu').candidates(world='open')

    assert np.array_equal(table['pairs'], candidates.pairs.numpy())
    assert np.array_equal(table['seen'], candidates.seen.numpy())
    assert np.array_equal(table['feasible'], candidates.feasible.numpy())
    assert table['seen'].sum() < table['feasible'].sum() < len(table['pairs'])


@pytest.mark.parametrize('kind', ['lora', 'zero_shot'])
@pytest.mark.parametrize('variant, share, allowed', [('fp16', 0.6, 2e-3), ('int8', 0.45, 0.1)])
def test_smaller_files_are_smaller_and_near(kind, variant, share, allowed, exported):
    _, path, _ = exported(kind)
    small = path.with_name(f'{path.stem}_{variant}.onnx')

    whole, less = (open_session(file).run(None, {'image': images(7)}) for file in (path, small))

    assert small.stat().st_size < share * path.stat().st_size
    gaps = [np.abs(a - b).max() for a, b in zip(whole, less)]
    assert 0 < max(gaps) < allowed
    ids = {open_session(file).get_modelmeta().custom_metadata_map['weights']
           for file in (path, small)}
    assert len(ids) == 1


def test_lora_is_merged_and_costs_nothing(exported):
    graphs = [onnx.load(exported(kind)[1]).graph for kind in ('lora', 'zero_shot')]
    names = [tensor.name for tensor in graphs[0].initializer] + [n.name for n in graphs[0].node]

    assert not any('.lora.' in name or '/lora' in name for name in names)
    products = [sum(node.op_type == 'MatMul' for node in graph.node) for graph in graphs]
    assert products[0] == products[1]  # the adapters are Gemm nodes


def test_the_model_is_left_as_it_was(checkpoints, tmp_path):
    model = load(checkpoints('bottleneck')).network
    inputs = torch.from_numpy(images(2)).permute(0, 3, 1, 2).float()
    with torch.no_grad():
        before = model(inputs)
    write_onnx(ImageSide(model).eval(), tmp_path / 'x.onnx', 48, {})
    with torch.no_grad():
        assert torch.equal(model(inputs), before)

    model = load(checkpoints()).network
    layers = [layer for layer in model.modules() if isinstance(layer, LoRALayer)]
    with merged(model):
        assert all(layer.merged for layer in layers if layer.updates())
        with merged(model):
            pass
        assert any(layer.merged for layer in layers)
    assert not any(layer.merged for layer in layers)


def test_the_check_sees_another_model(exported, checkpoints):
    _, path, table = exported()
    model = load(checkpoints()).network
    with torch.no_grad():
        model.neck.attribute.proj.bias += 0.1
    side = ImageSide(model).eval()

    assert largest_difference(
        path, table, side, model.head, Candidates.from_space(model.space), 48).features > 1e-3


def test_a_published_file_gives_the_same_table(checkpoints, exported, tmp_path):
    _, _, table = exported()
    small = publish(checkpoints(), tmp_path)
    export_model(small, tmp_path / 'x.onnx', table_only=True)

    other = np.load(tmp_path / 'x.npz')
    assert str(other['info']) == str(table['info'])
    assert all(np.array_equal(other[name], table[name]) for name in table)


@pytest.mark.parametrize('arguments, message', [
    (['none.pth'], 'none.pth does not exist'),
    (['{ckpt}', '--out', 'model.bin'], r'must end with \.onnx, got model\.bin'),
    (['{ckpt}', '--pairs', 'none.txt'], 'The file of pairs none.txt does not exist'),
    (['{ckpt}', '--pairs', 'bad.txt'], r'bad\.txt:2: expected two words'),
    (['{ckpt}', '--pairs', 'empty.txt'], 'there is no pair'),
    (['{ckpt}', '--out', 'file/model.onnx'], 'cannot be written'),
])
def test_errors_are_in_words(arguments, message, checkpoints, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path('bad.txt').write_text('red star\nred\n')
    Path('empty.txt').write_text('')
    Path('file').write_text('')

    with pytest.raises((ValueError, FileNotFoundError), match=message):
        main([word.format(ckpt=checkpoints()) for word in arguments])
    assert sorted(path.name for path in tmp_path.iterdir()) == ['bad.txt', 'empty.txt', 'file']


def test_a_missing_package_names_the_extra(checkpoints, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, 'onnxruntime', None)

    with pytest.raises(ImportError, match=r"onnxruntime.*pip install .*\[export\]'"):
        main([str(checkpoints()), '--out', str(tmp_path / 'x.onnx')])


@pytest.mark.parametrize('steps, found, notes', [
    ([dict(type='LoadImageFromFile'),
      dict(type='ResizeEdge', scale=56, backend='pillow', interpolation='bicubic'),
      dict(type='CenterCrop', crop_size=48), dict(type='PackInputs')], (56, 48, 'bicubic'), []),
    ([dict(type='ResizeEdge', scale=48)], (48, 48, 'bilinear'), ["backend='cv2'"]),
    ([dict(type='mmpretrain.Lighting')], (48, 48, 'bicubic'), ["step 0 is 'mmpretrain.Lighting'"]),
    ([], (48, 48, 'bicubic'), []),
])
def test_the_test_pipeline_becomes_plain_data(steps, found, notes, checkpoints):
    model = load(checkpoints())
    config = dict(model=dict(type='mmcluspro.CompositionalClassifier', head=dict(type='x')),
                  test_pipeline=steps)
    model.spec = describe_config(config)

    got, said = describe(model)

    assert (got['resize'], got['size'], got['interpolation']) == found
    assert len(said) == len(notes) and all(note in text for note, text in zip(notes, said))
    assert got['channels'] == 'RGB' and got['mean'][0] == pytest.approx(122.77, abs=0.01)


def test_a_head_that_does_not_say_how_to_score_outside_torch_is_refused_by_name(checkpoints):
    model = load(checkpoints()).network
    model.head.__class__ = type('Own', (type(model.head), ), dict(
        portable=CompositionHead.portable))

    with pytest.raises(ValueError, match='Own cannot be exported: .* its method portable'):
        ImageSide(model)


def test_deep_and_transparent_pictures_are_read_as_in_torch(consumer, exported, tmp_path):
    checkpoint, _, table = exported()
    info = json.loads(str(table['info']))['preprocessing']
    generator = np.random.default_rng(0)
    deep = generator.integers(0, 65536, (48, 48), np.uint16)
    Image.fromarray(deep).save(tmp_path / 'deep.png')
    glass = generator.integers(0, 256, (48, 48, 4), np.uint8)
    Image.fromarray(glass, 'RGBA').save(tmp_path / 'glass.png')
    prepare = load(checkpoint, device='cpu').prepare
    for name in ('deep.png', 'glass.png'):
        path = str(tmp_path / name)
        mine = consumer.read_image(path, **info)
        theirs, error = prepare(list_images(path)[0])
        assert error is None
        assert (mine == theirs.numpy().transpose(1, 2, 0)[..., ::-1]).all()
    assert mine.std() > 0 and consumer.read_image(
        str(tmp_path / 'deep.png'), **info).max() < 256
