"""``mmcluspro demo`` as it is typed: messages, and the page it serves."""
import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from mmcluspro.cli import find_main, main
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.demo.demo_command import parse_args, prepare, zero_shot_model
from mmcluspro.demo.server import serve

COMMAND = [sys.executable, '-u', '-c',
           'import sys; from mmcluspro.cli import main; sys.exit(main(sys.argv[1:]))', 'demo']


@pytest.mark.parametrize('words, said', [
    (['--port', '99999'], '--port must lie between 1 and 65535, got 99999'),
    (['--config', 'x.py'], '--config belongs to a checkpoint'),
])
def test_flags_that_make_no_sense_are_refused_before_anything_is_loaded(words, said, capsys):
    with pytest.raises(SystemExit) as end:
        main(['demo', *words])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_a_missing_checkpoint_is_named(capsys):
    pytest.importorskip('gradio')
    with pytest.raises(SystemExit):
        main(['demo', 'no_such.pth'])
    assert 'The checkpoint no_such.pth does not exist' in capsys.readouterr().err


def test_without_gradio_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, 'gradio', None)
    monkeypatch.delitem(sys.modules, 'mmcluspro.demo.app', raising=False)
    with pytest.raises(ImportError, match=r"pip install 'mmcluspro\[demo\]'"):
        prepare(parse_args([]), str(tmp_path))


def test_the_command_is_known_and_needs_no_gradio_for_its_help(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, 'gradio', None)
    with pytest.raises(SystemExit):
        find_main('demo')(['--help'])
    assert 'mmcluspro demo' in capsys.readouterr().out


def test_a_config_in_the_current_folder_is_not_run(monkeypatch, tmp_path):
    (tmp_path / 'clip_zeroshot_shapes.py').write_text('raise SystemExit("ran")')
    monkeypatch.chdir(tmp_path)
    assert zero_shot_model('cpu').space.attributes == ShapesCZSL.make_space('all').attributes


def test_a_taken_port_is_said_in_words(tmp_path):
    gradio = pytest.importorskip('gradio')
    with socket.socket() as taken, gradio.Blocks(analytics_enabled=False) as page:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=rf'127\.0\.0\.1, port {port}.*--port'):
            serve(page, None, str(tmp_path), '127.0.0.1', port)


@pytest.mark.slow
def test_one_command_serves_the_page_until_it_is_ended(tmp_path):
    pytest.importorskip('gradio')
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [*COMMAND, '--port', str(port)], cwd=tmp_path, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, 'MPLBACKEND': 'agg'})
    try:
        assert 'Loading the tiny CLIP' in process.stdout.readline()
        assert f'http://127.0.0.1:{port}/' in process.stdout.readline()
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f'http://127.0.0.1:{port}/', timeout=60) as answer:
            page = answer.read().decode()
        assert 'mmcluspro demo' in page
        assert 'fonts.googleapis' not in page
        process.send_signal(signal.SIGTERM)  # as Ctrl+C does
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0 and 'Stopped.' in out
    assert err == ''
    assert list(tmp_path.iterdir()) == []
