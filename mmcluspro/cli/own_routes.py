"""Chooses a model for own photographs by the machine, the weights and the word vectors."""
from __future__ import annotations

import math
import os
import re
import shutil
import sys
import unicodedata
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from mmcluspro.datasets.names import readable_name
from mmcluspro.errors import DownloadError, reason_of
from mmcluspro.models.sources import Known, recognise
from mmcluspro.models.text.words import load_word_vectors
from mmcluspro.utils.download import DINO, GLOVE, download, kept_folder
from mmcluspro.utils.files import atomic_path, remove


class WordForms(NamedTuple):
    """How names are read where the vectors have other words, or none.

    Attributes:
        readable (dict[str, str]): Field ``readable`` of the text side, by raw name; empty where
            every name is known.
        lost (tuple[str, ...]): Names without any known word. They are read as all known words
            together, so they start at the mean of the names, and are learned from there.
    """
    readable: dict[str, str]
    lost: tuple[str, ...]


def words_for(names: Iterable[str], path: str | Path) -> WordForms:
    """Names whose words have no vector, with words that have one.

    Args:
        names (Iterable[str]): Raw names of attributes and objects.
        path (str | Path): File of word vectors.

    Raises:
        ValueError: If no name at all has a known word.
    """
    spelled = {name: [_spellings(word) for word in readable_name(name).split()] for name in names}
    known = load_word_vectors(path, {word for parts in spelled.values() for part in parts
                                     for word in part})
    words = {name: [next((word for word in part if word in known), '') for part in parts]
             for name, parts in spelled.items()}
    lost = tuple(name for name, parts in words.items() if not any(parts))
    if len(lost) == len(words):
        raise ValueError(
            f'{path} has no word for any of the {len(lost)} names: {", ".join(lost[:10])}. Rename '
            'the folders or change the table to words that it has, or give a larger file with '
            '--words.')
    kept = {name: ' '.join(filter(None, parts)) for name, parts in words.items()}
    readable = {name: text for name, text in kept.items()
                if text and not all(part[0] in known for part in spelled[name])}
    every = sorted({word for parts in words.values() for word in parts if word})
    return WordForms(readable | {name: ' '.join(every[:MEAN_WORDS]) for name in lost}, lost)


def _spellings(word: str) -> list[str]:
    """A word, its singular, both with a dash after the first letter (t-shirt), and plain letters.

    Letters without their accents come last: "tomaté" may be listed as "tomate".
    """
    ends = (('ies', 'y'), ('sses', 'ss'), ('shes', 'sh'), ('ches', 'ch'), ('xes', 'x'), ('s', ''))
    single = [word.removesuffix(end) + new for end, new in ends
              if word.endswith(end) and len(word) > len(end) + 1 and not word.endswith('ss')][:1]
    forms = [word, *single]
    plain = unicodedata.normalize('NFKD', word).encode('ascii', 'ignore').decode()
    return [*forms, *(f'{form[0]}-{form[1:]}' for form in forms if len(form) > 2),
            *([plain] if plain and plain != word else [])]


SIZES = {'ViT-B-32': '350 MB', 'ViT-B-16': '350 MB', 'ViT-L-14': '900 MB'}  # of the download
MEMORY_FOR_LARGE = 10e9  # bytes of a GPU
TINY = 'tiny_clip'
# dinov2_vits14_pretrain, and copies such as dinov2_vits14_fp16; published heads are other files.
DINOV2 = re.compile(r'dinov2_vit([sbl])14(_reg4)?(?!\w*head)\w*')
DINOV2_ARCHS = dict(s=('small', 384), b=('base', 768), l=('large', 1024))
# Where weights are looked for when the user names none, below the current folder.
PLACES = ('.', 'weights', 'data/weights')
WORD_PLACES = ('.', 'weights', 'data/word_vectors')
WORD_FILES = ('glove*.bin', 'glove*.txt', 'GoogleNews*.bin*', '*.vec')
WEIGHT_SUFFIXES = ('.pt', '.pth', '.bin', '.safetensors')
# Names of published weights, and what their files begin with.
NAMED = {f'dinov2-{size}{kind}': f'dinov2_vit{size}14{kind.replace("-reg", "_reg4")}'
         for size in 'sbl' for kind in ('', '-reg')}
GLOVE_WORDS = 'glove'
GLOVE_FILE = 'glove.6B.300d.txt'
DINOV2_ADDRESS = f'{DINO}v2/{{0}}/{{1}}_pretrain.pth'
GET_WORDS = (f'Add --words FILE, for example {GLOVE_FILE} of {GLOVE}, or --words glove, which '
             'downloads it (862 MB, once).')
MEAN_WORDS = 50  # of a mean that a name without a vector starts at
STEPS = 120  # of a training on stored features, about
BATCH = 64


class Route(NamedTuple):
    """The model for own photographs.

    Attributes:
        base (str): Config of the package.
        fields (dict): What the written config changes in it.
        said (str): What was chosen, for the user.
        stored (bool): Whether features are stored before training. Defaults to False.
    """
    base: str
    fields: dict[str, Any]
    said: str
    stored: bool = False


