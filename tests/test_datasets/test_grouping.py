"""Splits that keep groups together, and what is said about odd ones."""
import numpy as np
import pytest
from PIL import Image

from mmcluspro.cli.make_split import main
from mmcluspro.datasets import make_split
from mmcluspro.datasets.check import split_warnings, too_few_names
from mmcluspro.datasets.splitting import choose_unseen, find_groups, near_duplicates
from mmcluspro.datasets.table_file import TableRow, read_table
from mmcluspro.errors import FileError


def table(things=6, shots=4):
    """Three attributes x three objects; each thing was photographed several times."""
    return [TableRow(f'{attr}_{obj}/{attr}{obj}{thing}-{shot}.jpg', attr, obj)
            for attr in ('wet', 'dry', 'old') for obj in ('cat', 'dog', 'car')
            for thing in range(things) for shot in range(shots)]


def test_no_group_is_in_two_phases_and_all_phases_have_both_kinds():
    rows = table()
    groups = find_groups(rows, r'/(.*)-\d', '.')
    split = make_split(rows, groups=groups)
    phases = {}
    for row in split:
        phases.setdefault(groups[row.image], set()).add(row.split)
    assert len(groups) == 216 and len(phases) == 54
    assert all(len(found) == 1 for found in phases.values())
    assert split_warnings(split) == []
    # Without groups the shots of one thing are torn apart.
    torn = {}
    for row in make_split(rows):
        torn.setdefault(groups[row.image], set()).add(row.split)
    assert any(len(found) > 1 for found in torn.values())


def test_a_group_over_pairs_stays_out_of_training_if_a_pair_is_unseen():
    rows = table(things=8, shots=1)
    unseen = {(row.attribute, row.object) for row in rows} - {
        (row.attribute, row.object) for row in make_split(rows) if row.split == 'train'}
    pair = sorted(unseen)[0]
    other = next((row.attribute, row.object) for row in rows
                 if (row.attribute, row.object) not in unseen)
    both = [next(row.image for row in rows if (row.attribute, row.object) == one)
            for one in (pair, other)]
    groups = {row.image: 'shared' if row.image in both else row.image for row in rows}
    found = {row.image: row.split for row in make_split(rows, groups=groups)}
    assert found[both[0]] == found[both[1]] != 'train'


def test_single_images_as_groups_change_nothing():
    rows = table()
    assert make_split(rows, groups={row.image: row.image for row in rows}) == make_split(rows)


def test_near_duplicates_are_found_by_their_look(tmp_path):
    generator = np.random.default_rng(0)
    for name in 'abc':
        pixels = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        image = Image.fromarray(pixels).resize((64, 64))
        image.save(tmp_path / f'{name}.png')
        image.resize((50, 40)).save(tmp_path / f'{name}2.jpg', quality=70)
    names = ['a.png', 'b.png', 'c.png', 'a2.jpg', 'b2.jpg', 'c2.jpg']
    groups = near_duplicates(names, tmp_path)
    assert groups['a.png'] == groups['a2.jpg'] != groups['b.png'] == groups['b2.jpg']
    assert len(set(groups.values())) == 3


def test_the_same_form_in_another_colour_is_near_where_only_grey_counts(tmp_path):
    form = np.random.default_rng(0).integers(0, 2, (8, 8, 1), dtype=np.uint8)
    form = form.repeat(8, 0).repeat(8, 1)
    for name, ink in dict(red=(255, 0, 0), blue=(0, 0, 255)).items():
        Image.fromarray(form * np.array(ink, np.uint8)).save(tmp_path / f'{name}.png')
    names = ['red.png', 'blue.png']
    assert len(set(near_duplicates(names, tmp_path).values())) == 1
    assert len(set(near_duplicates(names, tmp_path, colour=True).values())) == 2


def test_the_command_groups_by_a_column_and_warns(tmp_path, capsys):
    lines = ['image,attribute,object,camera']
    for number, row in enumerate(table(things=2, shots=2)):
        path = tmp_path / row.image
        path.parent.mkdir(exist_ok=True)
        if number:
            Image.new('RGB', (4, 4)).save(path)
        lines.append(f'{row.image},{row.attribute},{row.object},{row.attribute}{number // 6}')
    (tmp_path / 'labels.csv').write_text('\n'.join(lines))
    out = tmp_path / 'table.csv'
    main([str(tmp_path), '--table', str(tmp_path / 'labels.csv'), '--group-by', 'camera', '--out',
          str(out)])
    said = capsys.readouterr()
    assert '35 images in 6 groups' in said.out
    assert '1 of 36 images are missing' in said.err and 'warning: ' in said.err
    camera = {line.split(',')[0]: line.split(',')[3] for line in lines[1:]}
    phases = {}
    for row in read_table(out):
        phases.setdefault(camera[row.image], set()).add(row.split)
    assert all(len(found) == 1 for found in phases.values())


@pytest.mark.parametrize('by, message', [
    ('camera', 'needs one pair of brackets'), ('(', 'nor a regular expression'),
    (r'(zzz)', 'finds nothing in 216 of 216')])
def test_a_grouping_that_cannot_be_is_named(by, message):
    with pytest.raises(ValueError, match=message):
        find_groups(table(), by, '.')


def test_odd_splits_are_described():
    rows = [TableRow(f'{i}.jpg', 'wet', 'cat', 'train') for i in range(6)]
    rows += [TableRow('a.jpg', 'wet', 'dog', 'train'), TableRow('b.jpg', 'wet', 'cat', 'val')]
    said = split_warnings(rows)
    assert said == [
        'The validation split has seen pairs only: it cannot tell how well new pairs are '
        'recognised.', 'The test split is empty.',
        '1 of 2 seen pairs have fewer than 5 training images: wet dog']


def test_a_training_split_that_groups_emptied_is_named():
    rows = [TableRow(f'{i}.jpg', 'wet', ('cat', 'dog')[i % 2], ('train', 'val')[i % 4 > 1])
            for i in range(40)]
    assert not any('for training' in line for line in split_warnings(rows))
    few = [row._replace(split='test') if row.split == 'train' and i > 9 else row
           for i, row in enumerate(rows)]
    assert 'Only 6 of 40 images (15%) are for training.' in ' '.join(split_warnings(few))


@pytest.mark.parametrize(('pairs', 'enough'), [
    ([('wet', 'cat')], False), ([('wet', 'cat'), ('dry', 'dog')], False),
    ([('wet', 'cat'), ('dry', 'cat'), ('old', 'cat')], False),
    ([('wet', 'cat'), ('dry', 'cat'), ('wet', 'dog')], True)])
def test_a_pair_can_be_held_out_where_its_names_occur_in_others(pairs, enough):
    assert (too_few_names(pairs) == '') is enough
    assert bool(choose_unseen(pairs, 1)) is enough


def test_a_column_is_found_for_names_that_a_spreadsheet_guards(tmp_path):
    path = tmp_path / 'table.csv'
    path.write_text("image,attribute,object,split,shop\n'=a.jpg,red,cat,train,north\n")
    assert find_groups(read_table(path), 'shop', tmp_path, path) == {'=a.jpg': 'north'}


def test_an_image_that_the_column_does_not_have_is_named(tmp_path):
    path = tmp_path / 'table.csv'
    path.write_text('image,attribute,object,split,shop\na.jpg,red,cat,train,north\n')
    rows = [*read_table(path), TableRow('b.jpg', 'red', 'cat', 'train', 3)]
    with pytest.raises(FileError, match=r"table\.csv: 'b\.jpg' has nothing in the column shop"):
        find_groups(rows, 'shop', tmp_path, path)
