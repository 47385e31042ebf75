import os
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcluspro.datasets import CompositionSpace, TableCZSL, make_split
from mmcluspro.datasets.folders import scan_folders
from mmcluspro.datasets.table_file import TableRow, read_table, write_table
from mmcluspro.errors import FileError

ROWS = [
    ('wet_dog/1.png', 'wet', 'fire dog', 'train'),
    ('wet_dog/2.png', 'wet', 'fire dog', 'val'),
    ('dry cat.png', 'dry', 'cat', 'train'),
    ('deep/er/3.png', 'dry', 'fire dog', 'test'),
    ('4.png', 'wet', 'cat', 'val'),
]


def write(path, rows=ROWS, header='image,attribute,object,split', sign=',', encoding='utf-8'):
    lines = [header.replace(',', sign), *(sign.join(row) for row in rows)]
    path.write_text('\n'.join(lines) + '\n', encoding=encoding)
    return path


@pytest.fixture
def table(tmp_path):
    for image, *_ in ROWS:
        (tmp_path / image).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / image).touch()
    return write(tmp_path / 'table.csv')


@pytest.mark.parametrize('phase', ['train', 'val', 'test'])
def test_labels_agree_with_the_table(table, phase):
    dataset = TableCZSL(str(table.parent), phase, table='table.csv')

    found = [(os.path.relpath(s['img_path'], table.parent),
              dataset.space.attributes[s['attr_label']], dataset.space.objects[s['obj_label']],
              phase) for s in dataset]
    assert found == [row for row in ROWS if row[3] == phase]
    assert all(s['pair_label'] == dataset.space.lookup([s['attr_label']], [s['obj_label']])
               for s in dataset)
    seen = {('wet', 'fire dog'), ('dry', 'cat')}
    space = dataset.space
    assert {(space.attributes[a], space.objects[o]) for a, o in space.train_pairs} == seen
    assert space == TableCZSL.make_space(phase, data_root=str(table.parent), table='table.csv')
    assert space == CompositionSpace.from_table(table, phase)


@pytest.mark.parametrize('sign', [',', ';', '\t'])
@pytest.mark.parametrize('encoding', ['utf-8', 'utf-8-sig'])
def test_forms_of_the_table(tmp_path, sign, encoding):
    path = write(tmp_path / 't.csv', [('a/b.png', 'größe', 'x', 'train')], sign=sign,
                 encoding=encoding)

    assert read_table(path) == [TableRow('a/b.png', 'größe', 'x', 'train', 2)]


def test_columns_in_any_order_quotes_and_empty_lines(tmp_path):
    path = tmp_path / 't.csv'
    path.write_bytes(b'Split, Object ,note,attribute,image\r\n\r\n'
                     b'train,"big, dog","two\r\nlines",wet,a\\b.png\r\n'
                     b'test,cat,,dry,c.png\r\n')

    assert read_table(path) == [TableRow('a/b.png', 'wet', 'big, dog', 'train', 4),
                                TableRow('c.png', 'dry', 'cat', 'test', 5)]


@pytest.mark.parametrize('line, message', [
    ('"a.png,wet,cat,train', 'the quotes are not closed'),
    ('a.png,"wet,cat,train\nb.png,d"ry,cat,train', 'the quotes are not closed'),
    ('"a.png,wet,cat,train\nb.png",dry,cat,train', ':3: a line break .* under image'),
    ('a.png,wet,cat,train,x', ':2: 5 cells under 4 columns'),
    ('a.png,w\tet,cat,train', 'control character under attribute'),
    ('a.png,' + 'x' * 200_000 + ',cat,train', 'field larger than field limit'),
])
def test_a_stray_quote_swallows_no_line(tmp_path, line, message):
    path = tmp_path / 't.csv'
    path.write_text(f'image,attribute,object,split\n{line}\nlast.png,wet,dog,train\n')
    with pytest.raises(FileError, match=message):
        read_table(path)


