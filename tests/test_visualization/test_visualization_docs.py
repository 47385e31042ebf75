import doctest
import re
import runpy
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / 'docs' / 'visualization.md'
TEXT = PAGE.read_text(encoding='utf-8') if PAGE.exists() else ''
COMMANDS = re.findall(r'^python (tools/visualization/.*)$', TEXT.replace('\\\n', ' '), re.MULTILINE)

pytestmark = pytest.mark.skipif(not TEXT, reason='installed without docs')


def test_examples_of_the_page_run():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)

    assert failed == 0 and tried >= 4


@pytest.mark.parametrize('command', COMMANDS)
def test_the_tools_take_the_flags_of_the_page(command, monkeypatch):
    path, *words = shlex.split(command)
    monkeypatch.setattr('sys.argv', [path, *words])

    args = runpy.run_path(str(ROOT / path))['parse_args']()

    picture = PAGE.parent.parent / args.out
    assert f'](images/{picture.name})' in TEXT
    assert picture.is_file()


def test_every_tool_is_on_the_page():
    own = {path.stem for path in (ROOT / 'tools' / 'visualization').glob('*.py')}

    shown = {Path(command.split()[0]).stem for command in COMMANDS}
    assert own - {'fashion_sheet', 'shapes_sheet'} == shown
