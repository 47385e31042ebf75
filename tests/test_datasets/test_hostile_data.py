"""Archives, pickles and tables of a stranger, as the converters of datasets meet them."""
import io
import pickle
import tarfile
import time
from pathlib import Path

import pytest
import torch

from mmcluspro.datasets import write_layout
from mmcluspro.datasets.layout import read_splits, row_faults
from mmcluspro.datasets.photographs import read_version
from mmcluspro.errors import FileError

TOOLS = Path(__file__).resolve().parents[2] / 'tools' / 'dataset_converters'
NAME = 'metadata_ao_clevr__UV__comp_seed_1__seen_seed_0__train.pkl'


def nested(kind, depth=60):
    """Containers in containers: 61 objects that stand for 2**60."""
    found = kind('x')
    for _ in range(depth):
        found = kind([found, found])
    return found


HOSTILE = {
    'hash': b'\x80\x02}' + pickle.dumps(nested(tuple), 2)[2:-1] + b'K\x01s.',
    'hash of many': b'\x80\x02}(' + pickle.dumps(nested(tuple), 2)[2:-1] + b'K\x01u.',
    'hash in a dict': b'\x80\x02(' + pickle.dumps(nested(tuple), 2)[2:-1] + b'K\x01d.',
    'set': b'\x80\x04\x8f(' + pickle.dumps(nested(tuple), 2)[2:-1] + b'\x90.',
    'dtype': b'\x80\x02cnumpy\ndtype\n' + pickle.dumps(nested(list), 2)[2:-1] + b'\x85R.',
    'state': b'\x80\x02cnumpy.core.multiarray\nscalar\n}X\x01\x00\x00\x00aK\x01sb.',
    'length': b'\x80\x04\x8d' + (1 << 60).to_bytes(8, 'little') + b'abc.',
    'program': b"cos\nsystem\n(S'true'\ntR.",
}


