"""What commands say before any model is built."""
import io
import json
from types import SimpleNamespace

import pytest

from mmcluspro import cli
from mmcluspro.artefact import results
from mmcluspro.cli import (
    extract_features,
    make_split,
    own_photos,
    own_routes,
    predict,
    review,
)
from mmcluspro.datasets.folders import scan_folders
from mmcluspro.datasets.table_file import read_table

from ..conftest import paint


@pytest.mark.parametrize('message, category, said', [
    ('look', UserWarning, 'warning: look\n'), ('old', DeprecationWarning, ''),
    ('mmcv is lite', UserWarning, '')])
def test_warnings_for_developers_are_not_shown(message, category, said, capsys):
    cli.say_warning(message, category)
    assert capsys.readouterr().err == said


@pytest.mark.parametrize('extra, kind, words', [
    (None, ModuleNotFoundError, "No module named 'no_such_package'"),
    ('demo', ImportError, "mmcluspro x needs 'no_such_package', which is not installed: .*demo")])
def test_a_missing_package_is_an_extra_or_a_fault(extra, kind, words, monkeypatch):
    monkeypatch.setitem(cli.COMMANDS, 'x', SimpleNamespace(module='no_such_package', extra=extra))
    with pytest.raises(kind, match=words) as caught:
        cli.find_main('x')
    assert caught.type is kind


def test_features_are_made_of_phases_that_there_are(tmp_path):
    path = tmp_path / 'mine.py'
    path.write_text('model = dict()\ntest_dataloader = dict(dataset=dict(type="x"))\n')
    with pytest.raises(ValueError, match=r'mine\.py has no val_dataloader'):
        extract_features.main([str(path), '--phases', 'val'])
    for flag in ('--batch-size', '--shard-size'):
        with pytest.raises(SystemExit):
            extract_features.parse_args([str(path), flag, '0'])


def test_a_split_of_a_table_and_of_folders(tmp_path, capsys):
    rows = [('image', 'attribute', 'object')]
    for attribute in ('wet', 'dry', 'old'):
        for thing in ('cat', 'dog', 'car'):
            for number in range(6):
                name = f'{attribute}_{thing}/{number}.jpg'
                (tmp_path / name).parent.mkdir(exist_ok=True)
                (tmp_path / name).touch()
                rows.append((name, attribute, thing))
    (tmp_path / 'own.csv').write_text(''.join(','.join(row) + '\n' for row in rows))
    assert make_split.main([str(tmp_path / 'own.csv'), '--out', str(tmp_path / 'a.csv')]) == 0
    (tmp_path / 'wet_cat' / 'notes.txt').touch()
    assert make_split.main([str(tmp_path), '--out', str(tmp_path / 'b.csv')]) == 0
    said = capsys.readouterr().out
    first, second = (read_table(tmp_path / name) for name in ('a.csv', 'b.csv'))
    assert {row[:3] for row in first} == {row[:3] for row in second} and len(first) == 54
    assert 'txt' in said


def test_a_result_of_other_columns_is_not_continued(tmp_path):
    path = tmp_path / 'x.csv'
    results.ResultFile(path, {}, 1).close()
    header = path.read_text()
    for text in ('cut', 'image,other\n'):
        path.write_text(text)
        with pytest.raises(ValueError, match='x.csv: it has other columns than this command '
                           'writes. Give another --out, or remove the file'):
            results.ResultFile(path, {}, 1)
    path.write_text(header.replace('"', '') + 'a,,1,,,,,,\n')  # as a spreadsheet saves it
    result = results.ResultFile(path, {}, 1)
    result.close()
    assert result.done == dict(a=dict(error=None, abstained=True))
    assert path.read_text().startswith(header + '"a","",1,')


def test_lines_of_a_result_that_are_no_records_are_dropped(tmp_path):
    path = tmp_path / 'x.jsonl'
    results.ResultFile(path, {}, 1).close()
    path.write_text('{"image": "a"}\n7\n{"other": 1}\n{"imag')
    result = results.ResultFile(path, {}, 1)
    result.close()
    assert path.read_text() == '{"image": "a"}\n' and list(result.done) == ['a']


def test_a_table_beside_photos_is_found(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    photos = tmp_path / 'photos'
    photos.mkdir()
    (photos / 'table.csv').write_text('image,attribute,object\nx.jpg,wet,cat\n')
    with pytest.raises(ValueError, match=r'None of the 1 images can be read:(?s:.*)x.jpg'):
        own_photos.own_config('photos')


def test_folders_without_pairs_are_explained_by_the_first_separator(tmp_path):
    (tmp_path / 'cat').mkdir()
    paint(tmp_path / 'cat' / '1.png')
    with pytest.raises(ValueError) as caught:
        own_photos.own_config(str(tmp_path))
    with pytest.raises(ValueError) as first:
        scan_folders(tmp_path, '_')
    assert str(caught.value) == str(first.value)


def test_weights_at_hand_are_those_that_can_be_used(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert own_routes.weights_at_hand() is None
    (tmp_path / 'other.pt').touch()
    (tmp_path / 'dinov2_vits14_pretrain.pth').touch()
    monkeypatch.setattr(own_routes, '_words_at_hand', lambda: None)
    assert own_routes.weights_at_hand() is None
    monkeypatch.setattr(own_routes, '_words_at_hand', lambda: 'words.txt')
    assert own_routes.weights_at_hand() == 'dinov2_vits14_pretrain.pth'
    (tmp_path / 'ViT-B-32.pt').touch()
    assert own_routes.weights_at_hand() == 'ViT-B-32.pt'


@pytest.mark.parametrize('name, other', [('red', {}), ('Dresses', dict(Dresses='dress'))])
def test_words_that_vectors_lack_are_read_as_others(name, other, tmp_path):
    weights, words = tmp_path / 'dinov2_vits14_pretrain.pth', tmp_path / 'words.txt'
    weights.touch()
    words.write_text('red 1 0\ndress 0 1\n')
    route = own_routes.choose_route(str(weights), words=str(words), names=[name])
    text = route.fields['model']['head']['text']
    assert text.get('readable') == (dict(other, _delete_=True) if other else None)
    assert ('Dresses is read as "dress"' in route.said) is bool(other)


def test_a_review_needs_a_folder_and_a_table(tmp_path):
    with pytest.raises(FileNotFoundError, match='--root .*gone is not a folder'):
        review.main(['out', 'x.csv', '--root', str(tmp_path / 'gone'), '--out', 'y.csv'])
    with pytest.raises(ValueError, match='review in needs --table, the table of the earlier'):
        review.main(['in', 'x.csv', '--root', str(tmp_path), '--out', 'y.csv'])


def test_an_annotation_without_both_labels_gives_way_to_an_older_one(tmp_path):
    def said(**labels):
        return dict(result=[dict(from_name=name, type='choices', value=dict(choices=[value]))
                            for name, value in labels.items()])

    item = dict(data=dict(image='a.png', name='a.png'), annotations=[
        said(attribute='wet', object='cat'), said(attribute='dry')])
    path = tmp_path / 'export.json'
    path.write_text(json.dumps([item]))
    found = review.read_reviewed(str(path))
    assert [(row.attribute, row.object) for row in found] == [('wet', 'cat')]


def test_streams_that_are_not_files_are_left_alone(monkeypatch):
    monkeypatch.setattr('sys.stdout', io.StringIO())
    with pytest.raises(ValueError, match='--out'):
        predict.main(['x.pth', 'photos', '--out', 'x.pdf'])
