"""The endpoint for programs (``POST /predict``) under load, for ``load.py endpoint``.

Each trial starts all its clients at once and counts their answers by status: 200 an answer, 400 no
picture, 408 too slow, 413 too large, 503 too many wait (``closed``: the connection ended without
one). Clients of *with patience* come again after a 503, as the answer asks them to.
"""
from __future__ import annotations

import http.client
import socket
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO
from statistics import median
from threading import Event
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

PATIENCE = 100  # times that a client comes again
ASK = '/predict?pair=red,star&pair=blue,key&pair='


class Visit(NamedTuple):
    """What became of a request: status (or 'closed'), seconds, how often it was sent."""
    status: str
    seconds: float
    tries: int = 1


def picture(side: int = 64) -> bytes:
    """A PNG file of random pixels."""
    buffer = BytesIO()
    pixels = np.random.default_rng().integers(0, 255, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, 'PNG')
    return buffer.getvalue()


def bomb(side: int = 30_000) -> bytes:
    """A small PNG file of very many pixels."""
    buffer = BytesIO()
    Image.new('1', (side, side)).save(buffer, 'PNG')
    return buffer.getvalue()


def send(address: str, body: bytes, word: str = 'new') -> Visit:
    """One request."""
    start = time.monotonic()
    line = http.client.HTTPConnection(urlsplit(address).netloc, timeout=300)
    try:
        # Refused while it was sent: the answer may be there all the same.
        with suppress(BrokenPipeError, ConnectionResetError):
            line.request('POST', f'{ASK}{word},teapot', body)
        status = str(line.getresponse().status)
    except (OSError, http.client.HTTPException):
        status = 'closed'
    finally:
        line.close()
    return Visit(status, time.monotonic() - start)


def patient(address: str, body: bytes, word: str) -> Visit:
    """One request, sent again after a second while too many wait."""
    start = time.monotonic()
    found, tries = send(address, body, word), 1
    while found.status == '503' and tries < PATIENCE:
        time.sleep(1)
        found, tries = send(address, body, word), tries + 1
    return Visit(found.status, time.monotonic() - start, tries)


def drip(address: str, done: Event) -> Visit:
    """Sends a body byte by byte, until the server ends it or the trial is over."""
    start, place = time.monotonic(), urlsplit(address)
    answer = b''
    try:
        with socket.create_connection((place.hostname, place.port), timeout=1) as line:
            line.sendall(f'POST /predict HTTP/1.1\r\nHost: {place.netloc}\r\n'
                         'Content-Length: 100000\r\n\r\n'.encode())
            while not answer and not done.is_set():
                line.sendall(b'x')
                try:
                    answer = line.recv(64)
                    if not answer:
                        break
                except TimeoutError:
                    pass
    except OSError:
        pass
    words = answer.split()
    status = words[1].decode() if len(words) > 1 else 'cut off' if done.is_set() else 'closed'
    return Visit(status, time.monotonic() - start)


def hang_up(address: str, body: bytes, number: int) -> Visit:
    """Sends a header, and nothing, a half or all of the body, and goes without the answer."""
    start, place = time.monotonic(), urlsplit(address)
    with suppress(OSError), socket.create_connection((place.hostname, place.port), 60) as line:
        line.sendall(f'POST {ASK}f{number % 500:x},teapot HTTP/1.1\r\nHost: {place.netloc}\r\n'
                     f'Content-Length: {len(body)}\r\n\r\n'.encode())
        line.sendall(body[:len(body) * (number % 3) // 2])
    return Visit('hung up', time.monotonic() - start)


def at_once(count: int, visit: Callable[[int], Visit]) -> list[Visit]:
    """Lets so many clients ask at the same time."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(visit, range(count)))


def try_endpoint(address: str, clients: int, files: int,
                 memory: Callable[[], float]) -> list[dict[str, object]]:
    """All trials; a row of numbers for each.

    Args:
        address (str): Of the page.
        clients (int): At once.
        files (int): Pictures that the patient clients send in all.
        memory (Callable): Megabytes of the server.
    """
    rows = []

    def count(trial: str, visits: list[Visit], before: float, **more: object) -> None:
        answered = [visit.seconds for visit in visits if visit.status == '200']
        rows.append(dict(
            trial=trial, requests=len(visits),
            statuses=dict(sorted(Counter(visit.status for visit in visits).items())),
            median_seconds=round(median(answered or [0]), 2),
            slowest_seconds=round(max((visit.seconds for visit in visits), default=0), 2),
            mb_before=round(before), mb_after=round(memory()), **more))
        print(rows[-1], flush=True)

    send(address, picture())
    before = memory()
    count('one after the other', [send(address, picture(), f'a{i:x}') for i in range(20)], before)
    before = memory()
    count(f'{clients} at once', at_once(
        clients, lambda i: send(address, picture(), f'b{i:x}')), before)
    before = memory()
    visits = at_once(clients, lambda i: patient(address, picture(), f'c{i:x}'))
    count(f'{clients} at once, with patience', visits, before,
          sent=sum(visit.tries for visit in visits))
    before, done = memory(), Event()
    with ThreadPoolExecutor(clients) as pool:
        slow = [pool.submit(drip, address, done) for _ in range(clients)]
        time.sleep(5)  # they have their places
        count(f'10 clients beside {clients} slow bodies', at_once(
            10, lambda i: send(address, picture(), f'd{i:x}')), before)
        count('the slow bodies', [one.result() for one in slow], before)
        done.set()
    before = memory()
    with ThreadPoolExecutor(clients) as pool:
        gone = [pool.submit(hang_up, address, picture(), i) for i in range(files)]
        count('10 clients beside those who hang up', at_once(
            10, lambda i: patient(address, picture(), f'g{i:x}')), before)
        count(f'{files} clients that hang up', [one.result() for one in gone], before)
    before = memory()
    count('10 clients after them', at_once(
        10, lambda i: patient(address, picture(), f'h{i:x}')), before)
    large, holes, none = b'x' * (25 << 20), bomb(), b'GIF89a' + b'\0' * 1000
    for trial, body, number in (('25 MB', large, 20), ('30,000 x 30,000 pixels', holes, 20),
                                ('no picture', none, clients)):
        before = memory()
        count(f'{number} x {trial}', at_once(
            number, lambda i, body=body: patient(address, body, 'none')), before)
    before = memory()
    with ThreadPoolExecutor(10) as pool:
        visits = list(pool.map(lambda i: patient(address, picture(), f'e{i % 500:x}'),
                               range(files)))
    count(f'{files} files from 10 clients', visits, before,
          sent=sum(visit.tries for visit in visits))
    return rows