@pytest.mark.parametrize('raw', HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_pickle_is_refused_at_once(tmp_path, raw, tool, monkeypatch):
    monkeypatch.syspath_prepend(TOOLS)
    path = tmp_path / NAME
    path.write_bytes(raw)
    start = time.process_time()
    for read in (lambda: tool('prepare_ao_clevr').read_samples(path, 'train_data'),
                 lambda: tool('convert_metadata').read_plain(path)):
        with pytest.raises(FileError, match=r'train\.pkl: it cannot be read as plain data'):
            read()
    assert time.process_time() - start < 5


@pytest.mark.parametrize('image', ['../../victim.png', '/etc/victim.png', 'a/../../b.png',
                                   'C:\\victim.png', 'x' * 10_000_000, '', 7])
def test_no_layout_with_images_elsewhere_is_written(tmp_path, image):
    row = dict(image=image, attr='red', obj='cube', set='train')
    with pytest.raises(ValueError, match='not a name below the folder'):
        write_layout(tmp_path, [row], dict(train=[('red', 'cube')], val=[], test=[]), 'own')
    assert not (tmp_path / 'metadata_own.t7').exists()


@pytest.mark.parametrize('name', ['red\nblue', 'r\udcffd', 'r\x1b[2Jd', ''])
def test_names_that_cannot_stand_in_a_list(tmp_path, name):
    row = dict(image='a.png', attr=name, obj='cube', set='train')
    with pytest.raises(ValueError, match='cannot be in a pair list'):
        write_layout(tmp_path, [row], dict(train=[(name, 'cube')], val=[], test=[]), 'own')


def test_a_row_that_repeats_a_long_name_is_named_in_no_time(tmp_path):
    row = dict(image='x' * 10_000_000, attr='red', obj='cube', set='train')
    start = time.process_time()
    faults = row_faults([row] * 10_000, tmp_path)
    assert len(faults) == 10_000 and len(str(faults[0])) < 1000
    assert time.process_time() - start < 2


def test_a_pair_list_of_holes_is_not_read(tmp_path):
    for phase in ('train', 'val', 'test'):
        path = tmp_path / 'split' / f'{phase}_pairs.txt'
        path.parent.mkdir(exist_ok=True)
        with path.open('wb') as file:
            file.truncate(1 << 40)
    with pytest.raises(FileError, match=r'train_pairs\.txt: it has 1,099,511,627,776 bytes'):
        read_splits(tmp_path, 'split')


@pytest.fixture
def photographs(tool, tmp_path):
    """A tar of members with the given names; unpacks it to the photographs 1 and 2."""
    def unpack(*members, size=None, damage=slice(0)):
        path = tmp_path / 'source' / 'images.tar'
        path.parent.mkdir()
        with tarfile.open(path, 'w') as tar:
            for name, link in members:
                info = tarfile.TarInfo(name)
                content = b'' if link else b'photograph'
                info.size = len(content)
                if link:
                    info.type, info.linkname = link
                tar.addfile(info, io.BytesIO(content))
        raw = bytearray(path.read_bytes())
        if size is not None:  # in the header, with its checksum
            info.size = size
            raw[:512] = info.tobuf(tarfile.GNU_FORMAT)
        del raw[damage]
        path.write_bytes(raw)
        root = tmp_path / 'root'
        targets = {name: root / 'images' / 'red_shirt' / name for name in ('1.jpg', '2.jpg')}
        tool('prepare_photographs').unpack(path, targets)
        return sorted(str(found.relative_to(tmp_path)) for found in tmp_path.rglob('*')
                      if found.is_file() or found.is_symlink())
    return unpack


def test_names_in_a_tar_do_not_choose_the_place(photographs):
    found = photographs(('../../1.jpg', None), ('/tmp/2.jpg', None), ('²/2.jpg', None),
                        ('../evil.sh', None), (f'{"9" * 5000}.jpg', None), ('².jpg', None))
    assert found == ['root/images/red_shirt/1.jpg', 'root/images/red_shirt/2.jpg',
                     'source/images.tar']


@pytest.mark.parametrize('link', [(tarfile.SYMTYPE, '/etc/passwd'), (tarfile.LNKTYPE, '../x'),
                                  (tarfile.FIFOTYPE, ''), (tarfile.CHRTYPE, '')])
def test_links_and_devices_in_a_tar_are_left_out(photographs, link):
    assert photographs(('1.jpg', link)) == ['source/images.tar']


def test_a_link_beside_a_photograph_is_not_written_through(photographs, tmp_path):
    victim = tmp_path / 'victim'
    victim.write_text('mine')
    folder = tmp_path / 'root' / 'images' / 'red_shirt'
    folder.mkdir(parents=True)
    (folder / '1.jpg.part').symlink_to(victim)
    photographs(('1.jpg', None))
    assert victim.read_text() == 'mine' and (folder / '1.jpg').read_bytes() == b'photograph'


def test_a_member_that_claims_gigabytes_is_refused(photographs):
    with pytest.raises(FileError, match=r"images\.tar: it cannot be unpacked .*'1\.jpg' claims"):
        photographs(('1.jpg', None), size=1 << 32)


def test_a_damaged_tar_is_one_message(photographs):
    with pytest.raises(FileError, match=r'images\.tar: it cannot be unpacked'):
        photographs(('1.jpg', None), damage=slice(600, None))


@pytest.mark.parametrize('text, groups', [
    (f'train red shirt {"9" * 5000}', ''), ('train ../red shirt 1', ''), ('train red shirt ²', ''),
    ('train red shirt 1', 'ONE two')])
def test_a_hostile_version_of_fashion_is_named(tmp_path, text, groups):
    (tmp_path / 'mine.txt').write_text(text, encoding='utf-8')
    if groups:
        (tmp_path / 'mine.groups.txt').write_text(groups)
    with pytest.raises(FileError, match=r'mine(\.groups)?\.txt:1: expected'):
        read_version(str(tmp_path / 'mine.txt'))


def test_metadata_of_lists_in_lists_is_refused(tmp_path):
    from mmcluspro.datasets.layout import read_metadata
    path = tmp_path / 'metadata_own.t7'
    torch.save([dict(image=nested(list))], path)
    with pytest.raises(FileError, match='nested without end'):
        read_metadata(path)
