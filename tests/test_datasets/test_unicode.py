"""One name in two Unicode forms, as macOS and archives write it, is one label."""
import unicodedata

import pytest
import torch
from PIL import Image

from mmcluspro.cli import main
from mmcluspro.datasets import TableCZSL, UTZappos, readable_name
from mmcluspro.models.candidates import Candidates
from mmcluspro.registry import MODELS

ONE, TWO = (unicodedata.normalize(form, 'café') for form in ('NFC', 'NFD'))
SAID = 'warning: {}: names in two Unicode forms, which look the same, count as one: café.'


@pytest.fixture
def photos(tmp_path):
    """Ten images of a café in each form, ten of something else."""
    for number, name in enumerate([ONE, TWO, 'wet'] * 10):
        folder = tmp_path / 'photos' / f'{name}_{"cat" if number % 2 else "dog"}'
        folder.mkdir(parents=True, exist_ok=True)
        Image.new('RGB', (32, 32), (number, 0, 0)).save(folder / f'{number}.png')
    return tmp_path / 'photos'


def space_of(root, table=None):
    return TableCZSL.make_space('all', data_root=str(root), table=table,
                                make_split=None if table else dict(seed=0))


def test_folders(photos, capsys):
    assert main(['check-data', str(photos)]) == 0
    said = capsys.readouterr()
    assert SAID.format(photos) in said.err and said.err.count('café') == 1
    assert 'attributes                         2' in said.out
    assert space_of(photos).attributes == (ONE, 'wet')


def test_a_table(photos, tmp_path, capsys):
    lines = [f'{path.relative_to(photos)},{path.parent.name.replace("_", ",")},train'
             for path in sorted(photos.rglob('*.png'))]
    (photos / 'all.csv').write_text('\n'.join(['image,attribute,object,split', *lines]))
    main(['check-data', str(photos / 'all.csv')])
    said = capsys.readouterr()
    assert SAID.format(photos / 'all.csv') in said.err
    assert 'x image:' not in said.out  # names of files stay as they are
    assert space_of(photos, str(photos / 'all.csv')).attributes == (ONE, 'wet')


def test_lists_and_metadata(layout, capsys):
    """A list in one form and metadata in the other left all these images out."""
    for phase in ('train', 'val', 'test'):
        path = layout.lists / f'{phase}_pairs.txt'
        path.write_text(path.read_text().replace('wet', TWO))
    rows = [dict(row, attr=row['attr'].replace('wet', ONE)) for row in layout.rows]
    torch.save(rows, layout.metadata)
    assert len(UTZappos(str(layout.root))) == 12
    assert ONE in UTZappos.make_space('all', data_root=str(layout.root)).attributes
    rows[0]['attr'] = unicodedata.normalize('NFD', rows[0]['attr'])
    torch.save(rows, layout.metadata)
    main(['check-data', str(layout.root)])
    assert SAID.format(layout.metadata) in capsys.readouterr().err
    assert len(UTZappos(str(layout.root))) == 12


def test_a_name_that_is_asked_for_is_the_one_that_was_learned(photos):
    space = space_of(photos)
    text = MODELS.build(dict(type='mmcluspro.CLIPText', arch='tiny_clip', pretrained='tiny_clip',
                             attributes=space.attributes, objects=space.objects))
    found = Candidates.from_names(text, space, [(TWO, 'cat'), ('wet', 'dog')])
    assert found.attributes == (ONE, 'wet') and text.attributes == (ONE, 'wet')
    with pytest.raises(ValueError, match='more than once'):
        Candidates.from_names(text, space, [(TWO, 'cat'), (ONE, 'cat')])
    assert readable_name(TWO) == ONE
