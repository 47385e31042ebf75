"""A file has its name only when it is complete and on the disk."""
import os
import stat

import pytest

from mmcluspro.utils.files import atomic_path, write_json, write_text


def test_a_file_that_is_interrupted_leaves_the_old_one_and_no_part(tmp_path):
    path = tmp_path / 'a.txt'
    write_text(path, 'old')
    with pytest.raises(KeyboardInterrupt), atomic_path(path) as part:
        part.write_text('half')
        raise KeyboardInterrupt
    assert path.read_text() == 'old' and list(tmp_path.iterdir()) == [path]


def test_the_content_is_on_the_disk_before_the_file_gets_its_name(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(os, 'fsync', lambda number: seen.append(
        (stat.S_ISDIR(os.fstat(number).st_mode), (tmp_path / 'a.json').exists())))
    write_json(tmp_path / 'a.json', {'ü': 1}, indent=None)
    assert seen == [(False, False), (True, True)]  # the content, then the folder with the name
    assert (tmp_path / 'a.json').read_bytes() == '{"ü": 1}'.encode()


@pytest.mark.parametrize('keep_first, left', [(True, 'first'), (False, 'second')])
def test_who_wins_when_two_write_the_same_file(tmp_path, keep_first, left):
    path = tmp_path / 'a.txt'
    with atomic_path(path, keep_first) as second:
        second.write_text('second')
        write_text(path, 'first', keep_first)
    assert path.read_text() == left and list(tmp_path.iterdir()) == [path]


def test_modes_are_those_of_any_other_file(tmp_path):
    (tmp_path / 'plain').write_text('')
    write_text(tmp_path / 'atomic', '')
    assert (tmp_path / 'plain').stat().st_mode == (tmp_path / 'atomic').stat().st_mode
