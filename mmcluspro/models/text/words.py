"""Word vectors: reading word2vec, GloVe, fastText and ``.npz`` files, and text sides made of them.

Files are read as a stream. The text sides have no tower: vectors of the names and a small composer
(Table 9).
"""
from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, BinaryIO, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.datasets import resolve_readable
from mmcluspro.errors import FileError, reason_of
from mmcluspro.fields import Unsaved, Width, number
from mmcluspro.models.clip import load_clip
from mmcluspro.models.necks import mlp
from mmcluspro.models.text.tokenizer import get_tokenizer
from mmcluspro.registry import MODELS
from mmcluspro.utils.plain_files import read_npz

from .encoder import Readable, TextEncoder, log_scale
from .prompts import NameTable

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


def embed_names(names: Sequence[str], path: str | Path | Mapping[str, np.ndarray],
                readable: Mapping[str, str] | Any | None = None) -> Tensor:
    """Word vectors of attribute or object names.

    A name of several words is looked up as one ("faux_fur", "faux-fur"), then as the mean of its
    words, without an "and" or "of" that the file lacks. Capitals count where the file has them.

    Args:
        names (Sequence[str]): Raw or readable names.
        path (str | Path | Mapping): File as in :func:`load_word_vectors`, or 'tiny_clip', see
            :func:`clip_vectors`; or the vectors by their words.
        readable (dict | callable | str | None): Overrides of the readable names, see
            :func:`mmcluspro.datasets.resolve_readable`. Defaults to None.

    Returns:
        Tensor: Shape (n, D), float32, not normalised.
    """
    words = [resolve_readable(readable)(name) for name in names]
    if str(path) == TINY:
        return clip_vectors(words)
    joined, parts = _spelled(words)
    wanted = {key for word in words for key in (*joined[word], *parts[word])}
    table = dict(path) if isinstance(path, Mapping) else load_word_vectors(
        path, wanted | {key.lower() for key in wanted})
    for key in wanted - table.keys():
        if key.lower() in table:
            table[key] = table[key.lower()]
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
        if isinstance(path, Mapping):
            raise ValueError(
                f'The checkpoint has no vectors for {", ".join(missing)}: it holds the '
                f'{len(path):,} commonest words. Take other words, or give the file of word '
                "vectors with --weights words=FILE (weights=dict(words='FILE') in Python).")
        raise ValueError(
            f'{path} has no vectors for {len(missing)} of {len(joined)} names: '
            f'{", ".join(missing)}. Give them words it has through readable '
            '(raw name -> words).')
    return torch.from_numpy(np.stack([found[word] for word in words]).astype(np.float32))


