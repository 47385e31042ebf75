"""TrainedModel.save, the model that comes with the package, and search."""
import hashlib
import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mmcluspro import load
from mmcluspro.artefact.search import read_query
from mmcluspro.cli import main
from mmcluspro.utils.files import WEIGHTS

ROOT = Path(__file__).resolve().parents[2]


def bests(model, pictures):
    return [answer.best for answer in model.predict(pictures, workers=0)]


def test_what_is_saved_answers_bit_by_bit_before_and_after_it_predicted(trained, pictures,
                                                                        tmp_path):
    model = load(trained[0], 'cpu')
    before = model.save(tmp_path / 'before.safetensors')
    expected = bests(model, pictures)
    model.predict(pictures[0], pairs=[('soaked', 'umbrella')])  # words that are not saved
    after = model.save(tmp_path / 'after.safetensors')
    assert before.read_bytes() == after.read_bytes()
    again = load(after, 'cpu')
    assert bests(again, pictures) == expected and again.chosen == model.chosen
    assert again.save(tmp_path / 'third.safetensors').read_bytes() == after.read_bytes()


def test_with_its_towers_it_answers_to_within_half_precision(trained, pictures, tmp_path):
    model = load(trained[0], 'cpu')
    expected = bests(model, pictures)
    alone = load(model.save(tmp_path / 'alone.safetensors', standalone=True), 'cpu')
    assert alone.spec['model']['backbone']['pretrained'] == 'tiny_clip'  # is in the package
    for one, other in zip(bests(alone, pictures), expected):
        assert (one.attribute, one.object) == (other.attribute, other.object)
        assert one.probability == pytest.approx(other.probability, abs=2e-3)
    assert bests(model, pictures)[0].probability == pytest.approx(expected[0].probability,
                                                                  rel=1e-5)


def test_a_model_is_saved_as_safetensors_only(trained, tmp_path):
    with pytest.raises(ValueError, match=r'ends with \.safetensors, or in a folder.*model\.pth'):
        load(trained[0], 'cpu').save(tmp_path / 'model.pth')


def test_the_model_of_the_package_is_that_of_its_card(tmp_path, monkeypatch):
    card = (ROOT / 'docs' / 'models.md').read_text()
    file = WEIGHTS / 'cluspro_shapes.safetensors'
    assert hashlib.sha256(file.read_bytes()).hexdigest() == re.search('[0-9a-f]{64}', card)[0]
    assert f'{file.stat().st_size:,} bytes' in card
    monkeypatch.chdir(tmp_path)
    model = load('cluspro_shapes', 'cpu')
    answer, = model.predict(str(ROOT / 'docs' / 'images' / 'glowing_star.png'))
    assert (answer.best.attribute, answer.best.object) == ('glowing', 'star')
    assert len(model.classes) == 144 and model.calibration() is not None


def test_it_predicts_into_a_file(folder, capsys):
    assert main(['predict', 'cluspro_shapes', 'pictures', '--out', 'a.csv', '--device', 'cpu']) == 0
    assert main(['predict', str(WEIGHTS / 'cluspro_shapes.safetensors'), 'pictures', '--out',
                 'a.csv', '--device', 'cpu']) == 0  # the same model goes on with its file
    assert 'Nothing was left to do' in capsys.readouterr().out


def test_what_has_its_name_in_the_current_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hides, said = Path('cluspro_shapes'), f'{tmp_path}/cluspro_shapes is read, not the model of'
    hides.mkdir()
    with pytest.warns(UserWarning, match=said), pytest.raises(FileNotFoundError, match='not exist'):
        load('cluspro_shapes', 'cpu')
    hides.rmdir()
    hides.write_text('mine')  # what is the user's comes first
    with pytest.warns(UserWarning, match=said), (
            pytest.raises(ValueError, match='cluspro_shapes.* cannot be read as a checkpoint')):
        load('cluspro_shapes', 'cpu')


@pytest.fixture
def folder(pictures, tmp_path, monkeypatch):
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'torch'))
    (tmp_path / 'pictures').mkdir()
    for number, picture in enumerate(pictures):
        Image.fromarray(picture[..., ::-1]).save(tmp_path / 'pictures' / f'{number:02}.png')
    monkeypatch.chdir(tmp_path)
    return tmp_path / 'pictures'


