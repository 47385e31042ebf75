"""Fashion: reading the shop's table, drawing a version, the published one, and the converter."""
import math
import tarfile
from collections import Counter
from dataclasses import replace

import pytest
import torch
from draw_photographs import (
    RULES,
    Rule,
    choose_unseen,
    draw_together,
    draw_version,
    groups_of,
    near_duplicates,
    near_pairs,
)
from PIL import Image
from torch.nn import functional as F

from mmcluspro.datasets import Fashion, Grocery, PlantVillage
from mmcluspro.datasets.layout import read_metadata
from mmcluspro.datasets.photographs import Photograph, read_styles, read_version, write_version
from mmcluspro.errors import FileError

HEADER = ('id,gender,masterCategory,subCategory,articleType,baseColour,season,year,usage,'
          'productDisplayName')


def line(number, colour='Navy Blue', kind='Casual Shoes', title='A shoe'):
    return f'{number},Men,Footwear,Shoes,{kind},{colour},Fall,2011,Casual,{title}'


def product(colour, kind, title):
    return Photograph('5', colour, kind, 'images/5.jpg', title)


@pytest.mark.parametrize('row, expected', [
    (line(5), product('Navy_Blue', 'Casual_Shoes', 'A shoe')),
    (line(5, title='Belt, brown,  wide'), product('Navy_Blue', 'Casual_Shoes',
                                                  'Belt, brown, wide')),
    (line(5, title='"Tempo 3.5"" Short"'), product('Navy_Blue', 'Casual_Shoes',
                                                   'Tempo 3.5" Short')),
    (line(5, title='Tempo 3.5" Short'), product('Navy_Blue', 'Casual_Shoes',
                                                'Tempo 3.5" Short')),
    (line(5, ' Off  White', 'Tops/Tees'), product('Off_White', 'Tops_Tees', 'A shoe')),
    (line(5, title=''), product('Navy_Blue', 'Casual_Shoes', '')),
])
def test_a_line_of_the_table(tmp_path, row, expected):
    (tmp_path / 'styles.csv').write_text(f'\ufeff{HEADER}\r\n{row}\r\n', newline='')
    assert read_styles(tmp_path / 'styles.csv') == ([expected], {})


def test_lines_that_are_left_out_are_counted(tmp_path):
    rows = [line(1), line(1), line('x'), line(2, colour=''), line(3, kind='NA'), '4,Men',
            '', line(5, title='"open'), line(6)]
    (tmp_path / 'styles.csv').write_text('\n'.join([HEADER, *rows]))
    products, left_out = read_styles(tmp_path / 'styles.csv')
    assert [product.id for product in products] == ['1', '5', '6']
    assert left_out == {'id a second time': 1, 'no number as id': 1, 'no colour or type': 2,
                        'too few fields': 1}


@pytest.mark.parametrize('content', ['', 'id,colour\n', HEADER.replace(',productDisplayName', '')
                                     .replace('id,', 'id,productDisplayName,')])
def test_another_table_is_refused(tmp_path, content):
    (tmp_path / 'styles.csv').write_text(content)
    with pytest.raises(ValueError, match=r'styles\.csv is not the styles\.csv of Kaggle'):
        read_styles(tmp_path / 'styles.csv')


def make_table(seed=0, colours=9, kinds=12):
    """Products of random pairs: many of some, few of others, one kind in one colour only."""
    generator = torch.Generator().manual_seed(seed)
    products = []
    for a in range(colours):
        for o in range(kinds):
            if o == kinds - 1 and a:
                continue
            number = int(torch.randint(0, 120, (), generator=generator) ** 2 / 120)
            products += [Photograph(f'{1000 * (a * kinds + o) + i}', f'c{a}', f'k{o}')
                         for i in range(number + 5 * (o == kinds - 1))]
    products += [Photograph(f'{10**6 + i}', 'Multi', 'k0') for i in range(20)]
    return products


def test_unseen_pairs_end_where_primitives_would_become_rare():
    pairs = [('a', 'x'), ('a', 'y'), ('b', 'x'), ('b', 'y')]
    assert choose_unseen(pairs, Rule(keep=1.0, unseen=0.5)) == []
    assert choose_unseen(pairs, Rule(keep=0.5, unseen=0.5)) == [('a', 'x'), ('b', 'y')]


