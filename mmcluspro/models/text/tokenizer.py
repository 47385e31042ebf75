"""The tokenizer of a text tower: open_clip's, one of Hugging Face, or a file of the user."""
from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import open_clip
import torch
from open_clip.tokenizer import DEFAULT_CONTEXT_LENGTH, get_clean_fn
from torch import Tensor

from mmcluspro.errors import DownloadError, FileError, reason_of
from mmcluspro.models.clip import arch_config
from mmcluspro.requirements import extra_command
from mmcluspro.utils.download import hub_address, hub_offline, reachable

EOS = 1  # in the sentencepiece vocabularies of T5 and Gemma, which SigLIP takes


@cache
def get_tokenizer(arch: str, file: str | None = None) -> Any:
    """The tokenizer of an architecture: texts -> LongTensor (N, context_length).

    Models of one process share it: it has no state, and takes 50 ms to read its vocabulary.

    Args:
        arch (str): An architecture of open_clip.
        file (str, optional): ``tokenizer.json`` or a sentencepiece ``.model`` that is read instead
            of what the architecture names. Defaults to None.

    Raises:
        ImportError: Names the extra that is missing.
        DownloadError: Says which file to fetch, without a network.
    """
    config = arch_config(arch)['text_cfg']
    if file is not None:
        return FileTokenizer(file, arch, config)
    source = config.get('hf_tokenizer_name')
    if not source:
        return open_clip.get_tokenizer(arch)
    need('transformers', f'The tokenizer of arch={arch!r}')
    try:
        with nullcontext() if reachable([hub_address()]) else hub_offline():
            return open_clip.get_tokenizer(arch)
    except Exception as error:  # the Hub's errors have no common base
        raise DownloadError(
            f'The tokenizer of arch={arch!r} could not be downloaded ({reason_of(error, 80)}). '
            f'Fetch {hub_address()}/{source}/resolve/main/tokenizer.json elsewhere, and give it in '
            "the config: clip=dict(tokenizer='tokenizer.json').") from error


def need(package: str, what: str) -> Any:
    """Imports a package of the extra ``hf``; an ImportError names the extra."""
    try:
        return import_module(package)
    except ModuleNotFoundError:
        raise ImportError(f'{what} needs {package}, which is not installed: '
                          f'{extra_command("hf")}') from None


class FileTokenizer:
    """A tokenizer from one file of a Hugging Face or sentencepiece vocabulary.

    Args:
        file (str): ``tokenizer.json``, beside which a ``tokenizer_config.json`` may name the token
            of what is filled up, or a sentencepiece ``.model``.
        arch (str): The architecture.
        config (dict): Its ``text_cfg``: ``context_length`` and ``tokenizer_kwargs``.
    """

    def __init__(self, file: str, arch: str, config: dict) -> None:
        path = Path(file).expanduser()
        if not path.is_file():
            raise FileNotFoundError(f'text.tokenizer={file!r} does not exist. Give the file '
                                    'tokenizer.json or a sentencepiece .model.')
        options = config.get('tokenizer_kwargs', {})
        self.clean = get_clean_fn(options.get('clean', 'whitespace'))
        self.context_length = config.get('context_length', DEFAULT_CONTEXT_LENGTH)
        first = 'siglip' in arch.lower() and 'siglip2' not in arch.lower()
        try:
            read = self._sentencepiece if path.suffix == '.model' else self._json
            read(path, first)
        except (ImportError, FileError):
            raise
        except Exception as error:  # both libraries raise what they like
            raise FileError(path, f'it is no tokenizer ({reason_of(error)})', 'Give the file '
                            'tokenizer.json or a sentencepiece .model.') from error

    def _sentencepiece(self, path: Path, first: bool) -> None:
        library = need('sentencepiece', f'The tokenizer {path}')
        model = library.SentencePieceProcessor(model_file=str(path))
        self.encode = lambda text: [*model.encode(text), EOS]
        self.pad = EOS if first else 0
        # Under the name where transformers' have it.
        self.tokenizer = SimpleNamespace(unk_token_id=model.unk_id())

    def _json(self, path: Path, first: bool) -> None:
        model = need('tokenizers', f'The tokenizer {path}').Tokenizer.from_file(str(path))
        model.no_truncation()
        model.no_padding()
        self.encode = lambda text: model.encode(text).ids
        beside = path.with_name('tokenizer_config.json')
        said = json.loads(beside.read_text(encoding='utf-8')) if beside.is_file() else {}
        named = said.get('pad_token') or ('</s>' if first else None)
        named = named.get('content') if isinstance(named, dict) else named
        ids = (model.token_to_id(token) for token in (named, '<pad>', '[PAD]') if token)
        self.pad = next((number for number in ids if number is not None), 0)
        unknown = (model.token_to_id(token) for token in ('<unk>', '[UNK]'))
        self.tokenizer = SimpleNamespace(
            unk_token_id=next((number for number in unknown if number is not None), None))

    def __call__(self, texts: Sequence[str], context_length: int | None = None) -> Tensor:
        """Ids of texts, filled up or cut off, the last token kept."""
        length = context_length or self.context_length
        rows = [self.encode(self.clean(text)) for text in texts]
        cut = [row if len(row) <= length else [*row[:length - 1], row[-1]] for row in rows]
        return torch.tensor([[*row, *[self.pad] * (length - len(row))] for row in cut])
