"""Which errors are printed as a message, which keep their traceback, and which config is found."""
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from mmengine.hooks import CheckpointHook
from mmengine.registry import HOOKS

from mmcluspro.cli import train
from mmcluspro.datasets import CompositionSpace
from mmcluspro.engine.launch import apply_options, find_config, read_config
from mmcluspro.engine.messages import ConfigError, run_command
from mmcluspro.features.source import find_frozen_part
from mmcluspro.models.prototypes import PrototypeBank
from mmcluspro.registry import MODELS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_traceback(monkeypatch):
    monkeypatch.delenv('MMCLUSPRO_TRACEBACK', raising=False)


def uninitialised_bank():
    PrototypeBank(2, 3).assign(torch.ones(1, 3), torch.zeros(1, dtype=torch.long))


def full_disk():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), 'epoch_3.pth')


def write_config(folder, text):
    path = folder / 'mine.py'
    path.write_text(text)
    return path


@pytest.mark.parametrize('fault, message', [
    (lambda: CompositionSpace.from_splits('nowhere'), 'error: '),
    (uninitialised_bank, 'error: The PrototypeBank has no prototypes yet'),
    (lambda: Path('missing.txt').read_text(), 'error: No such file or directory: missing.txt'),
    (lambda: Path('/').read_text(), 'error: Is a directory: /'),
    (full_disk, 'error: No space left on device: epoch_3.pth'),
    (lambda: MODELS.get('NoSuchHead'), "error: mmcluspro has no model named 'NoSuchHead'"),
    (lambda: HOOKS.build(dict(type='CheckpointHook', save_best=3)), 'error: AssertionError: "save'),
])
def test_what_a_user_can_fix_is_a_message(capsys, fault, message):
    with pytest.raises(SystemExit) as caught:
        run_command(fault)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize('text, message', [
    ('model = dict(\n', r'mine\.py, or one of .* is not valid Python: .* in line 1: model = dict'),
    ('a = undefined\n', r"mine\.py cannot be read: NameError: name 'undefined' is not defined"),
    ("_base_ = './gone.py'\n", r'mine\.py cannot be read: .*gone\.py'),
    ('assert False, "wrong dataset"\n', r'mine\.py cannot be read: AssertionError: wrong dataset'),
    ("a = {}['b']\n", r"mine\.py cannot be read: KeyError: b"),
    ("custom_imports = dict(imports=['no_such_module'])\n", r'mine\.py cannot be read: .*no_such_'),
])
def test_a_faulty_config_is_named(tmp_path, capsys, text, message):
    path = write_config(tmp_path, text)
    with pytest.raises(ConfigError, match=message):
        read_config(path)
    with pytest.raises(SystemExit):
        run_command(lambda: read_config(path))
    assert 'mine.py' in capsys.readouterr().err


def test_an_option_that_does_not_fit_is_named(tmp_path):
    cfg = read_config(write_config(tmp_path, 'a = [1, 2]\n'))
    with pytest.raises(ConfigError, match=r'--cfg-options a\.7\.b=1 does not fit the config: '):
        apply_options(cfg, {'a.7.b': 1})


@pytest.mark.parametrize('fault, kind', [
    (lambda: len(3), TypeError),
    (lambda: torch.ones(2) @ torch.ones(3), RuntimeError),
    (lambda: os.environ['MMCLUSPRO_NO_SUCH_VARIABLE'], KeyError),
    (lambda: CheckpointHook().nothing, AttributeError),
    (lambda: int('a'), ValueError),
    (lambda: PrototypeBank(2, 3, num_prototypes=None).assign(None, None), Exception),
])
def test_faults_of_code_keep_their_traceback(fault, kind):
    with pytest.raises(kind) as caught:
        run_command(fault)
    assert not isinstance(caught.value, SystemExit)


def test_a_missing_key_in_our_own_code_keeps_its_traceback():
    with pytest.raises(KeyError):
        run_command(lambda: find_frozen_part({}))


def test_the_traceback_can_be_asked_for(monkeypatch):
    monkeypatch.setenv('MMCLUSPRO_TRACEBACK', '1')
    with pytest.raises(RuntimeError):
        run_command(uninitialised_bank)


@pytest.mark.parametrize(('words', 'said'), [
    ((), 'Interrupted.'), (('Add --resume.', ), 'Interrupted. Add --resume.')])
def test_an_interrupt_says_how_to_go_on(words, said, capsys):

    def interrupted():
        raise KeyboardInterrupt(*words)

    with pytest.raises(SystemExit) as caught:
        run_command(interrupted)
    assert caught.value.code == 130
    assert capsys.readouterr().err.strip() == said


def test_an_interrupted_training_names_its_checkpoint(monkeypatch, tmp_path):
    def interrupted(cfg):
        raise KeyboardInterrupt

    monkeypatch.setattr('mmcluspro.engine.launch.build_runner', interrupted)
    command = ['cluspro_shapes.py', '--work-dir', str(tmp_path)]
    with pytest.raises(KeyboardInterrupt, match='no checkpoint in .* yet: run the same command'):
        train.main(command)
    torch.save({'state_dict': {'a': torch.ones(1)}}, tmp_path / 'epoch_3.pth')
    with pytest.raises(KeyboardInterrupt, match=r'--resume to continue from .*epoch_3\.pth'):
        train.main(command)


def test_a_missing_config_is_named():
    with pytest.raises(FileNotFoundError, match='The config nothing.py does not exist'):
        find_config('nothing.py')


def test_a_config_of_the_current_folder_says_that_it_hides_a_shipped_one(
        monkeypatch, tmp_path, capsys):
    def interrupted(cfg):
        raise KeyboardInterrupt

    monkeypatch.setattr('mmcluspro.engine.launch.build_runner', interrupted)
    monkeypatch.chdir(tmp_path)
    shipped = find_config('cluspro_shapes.py')
    own = tmp_path / 'cluspro_shapes.py'
    for hidden, command in ((False, own.name), (True, own.name), (False, str(shipped))):
        if hidden:
            own.write_text(f"_base_ = '{shipped}'\n")
        with pytest.raises(KeyboardInterrupt):
            train.main([command, '--work-dir', 'run'])
        said = [line for line in capsys.readouterr().out.splitlines() if 'of mmcluspro' in line]
        assert said == [f'{own} is run, not the config of mmcluspro of the same name. To run that '
                        f'one, give {shipped}.'] * hidden


def test_a_plain_clone_on_the_path_finds_its_configs(tmp_path):
    """Without installation there is no .mim folder."""
    skip = shutil.ignore_patterns('.mim', '__pycache__', '*.pt')
    shutil.copytree(ROOT / 'mmcluspro', tmp_path / 'mmcluspro', ignore=skip)
    shutil.copytree(ROOT / 'configs', tmp_path / 'configs', ignore=skip)
    (tmp_path / 'own.py').write_text("_base_ = '{{$MMCLUSPRO_CONFIGS:configs}}/cluspro_shapes.py'")
    code = ('from mmcluspro.engine.launch import find_config, read_config; '
            'print("found", find_config("cluspro_shapes.py"), '
            'read_config("own.py").model.head.type.split(".")[-1])')
    environment = {**os.environ, 'PYTHONPATH': str(tmp_path)}
    environment.pop('MMCLUSPRO_CONFIGS', None)
    done = subprocess.run([sys.executable, '-c', code], cwd=tmp_path, env=environment,
                          capture_output=True, text=True)
    assert f'found {tmp_path}/configs/cluspro_shapes.py ClusProHead' in done.stdout, done.stderr
