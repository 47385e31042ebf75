"""TorchScript archives are read as tensors: the same values, and nothing runs."""
import io
import pickle
import warnings
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from mmcluspro.errors import FileError
from mmcluspro.models.clip import is_torchscript, read_torchscript, read_weights

pytestmark = pytest.mark.filterwarnings('ignore::FutureWarning', 'ignore::DeprecationWarning')


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2)
        self.ln_1 = nn.LayerNorm(8)

    def forward(self, x):
        return self.ln_1(x + self.attn(x, x, x, need_weights=False)[0])


class Clip(nn.Module):
    """Small, with the kinds of tensors of OpenAI's files: half, shared, transposed, scalar."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 4, 4, bias=False)
        self.blocks = nn.Sequential(Block(), Block())
        self.embedding = nn.Parameter(torch.randn(5, 8))
        self.logit_scale = nn.Parameter(torch.tensor(4.6))
        self.turned = nn.Parameter(torch.randn(8, 3).T)
        self.register_buffer('positions', torch.arange(5))
        self.register_buffer('mask', torch.eye(3).bool())
        self.register_buffer('empty', torch.zeros(0, 4))
        self.sizes = [1, 2]

    def forward(self, x):
        return self.blocks(self.conv(x).flatten(2).permute(2, 0, 1)) * self.logit_scale


@pytest.fixture(params=['script', 'trace'])
def archive(request, tmp_path):
    torch.manual_seed(0)
    model = Clip().eval()
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        made = torch.jit.script(model) if request.param == 'script' else torch.jit.trace(
            model, torch.randn(1, 3, 8, 8))
        for module in (model.conv, model.blocks):
            module.half()
        made.save(str(tmp_path / 'clip.pt'))
    return tmp_path / 'clip.pt'


def test_values_are_those_of_the_interpreter(archive):
    expected = torch.jit.load(str(archive)).state_dict()
    got = read_torchscript(archive)
    assert is_torchscript(archive) and set(got) == set(expected)
    for key, value in expected.items():
        assert got[key].dtype == value.dtype and got[key].shape == value.shape
        assert got[key].equal(value)


def test_read_weights_reads_them(archive):
    weights, from_openai = read_weights(archive)
    assert weights['conv.weight'].dtype == torch.float32 and not from_openai


def rewrite(archive, change):
    """The archive with records changed by ``change(name, data)``; None leaves one out."""
    target = archive.with_name('changed.pt')
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(target, 'w') as new:
        for info in old.infolist():
            data = change(info.filename, old.read(info))
            if data is not None:
                new.writestr(info.filename, data)
    return target


class RunsOnLoading(nn.Module):
    def forward(self, x):
        return x

    @torch.jit.export
    def __getstate__(self):
        return torch.zeros(1), self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, bool]):
        self.training = state[1]
        torch.save(state[0], 'owned')


@pytest.mark.parametrize('spelling', [
    b'def __setstate__', b'def  __setstate__', b'def \\\n __setstate__'])
def test_a_method_that_runs_on_loading_does_not(spelling, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / 'evil.pt'
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        torch.jit.script(RunsOnLoading()).save(str(path))
    path = rewrite(path, lambda name, data: data.replace(b'def __setstate__', spelling)
                   if name.endswith('.py') else data)
    if b'\\' not in spelling:  # the attack works on the interpreter
        torch.jit.load(str(path))
        (tmp_path / 'owned').unlink()
    assert read_torchscript(path) == {}  # its tensors are behind the method
    assert read_weights(path) == ({}, False)
    assert not (tmp_path / 'owned').exists()


class Bomb:
    def __reduce__(self):
        return Path('owned').write_text, ('x', )


@pytest.mark.parametrize('bomb', [Bomb(), dict(a=Bomb()), print, io.BytesIO, nn.Linear(2, 2)])
def test_a_pickle_that_asks_for_more_is_refused(bomb, archive, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(bomb, protocol=2)
    changed = rewrite(archive, lambda name, old: data if name.endswith('data.pkl') else old)
    with pytest.raises(FileError, match=r'changed\.pt: the TorchScript archive cannot be read'):
        read_torchscript(changed)
    assert not (tmp_path / 'owned').exists()


@pytest.mark.parametrize('change, words', [
    (lambda name, data: None if name.endswith('data/1') else data, 'no item named'),
    (lambda name, data: data[:-4] if name.endswith('data/1') else data, 'numbers of'),
    (lambda name, data: b'big' if name.endswith('byteorder') else data, 'big-endian'),
    (lambda name, data: data[:-30] if name.endswith('data.pkl') else data, 'cannot be read'),
])
def test_a_damaged_archive_says_where(change, words, archive):
    with pytest.raises(FileError, match=words):
        read_torchscript(rewrite(archive, change))
