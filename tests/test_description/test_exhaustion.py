"""Small files that ask for much: memory, time, or text without end."""
import pickle
import struct
import time
import tracemalloc
import zipfile

import pytest
import torch

import mmcluspro
from mmcluspro.artefact.save import publish
from mmcluspro.artefact.spec import describe
from mmcluspro.artefact.towers import limited
from mmcluspro.datasets import CompositionSpace, ShapesCZSL
from mmcluspro.datasets.layout import read_metadata, row_faults
from mmcluspro.engine.resuming import find_resumable
from mmcluspro.errors import DownloadError, FileError, shown
from mmcluspro.models.clip import read_weights
from mmcluspro.models.text.encoder import TextEncoder
from mmcluspro.registry import MODELS
from mmcluspro.utils.safe_load import check_archive, load_checkpoint

TEXT = dict(type='CLIPText', arch='tiny_clip', pretrained='tiny_clip')


@pytest.fixture
def attack(tmp_path):
    """Writes a file of a few kilobytes with a model of the attacker's choice; loads it."""
    def load(backbone=None, neck=None, head=None, state=None, **meta):
        model = dict(
            pixels={}, backbone=backbone or dict(type='ResNet', depth=18),
            neck=neck, head=head or dict(type='ThreePathHead', text=TEXT))
        content = dict(state_dict=state or {}, meta=dict(dict(
            description=dict(format=1, model=model),
            dataset_meta=ShapesCZSL(phase='train', lazy_init=True).metainfo), **meta))
        torch.save(content, tmp_path / 'evil.pth')
        return mmcluspro.load(tmp_path / 'evil.pth').network
    return load


def bomb(depth=60):
    """Lists in lists: 61 objects whose text has more than 2**60 characters."""
    found = ['x']
    for _ in range(depth):
        found = [found, found]
    return found


LARGE = dict(embed_dims=8192, num_layers=64, num_heads=64, feedforward_channels=32768)


@pytest.mark.parametrize('part', [
    dict(backbone=dict(type='VisionTransformer', arch=LARGE)),
    dict(backbone=dict(type='VisionTransformer', arch='b', img_size=1024, patch_size=2)),
    dict(backbone=dict(type='VisionTransformer', arch='eva-giant')),
    dict(backbone=dict(type='CLIPVision', arch='EVA02-E-14-plus', pretrained=None)),
    dict(neck=dict(type='PrimitiveAdapter', in_channels=8192, hidden=8192, stages=16)),
    dict(head=dict(type='TroikaHead', in_channels=8192, text=TEXT, traction=dict(num_layers=32))),
    dict(head=dict(type='ClusProHead', in_channels=8192, text=TEXT,
                   bank=dict(num_prototypes=1000))),
], ids=['width', 'tokens', 'giant', 'clip', 'neck', 'traction', 'prototypes'])
def test_a_model_larger_than_its_file_is_not_built(part, attack):
    with pytest.raises(FileError, match='asks for a model of more than'):
        attack(**part)


@pytest.mark.parametrize('backbone', [
    dict(type='VisionTransformer', arch='b', img_size=4096, patch_size=1),
    dict(type='VisionTransformer', arch=dict(LARGE, num_layers=10**9)),
    dict(type='CLIPVision', arch='tiny_clip', img_size=10**9)])
def test_numbers_out_of_bounds_are_refused(backbone, attack):
    with pytest.raises(FileError, match='the description was refused'):
        attack(backbone)


@pytest.mark.parametrize('meta', [
    dict(calibration=bomb()), dict(description=bomb()), dict(dataset_meta=bomb()),
    dict(description=dict(format=bomb(), model=bomb())),
    dict(dataset_meta=dict(space=dict(attributes=bomb()))), dict(epoch=bomb()),
    dict(familiar=dict(looks=bomb())), dict(backbone=dict(type='LoRA', rank=bomb()))])
def test_lists_in_lists_do_not_fill_the_memory(meta, attack, tmp_path):
    for use in (lambda: attack(**meta), lambda: publish(tmp_path / 'evil.pth', tmp_path / 'x')):
        with pytest.raises(FileError, match='nested without end') as refused:
            use()
        assert len(str(refused.value)) < 1000


def nested(depth):
    found = [torch.ones(1)]
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize('optimizer', [bomb(), nested(250)], ids=['shared', 'deep'])
def test_resume_passes_over_an_optimizer_that_no_walk_ends_in(optimizer, tmp_path, capsys):
    torch.save(dict(state_dict={}, optimizer=nested(60)), tmp_path / 'epoch_1.pth')
    torch.save(dict(state_dict={}, optimizer=optimizer), tmp_path / 'epoch_2.pth')
    assert find_resumable(tmp_path) == tmp_path / 'epoch_1.pth'
    assert 'epoch_2.pth: its lists and dicts are nested without end' in capsys.readouterr().err


@pytest.mark.parametrize('tensor', [
    torch.zeros(1).as_strided((10**6, 10**6), (0, 0)), torch.zeros(2, 2).to_sparse(),
    torch.empty(10**6, 10**6, device='meta'), torch.zeros(2, dtype=torch.complex64),
    torch.zeros(2).to(torch.float8_e4m3fn),
    torch.quantize_per_tensor(torch.zeros(3), 1., 0, torch.qint8)],
    ids=['stride', 'sparse', 'meta', 'complex', 'float8', 'quantized'])
