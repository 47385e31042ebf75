"""A checkpoint of ``mmcluspro train photos/`` answers alone, and features are made once."""
import csv
import html
import json
import re
import shlex

import numpy as np
import pytest
import torch
from mmpretrain.registry import MODELS
from PIL import Image

from mmcluspro.api import TrainedModel
from mmcluspro.artefact.load import CheckpointFile
from mmcluspro.cli import main
from mmcluspro.datasets.table_file import read_table
from mmcluspro.errors import FileError
from mmcluspro.models.text import WordTableText
from mmcluspro.utils.download import find_kept, keep_file

ATTRIBUTES, OBJECTS = ('red', 'green', 'blue'), ('cat', 'dog', 'car')
RULES = ((r'^patch_embed\.projection\.', 'patch_embed.proj.'),
         (r'^layers\.(\d+)\.ln([12])\.', r'blocks.\1.norm\2.'),
         (r'^layers\.(\d+)\.ffn\.layers\.0\.0\.', r'blocks.\1.mlp.fc1.'),
         (r'^layers\.(\d+)\.ffn\.layers\.1\.', r'blocks.\1.mlp.fc2.'),
         (r'^layers\.(\d+)\.attn\.gamma1\.weight$', r'blocks.\1.ls1.gamma'),
         (r'^layers\.(\d+)\.ffn\.gamma2\.weight$', r'blocks.\1.ls2.gamma'),
         (r'^layers\.(\d+)\.attn\.', r'blocks.\1.attn.'), (r'^ln1\.', 'norm.'))


def published(key):
    for pattern, replacement in RULES:
        key, count = re.subn(pattern, replacement, key)
        if count:
            break
    return key


