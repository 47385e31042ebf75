"""The page under attack, through its HTTP interface: no file of the server, no HTML of a guest."""
import asyncio
import csv
import http.client
import json
import shlex
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mmcluspro.demo.demo_command import parse_args, prepare, zero_shot_model
from mmcluspro.demo.server import Gate, serve

pytest.importorskip('gradio')
ROOT = Path(__file__).resolve().parents[2]
SLOW = b'POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nabc'
OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture(scope='module')
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp('page')
    app, endpoint = prepare(parse_args(['--device', 'cpu']), str(folder))
    address = serve(app, endpoint, str(folder), '127.0.0.1', None).rstrip('/')
    yield app, address, folder, endpoint
    app.close(verbose=False)


def request(address, data=None, kind='application/json'):
    sent = urllib.request.Request(address, data, {'Content-Type': kind} if data else {})
    return OPEN.open(sent, timeout=60)


def ask(page, payload, pairs='red star\nblue key', bias=0.0, session='test', name='classify'):
    """The answer's HTML for a picture given as ``payload``."""
    app, address = page[:2]
    index = next(i for i, fn in app.fns.items() if fn.name == name)
    data = [payload, 'These pairs', 'red', 'star', pairs, *([bias] if name == 'classify' else [])]
    body = json.dumps(dict(data=data, fn_index=index, session_hash=session)).encode()
    with request(f'{address}/gradio_api/queue/join?', body):
        pass
    with request(f'{address}/gradio_api/queue/data?session_hash={session}') as stream:
        for line in stream:
            if line.startswith(b'data: ') and b'process_completed' in line:
                return json.loads(line[6:])['output']
    raise AssertionError('no answer')


def upload(page, name, data):
    address = page[1]
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


@pytest.mark.parametrize('name', ['classify', 'classify_many'])
def test_no_address_is_fetched(name, page, monkeypatch):
    """Gradio downloads the address of a request: from anywhere, and of any size."""
    fetched = []

    async def download(url, *_, **__):
        fetched.append(url)
        raise OSError('no network')

    monkeypatch.setattr('gradio.processing_utils.async_ssrf_protected_download', download)
    item = dict(path='http://example.org/x.png', url='http://example.org/x.png',
                meta={'_type': 'gradio.FileData'})
    answer = ask(page, item if name == 'classify' else [item], name=name)
    assert not fetched and 'Addresses are not followed' in str(answer)


