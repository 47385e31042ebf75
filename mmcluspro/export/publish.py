"""Writes a checkpoint to share: what prediction needs, and nothing else of the run."""
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config

from mmcluspro.artefact.config_text import parse_config
from mmcluspro.artefact.load import CheckpointFile, check_state
from mmcluspro.artefact.standalone import with_towers
from mmcluspro.errors import FileError
from mmcluspro.flags.predict_flags import parse_publish
from mmcluspro.utils.digest import sha256
from mmcluspro.utils.safe_load import SUFFIX, load_from_local, tensor_bytes

from .files import writable

KEPT_META = ('cfg', 'description', 'dataset_meta', 'calibration', 'epoch', 'iter',
             'mmengine_version', 'towers', 'word_vectors')
# Where the run was on the disk of its owner; prediction does not know of it.
PRIVATE_FIELDS = ('work_dir', 'load_from', 'resume')


def publish(source: str | Path, target: str | Path, standalone: bool = False) -> Path:
    """Writes a file with bit-identical predictions, without the state of training.

    Optimizer, schedule, history and everything that only training needs, such as prototypes of a
    head that does not score with them, are left out. Config, label space and the values that
    validation chose are kept, so the file is enough to predict. No code from the file is executed.

    Args:
        source (str | Path): A checkpoint of ``tools/train.py``.
        target (str | Path): Name of the new file, or a folder, in which it gets the name of the
            source. The first eight hex digits of the SHA-256 are added to the name.
        standalone (bool): Put the frozen towers into the file, in half precision. Defaults to
            False.

    Returns:
        Path: The new file.
    """
    checkpoint = load_from_local(str(source), 'cpu')
    content = published(checkpoint, str(source))
    if standalone:
        content = with_towers(source, content)
    data = tensor_bytes(content['meta'], content['state_dict'])
    path = Path(target)
    if path.is_dir() or str(target).endswith(os.sep):
        path = path / Path(source).name
    stem = re.sub(r'\.(pth|safetensors)$', '', path.name)
    path = path.with_name(f'{stem}-{sha256(data, digits=8)}{SUFFIX}')
    with writable(path) as temporary:
        temporary.write_bytes(data)
    return path


def published(checkpoint: Any, name: str) -> dict[str, Any]:
    """The content of a published checkpoint.

    Args:
        checkpoint (Any): As ``safe_load`` returns it.
        name (str): Name of the checkpoint for messages.
    """
    meta = checkpoint.get('meta') if isinstance(checkpoint, dict) else None
    if not isinstance(meta, dict) or not isinstance(checkpoint.get('state_dict'), dict):
        raise ValueError(
            f'{name} holds no state_dict and meta: it is not a checkpoint of mmcluspro. Give a '
            'file that tools/train.py wrote.')
    missing = [key for key in ('cfg', 'dataset_meta') if not meta.get(key)]
    if missing:
        raise ValueError(
            f'{name} has no meta field {missing[0]!r}: the published file could not predict '
            'alone. Give a file that tools/train.py wrote.')
    kept = {key: meta[key] for key in KEPT_META if key in meta}
    cfg = parse_config(meta['cfg'], name)
    # For people only: prediction reads the description.
    kept['cfg'] = Config({key: value for key, value in cfg.items()
                          if key not in PRIVATE_FIELDS}).pretty_text
    try:
        kept['description'] = CheckpointFile(name, checkpoint['state_dict'], meta).spec()
    except FileError:
        # Classes of another package: prediction asks for --import or --config, as before.
        if 'description' not in meta:
            raise
    check_state(checkpoint['state_dict'], name)
    weights = {key: value for key, value in checkpoint['state_dict'].items()
               if not key.startswith(training_only(meta))}
    return dict(meta=kept, state_dict=weights)


def training_only(meta: dict[str, Any]) -> tuple[str, ...]:
    """Beginnings of the keys that only training needs, as training wrote them into the file."""
    found = meta.get('training_only')
    if not isinstance(found, (list, tuple)):
        return ()
    return tuple(part for part in found if isinstance(part, str) and part)


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and runs it."""
    args = parse_publish(argv)
    path = publish(args.source, args.target, args.standalone)
    before, after = (Path(file).stat().st_size / 1e6 for file in (args.source, path))
    print(f'{path} ({after:.1f} MB, from {before:.1f} MB)')
