"""Checkpoints are read without running code."""
import argparse
import hashlib
import os
import pickle

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer

from mmcluspro.datasets.layout import read_metadata
from mmcluspro.engine.resuming import find_resumable
from mmcluspro.errors import FileError
from mmcluspro.utils.safe_load import load_checkpoint, safe_load


class RunsCode:
    """What an attacker would put into a file."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker), )


def training_checkpoint():
    history = HistoryBuffer()
    for value in (1.0, 2.0, 6.0):
        history.update(value)
    return {
        'meta': {'epoch': 1, 'cfg': 'a = 1', 'space': [('a', 'b')],
                 'args': argparse.Namespace(arch='vit_base', lr=1e-4)},
        'message_hub': {'log_scalars': {'loss': history}, 'best': np.float64(3.5)},
        'state_dict': {'w': torch.arange(6.).view(2, 3), 'h': torch.ones(2, dtype=torch.half)},
        'optimizer': {'state': {0: {'step': torch.tensor(3.), 'count': np.int64(3)}}},
    }


@pytest.mark.parametrize('zipped', [True, False])
def test_training_checkpoints_come_back_whole(tmp_path, zipped):
    torch.save(training_checkpoint(), tmp_path / 'a.pth', _use_new_zipfile_serialization=zipped)

    got = safe_load(tmp_path / 'a.pth')

    assert got['message_hub']['log_scalars']['loss'].mean() == 3.0
    assert got['message_hub']['best'] == 3.5
    assert got['state_dict']['w'].equal(torch.arange(6.).view(2, 3))
    assert got['meta'] == training_checkpoint()['meta']
    assert got['optimizer']['state'][0]['count'] == 3


@pytest.mark.parametrize('place', ['state_dict', 'meta', 'message_hub', 'optimizer'])
def test_a_file_that_would_run_code_is_refused(tmp_path, place):
    crafted = training_checkpoint()
    crafted[place]['extra'] = RunsCode(tmp_path / 'ran')
    torch.save(crafted, tmp_path / 'crafted.pth')

    with pytest.raises(ValueError, match=r'crafted\.pth: it was refused, because it names .*mkdir'):
        load_checkpoint(tmp_path / 'crafted.pth')

    assert not (tmp_path / 'ran').exists()
    # The file is dangerous: plain unpickling does run it.
    torch.load(tmp_path / 'crafted.pth', weights_only=False)
    assert (tmp_path / 'ran').exists()


def test_the_text_that_mmengine_would_run_on_resuming_is_dropped(tmp_path):
    """``Runner.resume`` executes ``meta.config`` with ``Config.fromstring``."""
    path = tmp_path / 'evil.pth'
    text = "__import__('os').mkdir('owned')"
    torch.save(dict(training_checkpoint(), meta=dict(config=text, cfg='a = 1', epoch=3)), path)

    assert safe_load(path)['meta'] == dict(cfg='a = 1', epoch=3)


def test_getattr_is_no_way_out(tmp_path):
    """History buffers pickle through getattr; only their statistics may."""

    class Gets:

        def __reduce__(self):
            return getattr, (HistoryBuffer, '__init__')

    torch.save({'a': Gets()}, tmp_path / 'a.pth')
    with pytest.raises(ValueError, match='refused'):
        safe_load(tmp_path / 'a.pth')


@pytest.mark.parametrize('read', [safe_load, read_metadata])
def test_a_program_is_refused(tmp_path, read, monkeypatch):
    torch.jit.script(torch.nn.Linear(2, 2)).save(tmp_path / 'a.pth')
    monkeypatch.setattr(torch.jit, 'load', lambda *_, **__: pytest.fail('the program was run'))

    with pytest.raises(FileError, match='it is a TorchScript program'):
        read(tmp_path / 'a.pth')


@pytest.mark.parametrize('content', [
    b'', b'not a checkpoint', b'junk\n', b'<html>404</html>', bytes(range(256)),
    pickle.dumps({'a': 1})[:-3]])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / 'bad.pth').write_bytes(content)
    with pytest.raises(ValueError, match=r'bad\.pth: it cannot be read as a checkpoint') as caught:
        safe_load(tmp_path / 'bad.pth')
    assert 'weights_only=False' not in str(caught.value)


def test_a_truncated_file_is_named(tmp_path):
    torch.save(training_checkpoint(), tmp_path / 'a.pth')
    whole = (tmp_path / 'a.pth').read_bytes()
    (tmp_path / 'cut.pth').write_bytes(whole[:len(whole) // 2])
    with pytest.raises(ValueError, match=r'cut\.pth: it cannot be read'):
        safe_load(tmp_path / 'cut.pth')


def test_every_flipped_bit_of_the_content_is_found_out(tmp_path):
    """torch alone accepts them: it looks at no checksum of the archive."""
    path = tmp_path / 'a.pth'
    torch.save(dict(training_checkpoint(), big=torch.randn(2000)), path)
    whole = path.read_bytes()
    expected = safe_load(path)['big']
    generator = np.random.default_rng(0)
    changed = 0
    for place in generator.integers(0, len(whole), 60).tolist():
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(generator.integers(8))
        path.write_bytes(damaged)
        try:
            assert safe_load(path)['big'].equal(expected)  # padding between the records
        except FileError as error:
            assert 'a.pth' in str(error)
            changed += 1
    assert changed > 40


def test_the_digest_in_a_name_is_compared(tmp_path):
    torch.save({'a': 1}, tmp_path / 'x.pth')
    digest = hashlib.sha256((tmp_path / 'x.pth').read_bytes()).hexdigest()[:8]
    good, bad = tmp_path / f'model-{digest}.pth', tmp_path / 'model-0123abcd.pth'
    for path in (good, bad):
        path.write_bytes((tmp_path / 'x.pth').read_bytes())
    assert load_checkpoint(good) == {'a': 1}
    with pytest.raises(FileError, match=f'SHA-256 begins with {digest}, its name says 0123abcd'):
        load_checkpoint(bad)


def test_a_missing_file_lists_its_neighbours(tmp_path):
    torch.save({}, tmp_path / 'epoch_3.pth')
    with pytest.raises(FileNotFoundError, match=r'epoch_9\.pth does not exist. There: epoch_3'):
        load_checkpoint(tmp_path / 'epoch_9.pth')


def test_addresses_are_read_safely_too(tmp_path, monkeypatch, serve):
    torch.save({'a': RunsCode(tmp_path / 'ran')}, tmp_path / 'served.pth')
    with pytest.raises(ValueError, match='refused'):
        load_checkpoint(f'{serve(tmp_path)}/served.pth')
    assert not (tmp_path / 'ran').exists()


def test_the_newest_checkpoint_that_can_be_read_is_resumed(tmp_path, capsys):
    assert find_resumable(tmp_path) is None and find_resumable(tmp_path / 'nowhere') is None
    for epoch in (2, 9, 10):
        torch.save({'epoch': epoch}, tmp_path / f'epoch_{epoch}.pth')
    torch.save({}, tmp_path / 'best_czsl_auc_epoch_11.pth')  # has no optimiser to go on with
    assert find_resumable(tmp_path).name == 'epoch_10.pth'
    (tmp_path / 'last_checkpoint').write_text('moved/since/epoch_2.pth')  # of a run started anew
    assert find_resumable(tmp_path).name == 'epoch_2.pth'
    (tmp_path / 'elsewhere').mkdir()
    torch.save({}, tmp_path / 'elsewhere' / 'epoch_3.pth')  # as CheckpointHook.out_dir does
    (tmp_path / 'last_checkpoint').write_text(str(tmp_path / 'elsewhere' / 'epoch_3.pth'))
    assert find_resumable(tmp_path).parent.name == 'elsewhere'
    torch.save({}, tmp_path / 'elsewhere' / 'epoch_9.pth')  # the run that this folder is a copy of
    (tmp_path / 'last_checkpoint').write_text(str(tmp_path / 'elsewhere' / 'epoch_9.pth'))
    assert find_resumable(tmp_path) == tmp_path / 'epoch_9.pth'
    (tmp_path / 'last_checkpoint').write_text('epoch_10.pth')

    whole = (tmp_path / 'epoch_10.pth').read_bytes()
    (tmp_path / 'epoch_10.pth').write_bytes(whole[:len(whole) // 2])
    assert find_resumable(tmp_path).name == 'epoch_9.pth'
    assert 'epoch_10.pth: it cannot be read' in capsys.readouterr().err

    for path in tmp_path.glob('epoch_*'):
        path.write_bytes(b'')
    assert find_resumable(tmp_path) is None
