"""Importing without the OpenMMLab packages says in one line what to install."""
import subprocess
import sys
from pathlib import Path

import pytest

from mmcluspro import requirements

ROOT = Path(requirements.__file__).resolve().parents[1]


@pytest.mark.parametrize('name', ['mmengine', 'mmcv', 'mmpretrain'])
def test_a_missing_package_is_named(name):
    code = f'import sys; sys.modules[{name!r}] = None; import mmcluspro'
    done = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, cwd=ROOT, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f'ImportError: mmcluspro needs {name}, which is not installed: pip')
    assert "'mmcluspro[mm]'" in last and 'onedl-mmengine' in last


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
