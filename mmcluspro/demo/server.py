"""The server of the page: ``POST /predict``, who may ask, how much and how long, its start."""
from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncGenerator
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from fastapi import HTTPException, Request
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mmcluspro.artefact.images import Item
from mmcluspro.utils.files import remove

from .logic import Classifier, parse_pairs

# Gradio serves what lies in the second one as it is, so that uploads must not get there.
UPLOADS, PICTURES = 'uploads', 'examples'
PATH = '/predict'
MAX_BYTES = 20 * 1024**2
MOST_READ = 10 * MAX_BYTES  # of a body that is too long, before the connection is cut
MAX_WAITING, MAX_TOP = 20, 20
# Bodies that arrive have places of their own: those that come byte by byte keep no one else away.
MAX_ARRIVING, MAX_HELD = 200, 200 * 1024**2
MAX_SECONDS = 60  # for a body
SEND = 'send one picture, for example with curl -F file=@photo.jpg.'
BUSY = 'Too many requests are waiting. Try again in a few seconds.'


class Endpoint:
    """Answers one picture per request, a few requests at a time.

    Args:
        classifier (Classifier): Answers.
        folder (str): Folder for a picture while it is read.
    """

    def __init__(self, classifier: Classifier, folder: str) -> None:
        self.classifier, self.folder = classifier, folder
        self.arriving = self.waiting = self.held = 0  # bodies, requests, bytes

    async def answer(self, request: Request) -> JSONResponse:
        """The picture is the body, or the one file of a form.

        ``top_k`` and ``pair`` (``attribute,object``) are optional.
        """
        if self.waiting >= MAX_WAITING or self.arriving >= MAX_ARRIVING:
            return _error(BUSY, 503)
        parts: list[bytes] = []
        try:
            refused = await self._receive(request, parts)
            if refused is not None:
                return refused
            pairs = request.query_params.getlist('pair')
            top_k = _number(request.query_params.get('top_k', '3'))
            if self.waiting >= MAX_WAITING:
                return _error(BUSY, 503)
            self.waiting += 1
            try:
                found = await asyncio.to_thread(self._answer, request.headers, b''.join(parts),
                                                pairs, top_k)
            finally:
                self.waiting -= 1
        except ValueError as error:
            return _error(str(error), 400)
        except OSError:  # its text would name a path of the server
            return _error('The server has no room for the picture. Try again later.', 503)
        finally:
            self._drop(parts)
        return JSONResponse(found, 400 if found['error'] else 200)

    def _drop(self, parts: list[bytes]) -> None:
        self.held -= sum(map(len, parts))
        parts.clear()

    async def _receive(self, request: Request, parts: list[bytes]) -> JSONResponse | None:
        """Reads the body into ``parts``, or says why not."""
        async def read() -> JSONResponse | None:
            size, declared = 0, request.headers.get('content-length', '')
            too_long = declared.isdigit() and (len(declared) > 12 or int(declared) > MAX_BYTES)
            async for part in request.stream():
                size += len(part)
                if too_long or size > MAX_BYTES:  # not kept, but read: a client that still sends
                    too_long = True  # would not see the answer
                    self._drop(parts)
                    if size > MOST_READ:
                        break
                    continue
                if self.held + len(part) > MAX_HELD:
                    return _error(BUSY, 503)
                parts.append(part)
                self.held += len(part)
            if too_long:
                return _error(f'The picture has more than {MAX_BYTES // 1024**2} MB.', 413)
            if not size:
                raise ValueError(f'The body is empty: {SEND}')
            return None

        self.arriving += 1
        try:
            return await asyncio.wait_for(read(), MAX_SECONDS)
        except asyncio.TimeoutError:
            return _error(f'The picture took more than {MAX_SECONDS} seconds to arrive.', 408)
        except ClientDisconnect:
            return _error('The connection ended before the picture was there.', 400)
        finally:
            self.arriving -= 1

    def _answer(self, headers: Headers, body: bytes, pairs: list[str],
                top_k: int) -> dict[str, Any]:
        body = _picture(headers, body)
        chosen = parse_pairs('\n'.join(pairs), bare=True) if pairs else None
        os.makedirs(self.folder, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self.folder) as file:
            file.write(body)
            file.flush()
            item = Item('upload', file.name)
            prediction, notes = self.classifier.predictions([item], chosen, top_k=top_k)[0]
        found = dict(prediction.to_dict(), notes=notes)
        if found['error']:  # may name the file
            found['error'] = found['error'].replace(file.name, 'the upload')
        return found


