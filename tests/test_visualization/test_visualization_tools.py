"""Each command that draws, as a user types it."""
import csv
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from mmcluspro.evaluation import czsl_curve
from mmcluspro.visualization import leave_curves, options


def assert_pictures(folder, stem):
    for ending in ('png', 'svg'):
        assert (folder / f'{stem}.{ending}').stat().st_size > 5000
    with Image.open(folder / f'{stem}.png') as image:
        assert image.width > 700


def small(checkpoint):
    """The config of a checkpoint of the tests, with few images."""
    return Path(checkpoint).with_name('config.py')


@pytest.fixture
def runs(tmp_path):
    generator = np.random.default_rng(0)
    for name in ('one', 'two'):
        (tmp_path / name).mkdir()
        curves = {world: czsl_curve(generator.normal(size=50), generator.random(50) < 0.5)
                  for world in ('closed', 'open')}
        leave_curves(curves, tmp_path / name, 'test')
    return tmp_path


def test_curves(tool, runs):
    folder = tool('curves', 'one', 'two/test_curve.json', '--names', 'baseline', 'ClusPro')

    assert_pictures(folder, 'curves')


def test_tsne(tool, baseline, cluspro, capsys):
    pytest.importorskip('sklearn')

    folder = tool('tsne', baseline, cluspro, '--names', 'baseline', 'ClusPro', '--out', 'pics/t',
                  '--primitives', 'red', 'blue', 'star', 'key', '--perplexity', '5',
                  '--config', small(cluspro))

    assert_pictures(folder / 'pics', 't')
    assert 'Objects of ClusPro: embedding' in capsys.readouterr().out


def test_prototypes(tool, cluspro, capsys):
    folder = tool('prototypes', cluspro, '--primitive', 'blue', 'star', '--images', '3')

    assert_pictures(folder, 'prototypes')
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith('blue (attribute, ') and 'dead' in lines[0]
    assert lines[1].startswith('star (object, ')


def test_cases(tool, baseline, cluspro, capsys):
    folder = tool('cases', baseline, cluspro, '--count', '2', '--columns', '2',
                  '--config', small(baseline))

    assert_pictures(folder, 'cases')
    lines = capsys.readouterr().out.splitlines()
    counts = [int(line.split('(')[-1].split(':')[-1].split()[0])
              for line in lines if line.endswith(('images', ')'))]
    assert len(counts) == 4 and sum(counts) == 64
    first, second = (Path(path).parent.name for path in (baseline, cluspro))
    assert f'Only {second} is right' in lines[1] and f'Only {first} is right' in lines[2]


def test_mistakes_of_one_model_are_those_of_the_confusion(tool, cluspro, capsys):
    folder = tool('cases', cluspro, '--count', '3', '--columns', '3', '--config', small(cluspro))

    assert_pictures(folder, 'cases')
    said = capsys.readouterr().out
    assert f'Mistakes of {Path(cluspro).parent.name}, most confident first (' in said
    wrong = int(said.split('first (')[1].split()[0])

    tool('confusion', cluspro, '--config', small(cluspro))

    assert_pictures(folder, 'confusion')
    with (folder / 'confusion.csv').open() as file:
        rows = list(csv.DictReader(file))
    assert sum(int(row['images']) for row in rows if row['kind'] == 'pairs') == wrong > 0


def test_primitive_accuracy(tool, baseline, cluspro):
    folder = tool('accuracy', baseline, cluspro, '--names', 'baseline', 'ClusPro',
                  '--config', small(baseline))

    assert_pictures(folder, 'primitive_accuracy')
    with (folder / 'primitive_accuracy.csv').open() as file:
        rows = list(csv.DictReader(file))
    for kind in ('Attributes', 'Objects'):
        mine = [row for row in rows if row['kind'] == kind]
        assert sum(int(row['images']) for row in mine) == 64
        first = [float(row['baseline']) for row in mine]
        assert first == sorted(first, reverse=True)
    # Fresh ClusPro and baseline models are the same, with the same answers.
    assert all(row['baseline'] == row['ClusPro'] for row in rows)


@pytest.mark.parametrize(('words', 'message'), [
    (['curves', 'nowhere'], 'The run nowhere does not exist'),
    (['curves', '.'], 'has no test_curve.json. Evaluate its checkpoint once more'),
    (['curves', 'one', 'one'], 'Two runs have the same name'),
    (['curves', 'one', 'two', '--names', 'a'], '--names has 1 names for 2 runs'),
    (['cases', 'nowhere.pth', 'CLUSPRO'], 'The checkpoint nowhere.pth does not exist'),
    (['cases', 'one/test_curve.json', 'CLUSPRO'], 'cannot be read as a checkpoint'),
    (['prototypes', 'CLUSPRO', '--primitive', 'redd'], 'Did you mean red'),
    (['prototypes', 'BASELINE', '--primitive', 'red'], 'has no prototypes of attributes'),
    (['prototypes', 'CLUSPRO', '--primitive', 'red', '--images', '0'], 'at least 1, got 0'),
    (['tsne', 'CLUSPRO', '--max-images', '0'], 'at least 1, got 0'),
    (['tsne', 'CLUSPRO', '--primitives', 'xyz'], "'xyz' is not an attribute or object"),
    (['accuracy', 'CLUSPRO', '--batch-size', '0'], '--batch-size must be at least 1'),
    (['accuracy', 'CLUSPRO', '--config', 'CONFIG', '--cfg-options',
      'test_dataloader.dataset.version=v9'], 'v9'),
    (['accuracy', 'CLUSPRO', '--cfg-options', 'a=1'], 'which is not given'),
])
def test_bad_input_gets_a_message_in_words(tool, runs, baseline, cluspro, capsys, words, message):
    paths = {'BASELINE': baseline, 'CLUSPRO': cluspro, 'CONFIG': small(cluspro)}

    with pytest.raises(SystemExit) as ended:
        tool(*(paths.get(word, word) for word in words))

    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert message in error and 'Traceback' not in error


def test_own_images_are_found_by_the_config_beside_the_checkpoint(tmp_path, monkeypatch):
    file = SimpleNamespace(spec=lambda *_: dict(data=dict(type='TableCZSL')))
    read = []
    monkeypatch.setattr(options, 'read_checkpoint', lambda path: read.append(path) or file)
    args = SimpleNamespace(batch_size=1, cfg_options=None, device='cpu', config=None,
                           data_root=None, imports=[], weights=None)
    path = str(tmp_path / 'best.pth')
    with pytest.raises(ValueError, match='best.pth does not say where .*: --config FILE'):
        options.open_checkpoints([path], args)
    (tmp_path / 'my photos.py').touch()
    with pytest.raises(ValueError, match=r"--config '\S+/my photos\.py'\."):
        options.open_checkpoints([path], args)
    assert read == [path, path]  # the model was not built
