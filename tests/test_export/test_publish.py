import hashlib
import json
import runpy
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from mmcluspro import load
from mmcluspro.artefact.save import publish
from mmcluspro.engine.launch import build_runner, read_config
from mmcluspro.errors import FileError
from mmcluspro.models.heads import ClusProHead
from mmcluspro.registry import MODELS
from mmcluspro.utils.safe_load import load_checkpoint, safe_load

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope='module')
def handed_out(trained, tmp_path_factory):
    return publish(trained, tmp_path_factory.mktemp('out') / 'cluspro.pth')


def runner(work_dir, **options):
    cfg = read_config(ROOT / 'configs' / 'cluspro_shapes.py')
    cfg.merge_from_dict({
        'train_cfg.max_epochs': 1, 'train_dataloader.dataset.indices': 64,
        'test_dataloader.dataset.indices': list(range(0, 1020, 40)), 'log_level': 'WARNING',
        'val_cfg': None, 'val_dataloader': None, 'val_evaluator': None,
        'work_dir': str(work_dir), 'launcher': 'none', **options})
    for phase in ('train', 'test'):
        cfg[f'{phase}_dataloader'].collate_fn = dict(type='default_collate')
    return build_runner(cfg)


def test_it_holds_the_weights_and_what_prediction_needs(trained, handed_out):
    before, after = safe_load(trained), load_checkpoint(handed_out)

    assert {'optimizer', 'message_hub'} <= set(before)
    assert any('banks' in key for key in before['state_dict'])
    assert set(after) == {'meta', 'state_dict'}
    assert set(after['state_dict']) == {
        key for key in before['state_dict'] if 'banks' not in key}
    for field in ('dataset_meta', 'calibration'):
        assert after['meta'][field] == json.loads(json.dumps(before['meta'][field]))
    assert 'threshold' in after['meta']['calibration']['open']
    assert str(trained.parent) in before['meta']['cfg']
    assert str(trained.parent).encode() not in handed_out.read_bytes()


def test_the_name_ends_with_the_hash_of_the_file(trained, handed_out, tmp_path):
    digest = hashlib.sha256(handed_out.read_bytes()).hexdigest()

    assert handed_out.name == f'cluspro-{digest[:8]}.safetensors'
    again = publish(trained, tmp_path)
    assert again.name == f'epoch_1-{digest[:8]}.safetensors'


def test_it_is_a_safetensors_file_with_the_description_in_its_header(trained, handed_out):
    with safe_open(handed_out, 'pt') as file:  # the library's own reader
        told = json.loads(file.metadata()['mmcluspro'])
    before, state = safe_load(trained), load_file(handed_out)
    assert told['meta']['description']['model']['head']['type'] == 'ClusProHead'
    weights = {key for key in state if not key.startswith('mmcluspro.')}
    assert all(torch.equal(state[key], before['state_dict'][key]) for key in weights)
    looks, = state.keys() - weights  # tensors of the meta data
    assert torch.equal(state[looks], before['meta']['familiar']['looks'])


@pytest.mark.parametrize('place', [5, 300, -300])  # length, header, weights
def test_a_flipped_bit_is_noticed_whatever_the_file_is_called(handed_out, tmp_path, place):
    data = bytearray(handed_out.read_bytes())
    data[place] ^= 4
    (tmp_path / 'copy.safetensors').write_bytes(data)

    with pytest.raises(ValueError, match=r'copy\.safetensors.*damaged.*again'):
        load(tmp_path / 'copy.safetensors')


def test_another_safetensors_file_is_refused(tmp_path):
    save_file(dict(weight=torch.ones(2)), tmp_path / 'other.safetensors')

    with pytest.raises(ValueError, match='not an mmcluspro model'):
        load(tmp_path / 'other.safetensors')


def test_load_and_predict_give_the_same_bits(trained, handed_out):
    images = torch.randn(5, 3, 48, 48, generator=torch.Generator().manual_seed(0))

    with torch.no_grad():
        before, after = (load(file).network(images) for file in (trained, handed_out))

    assert torch.equal(before, after)
    pictures = [np.full((48, 48, 3), shade, np.uint8) for shade in (0, 90, 200)]
    answers, others = (load(file, device='cpu').predict(pictures, workers=0)
                       for file in (trained, handed_out))
    assert [answer.pairs for answer in answers] == [answer.pairs for answer in others]


def test_the_test_of_a_config_finds_the_same_numbers(trained, handed_out, tmp_path):
    before, after = (runner(tmp_path, load_from=str(file)).test() for file in (trained, handed_out))

    assert before == after
    assert before['czsl/auc'] > 0 and 'czsl_open/threshold' in before


def test_training_starts_from_it_with_new_prototypes_and_says_so(handed_out, tmp_path, capfd):
    run = runner(tmp_path, load_from=str(handed_out))
    run.train()

    assert 'holds no prototypes' in capfd.readouterr().out
    assert bool(run.model.head.bank('attr').initialised)


def test_it_cannot_be_resumed(handed_out, tmp_path):
    with pytest.raises(ValueError, match='weights only.*load_from=FILE'):
        runner(tmp_path, load_from=str(handed_out), resume=True).train()


def test_a_model_with_prototypes_loads_it_strictly_and_keeps_its_own(trained, handed_out):
    model = load(trained).network
    own = model.head.bank('obj').prototypes.clone()

    model.load_state_dict(load_checkpoint(handed_out)['state_dict'])  # torch's, which is strict

    assert torch.equal(model.head.bank('obj').prototypes, own) and own.abs().max() > 0