def _spelled(words: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """How names may be written as one word, and their single words."""
    return ({word: [word.replace(' ', sign) for sign in ' _-'] for word in words},
            {word: re.split(r'[\s_\-]+', word) for word in words})


def load_word_vectors(path: str | Path, words: Collection[str],
                      first: int = 0) -> dict[str, np.ndarray]:
    """Reads the vectors of the given words, without keeping the others in memory.

    Args:
        path (str | Path): ``.npz`` with arrays ``words`` and ``vectors``, or with one array for
            each word; ``.bin`` of word2vec; anything else is text with one word and its numbers per
            line (GloVe), optionally after a line with two counts (word2vec, fastText). ``.gz``
            versions of the last two are unpacked while reading.
        words (Collection[str]): The words to look for.
        first (int): How many words from the start of the file to read as well; published files
            begin with the commonest. Defaults to 0.

    Returns:
        dict[str, ndarray]: Vectors of the words that were found, shape (D,), float32.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f'There is no file with word vectors at {path.absolute()}. Get {SOURCES}, and set '
            'model.head.text.path to where it lies.')
    if path.suffix == '.npz':
        return _from_npz(path, words, first)
    wanted, left = {word.encode(): word for word in words}, len(words)
    binary = path.name.removesuffix('.gz').endswith('.bin')
    found: dict[str, np.ndarray] = {}
    try:
        with cast(BinaryIO, gzip.open(path) if path.suffix == '.gz' else path.open('rb')) as file:
            for number, word, vector in (_from_binary if binary else _from_text)(
                    file, path, wanted, first):
                name = wanted.get(word) or word.decode(errors='replace')
                left -= word in wanted and name not in found
                found.setdefault(name, vector)
                if not left and number >= first:
                    break
    except (EOFError, OSError, zlib.error) as error:  # of the packed file
        raise FileError(path, f'it is cut off or damaged ({reason_of(error)})', REMEDY) from error
    return found


Found = Iterator[tuple[int, bytes, np.ndarray]]  # place in the file, word, vector


def _from_text(file: BinaryIO, path: Path, wanted: Collection[bytes], first: int) -> Found:
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
        if word in wanted or number <= first:
            yield number, word, _parse(line[len(word):].split(), width, path, number)
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


def _from_binary(file: BinaryIO, path: Path, wanted: Collection[bytes], first: int) -> Found:
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
        if word in wanted or index < first:
            vector = np.frombuffer(buffer[space + 1:start], dtype='<f4')
            yield index + 1, word, _checked(vector, width, path, f'word {index + 1} ({word!r})')


def _from_npz(path: Path, words: Collection[str], first: int) -> dict[str, np.ndarray]:
    arrays = read_npz(path, REMEDY, {'words', 'vectors', *words}.__contains__)
    if {'words', 'vectors'} <= set(arrays):
        stored, vectors = arrays['words'], arrays['vectors']
        if vectors.ndim != 2 or stored.shape != vectors.shape[:1] or stored.dtype.kind != 'U':
            raise FileError(path, f'words is {stored.dtype} {stored.shape}, vectors is '
                            f'{vectors.shape}', REMEDY)
        rows = {str(word): row for row, word in enumerate(stored)}
        found = {word: vectors[rows[word]] for word in {*words, *list(rows)[:first]}
                 if word in rows}
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


@MODELS.register_module()
class WordTableText(TextEncoder):
    """Plain word vectors of attributes and objects; a pair is their concatenation.

    Subclasses override :meth:`compose`, which embeds pairs, and :meth:`single`, which embeds
    attributes or objects.

    Args:
        attributes (Sequence[str]): Raw names.
        objects (Sequence[str]): Raw names.
        path (str, optional): File with word vectors, see :func:`load_word_vectors`, or 'tiny_clip'
            for the features of the names in the shipped CLIP. With None, the vectors come from a
            checkpoint, and the words of new names from what it keeps, see ``keep_words``.
        out_dim (int, optional): Width of the features of pairs. Defaults to None, that of two
            word vectors.
        learn_vectors (bool): Train the word vectors. Defaults to False.
        temperature (float): Of the cosine classifiers. Defaults to 0.05.
        learn_temperature (bool): Train ``logit_scale``. Defaults to False.
        chunk_size (int): Number of pairs that are composed together. Defaults to 65536.
        readable (dict | callable | str | None): Overrides of the readable names, see
            :func:`mmcluspro.datasets.resolve_readable`. Defaults to None.
        width (int): Width of the vectors without a file. Defaults to 300.
        keep_words (int): How many of the commonest words of the file a checkpoint keeps, with
            those of the names, so that it can answer for new names alone. Defaults to 0, none.
        unit_vectors (bool): Whether word vectors start with unit norm, not with the length that
            the file has. Defaults to True.
    """

    def __init__(self, attributes: Unsaved[Sequence[str]], objects: Unsaved[Sequence[str]],
                 path: Unsaved[str | Path | None], out_dim: Width | None = None,
                 learn_vectors: Unsaved[bool] = False,
                 temperature: Annotated[float, number(1e-6, 1e6)] = 0.05,
                 learn_temperature: Unsaved[bool] = False, chunk_size: Unsaved[int] = 65536,
                 readable: Readable = None, width: Unsaved[int] = 300,
                 keep_words: Unsaved[int] = 0, unit_vectors: bool = True) -> None:
        if chunk_size < 1:
            raise ValueError(f'text.chunk_size must be at least 1, got {chunk_size}.')
        super().__init__(attributes, objects, out_dim or 2 * width, log_scale(temperature),
                         learn_temperature, readable)
        self.path: str | Path | Mapping[str, np.ndarray] | None = path
        self.chunk_size, self.keep_words = chunk_size, keep_words
        self.unit_vectors = unit_vectors
        vectors = torch.zeros(len(attributes) + len(objects), width) if path is None else (
            self._vectors([*attributes, *objects]))
        self.width = vectors.shape[1]
        self.out_dim = out_dim or 2 * self.width
        self.attr_table = NameTable(vectors[:len(attributes)].split(1), learn_vectors)
        self.obj_table = NameTable(vectors[len(attributes):].split(1), learn_vectors)

    def parts(self) -> tuple[Tensor, Tensor]:
        return self.attr_table(), self.obj_table()

    def embed(self, path: str, parts: tuple[Tensor, Tensor], pairs: Tensor | None) -> Tensor:
        if path != 'composition' or pairs is None:
            return self.single(path, parts[0] if path == 'attribute' else parts[1])
        self._check_range(pairs)
        chunks = pairs.to(parts[0].device).split(self.chunk_size)
        return torch.cat([self.compose(parts, chunk) for chunk in chunks])

    def single(self, path: str, vectors: Tensor) -> Tensor:
        """Features of names from their vectors (n, width).

        Args:
            path (str): 'attribute' or 'object'.
            vectors (Tensor): Of all names of this kind.
        """
        return vectors

    def compose(self, parts: tuple[Tensor, Tensor], pairs: Tensor) -> Tensor:
        """Features of pairs, shape (P, out_dim).

        Args:
            parts (tuple[Tensor, Tensor]): Vectors of all attributes and of all objects.
            pairs (Tensor): Attribute and object of each pair, shape (P, 2).
        """
        return torch.cat([parts[0][pairs[:, 0]], parts[1][pairs[:, 1]]], dim=1)

    def pretrained(self, names: Sequence[str]) -> Tensor:
        """Word vectors of raw names as the file has them, unit norm, shape (n, width).

        A model of a checkpoint without the file takes those of the checkpoint, which are the same
        unless they were trained.
        """
        if self.path is not None and not isinstance(self.path, Mapping):
            return F.normalize(self._vectors(names), dim=1)
        own = dict(zip((*self.objects, *self.attributes),
                       (*self.obj_table().detach(), *self.attr_table().detach())))
        if not set(names) <= own.keys():
            return F.normalize(self._vectors(names), dim=1)  # says what to do
        return F.normalize(torch.stack([own[name] for name in names]), dim=1)

    def keep(self, words: Mapping[str, np.ndarray]) -> None:
        """Takes the words of a checkpoint, in place of a file; see :meth:`kept_words`."""
        widths = {vector.shape[0] for vector in words.values()}
        if widths - {self.width}:
            raise ValueError(f'The words of the checkpoint have vectors of width {widths}, those '
                             f'of its names {self.width}: it is damaged.')
        self.path = dict(words) or None

    def kept_words(self) -> dict[str, np.ndarray]:
        """Words and vectors that a checkpoint keeps: see ``keep_words``."""
        if isinstance(self.path, Mapping):
            return dict(self.path)
        if not self.keep_words or self.path is None or str(self.path) == TINY:
            return {}
        joined, parts = _spelled([self.readable(name) for name in (
            *self.attributes, *self.objects)])
        wanted = {form for name in joined for key in (*joined[name], *parts[name])
                  for form in (key, key.lower())}
        others = {form for key in wanted  # "handbag" for a model that knows "Handbags"
                  for form in (f'{key}s', key.removesuffix('s'), key.removesuffix('es'))}
        return load_word_vectors(self.path, wanted | others, self.keep_words)

    def extend(self, attributes: Sequence[str] = (), objects: Sequence[str] = ()) -> None:
        """Appends names that were not trained."""
        self._check_new(attributes, objects)
        vectors = self._vectors([*attributes, *objects])
        self.attr_table.append(vectors[:len(attributes)].split(1))
        self.obj_table.append(vectors[len(attributes):].split(1))
        self.attributes += tuple(attributes)
        self.objects += tuple(objects)
        self.forget()

    def restore(self) -> None:
        """Removes the names that were added."""
        self.attr_table.restore()
        self.obj_table.restore()
        self.attributes = self.attributes[:len(self.attr_table.lengths)]
        self.objects = self.objects[:len(self.obj_table.lengths)]
        self.forget()

    def _vectors(self, names: Sequence[str]) -> Tensor:
        if self.path is None:
            raise ValueError(
                f'The model has no vectors for {", ".join(map(repr, names[:5]))}: they come from '
                'the file of word vectors that it was trained with. Give it with --weights '
                "words=FILE (weights=dict(words='FILE') in Python), or leave the names out.")
        vectors = embed_names(names, self.path, self.readable)
        # Frequent words have long vectors, which says nothing about their meaning.
        return F.normalize(vectors, dim=1) if self.unit_vectors else vectors


@MODELS.register_module()
class WordVectorText(WordTableText):
    """Features of attributes, objects and pairs from word vectors.

    Attributes and objects are projected, each kind with its own layer; a pair is composed by an
    MLP from the two word vectors.

    Args:
        attributes (Sequence[str]): Raw names.
        objects (Sequence[str]): Raw names.
        path (str, optional): As in :class:`WordTableText`.
        out_dim (int): Width of the features, that of the image side. Defaults to 768.
        hidden_dim (int): Hidden width of the composer. Defaults to 768.
        dropout (float): Dropout in the composer. Defaults to 0.0.
        norm (bool): Whether the hidden layer of the composer has a LayerNorm. Defaults to False.
        last_act (bool): Whether the composer ends with a ReLU. Defaults to False.
        **kwargs: As in :class:`WordTableText`.
    """

    def __init__(self, attributes: Unsaved[Sequence[str]], objects: Unsaved[Sequence[str]],
                 path: Unsaved[str | Path | None], out_dim: Width = 768, hidden_dim: Width = 768,
                 dropout: Unsaved[float] = 0.0, norm: bool = False, last_act: bool = False,
                 **kwargs: Any) -> None:
        super().__init__(attributes, objects, path, out_dim, **kwargs)
        self.attr_proj = nn.Linear(self.width, out_dim)
        self.obj_proj = nn.Linear(self.width, out_dim)
        self.composer = mlp((2 * self.width, hidden_dim, out_dim), norm, dropout, last_act)

    def single(self, path: str, vectors: Tensor) -> Tensor:
        return (self.attr_proj if path == 'attribute' else self.obj_proj)(vectors)

    def compose(self, parts: tuple[Tensor, Tensor], pairs: Tensor) -> Tensor:
        return self.composer(super().compose(parts, pairs))