def _picture(headers: Headers, body: bytes) -> bytes:
    """The file of a form; any other body is the picture itself."""
    if not headers.get('content-type', '').lower().startswith('multipart/form-data'):
        return body

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    async def read() -> bytes:
        form = await MultiPartParser(headers, stream(), max_files=1, max_fields=10).parse()
        files = [value for value in form.values() if isinstance(value, UploadFile)]
        content = await files[0].read() if files else b''
        await form.close()
        return content

    try:
        content = asyncio.run(read())  # in the thread of this request, not in the server's loop
    except MultiPartException as error:
        raise ValueError(f'The form cannot be read ({error.message.rstrip(".")}): {SEND}') from None
    if not content:
        raise ValueError(f'There is no picture in the form: {SEND}')
    return content


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 3 or not 1 <= int(text) <= MAX_TOP:
        raise ValueError(f'top_k must be a number from 1 to {MAX_TOP}.')
    return int(text)


def _error(text: str, status: int) -> JSONResponse:
    return JSONResponse(dict(error=text), status)


UPLOAD = '/gradio_api/upload'
MAX_BODY = 32 * 1024**2  # of a request that uploads nothing: three boxes of text
MAX_UPLOADS = 2 * 1024**3  # that are kept, and that arrive at the same time
MAX_UPLOADING = 100  # at the same time
MAX_SILENCE = 60  # seconds between two parts of a body
# Connections without a complete header: each may stay so long, in seconds, and so many may stay.
MAX_HEADER, MAX_UNFINISHED, LOOK = 20, 200, 1


