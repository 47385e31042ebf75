"""Models in folders and on the Hugging Face Hub: ``model.safetensors`` and a card beside it."""
from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from mmcluspro.errors import DownloadError, FileError, printable, reason_of
from mmcluspro.models.text.tokenizer import need
from mmcluspro.utils.digest import file_digest
from mmcluspro.utils.download import hub_address, hub_offline, reachable
from mmcluspro.utils.files import shipped_model, write_text

if TYPE_CHECKING:
    from .trained import TrainedModel

HUB = 'hf-hub:'
MODEL, CARD = 'model.safetensors', 'README.md'
SHA256 = re.compile(r'^\| SHA-256 \| `([0-9a-f]{64})` \|$', re.MULTILINE)
MOST_PAIRS = 2000  # on a card; the file holds all
CARD_TEXT = """\
---
library_name: mmcluspro
pipeline_tag: image-classification
tags: [compositional-zero-shot-learning]
{header}---

# {title}

Says which attribute and which object a picture shows, also in pairs that training never saw.

```python
import mmcluspro

model = mmcluspro.load('{source}')
print(model.predict('photo.jpg'))
```

| | |
|---|---|
{rows}

## Pairs

Bold pairs were seen in training. New words are allowed: `model.predict(…, pairs=[('wet', 'cat')])`.

{pairs}
"""


def model_file(name: str | Path) -> str:
    """The file or address that holds a model.

    Args:
        name (str | Path): A file or address, which is returned; a folder that
            :func:`write_folder` wrote; ``'hf-hub:user/name'``, with ``@revision`` behind it if it
            is not to be the newest; or a model of the package, ``'cluspro_shapes'``.

    Raises:
        DownloadError: Neither the Hub nor its cache on this machine has the model.
        FileError: The file is not the one that its card describes.
    """
    text = str(name)
    if text.startswith(HUB):
        return _in_folder(_fetched(text))
    path, shipped = Path(text).expanduser(), shipped_model(text)
    if shipped is not None and path.exists():
        warnings.warn(f'{path.resolve()} is read, not the model of mmcluspro of the same name.',
                      stacklevel=2)
        shipped = None
    return _in_folder(path) if path.is_dir() else str(shipped or text)


def write_folder(model: TrainedModel, folder: Path, standalone: bool,
                 numbers: Mapping[str, float] | None, licence: str | None,
                 source: str | None = None) -> Path:
    """Writes a model and its card; arguments as in :meth:`TrainedModel.save`.

    Args:
        source (str, optional): What the card gives to ``load``. Defaults to None: the folder.
    """
    file = model.save(folder / MODEL, standalone)
    source = source or f'{folder.name}/'
    write_text(folder / CARD, card(model, file, numbers or {}, licence, source))
    return folder


def push(model: TrainedModel, name: str, standalone: bool, numbers: Mapping[str, float] | None,
         licence: str | None, private: bool) -> str:
    """Uploads a model, see :meth:`TrainedModel.push_to_hub`."""
    hub = need('huggingface_hub', 'push_to_hub')
    with TemporaryDirectory() as folder:
        write_folder(model, Path(folder), standalone, numbers, licence, f'{HUB}{name}')
        try:
            api = hub.HfApi()
            api.create_repo(name, private=private, exist_ok=True)
            api.upload_folder(repo_id=name, folder_path=folder, commit_message=f'mmcluspro {name}')
        except Exception as error:  # the Hub's errors have no common base
            raise DownloadError(
                f'{name} could not be uploaded to {hub_address()} ({reason_of(error)}). Log in '
                "with `hf auth login`, or write a folder with model.save('folder/') and upload it "
                'elsewhere.') from error
    return f'{hub_address()}/{name}'


def card(model: TrainedModel, file: Path, numbers: Mapping[str, float], licence: str | None,
         source: str) -> str:
    """The model card: what the file says about itself, and numbers and licence of the user."""
    space, spec = model.space, model.spec['model']
    data = model.spec.get('data') or dict(type='not named in the file')
    seen = int(space.seen.sum())
    rows = {
        'method': spec['head']['type'],
        'image tower': _tower(spec['backbone']),
        'text side': _tower(spec['head'].get('text') or {}),
        'data': ', '.join(str(data[key]) for key in ('type', 'split', 'version') if key in data),
        'labels': f'{len(space.attributes)} attributes, {len(space.objects)} objects, '
                  f'{len(space.pairs)} pairs: {seen} seen, {len(space.pairs) - seen} unseen',
        'numbers': ', '.join(f'{key} {value:.2f}' for key, value in numbers.items())
                   or 'not given',
        'licence': licence or 'not given',
        'file': f'`{file.name}`, {file.stat().st_size:,} bytes',
        'SHA-256': f'`{file_digest(file, "sha256")}`'}
    names = [_plain(f'{space.attributes[attr]} {space.objects[obj]}')
             for attr, obj in space.pairs[:MOST_PAIRS].tolist()]
    pairs = ', '.join(f'**{pair}**' if known else pair
                      for pair, known in zip(names, space.seen.tolist()))
    more = len(space.pairs) - len(names)
    return CARD_TEXT.format(
        header=f'license: {json.dumps(licence)}\n' if licence else '',
        title=_plain(source.removeprefix(HUB).rstrip('/').rsplit('/', 1)[-1]),
        source=source, pairs=pairs + (f' … and {more:,} more' if more else ''),
        rows='\n'.join(f'| {key} | {value if key in ("file", "SHA-256") else _plain(value)} |'
                       for key, value in rows.items()))


def _tower(part: Mapping[str, Any]) -> str:
    inner = part.get('backbone') or part
    words = [str(inner[key]) for key in ('type', 'arch', 'pretrained') if inner.get(key)]
    return ' '.join(words) or 'none'


def _plain(text: str) -> str:
    """Names as Markdown that means nothing else."""
    return re.sub(r'([\\`*_{}\[\]<>#|])', r'\\\1', printable(text))


def _fetched(name: str) -> Path:
    """Folder of the Hub's cache with the model, fetched if it is not there."""
    hub = need('huggingface_hub', name)
    repo, _, revision = name.removeprefix(HUB).partition('@')
    try:
        with nullcontext() if reachable([hub_address()]) else hub_offline():
            return Path(hub.snapshot_download(repo, revision=revision or None,
                                              allow_patterns=[MODEL, CARD]))
    except Exception as error:  # the Hub's errors have no common base
        raise DownloadError(
            f'{name} could not be fetched ({reason_of(error)}). Check the name; without a network, '
            f'fetch {hub_address()}/{repo} elsewhere and give the folder.') from error


def _in_folder(folder: Path) -> str:
    file, described = folder / MODEL, folder / CARD
    found = described.is_file() and file.is_file() and SHA256.search(
        described.read_text(encoding='utf-8', errors='replace'))
    if found and (digest := file_digest(file, 'sha256')) != found[1]:
        raise FileError(file, f'its SHA-256 is {digest}, its card {CARD} says {found[1]}',
                        'Copy both again, or remove the card if you changed the file.')
    return str(file)
