"""Archives that are TorchScript by their form and lie about their content."""
import pickle
import struct
import zipfile

import pytest
import torch

from mmcluspro.errors import FileError
from mmcluspro.models import clip
from mmcluspro.models.clip import read_torchscript

NUMBERS = torch.arange(4.)
FLOATS = b'ctorch\nFloatStorage\n'


def plain(value):
    return pickle.dumps(value, protocol=2)[2:-1]


def storage(kind='storage', dtype=FLOATS, count=4):
    return b'(' + plain(kind) + dtype + plain('0') + plain('cpu') + plain(count) + b'tQ'


def tensor(offset=0, size=(4, ), stride=(1, ), source=None):
    return (b'ctorch._utils\n_rebuild_tensor_v2\n(' + (source or storage()) + plain(offset)
            + plain(size) + plain(stride) + plain(False) + b'tR')


def module(**state):
    """A module of the archive, from pickled values."""
    entries = b''.join(plain(name) + value for name, value in state.items())
    return b'\x80\x02c__torch__\nM\n)\x81}(' + entries + b'ub.'


def write(folder, content, numbers=NUMBERS, pickles=('clip/data.pkl', )):
    path = folder / 'clip.pt'
    with zipfile.ZipFile(path, 'w') as archive:
        archive.writestr('clip/code/x.py', '')
        archive.writestr('clip/data/0', struct.pack(f'<{len(numbers)}f', *numbers.tolist()))
        for name in pickles:
            archive.writestr(name, content)
    return path


def test_views_of_one_storage_and_lists_with_a_type(tmp_path):
    names = b'ctorch.jit._pickle\nrestore_type_tag\n(' + plain(['a']) + plain('List[str]') + b'tR'
    got = read_torchscript(write(tmp_path, module(
        names=names, first=tensor(), turned=tensor(0, (2, 2), (1, 2)), last=tensor(3, (), ()))))
    assert set(got) == {'first', 'turned', 'last'} and got['first'].equal(NUMBERS)
    assert got['turned'].tolist() == [[0, 2], [1, 3]] and float(got['last']) == 3
    assert got['first'].data_ptr() == got['turned'].data_ptr()


@pytest.mark.parametrize('pickles, count', [
    (('clip/data.pkl', 'other/data.pkl'), 2), (('clip/deep/data.pkl', ), 1), ((), 0)])
def test_one_pickle_is_expected_at_the_top(pickles, count, tmp_path):
    with pytest.raises(FileError, match=rf'clip\.pt: one data\.pkl expected, found {count}'):
        read_torchscript(write(tmp_path, module(), pickles=pickles))


def test_a_large_pickle_is_not_read(tmp_path, monkeypatch):
    path = write(tmp_path, module(first=tensor()))
    monkeypatch.setattr(clip, 'LARGEST_PICKLE', 10)
    with pytest.raises(FileError, match=r'clip\.pt: data\.pkl has [\d,]+ bytes'):
        read_torchscript(path)


def test_many_views_are_not_more_than_the_file(tmp_path):
    path = write(tmp_path, module(**{f'w{i}': tensor(0, (1000, ), (1, ), storage(count=1000))
                                     for i in range(5)}), torch.zeros(1000))
    with pytest.raises(FileError, match='its tensors are larger than the file'):
        read_torchscript(path)


@pytest.mark.parametrize('value, words', [
    (tensor(source=storage(kind='file')), 'a record that is not? .*storage'),
    (tensor(source=storage(dtype=plain('float'))), 'a record that is not? .*storage'),
    (tensor(source=storage(count='4')), 'a record that is not? .*storage'),
    (tensor(offset=-1), 'a tensor of an impossible shape'),
    (tensor(size=(2, 2)), 'a tensor of an impossible shape'),
    (tensor(size=(True, )), 'a tensor of an impossible shape'),
    (tensor(offset=1), 'a tensor that is larger than its storage'),
    (tensor(size=(9, ), stride=(0, )), 'a tensor that is larger than its storage'),
])
def test_a_wrong_tensor_is_refused_in_words(value, words, tmp_path):
    with pytest.raises(FileError, match=rf'clip\.pt: the TorchScript archive cannot be read \(.*'
                       f'{words}'):
        read_torchscript(write(tmp_path, module(first=value)))
