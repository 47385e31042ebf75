import doctest
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from mmcluspro.cli import GROUPS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / 'docs' / 'visualization.md'
TEXT = PAGE.read_text(encoding='utf-8') if PAGE.exists() else ''
COMMANDS = re.findall(rf'^mmcluspro ((?:{"|".join(GROUPS["pictures"])}) .*)$',
                      TEXT.replace('\\\n', ' '), re.MULTILINE)

pytestmark = pytest.mark.skipif(not TEXT, reason='installed without docs')


def test_examples_of_the_page_run():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)

    assert failed == 0 and tried >= 4


@pytest.mark.parametrize('command', COMMANDS)
def test_the_commands_take_the_flags_of_the_page(command):
    name, *words = shlex.split(command)

    args = import_module(GROUPS['pictures'][name].module).parse_args(words)

    if name == 'report':
        return
    picture = PAGE.parent.parent / args.out
    assert f'](images/{picture.name})' in TEXT
    assert picture.is_file()


def test_every_command_is_on_the_page():
    assert set(GROUPS['pictures']) == {command.split()[0] for command in COMMANDS}
