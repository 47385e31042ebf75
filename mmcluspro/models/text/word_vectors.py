"""Word vectors from word2vec, GloVe, fastText text and ``.npz`` files, read as a stream."""
import gzip
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch
from torch import Tensor

from mmcluspro.datasets import resolve_readable
from mmcluspro.errors import FileError, reason_of
from mmcluspro.utils.plain_files import read_npz

from ..clip_loader import get_tokenizer, load_clip

TINY = 'tiny_clip'


@torch.no_grad()
def clip_vectors(words: Sequence[str]) -> Tensor:
    """Features of the text tower for ``a photo of <word>``, shape (n, D), not normalised.

    Args:
        words (Sequence[str]): Readable names; the tower knows those of Shapes.
    """
    model, tokenizer = _tower()
    with torch.device('cpu'):
        return model.encode_text(tokenizer([f'a photo of {word}' for word in words])).float()


@lru_cache(maxsize=1)
def _tower() -> tuple[Any, Any]:
    # On the CPU also where a model is built on the meta device; building a tower draws random
    # numbers, which would change the weights of the model that comes after it.
    with torch.device('cpu'), torch.random.fork_rng(devices=[]):
        return load_clip(TINY, TINY), get_tokenizer(TINY)


BLOCK = 1 << 20
LINE, WORD, WIDEST, MOST = 1 << 22, 1 << 16, 100_000, 10**18
REMEDY = ('Get the file again, or set model.head.text.path to another one: .npz with the arrays '
          'words and vectors, .bin of word2vec, or text with a word and its numbers on each line.')
# Google's word2vec file has no vectors for some of these; they add nothing to a name.
LITTLE_WORDS = frozenset(('a', 'an', 'and', 'of', 'the', 'to'))
SOURCES = (
    'GoogleNews-vectors-negative300.bin.gz (word2vec, code.google.com/archive/p/word2vec), '
    'glove.6B.300d.txt (GloVe, nlp.stanford.edu/projects/glove) or crawl-300d-2M.vec (fastText, '
    'fasttext.cc/docs/en/english-vectors.html)')


def embed_names(names: Sequence[str], path: str | Path,
                readable: Mapping[str, str] | Any | None = None) -> Tensor:
    """Word vectors of attribute or object names.

    A name of several words is looked up as one ("faux_fur", "faux-fur"), then as the mean of its
    words, without an "and" or "of" that the file lacks.

    Args:
        names (Sequence[str]): Raw or readable names.
        path (str | Path): File as in :func:`load_word_vectors`, or 'tiny_clip', see
            :func:`clip_vectors`.
        readable (dict | callable | str | None): Overrides of the readable names, see
            :func:`mmcluspro.datasets.resolve_readable`. Defaults to None.

    Returns:
        Tensor: Shape (n, D), float32, not normalised.
    """
    words = [resolve_readable(readable)(name) for name in names]
    if str(path) == TINY:
        return clip_vectors(words)
    joined = {word: [word.replace(' ', sign) for sign in ' _-'] for word in words}
    parts = {word: re.split(r'[\s_\-]+', word) for word in words}
    wanted = {key for word in words for key in (*joined[word], *parts[word])}
    table = load_word_vectors(path, wanted)
    found, missing = {}, []
    for word in joined:
        whole = next((key for key in joined[word] if key in table), None)
        there = [part for part in parts[word] if part in table]
        lacking = [part for part in parts[word] if part not in table
                   and not (there and part in LITTLE_WORDS)]
        if whole is not None:
            found[word] = table[whole]
        elif lacking:
            missing.append(repr(word) if lacking == [word] else f'{word!r} (lacks {lacking})')
        else:
            found[word] = np.mean([table[part] for part in there], axis=0)
    if missing:
        raise ValueError(
            f'{path} has no vectors for {len(missing)} of {len(joined)} names: '
            f'{", ".join(missing)}. Give them words it has through readable '
            '(raw name -> words).')
    return torch.from_numpy(np.stack([found[word] for word in words]).astype(np.float32))


