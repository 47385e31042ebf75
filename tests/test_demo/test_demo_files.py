"""Which files the page takes, keeps and shows."""
import argparse
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip('gradio')

from mmcluspro.demo import app
from mmcluspro.demo.demo_command import find_images
from mmcluspro.visualization import prototype_images


def flags(checkpoint=None, images=None):
    return argparse.Namespace(checkpoint=checkpoint, images=images)


@pytest.fixture
def pictures(monkeypatch):
    """Every file of pictures is read; it fits the prototypes called 'own'."""
    found = SimpleNamespace(fits=lambda banks: banks == 'own')
    monkeypatch.setattr(prototype_images, 'read_prototype_images', lambda path: found)
    return found


def test_pictures_come_from_the_flag_or_from_beside_the_checkpoint(pictures, tmp_path, capsys):
    file, checkpoint = tmp_path / prototype_images.NAME, str(tmp_path / 'x.pth')
    assert find_images(flags(), 'own') is None and find_images(flags(checkpoint), 'own') is None
    with pytest.raises(FileNotFoundError, match=f'--images {file} does not exist. mmcluspro report '
                       'CHECKPOINT writes prototype_images.json .*the checkpoint'):
        find_images(flags(checkpoint, str(file)), 'own')
    file.touch()
    assert find_images(flags(checkpoint), 'own') is pictures
    assert find_images(flags(None, str(file)), None) is pictures
    assert find_images(flags(checkpoint, 'none'), 'own') is None
    assert capsys.readouterr().out == ''
    assert find_images(flags(checkpoint, str(file)), 'other') is pictures
    assert (f'{file} belongs to another checkpoint: prototypes are shown without pictures. Make it '
            f'again with mmcluspro report {checkpoint}.') in capsys.readouterr().out


def test_only_uploads_are_files(tmp_path, monkeypatch):
    monkeypatch.setattr(app, 'get_upload_folder', lambda: str(tmp_path))
    inside = tmp_path / 'a.png'
    inside.touch()
    files = [SimpleNamespace(path=path, orig_name=name) for path, name in (
        (str(inside), 'holiday/x.png'), (str(inside), None), ('/etc/passwd', 'y.png'),
        ('a.png', 'z.png'), (None, 'n.png'))]
    found = app.files_of(SimpleNamespace(root=files))
    assert [(item.name, item.source) for item in found] == [
        ('x.png', str(inside)), ('a.png', str(inside))]
    assert app.files_of(None) == []


def test_tables_of_an_hour_ago_are_deleted(tmp_path):
    first = app.write_table('a', str(tmp_path))
    second = app.write_table('b', str(tmp_path))
    os.utime(os.path.dirname(first), (0, 0))
    third = app.write_table('c', str(tmp_path))
    assert [os.path.exists(path) for path in (first, second, third)] == [False, True, True]
    assert Path(third).read_text() == 'c'
