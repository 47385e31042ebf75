"""Labels, tables and stored pictures that are refused, and why."""
import json
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
from file_steps import Step, carry_out
from PIL import Image

from mmcluspro.datasets import CompositionSpace, TableCZSL
from mmcluspro.datasets import folders as photos
from mmcluspro.datasets.czsl_dataset import CZSLDataset
from mmcluspro.datasets.photographs import GROUPS, Photograph, read_version, write_version
from mmcluspro.datasets.pictures import KeepPrepared
from mmcluspro.datasets.shapes import dataset as cache
from mmcluspro.datasets.space import build_space
from mmcluspro.datasets.splitting import NEAR, find_groups
from mmcluspro.datasets.table_file import TableRow, read_table
from mmcluspro.errors import FileError

SPACE = dict(attributes=['a'], objects=['b'], pairs=[[0, 0]], seen=[True])


@pytest.mark.parametrize('state, words', [
    ([1], 'A space is a dict, got a list'),
    (dict(attributes=[]), r"\['objects', 'pairs', 'seen'\] is missing"),
    (dict(SPACE, objects='b'), 'space.objects must be a list of names, got a str'),
    (dict(SPACE, pairs=[[0.0, 0.0]]), r'two whole numbers each.*got torch.float32 of shape \(1, 2'),
    (dict(SPACE, pairs=[0, 0]), r'two whole numbers each.*got torch.int64 of shape \(2,\)'),
    (dict(SPACE, seen=[1]), 'space.seen True or False, got .* and torch.int64'),
    (dict(SPACE, pairs=[['x']]), 'space.pairs must hold two numbers each'),
])
def test_a_space_that_is_none_is_refused(state, words):
    with pytest.raises(ValueError, match=words):
        CompositionSpace.from_dict(state)


def test_a_type_that_is_no_dataset_makes_no_space():
    with pytest.raises(ValueError, match="space.type='no_package.Data' is not a registered dataset"
                       "; write 'mmcluspro.UTZappos'"):
        build_space(dict(type='no_package.Data'))


ROWS = [TableRow('a.jpg', 'wet', 'cat'), TableRow('b.jpg', 'wet', 'dog')]


def table(folder, text):
    path = folder / 'table.csv'
    path.write_text(text)
    return path


def test_groups_come_from_a_column_a_pattern_or_the_look(tmp_path):
    path = table(tmp_path, 'image,attribute,object,who\na.jpg,wet,cat,x\nb.jpg,wet,dog,y\n')
    rows = read_table(path, need_split=False)
    assert find_groups(rows, 'WHO', tmp_path, path) == {'a.jpg': 'x', 'b.jpg': 'y'}
    assert find_groups(ROWS, r'^(\w)', tmp_path, path) == {'a.jpg': 'a', 'b.jpg': 'b'}
    for name, colour in (('a.jpg', (255, 0, 0)), ('b.jpg', (0, 0, 255))):
        picture = np.zeros((32, 32, 3), np.uint8)
        picture[:16] = colour
        Image.fromarray(picture).save(tmp_path / name)
    assert set(find_groups(ROWS, NEAR, tmp_path)) == {'a.jpg', 'b.jpg'}
    path = table(tmp_path, 'image,attribute,object,who\na.jpg,wet,cat,x\nb.jpg,wet,dog,\n')
    with pytest.raises(FileError, match="table.csv.*'b.jpg' has nothing in the column who.*Fill "
                       'the column, or group by another one'):
        find_groups(rows, 'who', tmp_path, path)


def test_a_column_twice_in_the_header_is_refused(tmp_path):
    path = table(tmp_path, 'image,attribute,object,split,image\n')
    with pytest.raises(FileError, match=r"table.csv:1.*a column is twice in the header 'image,"):
        read_table(path)


def test_check_images_has_three_values(tmp_path):
    with pytest.raises(ValueError, match="check_images must be True, False or 'skip', got 'no'"):
        TableCZSL(str(tmp_path), check_images='no')


def raising(error, cause=None):
    def fail(*args):
        raise error from cause
    return fail


