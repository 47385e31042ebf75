"""A file is read once, until it changes."""
import os

import pytest

from mmcluspro.utils.plain_files import once_per_file


@pytest.fixture
def reader():
    calls = []

    @once_per_file(kept=2)
    def read(path, strip=False):
        calls.append(path.name)
        text = path.read_text()
        return [text.strip() if strip else text]

    read.calls = calls
    return read


def write(path, text, age=10):
    path.write_text(text)
    stamp = path.stat().st_mtime - age
    os.utime(path, (stamp, stamp))
    return path


def test_the_same_file_is_read_once_for_the_same_arguments(tmp_path, reader):
    path = write(tmp_path / 'a', 'one ')
    assert reader(path) is reader(path) and reader(path, strip=True) == ['one']
    assert reader.calls == ['a', 'a']


def test_a_changed_file_is_read_again(tmp_path, reader):
    path = write(tmp_path / 'a', 'one')
    assert reader(path) == ['one']
    assert reader(write(path, 'two', age=5)) == ['two']
    assert reader(write(path, 'three')) == ['three']


def test_a_file_that_may_still_change_is_not_kept(tmp_path, reader):
    path = write(tmp_path / 'a', 'one', age=0)
    reader(path)
    path.write_text('two')  # perhaps with the same time stamp and size
    assert reader(path) == ['two']


def test_few_results_are_kept_and_errors_are_not(tmp_path, reader):
    paths = [write(tmp_path / name, name) for name in 'abc']
    for path in (*paths, paths[2], paths[0]):
        reader(path)
    assert reader.calls == ['a', 'b', 'c', 'a']
    with pytest.raises(FileNotFoundError):
        reader(tmp_path / 'missing')
