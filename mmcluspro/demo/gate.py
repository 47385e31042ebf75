"""Who may talk to the page, how much they may send, and how long they may take."""
from __future__ import annotations

import asyncio
import time
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from fastapi import HTTPException
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mmcluspro.utils.files import remove

from .endpoint import PATH

UPLOAD = '/gradio_api/upload'
MAX_BODY = 32 * 1024**2  # of a request that uploads nothing: three boxes of text
MAX_UPLOADS = 2 * 1024**3  # that are kept, and that arrive at the same time
MAX_ARRIVING = 100  # uploads at the same time
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
        if self.arriving >= MAX_ARRIVING:
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
