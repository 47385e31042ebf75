"""What hooks do at the edges: missing parts, wrong fields, tied epochs."""
from types import SimpleNamespace

import pytest
import torch
from mmengine.fileio import LocalBackend
from torch import nn

from mmcluspro.engine.hooks.checkpoints import SafeCheckpointHook, ranked
from mmcluspro.engine.hooks.console import test_table, weight_files
from mmcluspro.engine.hooks.finite import FiniteHook
from mmcluspro.engine.hooks.memory import device_bytes
from mmcluspro.engine.hooks.prototypes import PrototypeHook
from mmcluspro.engine.hooks.records import LabelsHook
from mmcluspro.engine.hooks.stop import StopHook

test_table.__test__ = False


@pytest.mark.parametrize('hook, fields, words', [
    (StopHook, dict(interval=0), 'StopHook.interval must be positive, got 0.'),
    (FiniteHook, dict(interval=-1), 'FiniteHook.interval must be positive, got -1.'),
    (PrototypeHook, dict(interval=0), 'PrototypeHook.interval must be positive, got 0.'),
    (PrototypeHook, dict(check_interval=0),
     'PrototypeHook.check_interval must be positive, got 0.'),
])
def test_an_interval_below_one_is_refused(hook, fields, words):
    with pytest.raises(ValueError) as caught:
        hook(**fields)
    assert str(caught.value) == words


def saver(folder, **fields):
    hook = SafeCheckpointHook(**fields)
    hook.out_dir, hook.file_backend = str(folder), LocalBackend()
    return hook


@pytest.mark.parametrize('rows, best', [
    ([(40, 0, 0), (60, 0, 0), (50, 0, 0)], 2),      # no unseen images
    ([(0, 30, 0), (0, 30, 0), (0, 20, 0)], 1),      # no seen ones, and a tie
    ([(90, 0, 0), (20, 30, 1e-6), (80, 0, 0)], 2),  # an AUC that is not 0 comes first
    ([(90, 10, 5), (20, 30, 5), (99, 99, 4)], 1)])  # others are compared as they are
def test_accuracy_decides_among_epochs_without_an_auc(rows, best):
    keys = 'czsl/seen', 'czsl/unseen', 'czsl/auc'
    found = [ranked(dict(zip(keys, map(float, row))))['czsl/auc'] for row in rows]
    assert found.index(max(found)) == best - 1


def test_a_file_that_vanished_before_its_removal_is_no_error(tmp_path):
    hook = saver(tmp_path)
    (tmp_path / 'old.pth').write_text('')
    with hook.file_backend.later():
        for name in ('gone.pth', 'old.pth'):
            hook.file_backend.remove(str(tmp_path / name))
        assert (tmp_path / 'old.pth').exists()
    assert not (tmp_path / 'old.pth').exists()


def test_a_test_without_files_has_numbers_only(tmp_path):
    text = test_table({'predict/seen': 1.0, 'predict/unseen': 2.0}, 5, tmp_path)
    assert 'worst pairs' not in text and 'tables in' not in text
    assert text.splitlines()[1] == 'test of 5 images, in percent'


@pytest.mark.parametrize('own, inner, text, found', [
    (None, 'a.pt', 'a.pt', dict(backbone='a.pt', text='a.pt')),
    ('b c.pt', 'a.pt', None, dict(backbone='a.pt', projection='b c.pt')),
    ('a.pt', None, 'b c.pt', dict(backbone='a.pt', text='b c.pt')),
    (None, None, 'gone.pt', {})])
def test_files_of_frozen_towers_are_found_in_a_config(own, inner, text, found, tmp_path,
                                                      monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ('a.pt', 'b c.pt'):
        (tmp_path / name).write_text('')
    backbone = dict(type='P', pretrained=own, **(
        dict(backbone=dict(pretrained=inner)) if inner else {}))
    assert weight_files(dict(backbone=backbone, head=dict(text=dict(pretrained=text)))) == found
    words = dict(pretrained=text, tokenizer='words.model')
    assert weight_files(dict(backbone=backbone, head=dict(text=words))) == dict(
        found, tokenizer='words.model')


# Others.

def test_parts_of_different_lengths_are_no_rows_of_a_batch():
    hook = FiniteHook()
    hook._add('features', (torch.ones(2, 3), torch.ones(4, 3)))
    hook._add('labels', torch.ones(2, dtype=torch.long))
    assert hook._stages == []
    hook._add('features', (torch.ones(2, 3), torch.tensor([[1.], [float('nan')]])))
    (name, _, flags), = hook._stages
    assert name == 'features' and flags.tolist() == [True, False]


def test_a_checkpoint_with_nan_is_not_written():
    hook = FiniteHook()
    runner = SimpleNamespace(iter=7, work_dir='.', model=nn.Linear(1, 1), hooks=[], cfg={},
                             message_hub=SimpleNamespace(runtime_info={}))
    bad = dict(state_dict={'head.weight': torch.tensor([float('inf')])})
    with pytest.raises(ValueError, match='NaN or infinity in .*head.weight.* at iteration 7: the '
                       'checkpoint is not written'):
        hook.before_save_checkpoint(runner, bad)
    hook.before_save_checkpoint(runner, dict(state_dict={'head.weight': torch.ones(1)}))


def test_the_memory_of_a_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'get_device_properties',
                        lambda device: SimpleNamespace(total_memory=123))
    assert device_bytes(torch.device('cuda', 0)) == 123
    assert device_bytes(torch.device('cpu')) > 1 << 28


def test_a_checkpoint_without_labels_is_taken_as_it_is():
    LabelsHook().after_load_checkpoint(SimpleNamespace(), dict(meta={}))
