"""The findings H1 to L6 of a review of trust, each tried again as its page described it, and N1 to
N4 of a later one.

Each from a folder, through the commands (or the running demo): what fell at commit 880eb33 must
hold. A trial returns what was wrong, '' if nothing was.
"""
from __future__ import annotations

import csv
import http.client
import http.server
import json
import os
import pickle
import re
import shutil
import signal
import socket
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import torch
from fault_places import LIMIT, ROOT, Place, judged, photo, run
from load import megabytes, running_page
from load_endpoint import at_once, patient
from PIL import Image

# Two configs of one folder of photos, which differ in the seed of their split only.
PHOTOS = """
_base_ = '{{{{$MMCLUSPRO_CONFIGS:configs}}}}/baseline_shapes.py'
data = dict(type='mmcluspro.TableCZSL', data_root={root!r}, make_split=dict(seed={seed}))
load = [dict(type='LoadImageFromFile'),
        dict(type='PackInputs', algorithm_keys=['attr_label', 'obj_label', 'pair_label'])]
model = dict(space=dict(_delete_=True, **data))
train_dataloader = dict(dataset=dict(_delete_=True, phase='train', pipeline=load, **data))
val_dataloader = dict(dataset=dict(_delete_=True, phase='val', pipeline=load, **data))
test_dataloader = dict(dataset=dict(_delete_=True, phase='test', pipeline=load, **data))
train_cfg = dict(by_epoch=True, max_epochs=1)
"""


def changed(place: Place, source: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a checkpoint whose content was changed by someone."""
    content = torch.load(source, weights_only=False)
    change(content)
    path = place.new(source.name)
    torch.save(content, path)
    return path


def hub(**info: Any) -> Callable[[dict[str, Any]], None]:
    """Changes what a checkpoint says about the files of its run."""
    def change(content: dict[str, Any]) -> None:
        content['message_hub']['runtime_info'].update(info)
        content['message_hub']['resumed_keys'].update(dict.fromkeys(info, True))
    return change


def content_of(folder: Path) -> dict[str, bytes]:
    """The files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob('*') if path.is_file()}


def crafted_resume(place: Place) -> str:
    """H1: a checkpoint names files of the user as files of its run; mmengine's list as well."""
    folder = place.new('run')
    (folder / 'epoch_').mkdir(parents=True)  # what the path through '..' needs
    (folder / 'epoch_0.pth').mkdir()         # mmengine removes folders, too
    victims = [place.new('mine.pth') for _ in range(4)]
    for victim in victims:
        victim.write_text('mine')
    evil = changed(place, place.done / 'epoch_1.pth', hub(
        stop_file=str(victims[0]), best_ckpt=str(victims[1]), best_score=-1.0,
        last_ckpt=str(victims[2]), keep_ckpt_ids=[f'/../../{victims[3].stem}', 0]))
    found = place.train(folder.name, 'train_cfg.max_epochs=2',
                        'default_hooks.checkpoint.max_keep_ckpts=1',
                        words=['--no-test', '--resume', str(evil)])
    gone = [path.name for path in (*victims, folder / 'epoch_0.pth') if not path.exists()]
    return judged(found, [0], 'names files that no run writes') or (
        f'removed: {gone}' if gone else '')


def copied_run(place: Place) -> str:
    """H2: a copy of a run is resumed; with names, and with paths as in files of before."""
    before = content_of(place.done)
    for path in (False, True):
        copy = place.new('copy')
        shutil.copytree(place.done, copy)
        first, best = copy / 'epoch_1.pth', place.checkpoint
        shutil.copy(changed(place, first, hub(
            best_score=-1.0, best_ckpt=str(best) if path else best.name)), first)
        note = judged(place.train(copy.name, 'train_cfg.max_epochs=2', words=['--resume']), [0],
                      f'{copy.name}/best_')
        if note or content_of(place.done) != before:
            return note or 'the original has changed'
    return ''


def config_of_the_folder(place: Place) -> str:
    """H3: the demo is started where a file has the name of its config; ``train`` says which."""
    folder = place.new('stranger')
    folder.mkdir()
    (folder / 'clip_zeroshot_shapes.py').write_text("open('owned', 'w')\n")

    def stop(pid: int) -> None:
        end = time.monotonic() + LIMIT
        while 'http://' not in (place.base / 'output.txt').read_text() and (
                Path(f'/proc/{pid}').exists() and time.monotonic() < end):
            time.sleep(0.2)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGINT)

    note = judged(run(['demo', '--device', 'cpu'], place.base, cwd=folder, during=stop),
                  [0, 130, -signal.SIGINT], 'http://')
    if note or (folder / 'owned').exists():
        return note or 'the file of the folder was run'
    shutil.copy(place.config, folder / 'cluspro_shapes.py')
    return judged(run(['train', 'cluspro_shapes.py', '--work-dir', str(folder / 'run'),
                       '--cfg-options', 'train_cfg.max_epochs=1'], place.base, cwd=folder), [0],
                  'is run, not the config of mmcluspro of the same name')