def test_search_ranks_by_the_probability_of_the_pair(folder):
    model = load('cluspro_shapes', 'cpu')
    files = sorted(map(str, folder.iterdir()))
    for pair in (('red', 'star'), ('soaked', 'umbrella')):
        found = model.search(' '.join(pair), folder, top_k=5)
        expected = model.scores(files, pairs=[pair])[:, 0].numpy()
        order = np.argsort(-expected, kind='stable')[:5]
        assert [photo.image for photo in found] == [files[place] for place in order]
        assert [photo.probability for photo in found] == pytest.approx(expected[order], rel=1e-4)


def test_only_new_and_changed_photographs_are_computed(folder, monkeypatch):
    model = load('cluspro_shapes', 'cpu')
    first = model.search('red star', folder, top_k=99)
    computed = []
    features = model.features
    monkeypatch.setattr(model, 'features', lambda images: computed.append(len(images))
                        or features(images))
    (folder / '03.png').rename(folder / 'moved.png')
    second = model.search('red star', folder, top_k=99)
    assert computed == [] and {photo.probability for photo in first} == {
        photo.probability for photo in second}
    Image.new('RGB', (48, 48), 'green').save(folder / '05.png')
    (folder / 'broken.png').write_bytes(b'no picture')
    with pytest.warns(UserWarning, match='broken.png cannot be read and is left out'):
        third = model.search('red star', folder, top_k=99)
    assert computed == [1] and len(third) == len(first)


def test_features_of_another_preparation_are_not_taken(folder):
    pixels = np.full((48, 48, 4), 255, np.uint8)
    pixels[12:36, 12:36] = 200, 30, 30, 255
    pixels[:8, :, 3] = 0
    Image.fromarray(pixels).save('clear.png')
    found = []
    for background in (None, 'white', 'red', 'black'):
        model = load('cluspro_shapes', 'cpu', background=background)
        found.append(model.search('red star', 'clear.png')[0].probability)
        expected = float(model.scores('clear.png', pairs=[('red', 'star')]))
        assert found[-1] == pytest.approx(expected, rel=1e-4)
    assert found[0] == found[1] and len(set(found)) == 3


def test_what_cannot_be_opened_is_left_out_with_its_reason(folder):
    (folder / 'gone.png').symlink_to('nowhere')
    os.mkfifo(folder / 'pipe.png')  # would be read for ever
    with pytest.warns(UserWarning) as said:
        found = load('cluspro_shapes', 'cpu').search('red star', folder, top_k=99)
    texts = [str(warning.message) for warning in said]
    assert any('gone.png cannot be read and is left out: ' in text for text in texts)
    assert any('pipe.png cannot be read' in text and 'it is a pipe' in text for text in texts)
    assert len(found) == len(list(folder.iterdir())) - 2


@pytest.mark.parametrize('words, pair', [
    ('red star', ('red', 'star')), ('RED  Star', ('red', 'star')),
    ('bright red star', ('bright red', 'star')), ('red fire truck', ('red', 'fire truck')),
    ('very wet fire truck', ('very', 'wet fire truck')), ('hot dog, red', ('hot dog', 'red'))])
def test_where_the_attribute_ends(words, pair, inferencer):
    assert read_query(inferencer, words) == pair


def test_a_query_that_is_none(inferencer):
    with pytest.raises(ValueError, match="'star' is one word: give an attribute and an object"):
        read_query(inferencer, 'star')
    with pytest.raises(ValueError, match='top_k must be at least 1, got 0'):
        inferencer.search('red star', 'x', top_k=0)


def test_the_command_prints_and_writes_them(folder, capsys):
    assert main(['search', 'red star', 'pictures', '--model', 'cluspro_shapes', '--top-k', '3',
                 '--out', 'found.csv']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and all(re.fullmatch(r' *[0-9.]+ %  pictures/\d+\.png', line)
                                   for line in lines)
    assert Path('found.csv').read_text().startswith('"image","probability"\n"pictures/')
    with pytest.raises(SystemExit):
        main(['search', 'red star', 'pictures'])
    assert 'There is no best_*.pth in work_dirs/pictures: give the model with --model' in (
        capsys.readouterr().err)
