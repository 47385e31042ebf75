"""Own folders and tables are checked before training."""
import subprocess
import sys

import pytest
from PIL import Image

from mmcluspro.cli.check_data import main


@pytest.fixture
def photos(tmp_path):
    for pair in ('wet_cat', 'dry_cat', 'wet_dog'):
        (tmp_path / pair).mkdir()
        for i in range(6):
            Image.new('RGB', (9, 9), f'#{len(list(tmp_path.rglob("*.png"))):06x}').save(
                tmp_path / pair / f'{i}.png')
    return tmp_path


def test_a_folder_is_counted_and_broken_pictures_are_named(photos, capsys):
    assert main([str(photos), '--decode']) == 0
    said = capsys.readouterr().out
    assert 'no problem found' in said and said.split('images')[1].split()[0] == '18'
    broken = photos / 'wet_dog' / '3.png'
    broken.write_bytes(broken.read_bytes()[:40])
    assert main([str(photos)]) == 0
    assert main([str(photos), '--decode']) == 1
    assert str(broken) in capsys.readouterr().out


def test_a_table_with_missing_files_few_images_and_an_empty_phase(photos, capsys):
    table = photos / 'labels.csv'
    table.write_text('image,attribute,object,split\nwet_cat/0.png,wet,cat,train\n'
                     'gone.png,wet,cat,test\n')
    assert main([str(table)]) == 1
    said = capsys.readouterr().out
    for words in ("no image 'gone.png'", 'wet cat has 1', "no row has split 'val'"):
        assert words in said


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, '-m', 'mmcluspro', '--help'], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0 and 'usage: mmcluspro COMMAND' in done.stdout


def test_nothing_to_check_is_one_sentence(photos, capsys):
    (photos / 'old_car').mkdir()
    assert main([str(photos)]) == 0
    assert '1 folder has no image: old_car' in capsys.readouterr().out
    with pytest.raises(FileNotFoundError, match=r'nowhere does not exist\. Give a folder'):
        main([str(photos / 'nowhere')])
    with pytest.raises(ValueError, match='No image below .*old_car; expected folders'):
        main([str(photos / 'old_car')])
    with pytest.raises(ValueError, match='neither a folder nor a table'):
        main([str(photos / 'wet_cat' / '0.png')])


def test_a_single_pair_is_a_problem(photos, capsys):
    table = photos / 'labels.csv'
    table.write_text('image,attribute,object\n' + ''.join(
        f'wet_cat/{i}.png,wet,cat\n' for i in range(6)))
    assert main([str(table)]) == 1
    assert '1 attribute, 1 object and 1 pair are too few' in capsys.readouterr().out