def write_words(path, words):
    numbers = np.random.default_rng(0).normal(size=(len(words), 6))
    path.write_text('\n'.join(f'{word} {" ".join(f"{x:.4f}" for x in row)}'
                              for word, row in zip(words, numbers)))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """36 photographs, random weights of DINOv2-S and word vectors, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'torch'))
    draw = np.random.default_rng(1)
    for i, attr in enumerate(ATTRIBUTES):
        for j, obj in enumerate(OBJECTS):
            place = tmp_path / 'photos' / f'{attr}_{obj}'
            place.mkdir(parents=True)
            for k in range(4):
                pixels = draw.integers(0, 60, (4 + 4 * j, 8, 3))
                pixels[..., i] += 150
                Image.fromarray(pixels.astype(np.uint8)).save(place / f'{k}.png')
    torch.manual_seed(0)
    tower = MODELS.build(dict(type='mmcluspro.DINOv2', arch='small'))
    torch.save({published(key): value.half() for key, value in tower.state_dict().items()},
               tmp_path / 'dinov2_vits14_mine.pt')
    write_words(tmp_path / 'glove.txt', ['the', 'purple', 'horse', *ATTRIBUTES, *OBJECTS])
    return tmp_path


@pytest.mark.slow
def test_the_printed_commands_work_as_printed(folder, monkeypatch, capsys):
    assert main(['train', 'photos', '--weights', 'dinov2-s', '--words', 'glove',
                 '--cfg-options', 'train_cfg.max_epochs=1']) == 0
    said = capsys.readouterr().out
    assert '36 of them new' in said and 'The checkpoint is fitted to all images and pairs.' in said
    assert re.search(r'^method     .*: AUC \S+ of ClusPro and \S+ of the regressions', said, re.M)
    assert 'two logistic regressions' in said and '  95 % interval' in said
    lines = re.findall(r'^  (mmcluspro .*)$', said, re.MULTILINE)
    page = (folder / 'work_dirs/photos/report.html').read_text()
    assert 'Measured by 5 fits' in page and 'Two logistic regressions' in page
    assert html.unescape(re.search(r'<pre>(.*?)</pre>', page, re.DOTALL)[1]).split('\n') == lines
    for line in reversed(lines):
        words = shlex.split(line)[1:]
        if words[0] == 'predict':  # the user's files go; what the checkpoint needs was kept
            (folder / 'dinov2_vits14_mine.pt').unlink()
            (folder / 'glove.txt').unlink()
        if words[0] in ('predict', 'cases', 'confusion'):  # demo would wait, export is slow
            assert main(words) == 0, line
    with (folder / 'result.csv').open(newline='') as file:
        assert all(row['attribute_1'] in ATTRIBUTES for row in csv.DictReader(file))
    best = str(next((folder / 'work_dirs/photos').glob('best_*.pth')))
    alone = TrainedModel.load(best)
    answer, = alone.predict(['photos/red_cat/0.png'], pairs=[('purple', 'horse'), ('red', 'cat')])
    assert {pair.attribute for pair in answer.pairs} == {'purple', 'red'}
    with pytest.raises(ValueError, match="no vectors for 'zebra'.* 9 commonest words.*words=FILE"):
        alone.predict(['photos/red_cat/0.png'], pairs=[('purple', 'zebra')])
    # On another machine the tower is missing, unless it is in the file.
    before, = alone.predict(['photos/red_cat/0.png'])
    assert main(['publish', best, 'all.pth', '--standalone']) == 0
    monkeypatch.setenv('TORCH_HOME', str(folder / 'other'))
    with pytest.raises(FileError, match='frozen weights of the backbone came from a file'):
        TrainedModel.load(best)
    after = TrainedModel.load(str(next(folder.glob('all-*.safetensors')))).predict(
        ['photos/red_cat/0.png'])[0]
    assert after == before  # the weights were in half precision before


@pytest.mark.slow
def test_cluspro_on_all_photographs_is_measured_on_the_same_parts(folder, capsys):
    assert main(['train', 'photos', '--weights', 'dinov2-s', '--words', 'glove', '--method',
                 'cluspro', '--no-report', '--cfg-options', 'train_cfg.max_epochs=1']) == 0
    said = capsys.readouterr().out
    ours, theirs = map(float, re.search(
        r'method     ClusPro is delivered.*: AUC (\S+) of ClusPro and (\S+) of the regressions on '
        r'the same 5 parts', said).groups())
    run = folder / 'work_dirs/photos'
    numbers = json.loads((run / 'test_metrics.json').read_text())
    assert numbers['held_out/folds'] == 5 and numbers['regressions/auc'] >= 0
    held = [{row.image for row in read_table(table) if row.split == 'val'}
            for table in run.glob('parts/*/table.csv')]
    assert sum(map(len, held)) == numbers['held_out/images'] and len(set.union(*held)) == 36
    model = TrainedModel.load(str(next(run.glob('best_*.pth'))))
    assert type(model.network.head).__name__ == 'ClusProHead' and model.space.seen.all()
    assert model.chosen_for('closed').calibration is not None
    assert 'as asked' in said or ours > theirs


@pytest.mark.slow
def test_features_of_the_same_photographs_are_not_made_again(folder, capsys):
    train = ['train', 'photos', '--weights', 'dinov2-s', '--words', 'glove', '--no-test',
             '--no-refit', '--cfg-options', 'train_cfg.max_epochs=1']
    assert main(train) == 0
    (folder / 'photos/red_cat/0.png').rename(folder / 'photos/blue_dog/corrected.png')
    Image.new('RGB', (9, 9), (1, 2, 3)).save(folder / 'photos/blue_dog/new.png')
    capsys.readouterr()
    assert main([*train, '--standalone', '--work-dir', 'another']) == 0
    assert 'features   of 37 images in another/features, 1 of them new' in capsys.readouterr().out
    best, = (folder / 'another').glob('best_*.pth')
    assert 44e6 < best.stat().st_size < 55e6
    # Configs that read stored features take such a file, too.
    assert main(['test', 'another/photos.py', str(best), '--work-dir', 'another']) == 0


def test_kept_files_are_found_by_their_content_only(tmp_path, monkeypatch):
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'torch'))
    (tmp_path / 'a.pt').write_bytes(b'weights')
    digest = keep_file(tmp_path / 'a.pt')
    (tmp_path / 'a.pt').unlink()
    path = find_kept(digest)
    assert path.read_bytes() == b'weights' and find_kept('0' * 64) is None
    path.write_bytes(b'others')
    assert find_kept(digest) is None


@pytest.mark.parametrize('towers', [
    dict(backbone='../../etc/passwd'), dict(backbone='a' * 63), dict(elsewhere='a' * 64), ['a'],
    dict(backbone=7)])
def test_a_tower_is_named_by_its_digest_only(towers):
    assert CheckpointFile('x', {}, dict(towers=dict(text='a' * 64))).towers() == dict(text='a' * 64)
    with pytest.raises(FileError, match='digests of the towers'):
        CheckpointFile('x', {}, dict(towers=towers)).towers()


@pytest.mark.parametrize('words, vectors', [
    ('a\nb\nc', torch.zeros(2, 3).half()), ('a\nb', torch.zeros(2, 3)), (7, torch.zeros(2).half()),
    ('a\nb', torch.full((2, 3), torch.nan).half()), ('a\n' * 300_000, torch.zeros(9, 3).half())])
def test_damaged_words_of_a_checkpoint_are_refused(words, vectors):
    with pytest.raises(FileError, match='damaged|not finite'):
        CheckpointFile('x', {}, dict(word_vectors=dict(words=words, vectors=vectors))).words()


def test_a_text_side_keeps_the_first_words_and_those_of_its_names(tmp_path):
    write_words(tmp_path / 'v.txt', ['the', 'of', 'red', 'rare', 'cat'])
    text = WordTableText(['red'], ['cat'], tmp_path / 'v.txt', keep_words=2)
    kept = text.kept_words()
    assert sorted(kept) == ['cat', 'of', 'red', 'the']
    alone = WordTableText(['red'], ['cat'], None, width=6)
    alone.load_state_dict(text.state_dict())
    alone.keep(kept)
    alone.extend(objects=['the of'])
    expected = text._vectors(['the of'])
    assert torch.equal(alone.obj_table()[1:], expected)
    assert torch.allclose(alone.pretrained(['red']), text.pretrained(['red']), atol=1e-6)
    with pytest.raises(ValueError, match='width'):
        WordTableText(['red'], ['cat'], None, width=5).keep(kept)