def test_tensors_of_other_kinds_are_refused(tensor, attack):
    with pytest.raises(FileError, match='state_dict, key'):
        attack(state=dict(x=tensor))


def test_the_budget_is_of_one_block_and_thread():
    with pytest.raises(FileError), limited(100, 'a.pth'):
        torch.nn.Linear(10, 10)
    torch.nn.Linear(10, 10)


@pytest.mark.parametrize('value', [
    bomb(), {'a': bomb()}, (bomb(), ), 10**5000, 'x' * 10**7, b'x' * 10**7, torch.zeros(10**6),
    {str(place): place for place in range(10**5)}],
    ids=['list', 'dict', 'tuple', 'digits', 'text', 'bytes', 'tensor', 'names'])
def test_every_value_is_shown_in_no_time(value):
    start = time.process_time()
    assert len(shown(value)) <= 81
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize('value', [None, True, 3, 2.5, 'red', ['a', 1], dict(a=(1, 2))])
def test_short_values_are_shown_as_they_are(value):
    assert shown(value) == repr(value)


def test_rows_of_lists_in_lists_are_named(tmp_path):
    (fault, ) = row_faults([dict(image=bomb())], tmp_path)
    assert len(str(fault)) < 1000


def text(value):
    return b'X' + struct.pack('<I', len(value)) + value.encode()


def named(name):
    module, _, item = name.rpartition('.')
    return f'c{module}\n{item}\n'.encode()


def number(value):
    return b'\x8a\x08' + value.to_bytes(8, 'little')


NUMBERS = b'(' + b'K\x01' * 5_000  # after a mark; closed as a list, a tuple or a dict
HEX = text('hex') + b'q\x00'
PICKLES = {
    'hex': named('_codecs.encode') + b'q\x01' + text('x') + HEX + b'\x86R'
    + b'q\x02h\x01h\x02h\x00\x86R' * 40,
    'hex from numpy': named('_codecs.encode') + text('x') + named('numpy.core.multiarray.scalar')
    + named('numpy.dtype') + text('U3') + b'\x85R' + named('_codecs.encode')
    + text('h\0\0\0e\0\0\0x\0\0\0') + text('latin1') + b'\x86R\x86R\x86R',
    'one text often': named('_codecs.encode') + b'q\x00' + text('x' * 100_000) + text('latin1')
    + b'\x86q\x01R' + b'h\x00h\x01R' * 5_000,
    'one list often': named('builtins.set') + b'q\x00]' + NUMBERS + b'e\x85q\x01R'
    + b'h\x00h\x01R' * 5_000,
    'one list often, that grew': named('builtins.set') + b'q\x00]q\x01\x85q\x02Rh\x01' + NUMBERS
    + b'e' + b'h\x00h\x02R' * 5_000,
    'one state often': named('argparse.Namespace') + b'q\x00)\x81}' + NUMBERS + b'uq\x01b'
    + b'h\x00)\x81h\x01b' * 5_000,
    'a copy of a copy': (named('collections.OrderedDict') + b'q\x00' + b'h\x00' * 5_000 + b'}'
                         + NUMBERS + b'u' + b'\x85Rq\x01' * 5_000),
    'a list in itself': named('builtins.set') + b']q\x00h\x00a\x85R',
    'bytes of a size': named('builtins.bytearray') + number(1 << 40) + b'\x85R',
    'a tensor of a size': named('torch.FloatTensor') + number(1 << 40) + b'\x85R',
    'a storage of a size': named('torch.storage.UntypedStorage') + number(1 << 40) + b'\x85R',
    'an array of a size': named('numpy.core.multiarray._reconstruct') + named('numpy.ndarray')
    + number(1 << 40) + b'\x85' + text('b') + b'\x87R',
    'a call in a call': named('torch._tensor._rebuild_from_type_v2') + named('_codecs.encode')
    + named('builtins.set') + text('x') + HEX + b'\x86}(\x87R',
    'a copy on a device': named('torch._utils._rebuild_device_tensor_from_cpu_tensor') + b')R',
}


def check_refused(read, content, zipped, path):
    torch.save([], path, _use_new_zipfile_serialization=zipped)
    content = b'\x80\x02' + content + b'.'
    if zipped:
        with zipfile.ZipFile(path) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(path, 'w') as archive:
            for name, part in parts.items():
                archive.writestr(name, content if name.endswith('data.pkl') else part)
    else:
        path.write_bytes(path.read_bytes().replace(pickle.dumps([], 2), content))
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match='bomb.pth: (it was refused|its few bytes would)'):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 1000 * path.stat().st_size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize('zipped', [True, False], ids=['zip', 'old'])
@pytest.mark.parametrize('content', PICKLES.values(), ids=PICKLES)
def test_few_bytes_of_a_pickle_do_not_become_many(content, zipped, tmp_path):
    check_refused(load_checkpoint, content, zipped, tmp_path / 'bomb.pth')


