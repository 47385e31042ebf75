"""mmengine's loaders are replaced on request only, and come back."""
import os
import subprocess
import sys

import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.registry import RUNNERS
from mmengine.runner import checkpoint as mmengine_checkpoint
from mmengine.runner.checkpoint import CheckpointLoader

from mmcluspro import safe_loading
from mmcluspro.engine import SafeRunner
from mmcluspro.engine.messages import run_command

IMPORT_ALL = '''
import importlib, pkgutil
import torch, mmengine.config, mmengine.hooks, mmengine.runner.checkpoint as checkpoint
watched = [checkpoint, checkpoint.CheckpointLoader, mmengine.runner.Runner, mmengine.config.Config,
           torch.serialization, torch.hub]
before = [dict(vars(item)) for item in watched]
schemes = dict(checkpoint.CheckpointLoader._schemes)
import mmcluspro
names = [name for _, name, _ in pkgutil.walk_packages(mmcluspro.__path__, 'mmcluspro.')]
for name in names:
    if not name.endswith('__main__'):
        importlib.import_module(name)
assert len(names) > 100, names
assert dict(checkpoint.CheckpointLoader._schemes) == schemes
for item, old in zip(watched, before):
    changed = [key for key in old if vars(item).get(key) is not old[key]
               and key not in ('__warningregistry__', '_schemes')]
    assert not changed, (item, changed)
print('untouched')
'''


@pytest.mark.slow
def test_importing_every_module_leaves_mmengine_and_torch_as_they_were():
    done = subprocess.run([sys.executable, '-c', IMPORT_ALL], capture_output=True, text=True)
    assert done.stdout.strip() == 'untouched', done.stderr[-2000:]


class RunsCode:

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker), )


def state():
    return dict(CheckpointLoader._schemes), mmengine_checkpoint.load_from_http


def test_a_block_loads_safely_and_puts_everything_back(tmp_path):
    history = HistoryBuffer()
    history.update(3.0)
    torch.save({'loss': history}, tmp_path / 'own.pth')
    torch.save({'a': RunsCode(tmp_path / 'ran')}, tmp_path / 'crafted.pth')
    before = state()
    with safe_loading():
        assert state() != before
        load = CheckpointLoader.load_checkpoint
        assert load(str(tmp_path / 'own.pth'), 'cpu')['loss'].current() == 3.0
        with pytest.raises(ValueError, match='refused'):
            load(str(tmp_path / 'crafted.pth'), 'cpu')
    assert state() == before and not (tmp_path / 'ran').exists()
    with pytest.raises(RuntimeError), safe_loading():
        raise RuntimeError
    assert state() == before


def test_tools_load_safely(tmp_path, capsys):
    torch.save({'a': RunsCode(tmp_path / 'ran')}, tmp_path / 'crafted.pth')
    before = state()
    with pytest.raises(SystemExit):
        run_command(lambda: CheckpointLoader.load_checkpoint(str(tmp_path / 'crafted.pth'), 'cpu'))
    assert 'crafted.pth: it was refused' in capsys.readouterr().err
    assert state() == before and not (tmp_path / 'ran').exists()


def test_a_config_asks_for_the_runner_by_name():
    assert RUNNERS.get('mmcluspro.SafeRunner') is SafeRunner


def test_any_default_hook_can_be_switched_off():
    class Registers(SafeRunner):

        def __init__(self):
            self.types = []

        def register_hook(self, hook, priority=None):
            self.types.append(hook['type'])

    runner = Registers()
    runner.register_default_hooks(dict(curve=None, checkpoint=None, mine=dict(type='Mine')))
    assert 'Mine' in runner.types and 'LoggerHook' in runner.types
    assert 'CheckpointHook' not in runner.types and None not in runner.types