def choose_route(weights: str | None = None, arch: str | None = None, words: str | None = None,
                 train_images: int = 1000, names: Sequence[str] = ()) -> Route:
    """The model for this machine, and why.

    Args:
        weights (str, optional): File or tag of CLIP weights, a file of DINOv2, or 'tiny_clip'.
            Defaults to None: a known file at hand, otherwise OpenAI's CLIP.
        arch (str, optional): Architecture of CLIP. Defaults to None: by the machine, or by the
            name of the file.
        words (str, optional): File of word vectors, for DINOv2. Defaults to None: one at hand.
        train_images (int): How many images there are to train on.
        names (Sequence[str]): Attributes and objects, for the word vectors.
    """
    found = ''
    if weights is None and arch is None:
        weights = weights_at_hand()
        found = '' if weights is None else ', which was found here'
    known = _known(weights) if arch is None else None
    if known is not None and known.kind != 'clip':
        return _without_text(known, str(weights), words, train_images, names, found)
    if known is not None:
        arch = known.arch
    if words is not None:
        raise ValueError('--words is for DINOv2 and DINOv3 weights only (--weights '
                         'dinov2_vits14_pretrain.pth); CLIP has a text tower of its own.')
    clip, said = choose_clip(weights, arch)
    if clip is None:
        return Route('cluspro_own_data_tiny.py', _workers(0), said)
    return Route('cluspro_own_data.py', dict(clip=clip, **_workers(min(8, os.cpu_count() or 1))),
                 said + found)


def train_on_all(route: Route) -> Route:
    """The route of stored features on which all photographs train, measured in cross-validation.

    Args:
        route (Route): Of stored features, with a split.
    """
    every = dict(dataset=dict(phase='train', test_mode=True))
    epochs = route.fields['train_cfg']['max_epochs']
    return route._replace(fields=dict(
        route.fields, val_dataloader=every, test_dataloader=every,
        train_cfg=dict(type='mmcluspro.RefitLoop', max_epochs=epochs, val_interval=epochs,
                       _delete_=True),
        val_cfg=dict(type='mmcluspro.HeldOutValLoop'),
        test_cfg=dict(type='mmcluspro.HeldOutTestLoop')))


def fit_all(route: Route) -> Route:
    """The same with regressions, which are fitted.

    Args:
        route (Route): Of stored features, with a split.
    """
    fields = train_on_all(route).fields
    del fields['train_cfg']
    backbone, head = (fields['model'][part] for part in ('backbone', 'head'))
    return route._replace(base='frozen_dinov2_regression_own_data.py', fields=dict(
        fields, model=dict(backbone=backbone, head=dict(
            head, in_channels=backbone['in_channels']))))


def find_files(weights: str | None, words: str | None) -> tuple[str | None, str | None]:
    """Files for what the user named: 'dinov2-s' and 'glove' are looked for, then downloaded.

    Raises:
        FileNotFoundError: Names the one that is not there, and where to get it.
        DownloadError: The same, without a network.
    """
    if weights in NAMED:
        kind = NAMED[weights]
        there = (path for folder in PLACES for path in sorted(Path(folder).glob(f'{kind}_*'))
                 if path.suffix in WEIGHT_SUFFIXES
                 and ('_reg4' in kind) == ('_reg4' in path.name))
        address = DINOV2_ADDRESS.format(kind.removesuffix('_reg4'), kind)
        weights = str(next(there, None) or _downloaded(address, '--weights'))
    if words == GLOVE_WORDS:
        words = _words_at_hand(WORD_FILES[:2]) or str(_glove())
    _check_files(weights, words)
    return weights, words


def _downloaded(address: str, flag: str) -> Path:
    try:
        return download(address)
    except OSError as error:
        raise DownloadError(f'{address} could not be downloaded ({reason_of(error, 80)}). Fetch it '
                            f'on another machine, and give its path with {flag}.') from error


def _glove() -> Path:
    """GloVe's vectors of width 300, unpacked once."""
    target = kept_folder('words') / GLOVE_FILE
    if not target.is_file():
        print(f'words      {GLOVE}: 862 MB, downloaded once', flush=True)
        packed = _downloaded(GLOVE, '--words')
        target.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(packed) as archive, archive.open(GLOVE_FILE) as member, atomic_path(
                target) as part, part.open('wb') as file:
            shutil.copyfileobj(member, file, 1 << 20)
        remove(packed.parent, packed)
    return target


def _check_files(weights: str | None, words: str | None) -> None:
    if words and not Path(words).expanduser().is_file():
        raise FileNotFoundError(f'The file {words} (--words) does not exist. {GET_WORDS}')
    if not weights:
        return
    if Path(weights).expanduser().is_file():
        if DINOV2.search(Path(weights).name) and not words and _words_at_hand() is None:
            raise FileNotFoundError('DINOv2 has no text tower: the names of attributes and objects '
                                    f'need word vectors. {GET_WORDS}')
        return
    if DINOV2.search(Path(weights).name):
        raise FileNotFoundError(f'The file {weights} (--weights) does not exist. Fetch it on a '
                                'machine with a network, or give --weights dinov2-s, which '
                                'downloads it.')
    if Path(weights).suffix in WEIGHT_SUFFIXES:
        raise FileNotFoundError(f'The file {weights} (--weights) does not exist. '
                                'docs/real_photos.md says where to get the weights of CLIP and '
                                'DINOv2.')