@contextmanager
def server(files: dict[str, bytes], cut: bool = False) -> Iterator[str]:
    """Serves files at a loopback address; with ``cut``, the first half of each."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = files[self.path]
            self.send_response(200)
            self.send_header('Content-Length', str(len(content)))
            self.end_headers()
            self.wfile.write(content[:len(content) // 2] if cut else content)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            yield f'http://127.0.0.1:{serving.server_port}'
        finally:
            serving.shutdown()
            thread.join()


def same_name(place: Place) -> str:
    """H4: two addresses with one file name; a download that ends early."""
    picture, home = photo(place.new('x.png')), place.new('torch')
    note = judged(place.train('second', 'train_cfg.max_epochs=1', 'randomness.seed=5'), [0])
    second = next((place.base / 'second').glob('best_*.pth'))
    files = {'/a/best.pth': place.checkpoint.read_bytes(), '/b/best.pth': second.read_bytes()}
    with server(files) as address:
        found = [place.predict(picture, model=model, TORCH_HOME=str(home)) for model in (
            place.checkpoint, f'{address}/a/best.pth', second, f'{address}/b/best.pth')]
    note = note or next(filter(None, (judged(each, [0], '%') for each in found)), '')
    answers = [each.text.split('x.png')[-1] for each in found]
    if note or answers[0] != answers[1] or answers[2] != answers[3] or answers[0] == answers[2]:
        return note or f'other answers: {answers}'
    fresh = place.new('torch')
    with server(files, cut=True) as address:
        note = judged(place.predict(picture, model=f'{address}/a/best.pth', TORCH_HOME=str(fresh)),
                      [2], 'bytes arrived|early')
    kept = [path.name for path in fresh.rglob('*') if path.is_file()]
    return note or (f'kept: {kept}' if kept else '')


def drawings(place: Place) -> Path:
    """Sixteen pairs of four attributes and four objects, six photos each."""
    folder = place.new('photos')
    for number in range(96):
        pair = number // 6
        below = folder / f'{"abcd"[pair // 4]}red_{"abcd"[pair % 4]}star'
        below.mkdir(parents=True, exist_ok=True)
        photo(below / f'{number}.png', number)
    return folder


def other_split(place: Place) -> str:
    """H5: a run is resumed, and a checkpoint is tested, with another split of the same photos."""
    root = drawings(place)
    for seed in (0, 3):
        (place.base / f'split{seed}.py').write_text(PHOTOS.format(root=str(root), seed=seed))
    folder = place.base / 'split'
    note = judged(run(['train', str(place.base / 'split0.py'), '--work-dir', str(folder),
                       '--no-test', '--no-report'], place.base), [0])
    if note:
        return note
    last, other = str(folder / 'epoch_1.pth'), str(place.base / 'split3.py')
    note = judged(run(['train', other, '--work-dir', str(place.base / 'split_again'), '--resume',
                       last, '--cfg-options', 'train_cfg.max_epochs=2'], place.base), [2],
                  'training data is not that of the checkpoint')
    return note or judged(run(['test', other, last], place.base, cwd=place.base), [0],
                          r'was trained on \d+ of \d+ images')


def changed_config(place: Place) -> str:
    """M1: a run is resumed with another rate and more epochs."""
    return judged(place.resume('rates', 'optim_wrapper.optimizer.lr=0.02',
                               'train_cfg.max_epochs=3'), [0],
                  'lr goes on at 0.0138268, not at')  # 0.02 · (1 + cos(3π/8)) / 2


def signs_in_names(place: Place) -> str:
    """M2, L1: names of photos with a carriage return, or with semicolons, before a formula."""
    for name in ('x\r=1+1.png', 'x;=1+1;.png'):
        folder, out = place.new('photos'), place.new('r.csv')
        folder.mkdir()
        photo(folder / name)
        note, contents = '', []
        for _ in range(2):  # the second time goes on, and reads what the first has written
            note = note or judged(place.predict(folder, '--out', str(out)), [0])
            contents.append(out.read_bytes())
        rows = list(csv.reader(contents[0].decode().splitlines(keepends=True)))
        if note or len(rows) != 2 or rows[1][0] != str(folder / name):
            return note or f'other rows: {rows}'
        if contents[0] != contents[1] or f'"{folder / name}"'.encode() not in contents[0]:
            return 'the name is not in quotes, or the second run wrote another file'
        note = judged(run(['review', 'out', str(out), '--root', str(folder), '--out',
                           str(place.new('review.csv'))], place.base), [0])
        if note:
            return note
    return ''


def simultaneous_starts(place: Place) -> str:
    """M3: two predictions into one new file, started together, ten times."""
    folder, both = place.new('photos'), []
    folder.mkdir()
    for number in range(5):
        photo(folder / f'{number}.png', number)
    # One process that forks twice, after its imports: as close together as it gets.
    script = place.new('both.py')
    script.write_text(
        'import os, sys\nfrom mmcluspro.cli import main, predict\n'
        'for number in range(10):\n    children = []\n    for _ in range(2):\n'
        '        pid = os.fork()\n        if not pid:\n            try:\n'
        '                code = main(["predict", *sys.argv[1:4], f"{sys.argv[4]}{number}.csv",\n'
        '                             "--device", "cpu", "--workers", "1"])\n'
        '            except SystemExit as ended:\n                code = ended.code\n'
        '            os._exit(code)\n        children.append(pid)\n'
        '    print("codes", *sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n'
        '                           for pid in children), flush=True)\n')
    out = place.new('result')
    found = run([str(place.checkpoint), str(folder), '--out', str(out)], place.base,
                tool=str(script))
    note = judged(found, [0])
    codes = [line for line in found.text.splitlines() if line.startswith('codes')]
    for number in range(10):
        with open(f'{out}{number}.csv', newline='') as file:
            both.append(len({row['image'] for row in csv.DictReader(file)}))
    if note or set(codes) - {'codes 0 2', 'codes 0 0'} or len(codes) != 10 or set(both) != {5}:
        return note or f'{codes}, {both} records'
    return ''


def large_pictures(place: Place) -> str:
    """M4: small files of many transparent pixels, alone and twenty at once at the demo."""
    paths = []
    for side in (9900, 7000):
        paths.append(place.new(f'{side}.png'))
        Image.new('RGBA', (side, side), (9, 9, 9, 9)).save(paths[-1])
    note = judged(place.predict(paths[0]), [0], '%')
    with running_page() as (address, pid):
        body, highest = paths[1].read_bytes(), [0.0]
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.1):
                highest[0] = max(highest[0], megabytes(pid))

        watching = threading.Thread(target=watch)
        watching.start()
        visits = at_once(20, lambda number: patient(address, body, 'new'))
        done.set()
        watching.join()
    other = [visit.status for visit in visits if visit.status != '200']
    if other or highest[0] > 3000:
        return note or f'{highest[0]:.0f} MB, other answers: {other}'
    return note


class Hex:
    """Pickles as a call of a codec that doubles what is inside."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __reduce__(self) -> tuple[Any, ...]:
        import _codecs
        return _codecs.encode, (self.inner, 'hex')


