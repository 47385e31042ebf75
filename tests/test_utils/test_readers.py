"""Readers give back what was written, for any content, and notice every change that is covered."""
import csv
import io
import json
import os
import string
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcluspro.artefact.pairs import parse_pairs, read_pairs
from mmcluspro.datasets.table_file import COLUMNS, TableRow, read_table, table_pairs, write_table
from mmcluspro.errors import FileError
from mmcluspro.utils.digest import (
    arrays_digest,
    checksum,
    content_digest,
    file_digest,
    fingerprint,
    sha256,
)
from mmcluspro.utils.plain_files import (
    CELL,
    read_json,
    read_npz,
    read_text,
    split_cells,
    verified,
    with_checksum,
)
from mmcluspro.utils.safe_load import check_archive, check_named_digest

NAME = st.text(string.ascii_letters + string.digits + ' .-_éß漢,;"', min_size=1, max_size=12).map(
    lambda text: ' '.join(text.split())).filter(bool)
# A semicolon in a line is taken for the delimiter.
PLAIN_NAME = NAME.filter(lambda name: ';' not in name)
CELLS = st.lists(st.text(string.printable[:95], max_size=8), min_size=1, max_size=5)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner,
                                                                max_size=3), max_leaves=6)


def as_line(cells, delimiter=','):
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter, lineterminator='').writerow(cells)
    return file.getvalue()


@settings(max_examples=60, deadline=None)
@given(pairs=st.lists(st.tuples(PLAIN_NAME, PLAIN_NAME), min_size=1, max_size=6, unique=True),
       end=st.sampled_from(['\n', '\r\n', '\r']), mark=st.booleans(), header=st.booleans())
def test_a_file_of_pairs_is_read_back(tmp_path_factory, pairs, end, mark, header):
    path = tmp_path_factory.mktemp('pairs') / 'pairs.csv'
    lines = [as_line(['Attribute', 'object'])] * header + [
        ','.join('"' + name.replace('"', '""') + '"' for name in pair) for pair in pairs]
    path.write_bytes(end.join(lines).encode('utf-8-sig' if mark else 'utf-8'))
    assert read_pairs(path) == pairs


@pytest.mark.parametrize('text, message', [
    ('', 'line 1: there is no pair'),
    ('wet cat\nwet cat', "line 2: 'wet cat' is already in line 1"),
    ('wet cat dog', "line 1: expected two words, got 'wet cat dog'"),
    ('a, b, c', 'expected two names with one comma between them'),
    ('a; b; c', 'one semicolon between'),
    ('wet,', 'a name is empty'),
    (', cat', 'a name is empty'),
    ('"wet, cat', 'a double quote is not closed'),
    ('w\x07et, cat', 'a name holds a control character'),
    ('x' * 70, 'x' * 60 + '…'),
])
def test_a_wrong_line_is_named(text, message):
    with pytest.raises(ValueError) as error:
        parse_pairs(text)
    assert message in str(error.value)


def test_one_wrong_line_changes_no_other():
    with pytest.raises(ValueError) as error:
        parse_pairs('attribute, object\nwet cat # sure\n"old, dog\n\nbig, fire truck\nbig')
    assert 'line 3' in str(error.value) and 'line 6' in str(error.value)
    assert 'line 2' not in str(error.value) and 'line 5' not in str(error.value)
    assert parse_pairs('wet\tfire truck\n# all\nbig; cat') == [('wet', 'fire truck'),
                                                             ('big', 'cat')]
    with pytest.raises(ValueError, match='two words'):  # a header stands first, or is a pair
        parse_pairs('wet cat dog\nattribute object')
    assert parse_pairs('wet cat\nattribute object') == [('wet', 'cat'), ('attribute', 'object')]


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(NAME, NAME, st.sampled_from(['train', 'val', 'test'])), min_size=1,
                     max_size=5), order=st.permutations(range(4)), sign=st.sampled_from(',;\t'))
def test_a_table_is_read_back_in_any_order_of_columns(tmp_path_factory, rows, order, sign):
    path = tmp_path_factory.mktemp('table') / 'table.csv'
    rows = [TableRow(f'{i}.png', *row, line=i + 2) for i, row in enumerate(rows)]
    write_table(path, rows)
    assert read_table(path) == rows
    lines = [as_line([row[i] for i in order], sign) for row in (COLUMNS, *rows)]
    path.with_name('other.csv').write_text('\n'.join(lines), encoding='utf-8')
    assert read_table(path.with_name('other.csv')) == rows


@settings(max_examples=100, deadline=None)
@given(CELLS, st.sampled_from(',;\t'))
def test_cells_of_a_line_are_read_back(cells, delimiter):
    assert split_cells(as_line(cells, delimiter), delimiter) == cells


