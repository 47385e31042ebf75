"""``POST /predict``: a picture in, JSON out, for programs."""
from __future__ import annotations

import asyncio
import os
import tempfile
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse

from mmcluspro.apis.images import Item

from .lists import parse_pairs
from .logic import Classifier

PATH = '/predict'
MAX_BYTES = 20 * 1024**2
MAX_WAITING, MAX_TOP = 20, 20
MAX_SECONDS = 60  # for the body: who sends it byte by byte must not keep a place for ever


class Endpoint:
    """Answers one picture per request, a few requests at a time.

    Args:
        classifier (Classifier): Answers.
        folder (str): Folder for a picture while it is read.
    """

    def __init__(self, classifier: Classifier, folder: str) -> None:
        self.classifier, self.folder = classifier, folder
        self.waiting = 0

    async def answer(self, request: Request) -> JSONResponse:
        """The picture is the body; ``top_k`` and ``pair`` (``attribute,object``) are optional."""
        if self.waiting >= MAX_WAITING:
            return _error('Too many requests are waiting. Try again in a few seconds.', 503)
        self.waiting += 1
        try:
            body = await asyncio.wait_for(_body(request), MAX_SECONDS)
            if body is None:
                return _error(f'The picture has more than {MAX_BYTES // 1024**2} MB.', 413)
            pairs = request.query_params.getlist('pair')
            top_k = _number(request.query_params.get('top_k', '3'))
            found = await asyncio.to_thread(self._answer, body, pairs, top_k)
        except asyncio.TimeoutError:
            return _error(f'The picture took more than {MAX_SECONDS} seconds to arrive.', 408)
        except ValueError as error:
            return _error(str(error), 400)
        finally:
            self.waiting -= 1
        return JSONResponse(found, 400 if found['error'] else 200)

    def _answer(self, body: bytes, pairs: list[str], top_k: int) -> dict[str, Any]:
        chosen = parse_pairs('\n'.join(pairs)) if pairs else None
        os.makedirs(self.folder, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self.folder) as file:
            file.write(body)
            file.flush()
            item = Item('upload', file.name)
            found = self.classifier.predictions([item], chosen, top_k=top_k)[0].to_dict()
        if found['error']:  # may name the file
            found['error'] = found['error'].replace(file.name, 'the upload')
        return found


async def _body(request: Request) -> bytes | None:
    """The body of a request, or None if it is too long; reading stops at the limit."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BYTES:
            return None
        parts.append(part)
    if not size:
        raise ValueError('The body is empty: send a picture, for example with curl --data-binary '
                         '@photo.jpg.')
    return b''.join(parts)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 3 or not 1 <= int(text) <= MAX_TOP:
        raise ValueError(f'top_k must be a number from 1 to {MAX_TOP}.')
    return int(text)


def _error(text: str, status: int) -> JSONResponse:
    return JSONResponse(dict(error=text), status)