def weights_at_hand() -> str | None:
    """A file of CLIP or DINOv2 in the current folder, weights/ or data/weights/."""
    for folder in map(Path, PLACES):
        files = sorted(path for path in folder.glob('*.pt*') if path.is_file())
        for path in files:
            if path.stem in SIZES or DINOV2.fullmatch(path.stem) and _words_at_hand():
                return str(path)
    return None


def _words_at_hand(patterns: Sequence[str] = WORD_FILES) -> str | None:
    return next((str(path) for folder in map(Path, WORD_PLACES) for pattern in patterns
                 for path in sorted(folder.glob(pattern))), None)


def _known(weights: str | None) -> Known | None:
    """What a file of weights holds; None for a tag, and for a file that is named like a CLIP."""
    if weights is None or not Path(weights).expanduser().is_file() and not (
            DINOV2.search(Path(weights).name)):
        return None
    kind = DINOV2.search(Path(weights).name)
    if kind is not None:
        arch, width = DINOV2_ARCHS[kind[1]]
        return Known('dinov2', arch, width, 4 if kind[2] else 0)
    if any(arch in Path(weights).name for arch in SIZES):
        return None
    return recognise(Path(weights).expanduser())


def _without_text(known: Known, weights: str, words: str | None, train_images: int,
                  names: Sequence[str], found: str) -> Route:
    """Stored features of DINOv2 or DINOv3, and word vectors."""
    _check_files(weights, words)
    path = Path(weights).expanduser().resolve()
    words = words or _words_at_hand()
    if words is None:
        raise FileNotFoundError(f'{weights} has no text tower: the names of attributes and objects '
                                f'need word vectors. {GET_WORDS}')
    width = known.width
    if known.kind == 'dinov2':
        size = f'DINOv2-{known.arch[0].upper()}'
        tower: dict[str, Any] = dict(arch=known.arch, pretrained=str(path), **(
            dict(num_registers=known.registers) if known.registers else {}))
    else:
        size = known.arch
        tower = dict(_delete_=True, type='mmcluspro.TimmVision', arch=known.arch,
                     pretrained=str(path))
    text: dict[str, Any] = dict(path=str(Path(words).expanduser().resolve()))
    other = words_for(names, text['path'])
    if other.readable:
        text['readable'] = dict(_delete_=True, **other.readable)
    fields = dict(
        model=dict(backbone=dict(in_channels=2 * width, backbone=dict(backbone=tower)),
                   head=dict(text=text)),
        train_cfg=dict(max_epochs=min(40, max(20, math.ceil(STEPS * BATCH / train_images)))))
    return Route('frozen_dinov2_cluspro_own_data.py', fields,
                 f'{size} of {weights}{found}, frozen, with the word vectors '
                 f'of {words}'
                 + ''.join(
                     f'\nword       {name} has no vector: it starts at the mean of the names'
                     if name in other.lost else f'\nword       {name} is read as "{word}"'
                     for name, word in other.readable.items()), stored=True)


def choose_clip(weights: str | None = None, arch: str | None = None
                ) -> tuple[dict[str, str] | None, str]:
    """The field ``clip`` for this machine, None for the tiny CLIP, and why.

    Args:
        weights (str, optional): File or tag of CLIP weights, or 'tiny_clip'. Defaults to None:
            OpenAI's.
        arch (str, optional): As in :func:`choose_route`.
    """
    if weights == TINY:
        print('warning: the tiny CLIP of the package knows drawn shapes and nothing else. For '
              'photographs, leave --weights out or give a file of CLIP: docs/real_photos.md.',
              file=sys.stderr)
        return None, 'the tiny CLIP of the package, at 48 pixels'
    if arch is None and weights is not None:
        arch = next((known for known in SIZES if known in Path(weights).name), None)
    gpu = torch.cuda.is_available()
    large = gpu and torch.cuda.get_device_properties(0).total_memory > MEMORY_FOR_LARGE
    why = 'as asked' if arch else f'for {"a large GPU" if large else "a GPU" if gpu else "a CPU"}'
    arch = arch or ('ViT-L-14' if large else 'ViT-B-32')
    weights = weights or 'openai'
    if Path(weights).expanduser().is_file():
        weights = str(Path(weights).expanduser().resolve())
        return dict(arch=arch, pretrained=weights), f'CLIP {arch} of {weights}'
    size = SIZES.get(arch)
    return dict(arch=arch, pretrained=weights), f'CLIP {arch} ({weights}) {why}' + (
        f', downloaded once ({size})' if size else '')


def _workers(number: int) -> dict[str, Any]:
    return {f'{phase}_dataloader': dict(num_workers=number) for phase in ('train', 'val', 'test')}
