"""``POST /predict``: a picture in, JSON out, for programs."""
from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from mmcluspro.artefact.images import Item

from .lists import parse_pairs
from .logic import Classifier

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
            found = self.classifier.predictions([item], chosen, top_k=top_k)[0].to_dict()
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