@pytest.mark.parametrize('seed', [0, 1, 2])
def test_a_draw_keeps_its_rule(seed):
    products, rule = make_table(seed), Rule(seed=str(seed))
    sizes = Counter(product[1:3] for product in products if product.attribute != 'Multi')

    phases = draw_version(products, rule)

    drawn = Counter(product[1:3] for group in phases.values() for product in group)
    assert drawn == {pair: min(size, 80) for pair, size in sizes.items() if size >= 5}
    seen = {product[1:3] for product in phases['train']}
    unseen = {phase: {product[1:3] for product in phases[phase]} - seen
              for phase in ('val', 'test')}
    assert not unseen['val'] & unseen['test']
    assert 0.3 <= 1 - len(seen) / len(drawn) <= 0.41
    assert abs(len(unseen['val']) - len(unseen['test'])) <= 1
    for place in (0, 1):
        for name, total in Counter(pair[place] for pair in drawn).items():
            kept = sum(pair[place] == name for pair in seen)
            assert kept >= max(1, math.ceil(0.4 * total))
    assert abs(len(phases['val']) - len(phases['test'])) < 0.05 * len(phases['val']) + 20
    held = sum(product[1:3] in seen for product in phases['val']) / sum(
        drawn[pair] for pair in seen)
    assert held == pytest.approx(0.15, abs=0.02)


def test_a_draw_depends_on_the_products_and_the_seed_only():
    products = make_table()
    ids = lambda phases: {phase: {product.id for product in group}
                          for phase, group in phases.items()}
    drawn = ids(draw_version(products))
    assert drawn == ids(draw_version(products[::-1]))
    assert drawn != ids(draw_version(products, Rule(seed='other')))
    gone = sorted(drawn['train'])[::3]
    assert not set(gone) & set().union(*ids(draw_version(products, dropped=gone)).values())


@pytest.mark.parametrize('threshold', [0.2, 0.6, 0.9])
def test_near_duplicates_equal_a_search_over_all_pairs(threshold, monkeypatch):
    monkeypatch.setattr('draw_photographs.BLOCK', 7)
    features = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
    unit = F.normalize(features, dim=1)
    wanted = {(i, j) for i in range(40) for j in range(i + 1, 40)
              if unit[i] @ unit[j] >= threshold}

    pairs = near_pairs(features, threshold)

    assert wanted and set(pairs) == wanted
    linked = torch.eye(40, dtype=torch.bool)
    for i, j in wanted:
        linked[i, j] = linked[j, i] = True
    for _ in range(6):
        linked = (linked.float() @ linked.float()) > 0  # paths of any length
    groups = {tuple(row.nonzero()[:, 0].tolist()) for row in linked if row.sum() > 1}
    assert groups_of(pairs) == [list(group) for group in sorted(groups)]


def test_a_version_is_read_as_it_was_written(tmp_path):
    phases = draw_version(make_table())
    write_version(tmp_path / 'mine.txt', phases, 'a\nb', [['3', '1'], ['7', '8', '9']])

    version = read_version(str(tmp_path / 'mine.txt'))

    assert {phase: sorted(group) for phase, group in phases.items()} == {
        phase: sorted(group) for phase, group in version.phases.items()}
    assert version.groups == [['3', '1'], ['7', '8', '9']]


@pytest.mark.parametrize('text, message', [
    ('train a b 1 2\nval a b 2\n', r'mine\.txt:2: 2 is already in line 1'),
    ('train a b\n', r'mine\.txt:1: expected "phase attribute object id'),
    ('dev a b 1\n', r'mine\.txt:1: expected'),
    ('train a b 1 X\n', r'mine\.txt:1: expected'),
    ('train .. ../b 1\n', r'mine\.txt:1: expected'),
])
def test_faults_of_a_version_are_named(tmp_path, text, message):
    (tmp_path / 'mine.txt').write_text(text)
    with pytest.raises(ValueError, match=message):
        read_version(str(tmp_path / 'mine.txt'))
    with pytest.raises(FileNotFoundError, match=r'neither a split .*\(fashion-v1'):
        read_version('fashion-v0')


@pytest.mark.parametrize('kind, name', [
    (kind, name) for kind in (Fashion, Grocery, PlantVillage) for name in kind.COUNTS])