@pytest.mark.parametrize('name', ['x.svg', 'x.xml', 'x.xhtml', 'x.htm', 'x.js', 'x.pdf'])
def test_active_uploads_are_downloads(name, page):
    path = upload(page, name, b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>')
    with request(f'{page[1]}/gradio_api/file={path}') as answer:
        assert answer.headers['Content-Disposition'].startswith('attachment')


def test_an_uploaded_page_is_never_served_inline(page):
    _, address, folder, _ = page
    path = upload(page, 'x.html', b'<script>alert(1)</script>')
    assert path.startswith(str(folder / 'uploads'))
    with request(f'{address}/gradio_api/file={path}') as answer:
        assert answer.headers['Content-Disposition'].startswith('attachment')
        assert 'html' not in answer.headers['Content-Type']


def test_nothing_but_the_examples_is_allowed(page):
    app, _, folder, _ = page
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
    assert words in ask(page, mine, pairs)['data'][4]


@pytest.mark.parametrize('bias', [float('nan'), 1e308, None])
def test_a_bias_out_of_range_gives_numbers(bias, page, mine):
    answer = ask(page, mine, bias=bias)
    assert 'nan' not in str(answer) or 'error' in str(answer)


@pytest.mark.parametrize('many', [False, True])
def test_a_word_without_end_is_refused(many, page, mine):
    """The time of CLIP's tokenizer grows with the square of a word: 19 s for 60,000 letters."""
    answer = str(ask(page, [mine] if many else mine, f'{"ab" * 200_000} star\nred key',
                     name='classify_many' if many else 'classify'))
    assert 'must have at most 1,000 characters' in answer and '400,000' in answer
    assert len(answer) < 5000


def test_a_bomb_is_refused(page, png_bomb):
    path = upload(page, 'bomb.png', png_bomb(10_000, 9_000).read_bytes())
    answer = ask(page, dict(path=path, meta={'_type': 'gradio.FileData'}))
    assert '10000 x 9000 pixels, more than 50,000,000' in answer['data'][3]


def test_a_large_upload_and_a_long_queue_are_refused(page):
    app = page[0]
    assert app.max_file_size == 20 * 1024**2
    assert app._queue.max_size == 100


def file_data(path, name):
    return dict(path=str(path), orig_name=name, meta={'_type': 'gradio.FileData'})


def test_many_files_are_answered_with_a_table_and_a_csv(page, picture):
    path = upload(page, 'mine.png', picture.read_bytes())
    note = upload(page, 'note.png', b'no picture')
    evil = '=cmd<img onerror=x>.png'
    html, link = ask(page, [file_data(path, evil), file_data(note, 'note.png')],
                     name='classify_many')['data'][:2]
    assert '<img' not in html and '&lt;img onerror=x&gt;' in html
    assert html.count('<tr>') == 3 and '<td colspan="3">' in html
    address = page[1]
    with request(f'{address}/gradio_api/file={link["value"]["path"]}') as answer:
        lines = list(csv.DictReader(answer.read().decode().splitlines()))
    assert [line['image'] for line in lines] == ["'" + evil, 'note.png']
    assert (lines[0]['attribute_1'], lines[0]['object_1']) in (('red', 'star'), ('blue', 'key'))
    assert lines[1]['error'] and not lines[1]['attribute_1']


def test_many_files_read_no_file_of_the_server(page, picture):
    answer = str(ask(page, [dict(path=str(picture), orig_name='x.png')], name='classify_many'))
    assert 'Choose pictures' in answer or 'error' in answer
    assert 'private' not in answer


def test_too_many_files_are_refused_with_a_number(page, picture):
    path = upload(page, 'mine.png', picture.read_bytes())
    answer = ask(page, [file_data(path, f'{i}.png') for i in range(201)], name='classify_many')
    assert 'These are 201 files; the page takes up to 200' in str(answer)


def predict(page, body, query='', kind='application/octet-stream'):
    try:
        with request(f'{page[1]}/predict{query}', body, kind) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def counted(page):
    """Bodies that arrive, requests that wait, bytes held; the server may need a moment."""
    endpoint = page[3]
    for _ in range(100):
        if not endpoint.arriving:
            break
        time.sleep(0.05)
    return endpoint.arriving, endpoint.waiting, endpoint.held


@pytest.mark.parametrize('form', ['-F', '--data-binary'])
def test_curl_gets_what_the_inferencer_answers(form, page, picture):
    curl = shutil.which('curl')
    if curl is None:
        pytest.skip('no curl')
    line = next(line for line in (ROOT / 'docs' / 'demo.md').read_text().splitlines()
                if line.startswith(f'curl {form}')).partition('  #')[0]
    words = line.replace('http://127.0.0.1:7860', page[1]).replace('photo.jpg', str(picture))
    done = subprocess.run([curl, '--silent', '--noproxy', '*', *shlex.split(words)[1:]],
                          capture_output=True, text=True, check=True)
    got = json.loads(done.stdout)
    expected = zero_shot_model('cpu').predict(str(picture), top_k=3)[0]
    assert [(p['attribute'], p['object']) for p in got['pairs']] == [
        (p.attribute, p.object) for p in expected.pairs]
    assert got['pairs'][0]['probability'] == pytest.approx(expected.best.probability, rel=1e-4)


def test_the_endpoint_takes_pairs_and_a_number(page, picture):
    status, answer = predict(page, picture.read_bytes(), '?top_k=1&pair=red,star&pair=blue,key')
    assert status == 200 and len(answer['pairs']) == 1
    assert answer['pairs'][0]['object'] in ('star', 'key') and answer['image'] == 'upload'


def test_names_with_signs_are_names_to_the_endpoint(page, picture):
    """They were taken for comments and for a header, and left out without a word."""
    status, answer = predict(
        page, picture.read_bytes(),
        '?top_k=3&pair=%231,star&pair=attribute,object&pair=%22a,b%22,arrow')
    assert status == 200 and {(pair['attribute'], pair['object']) for pair in answer['pairs']} == {
        ('#1', 'star'), ('attribute', 'object'), ('a,b', 'arrow')}


@pytest.mark.parametrize('query, words', [
    ('?top_k=0', 'from 1 to 20'), ('?top_k=1e9', 'from 1 to 20'), ('?pair=red', 'expected two')])
def test_bad_requests_are_said_in_words(query, words, page, picture):
    status, answer = predict(page, picture.read_bytes(), query)
    assert status == 400 and words in answer['error']


def part(name, content, filename=True):
    file = '; filename="a.png"' if filename else ''
    return (f'--xx\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n').encode() + (
        content + b'\r\n')


@pytest.mark.parametrize('parts, words', [
    ([part('note', b'text', False)], 'no picture in the form'),
    ([part('a', b'1'), part('b', b'2')], 'send one picture'),
    ([part('a', b'')], 'no picture in the form'),
    ([b'--yy\r\n'], 'cannot be read'),
    ([part(f'n{i}', b'', False) for i in range(11)], 'cannot be read')])
def test_forms_without_one_picture_are_said_in_words(parts, words, page):
    body = b''.join(parts) + b'--xx--\r\n'
    status, answer = predict(page, body, kind='multipart/form-data; boundary=xx')
    assert status == 400 and words in answer['error'] and 'curl -F' in answer['error']
    assert predict(page, body, kind='multipart/form-data')[0] == 400  # no boundary
    assert counted(page) == (0, 0, 0)


def test_the_endpoint_bounds_what_it_reads_and_leaves_nothing(page, png_bomb):
    folder = page[2]
    before = set((folder / 'uploads').rglob('*'))
    assert predict(page, b'x' * (20 * 1024**2 + 1))[0] == 413
    status, answer = predict(page, b'/etc/passwd')
    assert status == 400 and str(folder) not in answer['error']
    status, answer = predict(page, png_bomb(10_000, 9_000).read_bytes())
    assert status == 400 and 'more than 50,000,000' in answer['error']
    assert predict(page, b'')[0] in (400, 405)
    assert set((folder / 'uploads').rglob('*')) == before


def test_a_long_queue_at_the_endpoint_is_refused(page, picture, monkeypatch):
    monkeypatch.setattr(page[3], 'waiting', 20)
    status, answer = predict(page, picture.read_bytes())
    assert status == 503 and 'ry again' in answer['error']


def test_a_picture_that_never_arrives_does_not_keep_its_place(page, monkeypatch):
    monkeypatch.setattr('mmcluspro.demo.server.MAX_SECONDS', 0.5)
    address = urllib.parse.urlsplit(page[1])
    with socket.create_connection((address.hostname, address.port), timeout=20) as line:
        line.sendall(SLOW)
        assert b' 408 ' in line.recv(4096).partition(b'\r\n')[0]
    assert counted(page) == (0, 0, 0)


def test_slow_bodies_keep_no_one_else_away(page, picture, monkeypatch):
    monkeypatch.setattr('mmcluspro.demo.server.MAX_WAITING', 1)
    address = urllib.parse.urlsplit(page[1])
    lines = [socket.create_connection((address.hostname, address.port)) for _ in range(3)]
    try:
        for line in lines:
            line.sendall(SLOW)
        while page[3].arriving < 3 or page[3].held < 9:
            time.sleep(0.01)
        assert predict(page, picture.read_bytes())[0] == 200
        monkeypatch.setattr('mmcluspro.demo.server.MAX_ARRIVING', 3)
        assert predict(page, picture.read_bytes())[0] == 503
    finally:
        for line in lines:
            line.close()
    assert counted(page) == (0, 0, 0), 'bodies that were given up keep their places'


def test_bytes_of_all_bodies_together_are_bounded(page, picture, monkeypatch):
    monkeypatch.setattr('mmcluspro.demo.server.MAX_HELD', 100)
    status, answer = predict(page, picture.read_bytes())
    assert status == 503 and 'ry again' in answer['error']
    assert counted(page) == (0, 0, 0)


def test_a_full_disk_is_said_without_a_path(page, picture, monkeypatch):
    def full(**_):
        raise OSError(28, 'No space left on device', '/secret/place')
    monkeypatch.setattr('mmcluspro.demo.server.tempfile.NamedTemporaryFile', full)
    status, answer = predict(page, picture.read_bytes())
    assert status == 503 and 'no room' in answer['error'] and 'secret' not in answer['error']


def test_few_pictures_are_decoded_at_once(page, picture, monkeypatch):
    """A picture of 190 kB can take 350 MB while it is decoded."""
    inferencer = page[3].classifier.model
    whole, inside, most = inferencer.prepare, [], []

    def slow(item):
        inside.append(item)
        most.append(len(inside))
        time.sleep(0.1)
        inside.pop()
        return whole(item)

    monkeypatch.setattr(inferencer, 'prepare', slow)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: predict(page, picture.read_bytes())[0], range(8)))
    assert found == [200] * 8 and max(most) == 2


