"""Names from data stay below their folder, as written and through links."""
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from file_steps import Step, carry_out
from PIL import Image

from mmcluspro.datasets import UTZappos
from mmcluspro.datasets.folders import ImageFolder
from mmcluspro.datasets.table_file import read_table
from mmcluspro.utils.files import inside, leaves, remove, within


@pytest.mark.parametrize('name', [
    '../x.png', 'a/../../x.png', '/etc/passwd', '\\\\server\\share', 'C:\\x', 'a\\..\\..\\x', '',
    'a/\0.png', '..', 'a/..'])
def test_a_name_that_leaves_is_refused(name, tmp_path):
    assert leaves(name)
    with pytest.raises(ValueError, match='leaves the folder'):
        inside(tmp_path, name)


@pytest.mark.parametrize('name', ['a.png', 'wet cat/..a.png', 'a/b/c...png', 'x..y/z'])
def test_a_name_below_is_joined(name, tmp_path):
    assert inside(tmp_path, name) == tmp_path / name


def test_links_count_as_where_they_lead(tmp_path):
    for name in ('data', 'other', 'data2'):
        (tmp_path / name).mkdir()
    (tmp_path / 'data' / 'out').symlink_to(tmp_path / 'other')
    (tmp_path / 'data' / 'in').symlink_to(tmp_path / 'data')
    (tmp_path / 'root').symlink_to(tmp_path / 'data')
    with pytest.raises(ValueError, match='leaves the folder'):
        inside(tmp_path / 'data', 'out/x.png')
    assert inside(tmp_path / 'data', 'in/x.png')
    assert inside(tmp_path / 'root', 'x.png') == tmp_path / 'root' / 'x.png'
    assert not within(tmp_path / 'data', tmp_path / 'data2' / 'x')  # the same beginning only


def test_images_are_not_found_through_links_that_leave(tmp_path):
    (tmp_path / 'secret').mkdir()
    (tmp_path / 'secret' / 'x.png').touch()
    images = tmp_path / 'data' / 'images'
    (images / 'wet_cat').mkdir(parents=True)
    (images / 'dry_cat').symlink_to(tmp_path / 'secret')
    (images / 'wet_cat' / 'link.png').symlink_to(tmp_path / 'secret' / 'x.png')
    (images / 'wet_cat' / 'own.png').touch()
    (tmp_path / 'data' / 'raw.png').touch()
    (images / 'wet_cat' / 'near.png').symlink_to(tmp_path / 'data' / 'raw.png')
    folder = ImageFolder(images, tmp_path / 'data')
    names = ['dry_cat/x.png', 'wet_cat/link.png', '../../secret/x.png',
             str(tmp_path / 'secret' / 'x.png')]
    assert [folder.find(name) for name in names] == [None] * 4
    assert 'follow_links=True' in folder.remark
    assert folder.find('wet_cat/own.png') and folder.find('wet_cat/near.png')
    assert ImageFolder(images, follow_links=True).find('dry_cat/x.png')


@pytest.mark.parametrize('name', ['../../victim/.ssh/authorized_keys', 'ABSOLUTE'])
@pytest.mark.parametrize('field', ['image', '_image'])
def test_ut_zappos_writes_and_reads_below_its_root_only(name, field, layout, tool, tmp_path):
    """As in the attack: a row of the metadata names a target, or a source, elsewhere."""
    victim = tmp_path / 'victim'
    (victim / '.ssh').mkdir(parents=True)
    secret = tmp_path / 'secret.png'
    Image.fromarray(np.zeros((2, 2, 3), np.uint8)).save(secret)
    rows = [dict(row, _image=f'Shoes/{row["image"]}') for row in layout.rows]
    for row in rows:
        path = layout.root / '_images' / row['_image']
        path.parent.mkdir(parents=True, exist_ok=True)
        (layout.root / 'images' / row['image']).rename(path)
    target = str(victim / 'x.png') if name == 'ABSOLUTE' else name
    rows[0][field] = str(secret) if field == '_image' and name == 'ABSOLUTE' else (
        '../../../secret.png' if field == '_image' else target)
    torch.save(rows, layout.metadata)
    with pytest.raises(ValueError, match='not a name below the folder'):
        tool('prepare_ut_zappos').main([str(layout.root)])
    assert not [path for path in victim.rglob('*') if path.is_file()]
    with pytest.raises(ValueError, match='not a name below the folder'):
        UTZappos(str(layout.root), check_images=False)


def test_nothing_is_written_through_a_link(tmp_path):
    (tmp_path / 'data').mkdir()
    (tmp_path / 'victim').mkdir()
    (tmp_path / 'data' / 'images').symlink_to(tmp_path / 'victim')
    source = tmp_path / 'data' / 'a.png'
    source.touch()
    step = Step('copy', source, tmp_path / 'data' / 'images' / 'a.png')
    with pytest.raises(ValueError, match='outside of'):
        carry_out([step], tmp_path / 'data')
    assert not list((tmp_path / 'victim').iterdir())


def test_a_table_names_images_below_its_folder(tmp_path):
    path = tmp_path / 'table.csv'
    path.write_text('image,attribute,object,split\n../x.png,wet,cat,train\n')
    with pytest.raises(ValueError, match=r"table\.csv:2.*'\.\./x\.png' is not a name below"):
        read_table(path)


# Removals.

@pytest.mark.parametrize('path', ['../other/a', 'sub/a', '..', '.', '', 'sub/..', 'link/a'])
def test_nothing_outside_of_the_folder_is_removed(path, tmp_path):
    for name in ('own/sub/a', 'other/a', 'own/a'):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('mine')
    (tmp_path / 'own' / 'link').symlink_to(tmp_path / 'other')
    with pytest.raises(ValueError, match='is not removed: it is not directly inside'):
        remove(tmp_path / 'own', f'{tmp_path}/own/{path}')
    assert all((tmp_path / name).exists() for name in ('own/sub/a', 'other/a', 'own/a'))


def test_what_is_directly_inside_is_removed(tmp_path, monkeypatch):
    own, other = tmp_path / 'own', tmp_path / 'other'
    for folder in (own / 'folder' / 'deep', other):
        folder.mkdir(parents=True)
        (folder / 'a').write_text('mine')
    (own / 'file').write_text('')
    (own / 'to_file').symlink_to(other / 'a')
    (own / 'to_folder').symlink_to(other)
    (tmp_path / 'alias').symlink_to(own)
    monkeypatch.chdir(tmp_path)
    for name in ('file', 'to_file', 'folder', 'gone'):
        remove(own, own / name)
    remove('own', tmp_path / 'alias' / 'to_folder')
    assert not list(own.iterdir()) and (other / 'a').read_text() == 'mine'


def test_a_folder_elsewhere_is_compared_as_text():
    asked = []
    bucket = SimpleNamespace(remove=asked.append)
    remove('s3://bucket/run/', 's3://bucket/run/epoch_1.pth', bucket)
    assert asked == ['s3://bucket/run/epoch_1.pth']
    for path in ('s3://bucket/other/epoch_1.pth', 's3://bucket/run/../x', 's3://bucket/run/..'):
        with pytest.raises(ValueError, match='is not removed'):
            remove('s3://bucket/run', path, bucket)
    assert len(asked) == 1
