"""Models in folders and on the Hub, whose place the cache of this machine takes."""
import hashlib
import re
import shutil
import sys

import huggingface_hub
import pytest
import yaml
from huggingface_hub.utils import validate_repo_id

from mmcluspro import load
from mmcluspro.cli import main
from mmcluspro.errors import DownloadError

NUMBERS = dict(seen=71.25, unseen=60.5, hm=55.0, auc=44.125)


def answers(model, pictures):
    return [answer.best for answer in model.predict(pictures, workers=0)]


class FakeApi:
    """Uploads into the layout in which the Hub's library keeps what it downloaded."""

    def create_repo(self, repo_id, *, private, exist_ok):
        validate_repo_id(repo_id)
        self.cache = huggingface_hub.constants.HF_HUB_CACHE
        self.private = private

    def upload_folder(self, *, repo_id, folder_path, commit_message):
        commit = hashlib.sha1(commit_message.encode()).hexdigest()
        repo = self.cache / f'models--{repo_id.replace("/", "--")}'
        shutil.copytree(folder_path, repo / 'snapshots' / commit)
        (repo / 'refs').mkdir()
        (repo / 'refs' / 'main').write_text(commit)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The Hub is not reachable, and its cache is empty."""
    monkeypatch.setattr('huggingface_hub.constants.HF_HUB_CACHE', tmp_path / 'hub')
    monkeypatch.setattr('huggingface_hub.constants.HF_HUB_OFFLINE', True)
    monkeypatch.setenv('HF_ENDPOINT', 'https://localhost:1')
    monkeypatch.setattr('huggingface_hub.HfApi', FakeApi)
    return tmp_path / 'hub'


def test_a_folder_answers_like_its_model_and_its_card_describes_it(trained, pictures, tmp_path,
                                                                   monkeypatch):
    model = load(trained[0], 'cpu')
    monkeypatch.chdir(tmp_path)
    folder = model.save('wet_cats/', numbers=NUMBERS, licence='cc-by-4.0')
    assert sorted(file.name for file in folder.iterdir()) == ['README.md', 'model.safetensors']
    for place in ('wet_cats/', folder, 'wet_cats'):
        again = load(place, 'cpu')
    assert answers(again, pictures) == answers(model, pictures) and again.chosen == model.chosen
    card = (folder / 'README.md').read_text()
    assert yaml.safe_load(card.split('---')[1])['license'] == 'cc-by-4.0'
    rows = dict(re.findall(r'^\| (\S.*) \| (.*) \|$', card, re.MULTILINE))
    data = (folder / 'model.safetensors').read_bytes()
    assert rows['SHA-256'] == f'`{hashlib.sha256(data).hexdigest()}`'
    assert rows['numbers'] == 'seen 71.25, unseen 60.50, hm 55.00, auc 44.12'
    assert rows['data'] == 'ShapesCZSL, shapes-v2' and rows['licence'] == 'cc-by-4.0'
    assert rows['labels'] == '12 attributes, 12 objects, 144 pairs: 86 seen, 58 unseen'
    assert 'CLIPVision' in rows['image tower'] and "load('wet_cats/')" in card
    pairs = re.split(', ', card.split('## Pairs')[1].strip().splitlines()[-1])
    assert len(pairs) == 144 and sum(pair.startswith('**') for pair in pairs) == 86


def test_another_file_than_that_of_the_card_is_refused(trained, tmp_path):
    model = load(trained[0], 'cpu')
    folder = model.save(f'{tmp_path}/one/')
    assert 'not given' in (folder / 'README.md').read_text()
    next(model.network.neck.parameters()).data += 1
    model.save(folder / 'model.safetensors')
    with pytest.raises(ValueError, match=r'model.safetensors: its SHA-256 is [0-9a-f]{64}, its '
                                         r'card README.md says [0-9a-f]{64}\. Copy both again'):
        load(folder, 'cpu')
    (folder / 'README.md').unlink()
    load(folder, 'cpu')
    (folder / 'model.safetensors').unlink()
    with pytest.raises(FileNotFoundError, match='one/model.safetensors does not exist'):
        load(folder, 'cpu')
    with pytest.raises(ValueError, match="stand on the card of a folder: save to 'two/'"):
        model.save(tmp_path / 'two.safetensors', licence='mit')


def test_a_model_goes_to_the_hub_and_comes_back_without_a_network(trained, pictures, cache):
    model = load(trained[0], 'cpu')
    assert model.push_to_hub('somebody/wet-cats', numbers=NUMBERS) == (
        'https://localhost:1/somebody/wet-cats')
    again = load('hf-hub:somebody/wet-cats', 'cpu')
    assert answers(again, pictures) == answers(model, pictures)
    card, = cache.glob('models--*/snapshots/*/README.md')
    assert "load('hf-hub:somebody/wet-cats')" in card.read_text()
    (commit, ) = (path.name for path in card.parent.parent.iterdir())
    assert answers(load(f'hf-hub:somebody/wet-cats@{commit}', 'cpu'), pictures) == (
        answers(model, pictures))


@pytest.mark.parametrize('name', ['somebody/other', 'somebody/wet-cats@v2', 'three/parts/name'])
def test_a_model_that_cannot_be_fetched_is_one_sentence_and_its_remedy(name, cache):
    with pytest.raises(DownloadError, match=f'^hf-hub:{name} could not be fetched .*Check the'):
        load(f'hf-hub:{name}', 'cpu')


def test_errors_of_the_hub_and_of_a_missing_extra(trained, cache, monkeypatch):
    model = load(trained[0], 'cpu')
    with pytest.raises(DownloadError, match=r'a/b/c could not be uploaded .*`hf auth login`'):
        model.push_to_hub('a/b/c')
    monkeypatch.setitem(sys.modules, 'huggingface_hub', None)
    for action in (lambda: load('hf-hub:a/b', 'cpu'), lambda: model.push_to_hub('a/b')):
        with pytest.raises(ImportError, match=r'needs huggingface_hub, .* pip install .*\[hf\]'):
            action()


@pytest.mark.parametrize('name', ['cluspro_shapes', 'saved/'])
def test_predict_writes_a_table_for_each_name_of_a_model(name, tmp_path, monkeypatch, pictures,
                                                         capsys):
    from PIL import Image
    monkeypatch.chdir(tmp_path)
    load('cluspro_shapes', 'cpu').save('saved/')
    Image.fromarray(pictures[0][..., ::-1]).save('one.png')
    assert main(['predict', name, 'one.png', '--out', 'out.csv']) == 0
    assert len((tmp_path / 'out.csv').read_text().splitlines()) == 2
