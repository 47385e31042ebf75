"""Which files the page takes, keeps and shows."""
import argparse
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip('gradio')

from mmcluspro.demo import app
from mmcluspro.demo.demo_command import find_images
from mmcluspro.visualization.prototypes import (
    NAME,
    PrototypeImages,
    ShownPrototype,
    bank_digest,
    write_prototype_images,
)


def flags(checkpoint=None, images=None):
    return argparse.Namespace(checkpoint=checkpoint, images=images)


def test_pictures_come_from_the_flag_or_from_beside_the_checkpoint(cluspro, tmp_path, capsys):
    banks = cluspro.model.network.head.prototypes
    file, checkpoint = tmp_path / NAME, str(tmp_path / 'x.pth')
    assert find_images(flags(), banks) is None and find_images(flags(checkpoint), banks) is None
    with pytest.raises(FileNotFoundError, match=f'--images {file} does not exist. mmcluspro report '
                       'CHECKPOINT writes prototype_images.json .*the checkpoint'):
        find_images(flags(checkpoint, str(file)), banks)
    own = PrototypeImages({branch: bank_digest(bank) for branch, bank in banks.items()},
                          dict(attr={0: ShownPrototype(0.5, False, [])}))
    write_prototype_images(own, file)
    assert find_images(flags(checkpoint), banks) == own
    assert find_images(flags(None, str(file)), None) == own
    assert find_images(flags(checkpoint, 'none'), banks) is None
    assert capsys.readouterr().out == ''
    own.digests['attr'] = 'another'
    write_prototype_images(own, file)
    assert find_images(flags(checkpoint, str(file)), banks) == own
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
