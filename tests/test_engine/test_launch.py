"""What the tools say when something is wrong, and which config they find."""
from pathlib import Path

import pytest

from mmcluspro.datasets import CompositionSpace
from mmcluspro.engine.launch import find_config, run_command
from mmcluspro.models.clustering import PrototypeBank


def uninitialised_bank():
    import torch
    PrototypeBank(2, 3).assign(torch.ones(1, 3), torch.zeros(1, dtype=torch.long))


@pytest.mark.parametrize('fault, message', [
    (lambda: CompositionSpace.from_splits('nowhere'), 'error: '),
    (uninitialised_bank, 'error: The PrototypeBank has no prototypes yet'),
    (lambda: Path('missing.txt').read_text(), 'error: No such file or directory: missing.txt'),
])
def test_what_a_user_can_mend_is_said_in_words(capsys, monkeypatch, fault, message):
    monkeypatch.delenv('MMCLUSPRO_TRACEBACK', raising=False)
    with pytest.raises(SystemExit) as caught:
        run_command(fault)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_faults_of_the_code_keep_their_traceback():
    with pytest.raises(TypeError):
        run_command(lambda: len(3))
    with pytest.raises(RuntimeError):
        run_command(lambda: __import__('torch').ones(2) @ __import__('torch').ones(3))


def test_the_traceback_can_be_asked_for(monkeypatch):
    monkeypatch.setenv('MMCLUSPRO_TRACEBACK', '1')
    with pytest.raises(ValueError):
        run_command(lambda: int('a'))


def test_an_interrupt_says_how_to_go_on(capsys):

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as caught:
        run_command(interrupted)
    assert caught.value.code == 130
    assert '--resume' in capsys.readouterr().err


def test_a_missing_config_is_named():
    with pytest.raises(FileNotFoundError, match='The config nothing.py does not exist'):
        find_config('nothing.py')