@pytest.mark.parametrize('rows, message', [
    ([('a.png', 'wet', '', 'train')], ':2: nothing under object'),
    ([('a.png', 'wet')], ':2: nothing under object, split'),
    ([('a.png', 'wet', 'cat', 'validation')], ":2: split must .* got 'validation'"),
    ([('a.png', 'wet', 'cat', 'train')] * 2, ":3: the image 'a.png' is already in line 2"),
    ([], 'header, but no image'),
    ([('a.png', 'wet', 'cat', 'val')], "no row with split 'train'"),
    ([('a.png', 'wet', 'cat', 'train'), ('b.png', 'dry', 'dog', 'test')],
     ":3: attribute 'dry' and object 'dog' in no training pair"),
    ([('a.png', '', 'cat', 'train')] * 9, r'9 problems(.|\n)*… and 4 more'),
])
def test_broken_rows_are_named(tmp_path, rows, message):
    path = write(tmp_path / 't.csv', rows)

    with pytest.raises(ValueError, match=message):
        CompositionSpace.from_table(path)


def test_unknown_primitives_can_be_allowed(tmp_path):
    path = write(tmp_path / 't.csv', [('a.png', 'wet', 'cat', 'train'),
                                      ('b.png', 'dry', 'dog', 'test')])

    with pytest.warns(UserWarning, match='1 pairs'):
        assert len(CompositionSpace.from_table(path, 'test', allow_unknown=True)) == 2


@pytest.mark.parametrize('header, message', [
    ('image,attribute,object', r'no column split; set make_split=.*make_split\.py'),
    ('picture,attribute,object,split', "image is missing from 'picture"),
    ('a.png,wet,cat,train', 'image,attribute,object,split is missing'),
    ('', 'image,attribute,object,split is missing'),
])
def test_a_wrong_header(tmp_path, header, message):
    path = write(tmp_path / 't.csv', ROWS, header)

    with pytest.raises(ValueError, match=message):
        read_table(path)


def test_a_table_that_is_not_there_or_no_text(tmp_path):
    with pytest.raises(FileNotFoundError, match='No table at .*config field table'):
        TableCZSL(str(tmp_path), table='none.csv')
    path = write(tmp_path / 't.csv', [('a.png', 'größe', 'x', 'train')], encoding='latin-1')
    with pytest.raises(ValueError, match='not UTF-8'):
        read_table(path)


def test_missing_images(table):
    (table.parent / ROWS[2][0]).unlink()
    root = str(table.parent)

    with pytest.raises(ValueError, match=r"table.csv:4: no image 'dry cat.png'"):
        TableCZSL(root, table='table.csv')
    skipping = TableCZSL(root, table='table.csv', check_images='skip')
    assert len(skipping) == 1 and skipping.skipped == {'image file missing': 1}
    assert len(TableCZSL(root, table='table.csv', check_images=False)) == 2


def test_a_phase_without_images(tmp_path):
    write(tmp_path / 't.csv', [('a.png', 'wet', 'cat', 'train')])

    with pytest.raises(ValueError, match="no image for phase='val'"):
        TableCZSL(str(tmp_path), 'val', table='t.csv', check_images=False)


