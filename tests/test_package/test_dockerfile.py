"""The Dockerfile is one that docker can read, and copies and installs what there is."""
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATH = ROOT / 'Dockerfile'
KNOWN = {'ARG', 'FROM', 'RUN', 'ENV', 'COPY', 'USER', 'WORKDIR', 'EXPOSE', 'ENTRYPOINT', 'CMD'}

pytestmark = pytest.mark.skipif(not PATH.exists(), reason='installed without the repository')


def instructions():
    text = re.sub(r'^#.*\n', '', PATH.read_text(), flags=re.MULTILINE)
    return [line.split(None, 1) for line in re.sub(r'\\\n\s*', ' ', text).splitlines() if line]


def test_the_base_is_an_argument_and_every_instruction_is_known():
    found = instructions()
    assert {name for name, _ in found} <= KNOWN
    assert found[0] == ['ARG', 'BASE=ubuntu:22.04'] and found[1] == ['FROM', '${BASE}']
    assert found[-2:] == [['ENTRYPOINT', '["mmcluspro"]'], ['CMD', '["--help"]']]
    assert [rest for name, rest in found if name == 'USER'] == ['user']


def test_what_is_copied_exists_and_is_all_that_the_package_is_built_from():
    copied = {source for name, rest in instructions() if name == 'COPY'
              for source in rest.split()[:-1]}
    assert all((ROOT / source).exists() for source in copied)
    assert {'pyproject.toml', 'setup.py', 'README.md', 'mmcluspro', 'configs', 'tools'} <= copied


def test_the_extras_exist():
    (extras, ) = re.findall(r"pip install '/src\[([\w,]+)\]'", PATH.read_text())
    project = (ROOT / 'pyproject.toml').read_text()
    assert all(re.search(rf'^{extra} = \[', project, re.MULTILINE) for extra in extras.split(','))
