import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from mmcluspro.datasets import MITStates, UTZappos, check_dataset
from mmcluspro.datasets.check import agrees, expected_table

TOOL = Path(__file__).resolve().parents[2] / 'tools/dataset_converters/check_dataset.py'


def kinds(layout, **arguments):
    return Counter(fault.kind for fault in check_dataset(layout.root, **arguments).faults)


def change_row(layout, number, **change):
    rows = [dict(row) for row in layout.rows]
    rows[number].update(change)
    torch.save(rows, layout.metadata)


def test_a_clean_dataset(layout):
    report = check_dataset(layout.root, decode=True)

    assert report.ok and str(report).endswith('no problem found')
    assert report.found == {
        'attributes': 3, 'objects': 2, 'train pairs': 4, 'val pairs, seen': 1,
        'val pairs, unseen': 1, 'test pairs, seen': 1, 'test pairs, unseen': 1,
        'train images': 12, 'val images': 4, 'test images': 2, 'images in all': 18,
        'rows left out': 0}


def test_a_removed_image(layout):
    (layout.root / 'images' / layout.rows[4]['image']).unlink()

    fault, = check_dataset(layout.root).faults

    assert fault.where == f'{layout.metadata} row 4' and layout.rows[4]['image'] in fault.what


@pytest.mark.parametrize('space', [False, True])
def test_a_swapped_label_disagrees_with_the_folder(layout, space):
    image = layout.rows[0]['image'].replace('_', ' ' if space else '_')
    change_row(layout, 0, obj='Dog.Big', image=image)

    fault, = check_dataset(layout.root).faults

    assert fault.kind == 'label' and fault.where.endswith('row 0')
    assert '(wet Dog.Big)' in fault.what and image in fault.what


def test_attribute_and_object_exchanged(layout):
    change_row(layout, 0, attr='cat', obj='wet')

    assert kinds(layout) == {'label': 1, 'unknown pair': 1}
    # Published metadata has rows of other pairs: those are only left out, the label is wrong.
    assert kinds(layout, dataset='mitstates') == {'label': 1}


@pytest.mark.parametrize('line, kind', [
    ('wet', 'pair line'), ('wet cat', 'pair line'), ('a b c', 'pair line'),
    ('dry cat', 'unknown primitive')])
def test_a_broken_line(layout, line, kind):
    with open(layout.lists / 'val_pairs.txt', 'a') as file:
        file.write(line + '\n')

    fault, = check_dataset(layout.root).faults

    assert fault.kind == kind and fault.where == f'{layout.lists / "val_pairs.txt"}:3'


@pytest.mark.parametrize('change, expected', [
    ({'attr': 'wet', 'obj': 'whale'}, {'unknown pair': 1, 'label': 1}),
    ({'attr': 'old', 'obj': 'cat', 'image': 'old_cat/val0.png'}, {'set': 1, 'image twice': 1}),
    ({'set': 'trian'}, {'set': 1}),
    ({'set': None}, {'metadata row': 1}),
    ({'attr': 'NA'}, {}),
])
def test_wrong_rows(layout, change, expected):
    change_row(layout, 0, **change)

    assert kinds(layout) == expected


def test_an_image_that_cannot_be_decoded(layout):
    (layout.root / 'images' / layout.rows[2]['image']).write_bytes(b'\x89PNG nothing')

    assert kinds(layout) == {}
    assert kinds(layout, decode=True) == {'unreadable image': 1}


def test_missing_files_are_all_told_at_once(layout):
    (layout.lists / 'val_pairs.txt').unlink()
    layout.metadata.unlink()

    assert kinds(layout) == {'missing file': 1, 'metadata': 1}


def test_no_images_at_all(layout):
    (layout.root / 'images').rename(layout.root / 'elsewhere')

    assert kinds(layout) == {'missing file': 1}


def test_a_phase_without_rows(layout):
    torch.save([row for row in layout.rows if row['set'] != 'val'], layout.metadata)

    assert kinds(layout) == {'no image': 1}


