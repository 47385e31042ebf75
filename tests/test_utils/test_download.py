"""A file is fetched once per machine."""
import hashlib
import http.server
import subprocess
import sys
import threading
import time

import pytest
import torch

from mmcluspro.errors import FileError
from mmcluspro.models.sources import DINO_FILES
from mmcluspro.utils import download as module
from mmcluspro.utils.download import download, one_process
from mmcluspro.utils.safe_load import load_checkpoint


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A slow server that counts requests and does as the address says; torch's folder is empty."""
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'torch'))
    monkeypatch.setenv('no_proxy', '127.0.0.1')
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):

        def do_GET(self):
            asked.append(self.path)
            time.sleep(0.3)
            self.send_response(404 if 'missing' in self.path else 200)
            if 'chunked' in self.path:
                self.send_header('Transfer-Encoding', 'chunked')
            else:
                self.send_header('Content-Length', '9' if 'cut' in self.path else '5')
            self.end_headers()
            if 'chunked' in self.path:
                self.wfile.write(b'20\r\n')
            if 'silent' in self.path:
                self.server.left.wait(30)
            self.wfile.write(b'hello')

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as started:
        started.left = threading.Event()
        threading.Thread(target=started.serve_forever, daemon=True).start()
        yield f'http://127.0.0.1:{started.server_port}', asked
        started.left.set()
        started.shutdown()


def kept(tmp_path):
    return [path.name for path in (tmp_path / 'torch/hub/checkpoints').iterdir()]


@pytest.mark.slow
def test_several_processes_ask_once(server, tmp_path):
    address, asked = server
    code = (f'from mmcluspro.utils.download import download; '
            f'print(download("{address}/a/weights%2B1.pth?token=x").read_text())')
    ranks = [subprocess.Popen([sys.executable, '-c', code], text=True, stdout=subprocess.PIPE)
             for _ in range(2)]
    assert [rank.communicate()[0].strip() for rank in ranks] == ['hello', 'hello']
    assert asked == ['/a/weights%2B1.pth?token=x']
    assert [name.split('-', 1)[1] for name in kept(tmp_path)] == ['weights_1.pth']


def test_two_addresses_with_the_same_name_are_two_files(server):
    address, asked = server
    first, second = (download(f'{address}/{place}/weights.pth') for place in 'ab')
    assert first != second and asked == ['/a/weights.pth', '/b/weights.pth']
    assert download(f'{address}/a/weights.pth') == first and len(asked) == 2


@pytest.mark.parametrize('kind, words', [
    ('cut', '/cut.pth: 5 of 9 bytes arrived'), ('chunked', '/chunked.pth: IncompleteRead')])
def test_a_download_that_ends_early_is_not_kept(kind, words, server, tmp_path):
    with pytest.raises(OSError, match=words):
        download(f'{server[0]}/{kind}.pth')
    assert kept(tmp_path) == []


def test_a_silent_server_is_given_up(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, 'SILENT', 0.5)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            download(f'{server[0]}/silent.pth')
    assert kept(tmp_path) == [] and len(server[1]) == 2


def test_published_files_are_compared_with_what_is_known_of_them(server, tmp_path, monkeypatch):
    assert set(module.PUBLISHED) <= {*DINO_FILES.values(), module.GLOVE}
    address = f'{server[0]}/published.pth'
    monkeypatch.setitem(module.PUBLISHED, address, hashlib.sha256(b'other').hexdigest())
    with pytest.raises(FileError, match='published.pth: SHA-256 2cf24dba.* is not that of the pub'):
        download(address)
    assert kept(tmp_path) == []
    monkeypatch.setitem(module.PUBLISHED, address, hashlib.sha256(b'hello').hexdigest())
    assert download(address).read_text() == 'hello'


def test_a_copy_that_is_damaged_says_what_to_delete(server):
    address = f'{server[0]}/weights.pth'
    with pytest.raises(FileError) as caught:
        load_checkpoint(address)
    assert str(caught.value).startswith(str(download(address)))
    assert f'It is the copy of {address}: delete it' in str(caught.value)


def test_a_failed_download_leaves_nothing(server, tmp_path):
    with pytest.raises(OSError):
        download(f'{server[0]}/missing.pth', tmp_path / 'kept')
    assert list((tmp_path / 'kept').iterdir()) == []


def test_a_read_only_cache_is_no_obstacle(tmp_path, monkeypatch):
    (tmp_path / 'file').write_text('')
    monkeypatch.setattr(torch.hub, 'get_dir', lambda: str(tmp_path / 'file'))
    with one_process('anything'):
        pass
    with pytest.raises(PermissionError), one_process('anything'):
        raise PermissionError  # an error of the block itself gets out