def test_lines_without_sense_are_refused():
    assert split_cells('', ',') == [] and len(split_cells('x' * CELL, ',')[0]) == CELL
    for line, message in (('x' * (CELL + 1), 'more than'), ('"a', 'quotes'), ('a\nb', 'line break'),
                          ('a\x00b,c', 'control character')):
        with pytest.raises(ValueError, match=message):
            split_cells(line, ',')


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from('abc'), PLAIN, min_size=1), PLAIN)
def test_a_checksum_notices_every_other_value(content, value):
    signed = json.loads(json.dumps(with_checksum(content)))
    assert verified(signed, 'x.json', 'Do.', 'abc') == content
    shuffled = dict(reversed(signed.items()))
    assert verified(shuffled, 'x.json', 'Do.', 'abc') == content
    key = next(iter(content))
    if json.dumps(value, sort_keys=True) != json.dumps(content[key], sort_keys=True):
        with pytest.raises(FileError, match='does not fit its checksum'):
            verified({**signed, key: value}, 'x.json', 'Do.', 'abc')
    with pytest.raises(FileError, match="the field 'chicksum'"):
        verified({**content, 'chicksum': '0'}, 'x.json', 'Do.', 'abc')
    assert verified(content, 'x.json', 'Do.', 'abc') == content  # a file of before


def test_json_of_another_kind_is_refused(tmp_path):
    path = tmp_path / 'a.json'
    for text, message in (('[1]', 'it holds a list'), ('{', 'not JSON'), ('[' * 10**5, 'not JSON')):
        path.write_text(text)
        with pytest.raises(FileError, match=message):
            read_json(path, dict, 'Write it again.')
    path.write_bytes(b'\xff\xfe')
    with pytest.raises(FileError, match='not UTF-8'):
        read_json(path, dict, 'Write it again.')
    path.write_text('12345')
    assert read_text(path, 'Cut it.', limit=5) == '12345'
    with pytest.raises(FileError, match='5 bytes, more than 4. Cut it.'):
        read_text(path, 'Cut it.', limit=4)
    with path.open('wb') as file:
        file.truncate((1 << 30) + 1)  # sparse: nothing is on the disk
    with pytest.raises(FileError, match='1,073,741,825 bytes, more than 1,073,741,824'):
        read_text(path, 'Cut it.')


@settings(max_examples=50, deadline=None)
@given(shape=st.lists(st.integers(0, 3), max_size=3), packed=st.booleans(),
       kind=st.sampled_from(['bool', 'f4', 'f8', 'i8', 'U3']), seed=st.integers(0, 9))
def test_arrays_are_read_back(tmp_path_factory, shape, kind, packed, seed):
    path = tmp_path_factory.mktemp('npz') / 'a.npz'
    array = np.random.default_rng(seed).integers(0, 9, shape).astype(kind)
    (np.savez_compressed if packed else np.savez)(path, a=array, b=array[..., :1] if shape else 1)
    got = read_npz(path)
    assert set(got) == {'a', 'b'} and got['a'].dtype == array.dtype
    np.testing.assert_array_equal(got['a'], array)
    assert set(read_npz(path, wanted=lambda name: name == 'b')) == {'b'}
    same = arrays_digest(dict(a=array, b=array)) == arrays_digest(dict(b=array, a=array))
    assert same and arrays_digest(dict(a=array)) != arrays_digest(dict(b=array))
    assert arrays_digest(dict(a=array)) != arrays_digest(dict(a=array[None]))


def header(shape, kind="'<f4'"):
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".ljust(118 - 1) + '\n'
    return b'\x93NUMPY\x01\x00' + len(text).to_bytes(2, 'little') + text.encode()


@pytest.mark.parametrize('records, message', [
    ({'a.npy': header('(3,)') + bytes(8)}, r'claims float32 of shape \(3,\)'),
    ({'a.npy': header('(1125899906842624,)')}, 'claims float32'),
    ({'a.npy': header('(-2, -1)') + bytes(8)}, 'claims float32'),
    ({'a.npy': header('(1,)', "'|O'") + bytes(8)}, 'claims object'),
    ({'a.npy': b'nothing'}, "array 'a'"),
    ({'a.npy': header('(2,)') + bytes(8), 'a': header('(2,)') + bytes(8)}, 'there twice'),
    ({'a.npy': header('(4194304,)') + bytes(1 << 24)}, 'unpacks to'),
])
def test_headers_that_claim_something_else_are_refused(tmp_path, records, message):
    with zipfile.ZipFile(tmp_path / 'a.npz', 'w', zipfile.ZIP_DEFLATED) as archive:
        for name, data in records.items():
            archive.writestr(name, data)
    with pytest.raises(FileError, match=message):
        read_npz(tmp_path / 'a.npz')