def hex_bomb(place: Place) -> str:
    """M5: a checkpoint of few bytes that unpacks to gigabytes."""
    bomb: Any = b'x' * 64
    for _ in range(26):
        bomb = Hex(bomb)
    path = place.new('bomb.pth')
    torch.save(dict(state_dict={}, meta=dict(x=bomb)), path, pickle_module=pickle)
    return judged(place.predict(photo(place.new('x.png')), model=path), [2], 'error: .*bomb.pth')


def nonsense_calibration(place: Place) -> str:
    """M6: temperatures and biases that turn answers around."""
    picture, note = photo(place.new('x.png')), ''
    for field, value in (('temperature', -1), ('temperature', 0.0), ('temperature', 1e-300),
                         ('temperature', 1e300), ('seen_bias', 1e308)):
        def change(content: dict[str, Any], field: str = field, value: float = value) -> None:
            content['meta']['calibration'] = dict(closed={field: value})
        path = changed(place, place.checkpoint, change)
        note = note or judged(place.predict(picture, model=path), [2], f'{field} must be')
    return note


def other_sites(place: Place) -> str:
    """M7: another site asks the demo, by its own name or from a visitor's browser."""
    with running_page() as (address, _):
        host = urlsplit(address).netloc
        found = []
        for headers in (dict(Host='evil.example:7990', Origin='http://evil.example:7990'),
                        dict(Host=host, Origin='http://evil.example'), dict(Host=host)):
            line = http.client.HTTPConnection(host, timeout=60)
            line.request('POST', '/predict', photo(place.new('x.png')).read_bytes(),
                         {**headers, 'Content-Type': 'text/plain'})
            answer = line.getresponse()
            found.append((answer.status, sorted(json.loads(answer.read()))))
            line.close()
    refused, answered = [(403, ['error'])] * 2, found.pop()
    return '' if found == refused and answered[0] == 200 else f'{found}, {answered}'