def head(page, path, **headers):
    """Status and body of a request with headers of its own."""
    address = urllib.parse.urlsplit(page[1])
    line = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    try:
        method = 'POST' if path == '/predict' else 'GET'
        line.request(method, path, b'x' if method == 'POST' else None, headers)
        answer = line.getresponse()
        return answer.status, answer.read().decode()
    finally:
        line.close()


@pytest.mark.parametrize('path', ['/', '/predict', '/config', '/gradio_api/startup-events'])
def test_other_web_sites_cannot_use_the_page(path, page):
    port = urllib.parse.urlsplit(page[1]).port
    for name in ('evil.example', f'evil.example:{port}', 'localhost.evil.example', '10.0.0.1', ''):
        status, text = head(page, path, Host=name)
        assert status == 403 and '--host 0.0.0.0' in text, name
    own = f'localhost:{port}'
    for origin in ('http://evil.example', f'http://evil.example:{port}', 'null',
                   f'http://localhost:{port + 1}'):
        status, text = head(page, path, Host=own, Origin=origin)
        assert status == 403 and 'other web sites' in text, origin
    expected = 400 if path == '/predict' else 200
    for name in (own, f'127.0.0.1:{port}', f'[::1]:{port}'):
        assert head(page, path, Host=name)[0] == expected
        assert head(page, path, Host=name, Origin=f'http://{name}')[0] == expected


