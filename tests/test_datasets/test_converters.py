import os
import pickle

import numpy as np
import pytest
import torch
from file_steps import Step, carry_out

from mmcluspro.datasets import CGQA, MITStates, UTZappos
from mmcluspro.errors import FileError


def tree(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob('*'))


def bury(layout, folder):
    """As archives unpack: everything one folder deeper."""
    inner = layout.root / folder
    inner.mkdir()
    for name in ('images', layout.split, layout.metadata.name):
        (layout.root / name).rename(inner / name)


def test_mit_states(layout, tool, capsys):
    images = layout.root / 'images'
    for folder in list(images.iterdir()):
        folder.rename(images / folder.name.replace('_', ' '))
    bury(layout, 'release_dataset')
    before = tree(layout.root)
    main = tool('prepare_mit_states').main

    assert main([str(layout.root), '--dry-run']) == 0
    assert tree(layout.root) == before
    assert 'would rename' in capsys.readouterr().out and before

    assert main([str(layout.root)]) == 1, 'the counts are not those of MIT-States'

    assert sorted(os.listdir(images)) == sorted({row['image'].split('/')[0]
                                                 for row in layout.rows})
    assert len(MITStates(str(layout.root))) == 12
    after = tree(layout.root)
    main([str(layout.root)])
    assert tree(layout.root) == after
    assert '0 problems' in capsys.readouterr().out


def test_a_folder_in_both_spellings_is_left_alone(layout, tool, capsys):
    other = layout.root / 'images' / 'wet cat'
    other.mkdir()
    (other / 'more.png').touch()

    tool('prepare_mit_states').main([str(layout.root)])

    assert (other / 'more.png').exists()
    assert 'both exist, left alone' in capsys.readouterr().out


def test_c_gqa(layout, tool):
    bury(layout, 'cgqa')

    tool('prepare_cgqa').main([str(layout.root)])

    assert len(CGQA(str(layout.root))) == 12


def test_two_candidates_are_not_guessed(layout, tool):
    bury(layout, 'cgqa')
    (layout.root / 'other' / 'images').mkdir(parents=True)

    with pytest.raises(ValueError, match='images more than once'):
        tool('prepare_cgqa').main([str(layout.root)])