@pytest.mark.parametrize('content, other, why', [
    (b'no picture', raising(ValueError('it is HEIC, install pillow-heif')),
     'it is HEIC, install pillow-heif'),
    (b'no picture', raising(ValueError('odd'), OSError('x')), 'it is not an image'),
    (b'no picture', lambda path: None, None),
])
def test_what_the_other_reader_says_counts(content, other, why, tmp_path, monkeypatch):
    path = tmp_path / 'a.jpg'
    path.write_bytes(content)
    monkeypatch.setattr('mmcluspro.datasets.pictures.read_picture', other)
    assert photos._why_not(str(path)) == why


def test_half_a_file_is_damaged_though_the_other_reader_fills_it(tmp_path, monkeypatch):
    path = tmp_path / 'a.png'
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:4000])
    monkeypatch.setattr('mmcluspro.datasets.pictures.read_picture', lambda path: None)
    assert 'truncated' in photos._why_not(str(path))


def test_an_error_of_stored_features_is_not_one_of_an_image():
    def broken(info):
        raise ValueError('no such feature')

    handled = []
    data = SimpleNamespace(
        features='folder', pipeline=broken, get_data_info=lambda index: dict(img_path='a'),
        bad_images=SimpleNamespace(handle=lambda *args: handled.append(args)))
    with pytest.raises(ValueError, match='no such feature'):
        CZSLDataset.prepare_data(data, 0)
    data.features = None
    data.get_data_info = lambda index: {}
    assert CZSLDataset.prepare_data(data, 0) is None and len(handled) == 1


def test_the_folder_of_features_is_shown():
    data = SimpleNamespace(phase='val', space=CompositionSpace.from_dict(SPACE), features='here',
                           skipped={}, data_root='')
    assert CZSLDataset.extra_repr(data) == [
        'Phase: \tval', 'Primitives: \t1 attributes, 1 objects', 'Pairs: \t1 seen, 0 unseen',
        'Features: \there']


@pytest.mark.parametrize('images, modes, words', [
    (np.zeros((1, 2, 2, 3), np.uint8), [[0, 0]], r'shape \(1, 2, 2, 3\) uint8'),
    (np.zeros((1, cache.IMAGE_SIZE, cache.IMAGE_SIZE, 3)), [[0, 0]], 'float64'),
    (np.zeros((1, cache.IMAGE_SIZE, cache.IMAGE_SIZE, 3), np.uint8), [[0, 0, 0]],
     r'\(1, 3\) modes'),
])
def test_stored_pictures_are_those_that_were_drawn(images, modes, words, tmp_path):
    path = tmp_path / 'x.npy'
    np.save(path, images)
    path.with_suffix('.json').write_text(json.dumps(dict(
        crc32=zlib.crc32(images.tobytes()), modes=modes)))
    with pytest.raises(ValueError, match=words):
        cache._read(path, 1)


def test_a_step_that_leaves_an_image_out_leaves_it_out(tmp_path):
    (tmp_path / 'a.jpg').write_text('')
    keep = object.__new__(KeepPrepared)
    keep.key, keep.folder, keep.steps = 'x', tmp_path / 'kept', lambda results: None
    assert keep.transform(dict(img_path=str(tmp_path / 'a.jpg'))) is None
    assert not (tmp_path / 'kept').exists()


def test_many_files_are_counted_aloud(tmp_path):
    said = []
    steps = [Step('link', tmp_path / f'{i}', tmp_path / 'to' / f'{i}') for i in range(100)]
    result = carry_out(steps, tmp_path, dry_run=True, say=said.append)
    assert dict(result) == dict(missing=100)
    assert [line for line in said if '/100' in line and '->' not in line] == [
        f'{10 * (i + 1)}/100' for i in range(10)]


def test_a_version_without_duplicates_has_one_file(tmp_path):
    path = tmp_path / 'small.txt'
    write_version(path, dict(train=[Photograph('3', 'Red', 'Tops')], val=[], test=[]), 'A header')
    assert path.read_text() == '# A header\ntrain Red Tops 3\n'
    assert not path.with_name('small' + GROUPS).exists() and read_version(path).groups == []