def signs_in_words(place: Place) -> str:
    """L2: attributes and objects with signs, in a list of pairs and at the demo."""
    names = [('#1', 'star'), ('a,b', 'arrow'), ('attribute', 'object'), ('c #d', 'key')]
    pairs, picture = place.new('pairs.txt'), photo(place.new('x.png'))
    pairs.write_text(''.join(f'"{attr}","{thing}"\n' for attr, thing in names))
    out = place.new('r.json')
    note = judged(place.predict(picture, '--pairs', str(pairs), '--out', str(out), '--top-k', '4'),
                  [0])
    if note:
        return note
    with running_page() as (address, _):
        line = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
        asked = '&'.join(f'pair={quote(chr(34) + a + chr(34))},{o}' for a, o in names)
        line.request('POST', f'/predict?top_k=4&{asked}', picture.read_bytes())
        answered = [json.loads(line.getresponse().read())]
        line.close()
    for answer in (*json.loads(out.read_text()), *answered):
        found = {(pair['attribute'], pair['object']) for pair in answer['pairs']}
        if found != set(names):
            return f'other pairs: {found}'
    return ''


def nothing_seen(place: Place) -> str:
    """L3: a label space without a seen pair."""
    def change(content: dict[str, Any]) -> None:
        space = content['meta']['dataset_meta']['space']
        space['seen'] = [False] * len(space['seen'])
    path, picture = changed(place, place.checkpoint, change), photo(place.new('x.png'))
    return judged(place.predict(picture, model=path), [2], 'none of its pairs was seen') or judged(
        place.predict(picture, '--world', 'open', '--threshold', '0.5', model=path), [2], 'error: ')


def unfinished_headers(place: Place) -> str:
    """L4: 1,100 connections without a complete header; the page of the traffic; a huge body."""
    with running_page() as (address, _):
        where = urlsplit(address)
        lines = [socket.create_connection((where.hostname, where.port)) for _ in range(1100)]
        for line in lines:
            with suppress(OSError):
                line.sendall(b'GET / HTTP/1.1\r\nHost: x\r\n')
        end, status = time.monotonic() + 60, ''
        while status != '200' and time.monotonic() < end:
            status = patient(address, photo(place.new('x.png')).read_bytes(), 'new').status
        for line in lines:
            line.close()
        found = [status]
        for path, body in (('/monitoring', None), ('/gradio_api/queue/join', bytes(33 << 20))):
            asked = http.client.HTTPConnection(where.netloc, timeout=90)
            with suppress(BrokenPipeError, ConnectionResetError):  # refused while it is sent
                asked.request('POST' if body else 'GET', path, body)
            found.append(str(asked.getresponse().status))
            asked.close()
    return '' if found[0] == '200' and found[1] in ('403', '404') and found[2] == '413' else (
        str(found))


def other_conditions(place: Place) -> str:
    """L5: a result file is continued with another config; a photo was replaced."""
    folder, out = place.new('photos'), place.new('r.csv')
    folder.mkdir()
    photo(folder / 'x.png', 1)
    words = ['--out', str(out)]
    note = judged(place.predict(folder, *words), [0])
    first = out.read_text()
    Image.new('RGB', (90, 60), 'red').save(folder / 'x.png')
    note = note or judged(place.predict(folder, *words), [0], 'have changed since')
    if out.read_text() == first:
        return note or 'the old answer was kept'
    return note or judged(place.predict(folder, *words, '--config', str(place.config)), [2],
                          'was made with something else')


def two_forms(place: Place) -> str:
    """L6: one name in two Unicode forms, as zip files and macOS write it."""
    root = drawings(place)
    for form in ('NFC', 'NFD'):
        folder = root / unicodedata.normalize(form, 'café_astar')
        folder.mkdir()
        photo(folder / f'{form}.png')
    found = run(['check-data', str(root)], place.base)
    note = judged(found, [0, 1], 'two Unicode forms')
    return note or ('' if re.search(r'attributes\s+5\b', found.text) else 'counted twice')


