"""Names, labels and tables of own photographs, through the command line."""
import csv
import unicodedata

import numpy as np
import pytest
from PIL import Image

from mmcluspro.cli import main

RNG = np.random.default_rng(0)


def photo(path, pixels=None):
    """A photograph with a content of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = RNG.integers(0, 255, (24, 24, 3)) if pixels is None else pixels
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    return path


def folders(root, *names, count=6):
    for name in names:
        for number in range(count):
            photo(root / name / f'{number}.png')
    return root


def run(*words):
    """Exit code of a command; that of an error is 2."""
    try:
        return main(list(map(str, words)))
    except SystemExit as end:
        return end.code


def check(path, capsys, *flags):
    code = run('check-data', path, *flags)
    said = capsys.readouterr()
    return code, ' '.join((said.out + said.err).split())


def rows_of(path):
    with open(path, newline='') as file:
        return list(csv.DictReader(file))


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return folders(tmp_path / 'photos', 'wet_cat', 'dry_cat', 'wet_dog', 'dry_dog')


def test_names_in_two_spellings_are_named_and_merged_on_request(tmp_path, capsys):
    twice = unicodedata.normalize('NFD', 'café')
    root = folders(tmp_path / 'photos', 'Healthy_Apple leaf', 'healthy_apple-leaf',
                   'healthy_tomatoes', 'healthy_tomato', 'sick_cherry', 'sick_cherries',
                   'sick_Apple leaf', 'sick_dress', f'sick_{twice}', 'healthy_café')
    folders(root, 'healthy_tomatoes', count=8)
    code, said = check(root, capsys)
    assert code == 1 and 'names in two Unicode forms' in said
    assert '4 x name in two spellings' in said
    assert "attribute 'Healthy' (6 images): looks like 'healthy' (26 images)" in said
    assert "object 'apple-leaf' (6 images): looks like 'Apple leaf' (12 images)" in said
    assert "object 'tomato' (6 images): looks like 'tomatoes' (8 images)" in said
    assert "'cherries' (6 images): looks like 'cherry' (6 images)" in said or (
        "'cherry' (6 images): looks like 'cherries' (6 images)" in said)
    for flags in ([], ['--fix-names']):
        out = tmp_path / f'table{len(flags)}.csv'
        assert run('make-split', root, '--out', out, *flags) == 0
        rows = rows_of(out)
        assert len(rows) == 62 and {row['split'] for row in rows} == {'train', 'val', 'test'}
        warned = capsys.readouterr().err
        assert ('two spellings' in warned) != bool(flags)
        names = {row['attribute'] for row in rows}, {row['object'] for row in rows}
    assert names[0] == {'healthy', 'sick'}
    assert names[1] in ({'Apple leaf', 'tomatoes', one, 'dress', 'café'}
                        for one in ('cherry', 'cherries'))


def test_one_photograph_under_two_labels_is_found_by_content_and_by_look(photos, capsys):
    pixels = np.kron(RNG.integers(0, 255, (6, 6, 3)), np.ones((8, 8, 1)))
    photo(photos / 'wet_cat' / 'x.png', pixels)
    assert check(photos, capsys)[0] == 0
    (photos / 'dry_cat' / 'copy.png').write_bytes((photos / 'wet_cat' / 'x.png').read_bytes())
    photo(photos / 'wet_dog' / 'again.jpg', pixels)  # other bytes
    code, said = check(photos, capsys)
    assert code == 1 and '1 x one photograph under two labels' in said
    assert ('wet_cat/x.png: is the same file as dry_cat/copy.png, which is labelled "dry cat", not '
            '"wet cat"') in said
    code, said = check(photos, capsys, '--decode')
    assert '1 x near-duplicates under two labels' in said
    assert 'wet_dog/again.jpg: looks almost the same as dry_cat/copy.png' in said


@pytest.mark.parametrize('name, sign', [('labels.tsv', '\t'), ('labels.csv', ';')])
def test_tables_have_other_columns_signs_and_absolute_paths(name, sign, photos, capsys):
    lines = [['Notes', 'State', 'File', 'Item']]
    for number, path in enumerate(sorted(photos.rglob('*.png'))):
        state, item = path.parent.name.split('_')
        lines.append(['x', state, str(path if number % 2 else path.relative_to(photos.parent)),
                      item])
    table = photos.parent / name
    table.write_text('\n'.join(map(sign.join, lines)))
    code, said = check(table, capsys)
    assert code == 2 and 'Write the header as the first line, or give' in said
    columns = ['--columns', 'image=file', 'attribute=STATE', 'object=item']
    code, said = check(table, capsys, *columns)
    assert code == 0 and 'images 24' in said and 'pairs 4' in said
    # A table elsewhere: its absolute paths have the folder of the photographs in common.
    elsewhere = photos.parent / 'tables' / name
    elsewhere.parent.mkdir()
    lines[1:] = [row for row in lines[1:] if row[2].startswith('/')]
    elsewhere.write_text('\n'.join(map(sign.join, lines)))
    out = photos.parent / 'out.csv'
    assert run('make-split', elsewhere, '--out', out, *columns) == 0
    assert f'relative to {photos}' in capsys.readouterr().out
    assert all((photos / row['image']).is_file() for row in rows_of(out))
    assert len(rows_of(out)) == 12
    assert run('check-data', table, '--columns', 'picture=file') == 2
    assert "image=NAME attribute=NAME object=NAME split=NAME" in capsys.readouterr().err


def test_rows_of_missing_files_are_no_pairs(photos, capsys):
    table = photos / 'labels.csv'
    lines = [f'{path.relative_to(photos)},{",".join(path.parent.name.split("_"))}'
             for path in sorted(photos.rglob('*.png'))]
    table.write_text('\n'.join(['image,attribute,object', *lines, 'gone.png,lost,fox']))
    code, said = check(table, capsys)
    assert code == 1 and "no image 'gone.png'" in said
    assert 'attributes 2' in said and 'pairs 4' in said and 'fox' not in said
    assert run('make-split', table, '--out', photos / 'split.csv') == 0
    assert '1 of 25 images are missing and skipped' in capsys.readouterr().err
    assert 'fox' not in (photos / 'split.csv').read_text()
    table.write_text('image,attribute,object\ngone.png,lost,fox')
    assert run('make-split', table, '--out', photos / 'none.csv') == 2
    assert 'there is none of its images' in capsys.readouterr().err


def split_folders(photos, separator='_'):
    for number, path in enumerate(sorted(photos.rglob('*.png'))):
        phase = ('train', 'train', 'Test', 'valid')[number % 4]
        new = photos.parent / 'data' / phase / path.parent.name.replace('_', separator) / path.name
        new.parent.mkdir(parents=True, exist_ok=True)
        path.rename(new)
    return photos.parent / 'data'


@pytest.mark.parametrize('separator', ['_', '/'])
def test_folders_train_val_and_test_are_the_split(separator, photos, capsys):
    data = split_folders(photos, separator)
    code, said = check(data, capsys)
    assert 'train images 12' in said and 'val images 6' in said and 'test images 6' in said
    assert 'pairs 4' in said


def train(*words):
    return run('train', *words, '--weights', 'tiny_clip', '--cfg-options', 'train_cfg.max_epochs=1',
               '--no-test', '--no-report')


def test_training_takes_folders_of_a_split_and_a_separator_and_merges_names(photos, capsys):
    data = split_folders(folders(photos, 'Wet_dogs'), '+')
    assert train(data, '--separator', '_') == 2
    assert 'is not attribute_object' in capsys.readouterr().err
    assert train(data, '--separator', '+') == 0
    said = capsys.readouterr()
    assert "attribute 'Wet' (6 images): looks like 'wet' (12 images)" in said.err
    assert '30 images of 5 pairs' in said.out
    assert train(data, '--separator', '+', '--fix-names') == 0
    said = capsys.readouterr().out
    assert 'name       attribute Wet is merged into wet' in said
    assert 'name       object dogs is merged into dog' in said and '4 seen' in said
    rows = rows_of('work_dirs/data/table.csv')
    assert {row['object'] for row in rows} == {'cat', 'dog'}
    assert {row['split'] for row in rows if row['image'].startswith('valid/')} == {'val'}
    for flags in (['--separator', '-'], ['--fix-names'], ['--columns', 'image=file']):
        assert run('train', 'cluspro_shapes.py', *flags) == 2
        assert 'are for pictures only' in capsys.readouterr().err
