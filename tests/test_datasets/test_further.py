"""VAW-CZSL, AO-CLEVr and Clothing16K: read in the layouts that their users have."""
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mmcluspro.datasets import VAWCZSL, AOCLEVr, Clothing16K, CompositionSpace, check_dataset
from mmcluspro.datasets.layout import read_pair_list
from mmcluspro.errors import FileError

SPLIT = 'compositional-split-natural'
VAW = dict(train=['light blue+tennis ball', 'wet+dog', 'light blue+dog'],
           val=['wet+tennis ball', 'wet+dog'], test=['wet+tennis ball', 'wet+dog'])


def write(root, lists, rows):
    """A small copy of a release: pair lists, metadata, pictures."""
    (root / SPLIT).mkdir(parents=True)
    for phase, lines in lists.items():
        (root / SPLIT / f'{phase}_pairs.txt').write_text('\n'.join(lines))
    for row in rows:
        path = root / 'images' / row['image']
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new('RGB', (8, 8)).save(path)
    torch.save(rows, root / f'metadata_{SPLIT}.t7')


def rows_of(lists, separator):
    return [dict(image=f'{phase}/{i}.jpg', attr=attr, obj=obj, set=phase)
            for phase, lines in lists.items()
            for i, (attr, obj) in enumerate(line.split(separator) for line in lines)]


def test_vaw_has_names_of_several_words(tmp_path):
    write(tmp_path, VAW, rows_of(VAW, '+'))
    dataset = VAWCZSL(str(tmp_path), phase='test')
    assert dataset.space.attributes == ('light blue', 'wet')
    assert dataset.space.objects == ('dog', 'tennis ball')
    assert dataset.space == VAWCZSL.make_space('test', data_root=str(tmp_path))
    seen = {dataset.metainfo['classes'][i]: bool(flag) for i, flag in enumerate(dataset.space.seen)}
    assert seen == {'light blue dog': True, 'light blue tennis ball': True, 'wet dog': True,
                    'wet tennis ball': False}
    assert [dataset.metainfo['classes'][dataset.get_data_info(i)['gt_label']]
            for i in range(len(dataset))] == ['wet tennis ball', 'wet dog']
    report = check_dataset(tmp_path, 'vawczsl')
    assert report.ok and report.found['test pairs, unseen'] == 1, report


@pytest.mark.parametrize('line', ['wet dog', 'wet+', 'wet+big+dog'])
def test_another_line_is_named(tmp_path, line):
    path = tmp_path / 'train_pairs.txt'
    path.write_text(f'wet+dog\n{line}\n')
    pairs, faults = read_pair_list(path, '+')
    assert list(pairs) == [('wet', 'dog')]
    assert f'{path}:2' in str(faults[0]) and 'expected "attribute+object"' in str(faults[0])


@pytest.mark.parametrize('cls, name', [(Clothing16K, 'clothing16k'), (AOCLEVr, 'aoclevr')])
def test_the_published_layout_and_its_counts(tmp_path, cls, name, tool, capsys):
    lists = dict(train=['red dress', 'blue shirt', 'red shirt'], val=['blue dress'],
                 test=['blue dress', 'red dress'])
    write(tmp_path / 'archive', lists, rows_of(lists, ' '))
    assert tool('prepare_cgqa').main([str(tmp_path), '--dataset', name]) == 1, 'other counts'
    printed = capsys.readouterr().out
    assert '0 problems' in printed and 'differs' in printed
    assert [len(cls(str(tmp_path), phase=phase)) for phase in ('train', 'val', 'test')] == [3, 1, 2]
    expected = check_dataset(tmp_path, name).expected
    assert (expected['attributes'], expected['objects']) == ((9, 8) if cls is Clothing16K
                                                             else (8, 3))
    assert ('train images' in expected) == (cls is Clothing16K)


def pickles(root, **changes):
    """The pickled splits of AO-CLEVr's authors, with NumPy strings among the plain ones."""
    (root / 'metadata_pickles').mkdir(parents=True)
    data = dict(train_data=(('a/0.png', 'red', 'cube'), ('a/1.png', 'blue', 'sphere')),
                val_data=(('a/2.png', np.str_('red'), 'cube'), ('a/3.png', 'red', 'sphere')),
                test_data=[('a/4.png', 'blue', 'sphere'), ('a/5.png', 'blue', 'cube')],
                seen_pairs=[('red', 'cube'), ('blue', 'sphere')], feat_dim=512, **changes)
    for subset in ('train', 'valid', 'test'):
        name = f'metadata_ao_clevr__UV_random__comp_seed_5000__seen_seed_0__{subset}.pkl'
        (root / 'metadata_pickles' / name).write_bytes(pickle.dumps(data, protocol=4))
    for i in range(6):
        path = root / 'images' / 'a' / f'{i}.png'
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new('RGB', (8, 8)).save(path)


@pytest.fixture
def prepare(tool, monkeypatch):
    monkeypatch.syspath_prepend(
        str(Path(__file__).resolve().parents[2] / 'tools' / 'dataset_converters'))
    return tool('prepare_ao_clevr').main


def test_the_pickled_splits_of_ao_clevr(tmp_path, prepare, capsys):
    pickles(tmp_path)
    assert prepare([str(tmp_path)]) == 1
    assert '--variant UV_random --comp-seed 5000 --seen-seed 0' in capsys.readouterr().out
    prepare([str(tmp_path), '--variant', 'UV_random', '--comp-seed', '5000'])
    assert '0 problems' in capsys.readouterr().out
    split = 'UV_random-5000-0'
    assert CompositionSpace.from_splits(tmp_path, split, 'all') == CompositionSpace.from_pairs(
        ('blue', 'red'), ('cube', 'sphere'),
        [('red', 'cube'), ('blue', 'sphere'), ('red', 'sphere'), ('blue', 'cube')],
        [True, True, False, False])
    test = AOCLEVr(str(tmp_path), phase='test', split=split)
    assert [test.space.seen[test.get_data_info(i)['pair_label']].item()
            for i in range(2)] == [True, False]


class Harm:
    def __reduce__(self):
        return (print, ('harm', ))


def test_a_pickle_that_would_run_code_is_refused(tmp_path, prepare, capsys):
    pickles(tmp_path, attrs=Harm())
    with pytest.raises(FileError, match='which is refused'):
        prepare([str(tmp_path), '--variant', 'UV_random', '--comp-seed', '5000'])
    assert 'harm' not in capsys.readouterr().out
    with pytest.raises(FileError, match='there is no such split'):
        prepare([str(tmp_path), '--variant', 'UV_random', '--comp-seed', '7'])