def supply_chain(place: Place) -> str:
    """The workflow may only read, names actions by commit; bounds are those of SECURITY.md."""
    workflows = ''.join(path.read_text() for path in (ROOT / '.github').rglob('*.yml'))
    used = [line.split('@')[1].split()[0] for line in workflows.splitlines() if 'uses:' in line]
    project = (ROOT / 'pyproject.toml').read_text()
    missing = [bound for bound in ('torch>=2.6', 'pillow>=12.2', 'onnx>=1.21', 'starlette>=0.49.1')
               if bound not in project.lower()]
    if 'contents: read' not in workflows or any(len(commit) != 40 for commit in used):
        return f'the workflow may write, or names actions by tag: {used}'
    return f'not in pyproject.toml: {missing}' if missing else ''


def other_background(place: Place) -> str:
    """The same photographs are searched with other colours behind transparent ones."""
    picture, found = place.new('x.png'), []
    Image.new('RGBA', (48, 48), (200, 30, 30, 90)).save(picture)
    script = place.new('backgrounds.py')
    script.write_text(
        'import sys\nfrom mmcluspro import load\nfor colour in ("white", "black"):\n'
        '    model = load("cluspro_shapes", "cpu", background=colour)\n'
        '    print("both", model.search("red star", sys.argv[1])[0].probability,\n'
        '          float(model.scores(sys.argv[1], [("red", "star")])))\n')
    result = run([str(picture)], place.base, tool=str(script), TORCH_HOME=str(place.new('torch')))
    found = [[float(word) for word in line.split()[1:]] for line in result.text.splitlines()
             if line.startswith('both')]
    wrong = [pair for pair in found if abs(pair[0] - pair[1]) > 1e-3 * pair[1]]
    return judged(result, [0]) or (f'other answers: {wrong}' if wrong or len(found) != 2 else '')


def unreadable_photos(place: Place) -> str:
    """Photographs are searched beside a pipe and a link to nowhere."""
    folder = place.new('photos')
    folder.mkdir()
    photo(folder / 'x.png')
    words = ['search', 'red star', str(folder), '--model', 'cluspro_shapes', '--device', 'cpu']
    how = dict(TORCH_HOME=str(place.new('torch')))
    (folder / 'gone.png').symlink_to('nowhere')
    note = judged(run(words, place.base, **how), [0], 'gone.png cannot be read(.|\n)*%')
    (folder / 'gone.png').unlink()
    os.mkfifo(folder / 'pipe.png')
    return note or judged(run(words, place.base, prefix=['timeout', '60'], **how), [0],
                          'pipe.png cannot be read')


def model_of_the_package(place: Place) -> str:
    """The name of the shipped model, with a result file, and beside a file of that name."""
    picture, out, folder = photo(place.new('x.png')), place.new('r.csv'), place.new('here')
    note = judged(place.predict(picture, '--out', str(out), model=Path('cluspro_shapes')), [0])
    for make in (Path.mkdir, Path.touch):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        make(folder / 'cluspro_shapes')
        note = note or judged(place.predict(picture, model=Path('cluspro_shapes'), cwd=folder),
                              [2], 'is read, not the model of mmcluspro')
    return note


def shared_lists(place: Place) -> str:
    """An optimizer of 60 lists, each twice in the next one: 2 to the 60 values, on resume."""
    bomb: Any = [1]
    for _ in range(60):
        bomb = [bomb, bomb]

    def change(content: dict[str, Any]) -> None:
        content['optimizer'] = bomb
    path = changed(place, place.done / 'epoch_1.pth', change)
    return judged(place.train('shared', words=['--resume', str(path)],
                              prefix=['timeout', '60']), [2], 'nested without end')


FINDINGS: dict[str, Callable[[Place], str]] = {
    'H1 crafted checkpoint removes files': crafted_resume,
    'H2 copy of a run': copied_run,
    'H3 config of the current folder': config_of_the_folder,
    'H4 two addresses, one name; cut download': same_name,
    'H5 another split': other_split,
    'M1 changed config on resume': changed_config,
    'M2, L1 signs in names of files': signs_in_names,
    'M3 simultaneous starts': simultaneous_starts,
    'M4 large pictures of few bytes': large_pictures,
    'M5 nested codecs': hex_bomb,
    'M6 nonsense calibration': nonsense_calibration,
    'M7 other web sites': other_sites,
    'L2 signs in names of labels': signs_in_words,
    'L3 nothing seen': nothing_seen,
    'L4 unfinished headers': unfinished_headers,
    'L5 result file under other conditions': other_conditions,
    'L6 two Unicode forms': two_forms,
    'supply chain': supply_chain,
    'N1 search with another background': other_background,
    'N2 search beside a pipe and a dead link': unreadable_photos,
    'N3 name of the shipped model': model_of_the_package,
    'N4 lists that share lists': shared_lists,
}