def test_an_array_that_packs_well_is_read(tmp_path):
    """Only what is large and packs better than numbers do is a bomb."""
    np.savez_compressed(tmp_path / 'a.npz', a=np.zeros(1 << 20, 'f4'))
    assert read_npz(tmp_path / 'a.npz')['a'].shape == (1 << 20, )


def test_digests_are_the_published_functions(tmp_path):
    (tmp_path / 'a').write_bytes(b'ab')
    assert sha256(b'a', b'b') == sha256(b'ab') == (
        'fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603')
    assert sha256(b'ab', digits=6) == 'fb8e20'
    assert file_digest(tmp_path / 'a') == '3dc9ae220222e2e156b2a5abb60d01c7'
    assert checksum(np.frombuffer(b'123456789', 'u1')) == 'cbf43926'  # the check value of CRC-32
    assert content_digest({'a': 1, 'b': 2}) == content_digest({'b': 2, 'a': 1})
    assert len(content_digest([])) == len(arrays_digest({})) == 16
    found = [int(fingerprint({name: torch.ones(2)})) for name in 'abcdefgh']
    assert len(set(found)) == 8 and min(found) < 0 < max(found)  # all of int64 is used


@pytest.mark.parametrize('size, refused', [(1 << 26, False), (82 << 20, True)])
def test_an_archive_that_unpacks_to_far_more_is_refused(tmp_path, size, refused):
    """64 MB, and a few times what is packed, are allowed."""
    path = tmp_path / 'a.zip'
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
        archive.writestr('x', bytes(size))
    if refused:
        with pytest.raises(FileError, match=f'bytes unpack to {size:,}'):
            check_archive(path, 'a.zip')
    else:
        check_archive(path, 'a.zip')


def test_a_damaged_record_and_a_wrong_name_are_found(tmp_path):
    path = tmp_path / 'a.zip'
    with zipfile.ZipFile(path, 'w') as archive:
        archive.writestr('x/data', b'0123456789' * 20)
    check_archive(path, 'a.zip')
    data = bytearray(path.read_bytes())
    data[data.index(b'0123456789') + 150] ^= 1
    path.write_bytes(data)
    with pytest.raises(FileError, match="record 'x/data'"):
        check_archive(path, 'a.zip')
    (tmp_path / 'plain').write_bytes(b'no archive')
    with (tmp_path / 'plain').open('rb') as file:
        file.read(3)
        check_archive(file, 'plain')
        assert file.tell() == 0

    good = sha256(b'weights', digits=8)
    for name in (f'a-{good}.pth', 'a-deadbeef.pth', 'a.pth', f'a-{good}0.pth'):
        (tmp_path / name).write_bytes(b'weights')
        check_named_digest(tmp_path / name)
    (tmp_path / f'a-{good}.pth').write_bytes(b'Weights')
    with pytest.raises(FileError, match=f'its name says {good}'):
        check_named_digest(tmp_path / f'a-{good}.pth')


def test_a_large_file_that_is_not_squeezed_is_read(tmp_path):
    with zipfile.ZipFile(tmp_path / 'large.zip', 'w') as archive:
        archive.writestr('zeros', bytes((1 << 26) + 1))
    check_archive(tmp_path / 'large.zip', 'large.zip')


def test_pairs_of_validation_are_known_unless_the_user_allows_others(tmp_path):
    rows = [TableRow('a.jpg', 'red', 'cat', 'train', 2), TableRow('b.jpg', 'wet', 'dog', 'val', 3)]
    with pytest.raises(ValueError, match='wet'):
        table_pairs(rows, 'table.csv')
    assert table_pairs(rows, 'table.csv', allow_unknown=True)['val'] == {('wet', 'dog'): 3}


def test_a_json_file_of_many_small_values_is_not_parsed(tmp_path, monkeypatch):
    path = tmp_path / 'lists.json'
    path.write_text('[' + '[],' * 999 + '[]]')  # 1,001 lists and 999 commas
    assert len(read_json(path, list, 'Again.', values=2000)) == 1000
    monkeypatch.setattr(json, 'loads', lambda text: pytest.fail('the text was parsed'))
    with pytest.raises(FileError, match='it holds 2,000 values, more than 1,999'):
        read_json(path, list, 'Again.', values=1999)


def test_a_pipe_a_device_and_a_folder_are_not_read(tmp_path):
    os.mkfifo(tmp_path / 'pipe')
    for path in (tmp_path / 'pipe', '/dev/zero', tmp_path):
        with pytest.raises(FileError, match='not a plain file'):
            read_text(path, 'Again.')
