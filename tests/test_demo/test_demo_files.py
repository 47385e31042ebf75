"""Which files the page takes, keeps and shows."""
import argparse
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip('gradio')

import gradio as gr

from mmcluspro.artefact import prototype_images
from mmcluspro.demo import many_files
from mmcluspro.demo.app import _example_buttons
from mmcluspro.demo.demo_command import find_images, serve


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


@pytest.mark.parametrize('endpoint', [True, False])
@pytest.mark.parametrize('public, address', [(None, 'http://here'), ('https://out', 'https://out')])
def test_the_address_is_that_of_the_page(endpoint, public, address, tmp_path):
    routes = []
    server = SimpleNamespace(add_route=lambda *args, **own: routes.append(own['methods']))
    app = SimpleNamespace(launch=lambda **own: (server, 'http://here', public),
                          server=SimpleNamespace(should_exit=True))
    if endpoint:
        app.endpoint = SimpleNamespace(answer=None)
    assert serve(app, str(tmp_path), '127.0.0.1', None) == address
    assert routes == ([['POST']] if endpoint else [])


def test_only_uploads_are_files(tmp_path, monkeypatch):
    monkeypatch.setattr(many_files, 'get_upload_folder', lambda: str(tmp_path))
    inside = tmp_path / 'a.png'
    inside.touch()
    files = [SimpleNamespace(path=path, orig_name=name) for path, name in (
        (str(inside), 'holiday/x.png'), (str(inside), None), ('/etc/passwd', 'y.png'),
        ('a.png', 'z.png'), (None, 'n.png'))]
    found = many_files.files_of(SimpleNamespace(root=files))
    assert [(item.name, item.source) for item in found] == [
        ('x.png', str(inside)), ('a.png', str(inside))]
    assert many_files.files_of(None) == []


def test_tables_of_an_hour_ago_are_deleted(tmp_path):
    first = many_files.write_table('a', str(tmp_path))
    second = many_files.write_table('b', str(tmp_path))
    os.utime(os.path.dirname(first), (0, 0))
    third = many_files.write_table('c', str(tmp_path))
    assert [os.path.exists(path) for path in (first, second, third)] == [False, True, True]
    assert Path(third).read_text() == 'c'


def clicked(monkeypatch, classifier):
    """The function behind the button of the tab."""
    found = []
    monkeypatch.setattr(gr.Button, 'click', lambda self, run, *args, **own: found.append(run))
    with gr.Blocks():
        many_files.many_files_tab(classifier, lambda *words: None, [])
    return found[0]


def test_a_table_needs_some_files_and_not_too_many(monkeypatch):
    run = clicked(monkeypatch, None)
    text, button = run([])
    assert many_files.NO_FILES in text and button['visible'] is False
    text, button = run(['x'] * (many_files.MAX_FILES + 1))
    assert 'These are 201 files; the page takes up to 200' in text and button['visible'] is False


def test_a_page_without_examples_has_no_buttons():
    with gr.Blocks():
        assert _example_buttons([]) == []