def test_a_page_for_the_network_answers_to_any_name_but_to_no_other_web_site(tmp_path):
    calls = []

    async def app(scope, receive, send):
        calls.append(scope['path'])

    def ask_gate(bound, **headers):
        scope = dict(type='http', path='/', method='GET', headers=[
            (name.encode(), value.encode()) for name, value in headers.items()])
        calls.clear()
        asyncio.run(Gate(app, bound, tmp_path, {'x.gradio.live'})(scope, nothing, nothing))
        return bool(calls)

    async def nothing(*_):
        return None

    assert ask_gate('0.0.0.0', host='lab.example:7860', origin='http://lab.example:7860')
    assert not ask_gate('0.0.0.0', host='lab.example:7860', origin='http://evil.example')
    assert ask_gate('127.0.0.1', host='x.gradio.live', origin='https://x.gradio.live')
    assert not ask_gate('127.0.0.1', host='y.gradio.live')


def test_nobody_sees_the_traffic(page):
    assert head(page, '/monitoring')[0] == 403 and head(page, '/monitoring/summary')[0] == 403


def test_a_body_without_end_is_refused(page, picture, monkeypatch):
    monkeypatch.setattr('mmcluspro.demo.server.MAX_BODY', 5000)
    with pytest.raises(urllib.error.HTTPError, match='413'):
        ask(page, None, pairs='red star\n' * 1000)
    monkeypatch.setattr('mmcluspro.demo.server.MAX_UPLOADS', 5000)
    with pytest.raises(urllib.error.HTTPError, match='413'):
        upload(page, 'large.png', bytes(6000))
    assert upload(page, 'mine.png', picture.read_bytes())


def test_uploads_that_are_kept_are_bounded(page, monkeypatch):
    """The oldest ones go."""
    monkeypatch.setattr('mmcluspro.demo.server.MAX_UPLOADS', 500_000)
    paths = []
    for number in range(8):
        paths.append(Path(upload(page, f'{number}.png', bytes([number]) * 200_000)))
        time.sleep(0.02)
    there = [path.is_file() for path in paths]
    assert there[-1] and not any(there[:5]) and sum(there) <= 3


def test_unfinished_headers_keep_no_one_away(page, picture, monkeypatch):
    monkeypatch.setattr('mmcluspro.demo.server.MAX_HEADER', 1.5)
    monkeypatch.setattr('mmcluspro.demo.server.MAX_UNFINISHED', 20)
    address = urllib.parse.urlsplit(page[1])
    lines = [socket.create_connection((address.hostname, address.port)) for _ in range(60)]
    try:
        for line in lines:
            line.sendall(b'GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ')
        for line in lines:
            line.settimeout(20)
            assert line.recv(1) == b''
        assert predict(page, picture.read_bytes())[0] == 200
    finally:
        for line in lines:
            line.close()


def test_a_request_that_takes_long_is_not_cut(page, picture, monkeypatch):
    monkeypatch.setattr('mmcluspro.demo.server.MAX_HEADER', 0.2)
    inferencer = page[3].classifier.model
    whole = inferencer.prepare

    def slow(item):
        time.sleep(3)
        return whole(item)

    monkeypatch.setattr(inferencer, 'prepare', slow)
    assert predict(page, picture.read_bytes())[0] == 200
