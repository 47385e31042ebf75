"""A wheel carries configs and tools, and works away from the checkout."""
import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLACE = dict(MMCLUSPRO_URL='https://example.org/team/mmcluspro', MMCLUSPRO_REF='v7')
pytestmark = pytest.mark.slow


def run(*command, cwd, **env):
    return subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, env={**os.environ, **env},
        capture_output=True, text=True, check=False)


@pytest.fixture(scope='module')
def archive(tmp_path_factory):
    """The source archive, built from a copy: setuptools leaves egg-info/ in the source."""
    folder = tmp_path_factory.mktemp('sdist')
    source = folder / 'source'
    skip = shutil.ignore_patterns('.git', '.mim', 'work_dirs', 'data', '.*_cache', '__pycache__')
    shutil.copytree(ROOT, source, ignore=skip)
    code = ('from setuptools.build_meta import build_sdist as build; import sys; '
            'build(sys.argv[1])')
    done = run('-c', code, folder, cwd=source, **PLACE)
    assert done.returncode == 0, done.stderr
    return next(folder.glob('*.tar.gz'))


@pytest.fixture(scope='module')
def wheel(archive, tmp_path_factory):
    """Built from the source archive, so that nothing can be missing there."""
    folder = tmp_path_factory.mktemp('wheel')
    source = archive
    done = run('-m', 'pip', 'wheel', '--no-deps', '--no-build-isolation', '-q', '-w', folder,
               source, cwd=folder, **PLACE)
    assert done.returncode == 0, done.stderr
    return next(folder.glob('*.whl'))


@pytest.fixture(scope='module')
def installed(wheel, tmp_path_factory):
    site = tmp_path_factory.mktemp('site')
    done = run('-m', 'pip', 'install', '--no-deps', '-q', '--target', site, wheel, cwd=site)
    assert done.returncode == 0, done.stderr
    return site


def test_both_pass_the_check_of_an_index(archive, wheel, tmp_path):
    pytest.importorskip('twine')
    done = run('-m', 'twine', 'check', '--strict', archive, wheel, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count('PASSED') == 2


def test_the_package_page_stands_alone(wheel):
    """Licence, authors and links; of the README, no link leads into a folder."""
    files = zipfile.ZipFile(wheel)
    name = next(name for name in files.namelist() if name.endswith('/METADATA'))
    page = email.message_from_bytes(files.read(name))
    assert page['License-Expression'] == 'Apache-2.0' and page['Author']
    assert f'Source, {PLACE["MMCLUSPRO_URL"]}' in page.get_all('Project-URL')
    text = page.get_payload()
    links = re.findall(r'\]\(([^)]+)\)', text)
    assert len(links) > 30 and all(link.startswith(('https://', '#')) for link in links)
    for kind, path in re.findall(r'/(blob|raw)/v7/([^)#]+)', text):
        assert (ROOT / path).exists() and (kind == 'raw') == path.endswith('.png'), path


def test_tests_are_in_the_source_archive(archive):
    with tarfile.open(archive) as file:
        names = file.getnames()
    assert any(name.endswith('tests/test_package/test_wheel.py') for name in names)


def test_three_lines_answer_without_training(installed, tmp_path):
    shutil.copy(ROOT / 'docs' / 'images' / 'glowing_star.png', tmp_path / 'picture.png')
    lines = re.search(r'```python\n(import mmcluspro as cz\n.*?)```', (
        ROOT / 'README.md').read_text(), re.DOTALL)[1]
    done = run('-W', 'ignore', '-c', lines, cwd=tmp_path, PYTHONPATH=str(installed))
    assert done.returncode == 0, done.stderr
    assert "PairScore(attribute='glowing', object='star'" in done.stdout


def test_it_carries_configs_tools_and_weights(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ('configs', 'tools'):
        here = [path.relative_to(ROOT) for path in (ROOT / folder).rglob('*')
                if path.is_file() and not {'__pycache__', 'analysis_tools'} & {*path.parts}]
        assert len(here) > 5
        assert {f'mmcluspro/.mim/{path}' for path in here} <= names
    for name in ('tiny_clip.pt', 'cluspro_shapes.safetensors'):
        assert f'mmcluspro/models/weights/{name}' in names
    assert 'mmcluspro/models/configs/tiny_clip.json' in names
    assert not any(name.startswith('tests/') or '__pycache__' in name or 'analysis' in name
                   for name in names)


def test_a_config_is_found_by_name_and_trains_in_an_empty_folder(installed, tmp_path):
    train = installed / 'mmcluspro' / '.mim' / 'tools' / 'train.py'
    done = run(
        train, 'baseline_shapes.py', '--no-validate', '--no-test', '--cfg-options',
        'train_cfg.max_epochs=1', 'train_dataloader.dataset.indices=64',
        cwd=tmp_path, PYTHONPATH=str(installed), OMP_NUM_THREADS='1')
    assert done.returncode == 0, done.stderr
    assert (tmp_path / 'work_dirs' / 'baseline_shapes' / 'epoch_1.pth').is_file()


def test_mim_finds_the_package(installed, tmp_path):
    pytest.importorskip('mim', reason='openmim is not installed, or its pkg_resources is missing')
    done = run(
        '-c', 'from mim.cli import cli; cli()', 'train', 'mmcluspro', 'baseline_shapes.py',
        '--gpus', '0', '--no-validate', '--no-test', '--cfg-options', 'train_cfg.max_epochs=1',
        'train_dataloader.dataset.indices=64',
        cwd=tmp_path, PYTHONPATH=str(installed), OMP_NUM_THREADS='1')
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.glob('work_dirs/*/epoch_1.pth'))


def test_an_unknown_config_lists_those_there_are(installed, tmp_path):
    train = installed / 'mmcluspro' / '.mim' / 'tools' / 'train.py'
    done = run(train, 'nothing.py', cwd=tmp_path, PYTHONPATH=str(installed))
    assert done.returncode == 2
    assert 'error: The config nothing.py does not exist.' in done.stderr
    assert 'baseline_shapes.py' in done.stderr and 'Traceback' not in done.stderr