def load_word_vectors(path: str | Path, words: Collection[str]) -> dict[str, np.ndarray]:
    """Reads the vectors of the given words, without keeping the others in memory.

    Args:
        path (str | Path): ``.npz`` with arrays ``words`` and ``vectors``, or with one array for
            each word; ``.bin`` of word2vec; anything else is text with one word and its numbers per
            line (GloVe), optionally after a line with two counts (word2vec, fastText). ``.gz``
            versions of the last two are unpacked while reading.
        words (Collection[str]): The words to look for.

    Returns:
        dict[str, ndarray]: Vectors of the words that were found, shape (D,), float32.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f'There is no file with word vectors at {path.absolute()}. Get {SOURCES}, and set '
            'model.head.text.path to where it lies.')
    if path.suffix == '.npz':
        return _from_npz(path, words)
    wanted = {word.encode(): word for word in words}
    binary = path.name.removesuffix('.gz').endswith('.bin')
    found: dict[str, np.ndarray] = {}
    try:
        with cast(BinaryIO, gzip.open(path) if path.suffix == '.gz' else path.open('rb')) as file:
            for word, vector in (_from_binary if binary else _from_text)(file, path, wanted):
                found.setdefault(wanted[word], vector)
                if len(found) == len(wanted):
                    break
    except (EOFError, OSError, zlib.error) as error:  # of the packed file
        raise FileError(path, f'it is cut off or damaged ({reason_of(error)})', REMEDY) from error
    return found


def _from_text(file: BinaryIO, path: Path,
               wanted: Collection[bytes]) -> Iterator[tuple[bytes, np.ndarray]]:
    width = count = number = 0
    # By hand: a file without line ends would be one line of any size.
    while line := file.readline(LINE):
        number += 1
        if len(line) == LINE:
            raise FileError(path, f'it has more than {LINE:,} bytes', REMEDY, f'line {number}')
        line = line.rstrip()
        if number == 1:
            fields = line.split(b' ')
            if len(fields) == 2 and all(field.isdigit() for field in fields):
                count, width = _counts(fields, path)
                continue
            width = len(fields) - 1
        num_fields = line.count(b' ') + 1
        if num_fields < width + 1 or width < 1:
            raise FileError(
                path, f'a word and {width} numbers expected, got {num_fields} fields: the file is '
                'cut off, damaged or no text file of word vectors', REMEDY, f'line {number}')
        # GloVe 840B has a few words with spaces inside: the last ``width`` fields are the numbers.
        word = line[:line.find(b' ')] if num_fields == width + 1 else line.rsplit(b' ', width)[0]
        if word in wanted:
            yield word, _parse(line[len(word):].split(), width, path, number)
    if not number:
        raise FileError(path, 'it is empty', REMEDY)
    if count and number - 1 < count:
        raise FileError(path, f'it is cut off: its first line promises {count} words', REMEDY,
                        f'after line {number}')


def _counts(fields: list[bytes], path: Path) -> tuple[int, int]:
    """Number of words and width of the first line."""
    count, width = (int(field) if len(field) < 19 else MOST for field in fields)
    if not 1 <= width <= WIDEST:
        raise FileError(path, f'it claims vectors of width {width:,}; up to {WIDEST:,} are read',
                        REMEDY, 'line 1')
    return count, width


def _parse(fields: list[bytes], width: int, path: Path, number: int) -> np.ndarray:
    try:
        vector = np.array(fields, dtype=np.float32)
    except ValueError as error:
        raise FileError(path, reason_of(error), REMEDY, f'line {number}') from error
    return _checked(vector, width, path, f'line {number}')


def _checked(vector: np.ndarray, width: int, path: Path, place: str) -> np.ndarray:
    if vector.shape != (width, ) or not np.isfinite(vector).all():
        what = 'a value is not finite' if vector.shape == (width, ) else (
            f'{width} numbers expected, got an array of shape {vector.shape}')
        raise FileError(path, what, REMEDY, place)
    return vector


def _from_binary(file: BinaryIO, path: Path,
                 wanted: Collection[bytes]) -> Iterator[tuple[bytes, np.ndarray]]:
    header = file.readline(100).split()
    if len(header) != 2 or not all(field.isdigit() for field in header):
        raise FileError(
            path, 'it is not a word2vec binary: its first line should hold two counts, got '
            f'{header[:4]}', 'Text files of word vectors must not end in .bin.', 'line 1')
    count, width = _counts(header, path)
    buffer, start = b'', 0
    for index in range(count):
        # The word ends at the first space; its vector is the next 4 * width bytes.
        while (space := buffer.find(b' ', start, start + WORD)) < 0 or (
                len(buffer) < space + 1 + 4 * width):
            block = file.read(BLOCK)
            if not block or space < 0 and len(buffer) - start > WORD:
                raise FileError(path, f'word {index + 1} of {count} is not complete: the file is '
                                'cut off, or damaged', REMEDY, f'byte {file.tell()}')
            buffer, start = buffer[start:] + block, 0
        word = buffer[start:space].lstrip(b'\n')
        start = space + 1 + 4 * width
        if word in wanted:
            vector = np.frombuffer(buffer[space + 1:start], dtype='<f4')
            yield word, _checked(vector, width, path, f'word {index + 1} ({word!r})')


def _from_npz(path: Path, words: Collection[str]) -> dict[str, np.ndarray]:
    arrays = read_npz(path, REMEDY, {'words', 'vectors', *words}.__contains__)
    if {'words', 'vectors'} <= set(arrays):
        stored, vectors = arrays['words'], arrays['vectors']
        if vectors.ndim != 2 or stored.shape != vectors.shape[:1] or stored.dtype.kind != 'U':
            raise FileError(path, f'words is {stored.dtype} {stored.shape}, vectors is '
                            f'{vectors.shape}', REMEDY)
        rows = {str(word): row for row, word in enumerate(stored)}
        found = {word: vectors[rows[word]] for word in words if word in rows}
    elif any(array.ndim == 2 or array.dtype.kind == 'U' for array in arrays.values()):
        raise FileError(path, f'the array {", ".join(arrays)} is alone, words and vectors belong '
                        'together', REMEDY)
    else:
        found = {word: arrays[word] for word in words if word in arrays}
    widths = {array.shape[0] for array in found.values() if array.ndim == 1}
    if len(widths) > 1:
        raise FileError(path, f'its vectors have different widths: {sorted(widths)}', REMEDY)
    width = widths.pop() if widths else 0
    return {word: _checked(_numbers(array, path, word), width, path, f'word {word!r}')
            for word, array in found.items()}


def _numbers(array: np.ndarray, path: Path, word: str) -> np.ndarray:
    if array.dtype.kind not in 'fiu':
        raise FileError(path, f'numbers expected, got {array.dtype}', REMEDY, f'word {word!r}')
    return array.astype(np.float32)