def test_half_of_a_bank_is_no_published_file(trained, tmp_path):
    saved = safe_load(trained)
    del saved['state_dict']['head.banks.attr.prototypes']
    torch.save(saved, tmp_path / 'half.pth')

    with pytest.raises(ValueError, match=r'missing head\.banks\.attr\.prototypes'):
        load(tmp_path / 'half.pth')


@pytest.mark.parametrize('content, message', [
    (dict(state_dict={}), 'no state_dict and meta'),
    (dict(state_dict={}, meta=dict(dataset_meta=dict(space={1: 2}))),
     "no meta field 'description'"),
    ([1], 'no state_dict and meta'),
    (Path('x'), 'was refused'),
    (None, 'does not exist'),
])
def test_another_file_is_refused_in_words(tmp_path, content, message):
    if content is not None:
        torch.save(content, tmp_path / 'other.pth')

    with pytest.raises((ValueError, FileNotFoundError), match=message):
        publish(tmp_path / 'other.pth', tmp_path / 'out.pth')

    assert not list(tmp_path.glob('*out*'))


@pytest.mark.parametrize('meta, message', [
    (dict(familiar=dict(looks=torch.zeros(1, 29).half().expand(10**9, 29))), 'claims more numbers'),
    (dict(familiar=dict(looks=torch.zeros(9, 29).to_sparse())), "key 'familiar.looks': a tensor"),
    (dict(word_vectors=dict(vectors=torch.zeros(2, 3, device='meta'))), 'a tensor of'),
    (dict(epoch={1, 2}), 'something else than plain data'),
    (dict(epoch={(1, 2): 3}), 'something else than plain data')],
    ids=['1e9 rows', 'sparse', 'meta', 'set', 'keys'])
def test_what_is_no_plain_data_is_not_published(trained, tmp_path, meta, message):
    content = torch.load(trained, weights_only=False)
    content['meta'].update(meta)
    torch.save(content, tmp_path / 'other.pth')
    with pytest.raises(FileError, match=f'other.pth, meta.*{message}'):
        publish(tmp_path / 'other.pth', tmp_path / 'out.pth')
    assert not list(tmp_path.glob('*out*'))


def test_a_header_nested_to_the_limit_of_python_is_refused(handed_out, tmp_path):
    data = handed_out.read_bytes()
    end = 8 + int.from_bytes(data[:8], 'little')
    header = json.loads(data[8:end])
    told = json.loads(header['__metadata__']['mmcluspro'])
    deep = '[' * 900 + ']' * 900
    told['meta']['epoch'] = 'X'
    header['__metadata__']['mmcluspro'] = json.dumps(told).replace('"X"', deep)
    text = json.dumps(header).encode()
    (tmp_path / 'deep.safetensors').write_bytes(
        struct.pack('<Q', len(text)) + text + data[end:])
    with pytest.raises(FileError, match='damaged'):
        load(tmp_path / 'deep.safetensors')


def test_the_tool_says_the_name_and_refuses_without_a_traceback(
        trained, tmp_path, monkeypatch, capsys):
    tool = str(ROOT / 'tools/model_converters/publish_model.py')
    monkeypatch.setattr(sys, 'argv', [tool, str(trained), str(tmp_path / 'new' / 'model.pth')])
    runpy.run_path(tool, run_name='__main__')
    written, = (tmp_path / 'new').iterdir()
    assert str(written) in capsys.readouterr().out
    assert written.stat().st_size < trained.stat().st_size / 2

    monkeypatch.setattr(sys, 'argv', [tool, str(tmp_path / 'none.pth'), str(tmp_path)])
    with pytest.raises(SystemExit, match='2'):
        runpy.run_path(tool, run_name='__main__')
    assert 'none.pth does not exist' in capsys.readouterr().err


def test_a_folder_that_is_a_file(trained, tmp_path):
    (tmp_path / 'file').write_text('')

    with pytest.raises(ValueError, match='cannot be written'):
        publish(trained, tmp_path / 'file' / 'model.pth')


@MODELS.register_module(force=True)
class NearestPrototypeHead(ClusProHead):
    """Adds the best cosine to a prototype of the attribute to Eq. 13."""

    scores_with_prototypes = True

    def score(self, feats, candidates):
        scores, bank = super().score(feats, candidates), self.prototypes['attr']
        cosine = torch.nn.functional.normalize(feats.attribute, dim=1) @ bank.prototypes.T
        best = torch.stack([cosine[:, start:end].amax(1) for start, end in zip(
            bank.offsets.tolist(), bank.offsets[1:].tolist())], dim=1)
        return scores._replace(pair=scores.pair + (1 + best)[:, candidates.pairs[:, 0]])


def test_prototypes_stay_in_the_file_of_a_head_that_scores_with_them(tmp_path):
    kind = {'model.head.type': 'mmcluspro.NearestPrototypeHead'}
    run = runner(tmp_path, **kind)
    run.train()
    published_file = publish(tmp_path / 'epoch_1.pth', tmp_path / 'small.pth')
    images = torch.randn(5, 3, 48, 48, generator=torch.Generator().manual_seed(0))
    config = run.cfg

    with torch.no_grad():
        before, after = (load(file, config=Config(config.to_dict())).network(images)
                         for file in (tmp_path / 'epoch_1.pth', published_file))

    saved = load_checkpoint(published_file)
    assert 'optimizer' not in saved and 'head.banks.attr.prototypes' in saved['state_dict']
    assert torch.equal(before, after)
    for key in [key for key in saved['state_dict'] if 'banks' in key]:
        del saved['state_dict'][key]
    torch.save(saved, tmp_path / 'none.pth')
    with pytest.raises(ValueError, match=r'missing head\.banks'):
        load(tmp_path / 'none.pth', config=Config(config.to_dict()))