def plant(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def test_folders(tmp_path):
    plant(tmp_path, 'wet_dog/b.JPG', 'wet_dog/sub/a.png', 'dry_cat/c.webp', 'dry_cat/notes.txt',
          'labels.csv', '.cache/x_y/z.png', 'dry_cat/.hidden.png')

    assert [row[:3] for row in scan_folders(tmp_path)] == [
        ('dry_cat/c.webp', 'dry', 'cat'), ('wet_dog/b.JPG', 'wet', 'dog'),
        ('wet_dog/sub/a.png', 'wet', 'dog')]


@pytest.mark.parametrize('name, separator', [
    ('wet__fire_truck/1.png', '__'), ('wet/fire_truck/1.png', '/'), ('wet fire_truck/1.png', ' ')])
def test_other_separators(tmp_path, name, separator):
    plant(tmp_path, name)

    assert scan_folders(tmp_path, separator)[0][1:3] == ('wet', 'fire_truck')


@pytest.mark.parametrize('name, separator, message', [
    ('wet_fire_truck/1.png', '_', "'wet_fire_truck' has the separator '_' 2 times"),
    ('wetdog/1.png', '_', "'wetdog' is not attribute_object"),
    ('_dog/1.png', '_', "'_dog'"),
    ('1.png', '_', 'in no folder attribute_object/'),
    ('wet/1.png', '/', "'wet' is not attribute/object"),
    ('wet_dog/1.txt', '_', 'No image below'),
    ('wet_dog/1.png', '', 'separator must not be empty'),
])
def test_folders_that_cannot_be_read(tmp_path, name, separator, message):
    plant(tmp_path, name, name.replace('1', '2'))

    with pytest.raises(ValueError, match=message):
        scan_folders(tmp_path, separator)


def test_one_message_a_folder(tmp_path):
    plant(tmp_path, *(f'{folder}/{i}.png' for folder in ('a_b_c', 'd', 'e_f') for i in range(9)))

    with pytest.raises(ValueError, match='2 problems'):
        scan_folders(tmp_path)


def test_folders_need_a_split_on_request(tmp_path):
    plant(tmp_path, *(f'{a}_{o}/{i}.png' for a in 'abc' for o in 'xyz' for i in range(8)))

    with pytest.raises(ValueError, match='no split; set make_split=dict'):
        TableCZSL(str(tmp_path))
    phases = {phase: TableCZSL(str(tmp_path), phase, make_split={'seed': 3})
              for phase in ('train', 'val', 'test')}
    assert sum(map(len, phases.values())) == 72
    assert phases['train'].space.seen.sum() == 5
    with pytest.raises(FileNotFoundError, match='data_root'):
        TableCZSL(str(tmp_path / 'none'))


def test_a_split_is_not_made_over_another(table):
    with pytest.raises(ValueError, match='already has a split; remove make_split'):
        TableCZSL(str(table.parent), table='table.csv', make_split={'seed': 0})


IMAGES = st.dictionaries(st.tuples(st.sampled_from('abcde'), st.sampled_from('vwxyz')),
                         st.integers(1, 9), min_size=1, max_size=25)
FRACTION = st.floats(0, 0.45)


def make_rows(images):
    return [TableRow(f'{a}_{o}/{i}.png', a, o) for (a, o), n in images.items() for i in range(n)]


@pytest.mark.filterwarnings('ignore:Only')
@settings(deadline=None)
@given(IMAGES, st.integers(0, 99), st.floats(0, 0.9), FRACTION, FRACTION, st.randoms())
def test_properties_of_a_made_split(images, seed, unseen_fraction, val, test, random):
    rows = make_rows(images)

    split = make_split(rows, seed, unseen_fraction, val, test)

    assert [row[:3] for row in split] == [row[:3] for row in rows]
    seen = {row[1:3] for row in split if row.split == 'train'}
    unseen = set(images) - seen
    assert {a for a, _ in seen} == {a for a, _ in images}
    assert {o for _, o in seen} == {o for _, o in images}
    assert len(unseen) <= round(unseen_fraction * len(images))
    of_phase = {phase: {row[1:3] for row in split if row.split == phase} & unseen
                for phase in ('val', 'test')}
    assert not of_phase['val'] & of_phase['test']
    assert 0 <= len(of_phase['test']) - len(of_phase['val']) <= 1
    for phase, fraction in (('val', val), ('test', test)):
        held = Counter(row[1:3] for row in split if row.split == phase and row[1:3] in seen)
        assert all(number <= fraction * images[pair] + 1 for pair, number in held.items())
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert sorted(make_split(shuffled, seed, unseen_fraction, val, test)) == sorted(split)


def test_the_split_has_the_asked_sizes_on_a_full_grid():
    rows = make_rows({(a, o): 20 for a in 'abcde' for o in 'vwxyz'})

    split = make_split(rows, 1, unseen_fraction=0.4, val_fraction=0.15, test_fraction=0.2)

    seen = {row[1:3] for row in split if row.split == 'train'}
    assert len(seen) == 15
    held = Counter(row.split for row in split if row[1:3] in seen)
    assert held == {'train': 15 * 13, 'val': 15 * 3, 'test': 15 * 4}


def test_rare_pairs_reach_validation_too():
    rows = make_rows({(a, o): 2 for a in 'abcde' for o in 'vwxyz'})

    held = Counter(row.split for row in make_split(rows, 0, 0.0, 0.1, 0.1))

    assert held['val'] == 5 and held['test'] in (4, 5)


def test_the_same_split_on_every_machine():
    split = make_split(make_rows({(a, o): 4 for a in 'abc' for o in 'xyz'}), seed=7)

    # Written down once (second letters of train, val, test): SHA-256 is the same everywhere.
    marks = {f'{a}{o}': ''.join(row.split[1] for row in split if row[1:3] == (a, o))
             for a in 'abc' for o in 'xyz'}
    assert marks == {
        'ax': 'raer', 'ay': 'eeee', 'az': 'aaaa', 'bx': 'rear',
        'by': 'rrrr', 'bz': 'rare', 'cx': 'eeee', 'cy': 'aaaa', 'cz': 'rrrr'}
    assert make_split(make_rows({(a, o): 4 for a in 'abc' for o in 'xyz'}), seed=8) != split


def test_too_few_pairs_for_the_fraction():
    with pytest.warns(UserWarning, match='Only 0 of 2 pairs can be unseen, 1 were asked for'):
        split = make_split(make_rows({('a', 'x'): 1, ('b', 'y'): 1}), 0, 0.5)
    assert [row.split for row in split] == ['train', 'train']


@pytest.mark.parametrize('arguments, message', [
    ({'unseen_fraction': 1.0}, r'make_split.unseen_fraction .* got 1.0'),
    ({'val_fraction': -0.1}, 'make_split.val_fraction'),
    ({'val_fraction': 0.5, 'test_fraction': 0.5}, r'0.5 \+ 0.5'),
])
def test_wrong_fractions(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_split(make_rows({('a', 'x'): 3}), **arguments)


def test_a_written_table_reads_back(tmp_path):
    rows = [TableRow('ä, b.png', 'wet', 'a "dog"', 'train', 2),
            TableRow('c.png', 'x', 'y', 'val', 3)]
    write_table(tmp_path / 't.csv', rows)

    assert read_table(tmp_path / 't.csv') == rows


def test_the_tool_writes_a_table_that_trains(tmp_path, tool, capsys):
    plant(tmp_path, *(f'{a}_{o}/{i}.png' for a in 'abc' for o in 'xyz' for i in range(8)))
    arguments = [str(tmp_path), '--out', str(tmp_path / 'table.csv'), '--seed', '3']

    assert tool('make_split').main(arguments) == 0

    text = capsys.readouterr().out
    assert '5 seen and     0 unseen' in text
    for phase in ('train', 'val', 'test'):
        from_file = TableCZSL(str(tmp_path), phase, table='table.csv')
        made = TableCZSL(str(tmp_path), phase, make_split={'seed': 3})
        assert from_file.space == made.space
        assert [s['img_path'] for s in from_file] == [s['img_path'] for s in made]
    with pytest.raises(SystemExit):
        tool('make_split').main(arguments)


def test_a_file_name_that_is_not_utf8_is_named(tmp_path):
    folder = tmp_path / 'wet_cat'
    folder.mkdir()
    try:
        open(os.path.join(os.fsencode(folder), b'caf\xe9.png'), 'wb').close()
    except OSError:
        pytest.skip('the file system takes UTF-8 names only')
    with pytest.raises(ValueError, match=r'caf\\udce9\.png: the name is not UTF-8.*\n.*Rename'):
        scan_folders(tmp_path)