def test_a_published_split_has_the_expected_counts(kind, name):
    """And no photograph, and where they stay no group, is in two phases."""
    counts, version = kind.COUNTS[name], read_version(name)
    phases, pairs = version.phases, version.pairs()
    assert tuple(len(phases[phase]) for phase in ('train', 'val', 'test')) == counts.images
    assert sum(counts.images) == counts.total
    seen = set(pairs['train'])
    assert len(seen) == counts.train
    for phase in ('val', 'test'):
        both = len(seen & set(pairs[phase])), len(set(pairs[phase]) - seen)
        assert both == getattr(counts, phase)
    every = seen.union(*pairs.values())
    assert counts.primitives == (len({a for a, _ in every}), len({o for _, o in every}))
    assert counts.primitives == (len({a for a, _ in seen}), len({o for _, o in seen}))
    phase_of = {photo.id: phase for phase, group in phases.items() for photo in group}
    assert len(phase_of) == counts.total
    for group in version.groups:
        assert len(group) > 1 and len({phase_of.get(i) for i in group[kind is Fashion:]}) == 1


class TestPublishedVersion:
    """fashion-v1, from the files of the package alone."""

    version = read_version('fashion-v1')

    def test_the_rule_draws_it_again(self):
        products = [product for group in self.version.phases.values() for product in group]
        assert {phase: sorted(group) for phase, group in draw_version(products).items()} == {
            phase: sorted(group) for phase, group in self.version.phases.items()}

    def test_of_a_group_of_near_duplicates_at_most_one_is_there(self):
        kept = {product.id for group in self.version.phases.values() for product in group}
        assert len(self.version.groups) > 100
        for group in self.version.groups:
            assert len(group) > 1 and not kept & set(group[1:])


@pytest.fixture
def shop(tmp_path):
    """A folder as Kaggle has it, and a version of 6 of its 8 products."""
    source = tmp_path / 'archive'
    rows = [line(i, 'Red' if i % 2 else 'Navy Blue', 'Tops' if i < 4 else 'Ties', f'No, {i}')
            for i in range(8)]
    (source / 'images').mkdir(parents=True)
    for i in range(8):
        Image.new('RGB', (6, 8), (30 * i, 10, 10)).save(source / 'images' / f'{i}.jpg')
    (source / 'styles.csv').write_text('\n'.join([HEADER, *rows]))
    version = tmp_path / 'mine.txt'
    version.write_text('train Navy_Blue Tops 0 2\ntrain Red Ties 5\nval Red Tops 1\n'
                       'test Red Tops 3\ntest Navy_Blue Ties 4\n')
    return source, version


@pytest.mark.parametrize('mode', ['copy', 'hardlink', 'tar', 'nested'])
def test_the_converter_makes_the_published_layout(shop, tool, tmp_path, mode, capsys):
    source, version = shop
    if mode == 'tar':
        with tarfile.open(source / 'images.tar', 'w') as tar:
            tar.add(source / 'images', 'images')
        (source / 'images').rename(tmp_path / 'elsewhere')
    elif mode == 'nested':
        (tmp_path / 'outer').mkdir()
        source = source.rename(tmp_path / 'outer' / 'myntradataset').parent
    main = tool('prepare_photographs').main
    arguments = ['fashion', str(tmp_path / 'data'), '--source', str(source), '--version',
                 str(version), '--mode', mode if mode in ('copy', 'hardlink') else 'copy']

    assert main([*arguments, '--dry-run']) == 0 and not (tmp_path / 'data').exists()
    assert main(arguments) == 0 and main(arguments) == 0

    assert 'no problem found' in capsys.readouterr().out
    data = dict(data_root=str(tmp_path / 'data'), split='mine')
    assert [len(Fashion(**data, phase=phase)) for phase in ('train', 'val', 'test')] == [3, 1, 2]
    space = Fashion.make_space('all', **data)
    assert space.attributes == ('Navy_Blue', 'Red') and int(space.seen.sum()) == 2
    rows = read_metadata(tmp_path / 'data' / 'metadata_mine.t7')
    assert {row['image']: row['title'] for row in rows}['Red_Ties/5.jpg'] == 'No, 5'


def test_the_converter_counts_what_is_missing_unreadable_or_labelled_otherwise(
        shop, tool, tmp_path, capsys):
    source, version = shop
    (source / 'images' / '0.jpg').unlink()
    (source / 'images' / '5.jpg').write_bytes(b'no picture')
    table = (source / 'styles.csv').read_text()
    (source / 'styles.csv').write_text(
        table.replace(line(4, 'Navy Blue', 'Ties', 'No, 4'), line(4, 'Red', 'Ties')))

    code = tool('prepare_photographs').main(
        ['fashion', str(tmp_path / 'data'), '--source', str(source), '--version', str(version)])

    out = capsys.readouterr().out
    assert code == 1
    assert '1 of 6 photographs have another label there, first 4 (Navy_Blue Ties)' in out
    assert '1 x image:' in out and '1 x unreadable image:' in out
    data = dict(data_root=str(tmp_path / 'data'), split='mine')
    assert len(Fashion(**data, check_images='skip')) == 2