def test_an_unknown_dataset(layout):
    with pytest.raises(ValueError, match="got 'cub'"):
        check_dataset(layout.root, 'cub')


def test_counts_of_a_named_dataset_must_agree(layout):
    report = check_dataset(layout.root, 'utzappos')

    assert not report.ok and not report.faults
    assert set(report.different) == set(expected_table(UTZappos.COUNTS['']))
    assert 'train pairs                        4        83  <- differs' in str(report)


@pytest.mark.parametrize('found, expected, same', [
    (30338, '30k', True), (29499, '30k', False), (30500, '30k', False), (83, 83, True),
    (82, 83, False), (5, None, True)])
def test_counts_to_the_thousand(found, expected, same):
    assert agrees(found, expected) is same


def test_expected_numbers_agree_with_the_published_lists(real_splits):
    report = check_dataset(real_splits / 'cgqa', 'cgqa')

    assert report.different == []
    assert report.found['val pairs, seen'] == 1040 and report.found['val pairs, unseen'] == 1252
    assert [fault.kind for fault in report.faults] == ['metadata']
    lines = (real_splits / 'ut-zap50k' / 'train_pairs.txt').read_text().splitlines()
    union = (real_splits / 'ut-zap50k' / 'all_pairs.txt').read_text().splitlines()
    zappos = UTZappos.COUNTS['']
    assert report.lists == dict(train=True, val=True, test=True)
    assert len(lines) == zappos.train
    assert len(union) == zappos.train + zappos.val[1] + zappos.test[1]
    assert zappos.primitives == tuple(
        len(set(names)) for names in zip(*(line.split() for line in lines)))
    lines = (real_splits / 'mit-states' / 'train_pairs.txt').read_text().splitlines()
    assert len(lines) == MITStates.COUNTS[''].train
    assert MITStates.COUNTS[''].primitives == tuple(
        len(set(names)) for names in zip(*(line.split() for line in lines)))


def test_the_published_lists_of_ut_zappos(real_splits, tmp_path):
    """All counts and lists agree; a list with other pairs is told and is no fault."""
    folder = tmp_path / 'compositional-split-natural'
    folder.mkdir()
    lists = {phase: (real_splits / 'ut-zap50k' / f'{phase}_pairs.txt').read_text()
             for phase in ('train', 'val', 'test')}
    for phase, text in lists.items():
        (folder / f'{phase}_pairs.txt').write_text(text)
    report = check_dataset(tmp_path, 'utzappos')
    assert not report.different and report.lists == dict(train=True, val=True, test=True)
    assert [fault.kind for fault in report.faults] == ['metadata']
    assert 'pair lists (train, val, test): as published' in str(report)
    assert '\nWool Shoes.Sneakers' in '\n' + lists['val']

    # Validation and test change places for one unseen pair of each.
    changed = lists['val'].replace('Rubber Sandals', 'Cotton Sandals')
    (folder / 'val_pairs.txt').write_text(changed)
    report = check_dataset(tmp_path, 'utzappos')
    assert not report.different and report.lists == dict(train=True, val=False, test=True)
    assert 'pair lists (train, val, test): val not the published one' in str(report)


def test_the_tool_ends_with_0_or_1(layout, tool, capsys):
    main = tool('check_dataset').main
    assert main([str(layout.root), '--dataset', 'shapes']) == 0
    for row in layout.rows[:5]:
        (layout.root / 'images' / row['image']).unlink()

    assert main([str(layout.root), '--limit', '2']) == 1

    text = capsys.readouterr().out
    assert '5 x image:' in text and '… and 3 more' in text and '5 problems' in text


@pytest.mark.slow
def test_the_tool_as_a_program(tmp_path):
    run = subprocess.run([sys.executable, str(TOOL), str(tmp_path)], capture_output=True,
                         text=True, check=False)

    assert run.returncode == 2 and 'published dataset' in run.stderr
    assert not run.stderr.count('Traceback')
