"""The page under attack, through its HTTP interface: no file of the server, no HTML of a guest."""
import json
import urllib.request

import numpy as np
import pytest
from PIL import Image

from mmcluspro.demo.demo_command import parse_args, prepare, serve

pytest.importorskip('gradio')
OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture(scope='module')
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp('page')
    app = prepare(parse_args(['--device', 'cpu']), str(folder))
    address = serve(app, str(folder), '127.0.0.1', None).rstrip('/')
    yield app, address, folder
    app.close(verbose=False)


def request(address, data=None, kind='application/json'):
    sent = urllib.request.Request(address, data, {'Content-Type': kind} if data else {})
    return OPEN.open(sent, timeout=60)


def ask(page, payload, pairs='red star\nblue key', bias=0.0, session='test'):
    """The answer's HTML for a picture given as ``payload``."""
    app, address, _ = page
    index = next(i for i, fn in app.fns.items() if fn.name == 'classify')
    body = json.dumps(dict(
        data=[payload, 'These pairs', 'red', 'star', pairs, bias], fn_index=index,
        session_hash=session)).encode()
    with request(f'{address}/gradio_api/queue/join?', body):
        pass
    with request(f'{address}/gradio_api/queue/data?session_hash={session}') as stream:
        for line in stream:
            if line.startswith(b'data: ') and b'process_completed' in line:
                return json.loads(line[6:])['output']
    raise AssertionError('no answer')


def upload(page, name, data):
    _, address, _ = page
    border = 'border'
    body = (f'--{border}\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n'
            'Content-Type: application/octet-stream\r\n\r\n').encode() + data + (
            f'\r\n--{border}--\r\n').encode()
    with request(f'{address}/gradio_api/upload', body,
                 f'multipart/form-data; boundary={border}') as answer:
        return json.loads(answer.read())[0]


@pytest.fixture(scope='module')
def picture(tmp_path_factory):
    path = tmp_path_factory.mktemp('server') / 'private.png'
    Image.fromarray(np.full((60, 60, 3), 120, np.uint8)).save(path)
    return path


def test_an_upload_is_answered(page, picture):
    path = upload(page, 'mine.png', picture.read_bytes())
    found = ask(page, dict(path=path, meta={'_type': 'gradio.FileData'}))
    assert 'best of 2 pairs' in found['data'][1]


@pytest.mark.parametrize('name', ['private.png', 'missing.png'])
def test_no_file_of_the_server_is_read_nor_told_from_a_missing_one(name, page, picture):
    answer = ask(page, dict(path=str(picture.with_name(name))))
    assert 'Upload a picture' in answer['data'][1] and name not in str(answer)


@pytest.mark.parametrize('path', ['../../etc/passwd', 'private.png', 'http://127.0.0.1:9/x.png',
                                  '', '/'])
def test_no_other_path_is_read(path, page):
    answer = ask(page, dict(path=path))
    assert 'Upload a picture' in str(answer) or 'error' in str(answer)


def test_an_uploaded_page_is_never_served_inline(page):
    _, address, folder = page
    path = upload(page, 'x.html', b'<script>alert(1)</script>')
    assert path.startswith(str(folder / 'uploads'))
    with request(f'{address}/gradio_api/file={path}') as answer:
        assert answer.headers['Content-Disposition'].startswith('attachment')
        assert 'html' not in answer.headers['Content-Type']


def test_nothing_but_the_examples_is_allowed(page):
    app, _, folder = page
    assert app.allowed_paths == [str(folder / 'examples')]
    assert all(path.suffix == '.png' for path in (folder / 'examples').iterdir())


@pytest.fixture(scope='module')
def mine(page, picture):
    return dict(path=upload(page, 'mine.png', picture.read_bytes()),
                meta={'_type': 'gradio.FileData'})


def test_names_are_escaped(page, mine):
    name = '<img onerror=x>'
    html = str(ask(page, mine, f'"{name}", star\nred star')['data'])
    assert name not in html and '&lt;img onerror=x&gt;' in html


@pytest.mark.parametrize('pairs, words', [
    ('\n'.join(f'a{i} b{i}' for i in range(100_000)), '100,000 pairs; the page takes up to 50,000'),
    ('x' * 5_000_001, '5,000,001 characters; the page takes up to 5,000,000')])
def test_long_lists_are_refused_with_a_number(pairs, words, page, mine):
    assert words in ask(page, mine, pairs)['data'][1]


@pytest.mark.parametrize('bias', [float('nan'), 1e308, None])
def test_a_bias_out_of_range_gives_numbers(bias, page, mine):
    answer = ask(page, mine, bias=bias)
    assert 'nan' not in str(answer) or 'error' in str(answer)


def test_a_bomb_is_refused(page, png_bomb):
    path = upload(page, 'bomb.png', png_bomb(10_000, 9_000).read_bytes())
    answer = ask(page, dict(path=path, meta={'_type': 'gradio.FileData'}))
    assert '10000 x 9000 pixels, more than 50,000,000' in answer['data'][1]


def test_a_large_upload_and_a_long_queue_are_refused(page):
    app, _, _ = page
    assert app.max_file_size == 20 * 1024**2
    assert app._queue.max_size == 100