@pytest.fixture
def archive(layout):
    """The original UT-Zappos: no images/, but ut-zap50k-images/ by brand."""
    rows = [{**row, '_image': f'Shoes/Oxfords/Brand{i % 3}{"." * (i % 3 == 0)}/{i}.png'}
            for i, row in enumerate(layout.rows)]
    for i, row in enumerate(rows):
        name = row['_image'].replace('./', ('%2E/', './', '/')[i % 9 // 3])
        target = layout.root / 'ut-zap50k-images' / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (layout.root / 'images' / row['image']).rename(target)
    (layout.root / 'images').rename(layout.root / 'empty')
    torch.save(rows, layout.metadata)
    layout.rows = rows
    return layout


@pytest.mark.parametrize('mode', ['copy', 'hardlink', 'symlink'])
def test_ut_zappos(archive, tool, capsys, mode):
    source = archive.root / 'ut-zap50k-images'
    before = tree(source)
    main = tool('prepare_ut_zappos').main
    arguments = [str(archive.root), '--mode', mode]

    assert main([*arguments, '--dry-run']) == 0
    assert not (archive.root / 'images').exists()
    main(arguments)

    assert tree(source) == before
    paths = [os.path.relpath(sample['img_path'], archive.root / 'images')
             for sample in UTZappos(str(archive.root))]
    assert paths == [row['image'] for row in archive.rows[:12]]
    assert '18 done' in capsys.readouterr().out


def test_ut_zappos_goes_on_where_it_stopped(archive, tool, capsys):
    main = tool('prepare_ut_zappos').main
    main([str(archive.root)])
    first = archive.root / 'images' / archive.rows[0]['image']
    last = archive.root / 'images' / archive.rows[-1]['image']
    first.write_bytes(b'mine')
    last.unlink()
    capsys.readouterr()

    main([str(archive.root)])

    assert first.read_bytes() == b'mine' and last.exists()
    assert '17 there, 1 done' in capsys.readouterr().out


def test_ut_zappos_tells_of_missing_images(archive, tool, capsys):
    found = next((archive.root / 'ut-zap50k-images').rglob('1.png'))
    found.unlink()

    assert tool('prepare_ut_zappos').main([str(archive.root)]) == 1

    text = capsys.readouterr().out
    assert 'missing: ' in text and '17 done, 1 missing' in text.replace('1 missing, 17 done',
                                                                        '17 done, 1 missing')


def test_ut_zappos_without_archive(layout, tool):
    with pytest.raises(FileNotFoundError, match='--source'):
        tool('prepare_ut_zappos').main([str(layout.root)])
    with pytest.raises(ValueError, match='row 0 has no _image'):
        tool('prepare_ut_zappos').main([str(layout.root), '--source',
                                        str(layout.root / 'images')])


def test_a_copy_appears_only_when_it_is_complete(tmp_path, monkeypatch):
    (tmp_path / 'a').write_text('whole')
    step = Step('copy', tmp_path / 'a', tmp_path / 'b' / 'c')

    def die(source, target):
        target.write_text('wh')
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr('shutil.copy2', die)
        carry_out([step], tmp_path)
    assert not step.target.exists()
    assert carry_out([step], tmp_path) == {'done': 1}
    assert step.target.read_text() == 'whole' and os.listdir(tmp_path / 'b') == ['c']


@pytest.mark.parametrize('form', ['zip', 'legacy', 'pickle'])
def test_numpy_strings_become_text(layout, tool, tmp_path, form):
    rows = [{key: np.str_(text) for key, text in row.items()} for row in layout.rows]
    old = tmp_path / 'old.t7'
    if form == 'pickle':
        old.write_bytes(pickle.dumps(tuple(rows), protocol=2))
    else:
        torch.save(rows, old, _use_new_zipfile_serialization=form == 'zip')
    layout.metadata.unlink()

    assert tool('convert_metadata').main([str(old), str(layout.metadata)]) == 0

    assert torch.load(layout.metadata, weights_only=True) == layout.rows
    assert len(UTZappos(str(layout.root))) == 12


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), 'w')


@pytest.mark.parametrize('form', ['zip', 'legacy', 'pickle'])
def test_the_converter_never_runs_code(tool, tmp_path, capsys, form):
    old, new, trap = tmp_path / 'old.t7', tmp_path / 'new.t7', tmp_path / 'was_run'
    if form == 'pickle':
        old.write_bytes(pickle.dumps([Trap(trap)]))
    else:
        torch.save([Trap(trap)], old, _use_new_zipfile_serialization=form == 'zip')

    assert tool('convert_metadata').main([str(old), str(new)]) == 1

    assert not trap.exists() and not new.exists()
    assert 'refused' in capsys.readouterr().err


def test_the_converter_does_not_overwrite(layout, tool):
    with pytest.raises(SystemExit):
        tool('convert_metadata').main([str(layout.metadata), str(layout.metadata)])


def test_metadata_of_lists_in_lists_is_refused(tool, tmp_path, monkeypatch):
    """A few objects that stand for 2**60: the converter counts instead of writing them out."""
    convert_metadata = tool('convert_metadata')
    rows = ['x']
    for _ in range(60):
        rows = [rows, rows]
    torch.save(rows, tmp_path / 'bomb.t7')
    monkeypatch.setattr(convert_metadata, 'ENTRIES', 1000)
    with pytest.raises(FileError, match='more than 1,000 entries'):
        convert_metadata.read_plain(tmp_path / 'bomb.t7')


def test_one_wrong_number_takes_no_gigabytes(tool, tmp_path):
    """Entry 2**31 of the table of known objects: the unpickler of C would make a table for it."""
    import resource
    path = tmp_path / 'put.pkl'
    path.write_bytes(b'\x80\x02]r\xff\xff\xff\x1f.')
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert tool('convert_metadata').read_plain(path) == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kilobytes
