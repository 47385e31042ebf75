"""What the package asks of the machine: memory, devices, locks, files, versions."""
import io
import json
import sys
import zipfile
from types import SimpleNamespace

import pytest
import torch

from mmcluspro import requirements
from mmcluspro.errors import FileError
from mmcluspro.registry import _fields, hint
from mmcluspro.utils import download as module
from mmcluspro.utils.device import find_device, free_bytes
from mmcluspro.utils.plain_files import read_json
from mmcluspro.utils.safe_load import _check_records, load_checkpoint

CPU = torch.device('cpu')


def test_free_memory_of_a_gpu_counts_what_torch_keeps_unused(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'memory_reserved', lambda device: 70)
    monkeypatch.setattr(torch.cuda, 'memory_allocated', lambda device: 50)
    monkeypatch.setattr(torch.cuda, 'mem_get_info', lambda device: (1000, 4000))
    assert free_bytes(torch.device('cuda', 0)) == 1020


@pytest.mark.parametrize('text, found', [
    ('MemTotal: 9 kB\nMemAvailable: 3 kB\n', 3 * 1024), ('MemTotal: 9 kB\n', 4096 * 10),
    ('MemAvailable: many kB\n', 4096 * 10)])
def test_free_memory_of_a_host_is_what_it_tells(text, found, monkeypatch):
    monkeypatch.setattr('builtins.open', lambda *args, **kwargs: io.StringIO(text))
    monkeypatch.setattr('os.sysconf', dict(SC_PAGE_SIZE=4096, SC_PHYS_PAGES=10).__getitem__)
    assert free_bytes(CPU) == found


@pytest.mark.parametrize('device, gpus, mps, words', [
    ('mps', 0, False, '--device mps: torch sees no Apple GPU. Use --device cpu.'),
    ('cuda', 0, False, '--device cuda: torch sees no GPU. Use --device cpu'),
    ('cuda:2', 2, False, '--device cuda:2: this machine has 2 GPUs, the first is cuda:0.'),
])
def test_a_device_that_is_not_there_is_refused(device, gpus, mps, words, monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: gpus)
    monkeypatch.setattr(torch.backends.mps, 'is_available', lambda: mps)
    with pytest.raises(ValueError) as caught:
        find_device(device)
    assert str(caught.value).startswith(words)


def test_a_device_that_is_there_is_taken(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, 'is_available', lambda: True)
    assert find_device('mps').type == 'mps'
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 1)
    assert find_device().type == 'cuda'


def test_behind_a_proxy_servers_are_not_asked(monkeypatch):
    asked = []

    def refuse(place, timeout):
        asked.append(place)
        raise OSError

    monkeypatch.setattr(module.socket, 'create_connection', refuse)
    monkeypatch.setattr(module, 'getproxies', lambda: dict(https='proxy'))
    assert module.reachable(['https://example.org/x']) and asked == []
    monkeypatch.setattr(module, 'getproxies', dict)
    assert not module.reachable(['https://example.org/x']) and asked == [('example.org', 443)]


def test_a_record_that_is_there_twice_is_refused(tmp_path):
    with pytest.warns(UserWarning), zipfile.ZipFile(tmp_path / 'x.zip', 'w') as archive:
        for content in ('a', 'b'):
            archive.writestr('x/data.pkl', content)
    with zipfile.ZipFile(tmp_path / 'x.zip') as archive, pytest.raises(
            FileError, match='x.zip.*it is there twice'):
        _check_records(archive, 'x.zip')


def test_json_that_is_damaged_nested_or_of_another_kind(tmp_path):
    path = tmp_path / 'x.json'
    for text, words in (('{', 'it is not JSON, or damaged'), ('[1]', 'it holds a list'),
                        ('[' * 100_000, 'it is not JSON, or damaged')):
        path.write_text(text)
        with pytest.raises(FileError, match=words):
            read_json(path, dict, 'Copy it again.')
    path.write_text(json.dumps(dict(a=1)))
    assert read_json(path, dict, 'Copy it again.') == dict(a=1)


@pytest.mark.parametrize('name, reader', [
    ('s3://bucket/x.pth', 'load_from_backend'), ('cluster:s3://x.pth', 'load_from_backend'),
    ('https://example.org/x.pth', 'load_from_http'), ('x.pth', 'load_from_local')])
def test_an_address_chooses_its_reader(name, reader, monkeypatch):
    for other in ('load_from_backend', 'load_from_http', 'load_from_local'):
        monkeypatch.setattr(f'mmcluspro.utils.safe_load.{other}',
                            lambda name, place, other=other: (other, name, place))
    assert load_checkpoint(name) == (reader, name, 'cpu')


def test_a_hint_for_a_registry_that_is_not_ours_names_the_import():
    assert hint('Foo', 'visualizer') == (
        "If it is yours, import it with custom_imports=dict(imports=['your_package']) in the "
        'config.')
    assert hint('FiniteHook', 'model').startswith("'mmcluspro.FiniteHook' is a hook, not a model")


def test_fields_are_listed_for_classes_of_ours():
    assert _fields('NoSuchClass', 'x') == ''
    assert _fields('StopHook', 'intervall') == " Did you mean 'interval'? It takes: interval."


def test_a_version_is_read_from_a_file_or_from_the_package(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, file, text in (('own_one', 'version.py', "__version__ = '1.2.3'\n"),
                             ('own_two', '__init__.py', "__version__ = '4.5'\n"),
                             ('own_three', '__init__.py', 'import no_such_package\n')):
        (tmp_path / name).mkdir()
        (tmp_path / name / '__init__.py').touch()
        (tmp_path / name / file).write_text(text)
    assert requirements._version('own_one') == '1.2.3' and 'own_one' not in sys.modules
    assert requirements._version('own_two') == '4.5'
    with pytest.raises(ImportError, match="mmcluspro needs own_three, which is installed but "
                       "misses 'no_such_package': pip install no_such_package"):
        requirements._version('own_three')
    monkeypatch.setitem(sys.modules, 'own_four', SimpleNamespace(__version__='9'))
    assert requirements._version('own_four') == '9'
