"""A file is fetched once per machine."""
import http.server
import os
import subprocess
import sys
import threading
import time

import pytest
import torch

from mmcluspro.utils.download import download, one_process


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server that counts requests and answers slowly; torch's folder is empty."""
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'torch'))
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):

        def do_GET(self):
            asked.append(self.path)
            time.sleep(0.3)
            self.send_response(200 if 'weights' in self.path else 404)
            self.send_header('Content-Length', '5')
            self.end_headers()
            self.wfile.write(b'hello')

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as started:
        threading.Thread(target=started.serve_forever, daemon=True).start()
        yield f'http://127.0.0.1:{started.server_port}', asked
        started.shutdown()


@pytest.mark.slow
def test_several_processes_ask_once(server, tmp_path):
    address, asked = server
    code = (f'from mmcluspro.utils.download import download; '
            f'print(download("{address}/a/weights%2B1.pth?token=x").read_text())')
    environment = dict(os.environ, no_proxy='127.0.0.1')
    ranks = [subprocess.Popen([sys.executable, '-c', code], env=environment, text=True,
                              stdout=subprocess.PIPE) for _ in range(2)]
    assert [rank.communicate()[0].strip() for rank in ranks] == ['hello', 'hello']
    assert asked == ['/a/weights%2B1.pth?token=x']
    assert [path.name for path in (tmp_path / 'torch/hub/checkpoints').iterdir()] == [
        'weights+1.pth']


def test_a_failed_download_leaves_nothing(server, tmp_path, monkeypatch):
    monkeypatch.setenv('no_proxy', '127.0.0.1')
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
