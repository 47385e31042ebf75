"""The commands: found, explained, and the same as the tools."""
import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mmcluspro import __version__, cli
from mmcluspro.cli import check_data, extract_features, flags, test, train
from mmcluspro.cli import main as run

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize('words, code', [([], 2), (['--help'], 0), (['-h'], 0)])
def test_usage_names_every_command(words, code, capsys):
    assert run(words) == code
    said = capsys.readouterr().out
    assert all(f'  {name}' in said for name in cli.COMMANDS) and 'examples:' in said


def test_any_name_is_printed_in_any_locale(tmp_path):
    """Bytes of file names come out as they are, letters that the terminal lacks as escapes."""
    name = 'caf\udcc3\udca9 é 紅'
    for encoding, expected in (('ascii', b'caf\xc3\xa9 \\xe9 \\u7d05'),
                               ('latin-1', b'caf\xc3\xa9 \xe9 \\u7d05'),
                               ('utf-8', 'caf\u00e9 é 紅'.encode())):
        stream = io.TextIOWrapper(io.BytesIO(), encoding)
        with contextlib.redirect_stdout(stream):
            cli.print_anything()
            print(name, end='', flush=True)
        assert stream.buffer.getvalue() == expected


def test_a_folder_whose_names_this_locale_cannot_read_is_refused_with_the_remedy(tmp_path):
    (tmp_path / 'nass_käse').mkdir()
    (tmp_path / 'nass_käse' / '1.png').touch()
    done = subprocess.run(
        [sys.executable, '-m', 'mmcluspro', 'check-data', str(tmp_path)], capture_output=True,
        cwd=ROOT, env={**os.environ, 'LC_ALL': 'C', 'PYTHONCOERCECLOCALE': '0', 'PYTHONUTF8': '0'})
    assert done.returncode == 2 and b'Traceback' not in done.stderr
    assert b'This locale reads names as ascii. Set the environment variable PYTHONUTF8=1' in (
        done.stderr)


def test_help_needs_no_utf8():
    for encoding in ('ascii', 'latin-1'):
        done = subprocess.run([sys.executable, '-m', 'mmcluspro', '--help'], capture_output=True,
                              cwd=ROOT, env={**os.environ, 'PYTHONIOENCODING': encoding})
        assert done.returncode == 0 and b'mmcluspro COMMAND \\u2026' in done.stdout


def test_version(capsys):
    assert run(['--version']) == 0
    assert capsys.readouterr().out.strip() == __version__


def test_an_unknown_command_is_named(capsys):
    assert run(['predcit']) == 2
    assert "no command 'predcit'; did you mean predict?" in capsys.readouterr().err


@pytest.mark.parametrize('name', [name for name in cli.COMMANDS if name != 'demo'])
def test_help_of_a_command_has_examples(name, capsys):
    with pytest.raises(SystemExit) as ended:
        run([name, '--help'])
    said = capsys.readouterr().out
    assert ended.value.code == 0 and f'mmcluspro {name} ' in said.split('options:')[1] + said
    assert said.count(f'mmcluspro {name}') >= 2


@pytest.mark.parametrize('name', ['export', 'demo'])
def test_a_missing_extra_is_named(name, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, cli.COMMANDS[name][0], None)
    with pytest.raises(SystemExit) as ended:
        run([name, 'x'])
    assert ended.value.code == 2
    assert f'pip install -e \'{ROOT}[{name}]\'' in capsys.readouterr().err


def test_exit_codes_come_through(tmp_path, capsys):
    table = tmp_path / 'labels.csv'
    table.write_text('image,attribute,object\ngone.png,wet,cat\n')
    assert run(['check-data', str(table)]) == 1


def test_errors_are_said_in_words(capsys):
    with pytest.raises(SystemExit) as ended:
        run(['train', 'nothing.py'])
    assert ended.value.code == 2
    assert 'The config nothing.py does not exist' in capsys.readouterr().err


@pytest.mark.parametrize('path, module', [
    ('train.py', train), ('test.py', test), ('dataset_converters/check_dataset.py', check_data)])
def test_a_tool_is_the_same_function(path, module):
    import runpy
    from pathlib import Path
    tool = Path(__file__).resolve().parents[2] / 'tools' / path
    assert runpy.run_path(str(tool))['main'] is module.main


def test_configs_elsewhere_find_the_shipped_ones(tmp_path, monkeypatch):
    from mmcluspro.engine.launch import load_config
    monkeypatch.delenv('MMCLUSPRO_CONFIGS', raising=False)
    own = tmp_path / 'own.py'
    own.write_text("_base_ = '{{$MMCLUSPRO_CONFIGS:configs}}/baseline_shapes.py'\n"
                   'train_cfg = dict(max_epochs=3)\n')
    cfg = load_config(train.parse_args([str(own)]), ('train', ), True)
    assert cfg.train_cfg.max_epochs == 3 and cfg.model.type == 'mmcluspro.CompositionalClassifier'


def test_help_imports_no_torch_and_so_takes_no_time():
    code = ('import sys\nfrom mmcluspro.cli import COMMANDS, main\n'
            "for words in (['--help'], *([name, flag] for name in COMMANDS\n"
            "              for flag in ('--help', '--no-such-flag'))):\n"
            '    try:\n        main(words)\n    except SystemExit:\n        pass\n'
            "sys.exit(bool({'torch', 'numpy', 'mmengine', 'matplotlib'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith('usage: mmcluspro COMMAND')
    assert done.stdout.count('\noptions:') == len(cli.COMMANDS)


def test_flags_offer_what_the_package_knows():
    from mmcluspro.datasets.layout import PHASES
    from mmcluspro.evaluation import WORLDS
    from mmcluspro.features.writer import DTYPES
    assert tuple(flags.PHASES) == tuple(PHASES)
    assert tuple(flags.WORLDS) == tuple(WORLDS)
    for dtype in DTYPES:
        assert extract_features.parse_args(['a.py', '--dtype', dtype]).dtype == dtype


def test_an_option_without_a_value_is_named(capsys):
    with pytest.raises(SystemExit) as ended:
        run(['train', 'cluspro_shapes.py', '--cfg-options', 'train_cfg.max_epochs'])
    assert ended.value.code == 2
    assert "--cfg-options takes KEY=VALUE, got 'train_cfg.max_epochs'" in capsys.readouterr().err


@pytest.mark.parametrize('words, says', [(['predict', 'no.pth', 'no.jpg'], True),
                                         (['predict', '--help'], False)])
def test_a_terminal_is_told_that_it_loads(words, says, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, 'isatty', lambda: True, raising=False)
    with pytest.raises(SystemExit):
        run(words)
    assert ('loading …' in capsys.readouterr().err) == says


def test_a_misspelled_config_is_suggested(capsys):
    with pytest.raises(SystemExit) as ended:
        run(['train', 'cluspro_shape.py'])
    assert ended.value.code == 2
    assert 'Did you mean cluspro_shapes.py or' in capsys.readouterr().err