class Gate:
    """Refuses requests of other web sites, and bodies without end; the rest goes on to the page.

    A page that listens at a loopback address answers to loopback names only: a web site could
    point its own name at this machine. Everywhere, a request whose ``Origin`` is not the page's
    own address is refused. ``POST /predict`` bounds its bodies itself.

    Args:
        app (ASGIApp): The page.
        host (str): Where it listens.
        uploads (str | Path): Folder of the uploads.
        names (set[str]): Names besides loopback ones to which a page at a loopback address
            answers; it may grow later.
    """

    def __init__(self, app: ASGIApp, host: str, uploads: str | Path, names: set[str]) -> None:
        self.app, self.uploads, self.names = app, Path(uploads), names
        self.local = is_loopback(host)
        self.arriving = self.bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or refuses it."""
        if scope['type'] != 'http':
            await self.app(scope, receive, send)
            return
        refused = self._foreign(Headers(scope=scope))
        if refused:
            await JSONResponse(dict(error=refused), 403)(scope, receive, send)
        elif scope['path'] == PATH:
            await self.app(scope, receive, send)
        elif scope['path'].rstrip('/') == UPLOAD:
            await self._upload(scope, receive, send)
        else:
            size = 0

            async def bounded() -> Message:
                nonlocal size
                message = await next_part(receive)
                size += len(message.get('body', b''))
                if size > MAX_BODY:
                    raise HTTPException(413, f'The request has more than {MAX_BODY >> 20} MB.')
                return message

            has_body = scope['method'] not in ('GET', 'HEAD')
            await self.app(scope, bounded if has_body else receive, send)

    def _foreign(self, headers: Headers) -> str:
        """Why a request comes from elsewhere; '' if it does not."""
        host, origin = headers.get('host', ''), headers.get('origin')
        name = urlsplit(f'//{host}').hostname or ''
        if self.local and not is_loopback(name) and name not in self.names:
            return ('This page answers on its own machine only (localhost). To serve it under '
                    'other names, start it with --host 0.0.0.0.')
        if origin is not None and urlsplit(origin).netloc not in (
                host, headers.get('x-forwarded-host')):
            return 'Requests from other web sites are refused.'
        return ''

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.arriving >= MAX_UPLOADING:
            busy = JSONResponse(dict(error='Too many uploads at once. Try again later.'), 503)
            await busy(scope, receive, send)
            return
        size = 0

        async def bounded() -> Message:
            nonlocal size
            message = await next_part(receive)
            part = len(message.get('body', b''))
            size += part
            self.bytes += part
            if self.bytes > MAX_UPLOADS:
                raise HTTPException(413, 'These uploads, with those of others that arrive now, '
                                    f'have more than {MAX_UPLOADS >> 20} MB. Send fewer at once.')
            return message

        self.arriving += 1
        try:
            await asyncio.to_thread(make_room, self.uploads)
            await self.app(scope, bounded, send)
        finally:
            self.arriving -= 1
            self.bytes -= size


def is_loopback(name: str) -> bool:
    """Whether a name or address is that of the machine itself."""
    try:
        return name == 'localhost' or ip_address(name.strip('[]')).is_loopback
    except ValueError:
        return False


async def next_part(receive: Receive) -> Message:
    """The next part of a body, which has to come in time."""
    try:
        return await asyncio.wait_for(receive(), MAX_SILENCE)
    except asyncio.TimeoutError:
        raise HTTPException(408, f'Nothing arrived for {MAX_SILENCE} seconds.') from None


def make_room(uploads: Path) -> None:
    """Deletes the oldest uploads until they take :data:`MAX_UPLOADS` at most."""
    found = []
    for entry in uploads.iterdir() if uploads.is_dir() else ():
        files = [entry, *entry.rglob('*')]
        found.append((entry.lstat().st_mtime, sum(file.lstat().st_size for file in files), entry))
    total = sum(size for _, size, _ in found)
    for _, size, entry in sorted(found):
        if total <= MAX_UPLOADS:
            break
        remove(uploads, entry)
        total -= size


def close_unfinished(server: Any) -> None:
    """Closes connections that do not get to a request, in the background, while a server runs.

    uvicorn waits for a header for ever, and a process has a limited number of open files.

    Args:
        server (uvicorn.Server): It runs in another thread.
    """
    def silent(connection: Any) -> bool:
        return hasattr(connection, 'cycle') and (
            connection.cycle is None or connection.cycle.response_complete)

    def close(connection: Any) -> None:
        if silent(connection):
            connection.transport.close()

    def watch() -> None:
        since: dict[Any, float] = {}
        while not server.should_exit:
            now = time.monotonic()
            since = {each: since.get(each, now) for each in list(server.server_state.connections)
                     if silent(each)}
            oldest = sorted(since, key=since.__getitem__)
            surplus = len(oldest) - MAX_UNFINISHED
            for place, each in enumerate(oldest):
                if place < surplus or now - since[each] > MAX_HEADER:
                    # Where the loop is busy, a header may be there unread: it is read before.
                    each.loop.call_soon_threadsafe(each.loop.call_soon, close, each)
            time.sleep(LOOK)

    Thread(target=watch, name='unfinished', daemon=True).start()


def serve(app: Any, endpoint: Endpoint, folder: str, host: str, port: int | None,
          share: bool = False) -> str:
    """Starts the server in the background.

    Returns:
        str: The page's address.
    """
    from .app import STYLE, theme
    names: set[str] = set()
    gate = Middleware(Gate, host=host, uploads=os.path.join(folder, UPLOADS), names=names)
    try:
        server, address, public = app.launch(
            server_name=host, server_port=port, share=share, quiet=True,
            prevent_thread_lock=True, show_error=False, max_file_size='20mb', footer_links=[],
            allowed_paths=[os.path.join(folder, PICTURES)], state_session_capacity=200,
            ssr_mode=False, pwa=False, theme=theme(), css_paths=STYLE, enable_monitoring=False,
            app_kwargs=dict(middleware=[gate]))
    except OSError as error:
        raise ValueError(f'The page cannot listen at {host}, port {port or "7860 … 7959"}: '
                         f'{error} Choose another with --port.') from error
    close_unfinished(app.server)
    if public:
        names.add(str(urlsplit(public).hostname))
    server.add_route(PATH, endpoint.answer, methods=['POST'])
    return public or address
