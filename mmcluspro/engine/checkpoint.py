"""Resuming, and making mmengine read checkpoints without running code, on request.

Importing mmcluspro does not change how mmengine loads files. Three ways to ask for the loaders of
:mod:`mmcluspro.utils.safe_load`:

- our command-line tools use them for the whole process;
- ``runner_type='mmcluspro.SafeRunner'`` in a config uses them for that runner;
- ``with mmcluspro.safe_loading():`` uses them for a block of your own code.
"""
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmengine.runner import checkpoint as mmengine_checkpoint
from mmengine.runner.checkpoint import CheckpointLoader

from mmcluspro.errors import listed
from mmcluspro.utils.safe_load import (
    load_from_backend,
    load_from_http,
    load_from_local,
    non_finite_tensors,
    safe_load,
)

LOADERS = {
    '': load_from_local,
    'http://': load_from_http,
    'https://': load_from_http,
    r'(\S+\:)?s3://': load_from_backend,
    r'(\S+\:)?petrel://': load_from_backend,
}


@contextmanager
def safe_loading() -> Iterator[None]:
    """Inside the block, mmengine loads checkpoints without running code from them.

    This covers ``Runner.load_checkpoint`` and ``resume``, ``init_cfg=dict(type='Pretrained')`` and
    every other user of mmengine's ``CheckpointLoader``. It also lets mmengine 0.10 resume its own
    checkpoints. Afterwards everything is as it was.
    """
    schemes, http = dict(CheckpointLoader._schemes), mmengine_checkpoint.load_from_http
    try:
        for prefix, loader in LOADERS.items():
            CheckpointLoader.register_scheme(prefixes=prefix, loader=loader, force=True)
        # torchvision://, open-mmlab:// and mmcls:// look up an address and call this name.
        mmengine_checkpoint.load_from_http = load_from_http
        yield
    finally:
        CheckpointLoader._schemes = schemes
        mmengine_checkpoint.load_from_http = http


def find_resumable(work_dir: str | Path) -> Path | None:
    """The newest checkpoint of a run that can be read and is free of NaN and infinity.

    A process that is killed while it writes leaves half a file, also where it writes a file again.

    Args:
        work_dir (str | Path): Folder of the run.

    Returns:
        Path | None: None where a run can only start anew.
    """
    folder = Path(work_dir)
    # Of the run that was started last: the folder may hold files of a longer one before it.
    pointer = folder / 'last_checkpoint'
    # Empty, if the process ended while it was written.
    last = Path((pointer.read_text() if pointer.is_file() else '').strip() or folder / 'none')
    if (folder / last.name).is_file():
        last = folder / last.name  # the folder was moved or copied
    # CheckpointHook.out_dir puts them elsewhere.
    found = {path for place in (folder, last.parent) for path in place.glob('*.pth')
             if re.fullmatch(r'(?:epoch|iter)_\d+\.pth', path.name)}
    order = sorted(found, key=lambda path: (path == last, path.stat().st_mtime_ns,
                                            int(path.stem.rpartition('_')[2])))
    for path in reversed(order):
        try:
            bad = non_finite_tensors(safe_load(path))
            if bad:
                raise ValueError(f'{path} holds NaN or infinity in {listed(bad)}.')
        except ValueError as error:
            # There is no logger yet: it is the runner's.
            print(f'warning: {error} Looking for an earlier one.', file=sys.stderr)
        else:
            return path
    return None
