"""Names from strangers are printed without steering the terminal."""
import pytest

from mmcluspro.cli import main, say_warning
from mmcluspro.errors import Fault, printable

EVIL = 'a\x1b[2J\x9b31m\rb\u202egpj'


@pytest.mark.parametrize('text, expected', [
    ('plain café 東京 🍎', 'plain café 東京 🍎'), (EVIL, 'a\\x1b[2J\\x9b31m\\rb\\u202egpj'),
    ('one\ntwo', 'one\\ntwo'), ('bytes \udcff', 'bytes \udcff'), (3, '3')])
def test_control_characters_are_written_out(text, expected):
    assert printable(text) == expected


def test_line_breaks_of_a_message_stay():
    assert printable('one\n\x07two', keep='\n') == 'one\n\\x07two'


def test_faults_and_warnings(capsys):
    assert str(Fault('image', EVIL, 'missing')) == f'{printable(EVIL)}: missing'
    say_warning(UserWarning(f'photos: {EVIL}'), UserWarning)
    assert '\x1b' not in (said := capsys.readouterr().err) and '\\x1b[2J' in said


def test_errors_of_commands(tmp_path, capsys):
    path = tmp_path / f'{EVIL}.pth'
    path.write_bytes(b'no checkpoint')
    (tmp_path / 'a.png').write_bytes(b'')
    with pytest.raises(SystemExit):
        main(['predict', str(path), str(tmp_path / 'a.png')])
    assert '\x1b' not in (said := capsys.readouterr().err) and '\\x1b[2J' in said