def test_the_converter_says_what_it_looks_for(tool, tmp_path):
    with pytest.raises(FileNotFoundError, match=r'has no styles\.csv\. Get kaggle\.com'):
        tool('prepare_photographs').main(['fashion', str(tmp_path)])


@pytest.fixture
def leaves(tmp_path):
    """A folder as PlantVillage has it: two crops that share states, and one state of one crop."""
    source = tmp_path / 'PlantVillage'
    for folder in ('Apple___healthy', 'Apple___Cedar_apple_rust', 'Corn_(maize)___Common_rust_',
                   'Corn_(maize)___healthy', 'Apple___Apple_scab'):
        (source / folder).mkdir(parents=True)
        for leaf in range(4):
            for shot in range(2):
                name = f'{leaf}{shot}ab-cd___RS_HL Leaf {leaf}.{shot}.JPG'
                Image.new('RGB', (8, 8), (60 * leaf, 9, 9)).save(source / folder / name)
    return source


def test_plantvillage_merges_states_and_knows_leaves(leaves):
    photos, left_out = PlantVillage.read_source(leaves)
    assert Counter(photo.pair for photo in photos) == dict.fromkeys(
        [('healthy', 'apple'), ('rust', 'apple'), ('rust', 'corn'), ('healthy', 'corn')], 8)
    assert left_out == {'Apple_scab: a state of one crop': 8}
    assert len({photo.id for photo in photos}) == 32
    assert Counter(photo.group for photo in photos)['Apple___healthy/RS_HL Leaf 3'] == 2


def test_a_leaf_is_in_one_phase_and_the_converter_reads_the_draw(leaves, tool, tmp_path, capsys):
    photos, _ = PlantVillage.read_source(leaves)
    rule = replace(RULES['plantvillage'], val=0.25, test=0.25, unseen=0.3)
    groups = near_duplicates(photos, torch.eye(len(photos)), rule)
    assert sorted(map(len, groups)) == [2] * 16
    phases = draw_together(photos, rule, groups)
    write_version(tmp_path / 'mine.txt', phases, 'x', groups, 'y')
    phase_of = {photo.id: phase for phase, group in phases.items() for photo in group}
    assert set(phase_of.values()) == {'train', 'val', 'test'} and len(phase_of) == 32
    assert all(len({phase_of[number] for number in group}) == 1 for group in groups)

    code = tool('prepare_photographs').main(['plantvillage', str(tmp_path / 'data'), '--source',
                                             str(leaves), '--version', str(tmp_path / 'mine.txt')])

    assert code == 0, capsys.readouterr().out
    data = dict(data_root=str(tmp_path / 'data'), split='mine')
    assert sum(len(PlantVillage(**data, phase=phase)) for phase in phases) == 32
    assert PlantVillage.make_space('all', **data).attributes == ('healthy', 'rust')


def test_grocery_reads_the_packages(tmp_path):
    head = 'Class Name (str),Class ID (int),Coarse Class Name (str),Iconic Image Path (str)\n'
    (tmp_path / 'classes.csv').write_text(
        f'{head}Kiwi,0,Kiwi,/icons/Fruit/Kiwi.jpg\n'
        'God-Morgon-Apple-Juice,7,Juice,/icons/Packages/Juice/x.jpg\n')
    (tmp_path / 'train.txt').write_text('train/a.jpg, 7, 1\ntrain/b.jpg, 0, 0\n')
    (tmp_path / 'val.txt').write_text('')
    (tmp_path / 'test.txt').write_text('test/a.jpg, 7, 1\n')
    photos, left_out = Grocery.read_source(tmp_path)
    assert [(photo.image, *photo.pair) for photo in photos] == [
        ('train/a.jpg', 'god_morgon', 'apple_juice'), ('test/a.jpg', 'god_morgon', 'apple_juice')]
    assert left_out == {'fruit or vegetable': 1} and photos[0].id != photos[1].id
    (tmp_path / 'classes.csv').write_text('Name,ID\n')
    with pytest.raises(FileError, match=r'classes\.csv.*must name Class Name'):
        Grocery.read_source(tmp_path)