@pytest.mark.parametrize('read', [read_metadata, read_weights])
def test_metadata_and_towers_are_read_in_the_same_way(read, tmp_path):
    check_refused(read, PICKLES['hex'], True, tmp_path / 'bomb.pth')


@pytest.mark.parametrize('name, what', [('a/data.pkl', 'compressed'), ('a.npy', 'unpack to')])
def test_squeezed_archives_are_refused(name, what, tmp_path):
    path = tmp_path / 'bomb.pth'
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, bytes((1 << 20) if what == 'compressed' else (1 << 27)))
    assert path.stat().st_size < 200_000
    with pytest.raises(FileError, match=what):
        check_archive(path, str(path))


def test_how_much_runs_at_once_is_not_the_files_choice():
    config = dict(model=dict(type='mmcluspro.CompositionalClassifier', backbone=dict(
        type='mmpretrain.ResNet', depth=18), head=dict(
            type='mmcluspro.ThreePathHead', text=dict(TEXT, chunk_size=1 << 20))))
    assert 'chunk_size' not in describe(config)['model']['head']['text']


@pytest.mark.parametrize('field', ['calibration', 'dataset_meta', 'description'])
def test_a_tensor_in_the_place_of_a_field_is_refused(field, attack):
    with pytest.raises(FileError):
        attack(**{field: torch.zeros(2)})


def test_parts_that_do_not_fit_each_other_are_said_in_words(attack, monkeypatch):
    def build(parts):
        raise AssertionError('embed_dims must be divisible by num_heads')
    monkeypatch.setattr(MODELS, 'build', build)
    with pytest.raises(FileError, match='do not fit each other .embed_dims must be divisible'):
        attack()


def test_a_missing_download_is_not_the_files_fault(attack, monkeypatch):
    def build(parts):
        raise DownloadError('The weights could not be downloaded. Fetch them.')
    monkeypatch.setattr(MODELS, 'build', build)
    with pytest.raises(DownloadError, match='^The weights could not be'):
        attack()


def test_a_tower_without_a_single_patch_is_said_in_words(attack):
    with pytest.raises(FileError, match=r'evil\.pth, meta\.description: .* do not fit each other'):
        attack(dict(type='CLIPVision', arch='tiny_clip', pretrained='tiny_clip', img_size=1))


def test_a_name_that_would_keep_the_tokenizer_busy_is_refused(attack):
    meta = ShapesCZSL(phase='train', lazy_init=True).metainfo
    names = ['x' * 1_000_000, *meta['space']['attributes'][1:]]
    with pytest.raises(FileError, match=r'at most 1000 characters'):
        attack(dataset_meta=dict(meta, space=dict(meta['space'], attributes=names)))
    with pytest.raises(ValueError, match=r'at most 1,000 characters; .xx.* has 1,000,000'):
        CompositionSpace(names[:1], ['cat'], [[0, 0]], [True])


def test_a_template_of_a_file_fills_no_memory(attack):
    text = dict(type='PLIDText', arch='tiny_clip', pretrained='tiny_clip', num_texts=1,
                templates=['{0} {1} {0:>999999999}'])
    with pytest.raises(FileError, match='no other brackets'):
        attack(head=dict(type='PLIDHead', text=text))


@pytest.mark.parametrize('head', [
    dict(type='MSCIHead', in_channels=100, text=TEXT),
    dict(type='CPFHead', in_channels=64, text=TEXT, fusion='logits')], ids=['MSCI', 'CPF'])
def test_fields_that_a_class_refuses_are_said_with_the_file(head, attack):
    with pytest.raises(FileError, match=r'evil\.pth, meta\.description: '):
        attack(head=head)


def test_weights_that_do_not_fit_are_said_with_the_file(attack):
    with pytest.raises(FileError, match=r'evil\.pth, state_dict: The checkpoint does not fit'):
        attack(backbone=dict(type='CLIPVision', arch='tiny_clip', pretrained='tiny_clip'),
               state={'head.evil': torch.zeros(2)})


def test_features_of_too_many_pairs_are_refused_before_memory_is_taken(monkeypatch):
    text = MODELS.build(dict(TEXT, type='mmcluspro.CLIPText', attributes=['red'], objects=['cat']))
    monkeypatch.setattr('mmcluspro.models.text.encoder.MANY', 10)
    monkeypatch.setattr('mmcluspro.models.text.encoder.free_bytes', lambda device: 11 * 256)
    text.eval().encode_pairs(torch.zeros(11, 2, dtype=torch.long))
    with pytest.raises(ValueError, match='The text features of 12 pairs need 0 GB, and 0 GB'):
        text.encode_pairs(torch.zeros(12, 2, dtype=torch.long))


def test_many_new_names_are_compared_in_no_time():
    names = [f'name {i}' for i in range(20_000)]
    text = TextEncoder(names, ['cat'], 4, torch.zeros(()), False, None)
    start = time.process_time()
    text._check_new([f'new {i}' for i in range(20_000)], [])
    assert time.process_time() - start < 1
    with pytest.raises(ValueError, match='name 7'):
        text._check_new(['name 7'], [])
