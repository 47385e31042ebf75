"""Importing without the OpenMMLab packages says in one line what to install."""
import subprocess
import sys
from pathlib import Path

import pytest

from mmcluspro import requirements

ROOT = Path(requirements.__file__).resolve().parents[1]


@pytest.mark.parametrize('name', ['mmengine', 'mmcv', 'mmpretrain'])
def test_a_missing_package_is_named(name):
    code = f'import sys; sys.modules[{name!r}] = None; from mmcluspro import load'
    done = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, cwd=ROOT, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f'ImportError: mmcluspro needs {name}, which is not installed: pip')
    assert f"pip install -e '{ROOT}[mm]'" in last and 'onedl-mmengine' in last


@pytest.mark.parametrize('source, wanted', [
    (None, "pip install 'mmcluspro[demo]'"),
    ('{}', "pip install 'mmcluspro[demo]'"),
    ('{"url": "file:///x/mmcluspro-0.1.0.whl", "archive_info": {}}',
     "pip install 'mmcluspro[demo] @ file:///x/mmcluspro-0.1.0.whl'"),
    ('{"url": "https://example.org/m.git", "vcs_info": {"vcs": "git", "commit_id": "1"}}',
     "pip install 'mmcluspro[demo] @ git+https://example.org/m.git'")])
def test_the_name_of_an_extra_fits_the_way_of_the_install(source, wanted, monkeypatch, tmp_path):
    class Installed:
        def read_text(self, name):
            return source

    monkeypatch.setattr(requirements, '__file__', str(tmp_path / 'site' / 'mmcluspro' / 'r.py'))
    monkeypatch.setattr(requirements, 'distribution', lambda name: Installed())
    assert requirements.extra_command('demo') == wanted


@pytest.mark.parametrize('version, fits', [
    ('0.10.7', True), ('0.10.6', True), ('0.10.12', True), ('0.11.0rc3', True), ('0.9.9', False),
    ('1.0.0', False)])
def test_versions_are_compared_as_numbers(monkeypatch, version, fits):
    import mmengine
    monkeypatch.setattr(mmengine, '__version__', version)
    if fits:
        requirements.check_requirements()
    else:
        with pytest.raises(ImportError, match=f'mmengine >=0.10.6,<1.0.0, found {version}'):
            requirements.check_requirements()
