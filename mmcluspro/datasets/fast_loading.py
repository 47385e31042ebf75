"""Two transforms that read image files faster in training."""
import io
import json
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from mmcv.transforms import BaseTransform, Compose
from PIL import Image

from mmcluspro.registry import TRANSFORMS
from mmcluspro.utils.digest import sha256
from mmcluspro.utils.files import write_bytes

from .picture_file import check_plain_file, check_scans, check_size, read_picture

JPEG = b'\xff\xd8\xff'
REDUCED = {8: cv2.IMREAD_REDUCED_COLOR_8, 4: cv2.IMREAD_REDUCED_COLOR_4,
           2: cv2.IMREAD_REDUCED_COLOR_2}


@TRANSFORMS.register_module()
class LoadReduced(BaseTransform):
    """Loads an image; a JPEG that is far too large is decoded at a half, quarter or eighth.

    JPEG's draft mode leaves out the high frequencies instead of decoding them. The result of a
    later resize differs slightly from that of the whole picture, so this is for training; test
    pipelines use ``LoadImageFromFile``.

    Args:
        size (int): Short edge that the pipeline resizes to.
        spare (float): The short edge is decoded to at least ``spare * size``. Defaults to 2.
    """

    def __init__(self, size: int, spare: float = 2.0) -> None:
        if size < 1 or spare < 1:
            raise ValueError(f'LoadReduced needs a positive size and a spare of at least 1, got '
                             f'size={size}, spare={spare}.')
        self.least = size * spare

    def transform(self, results: dict) -> dict:
        """Adds ``img`` (H, W, 3), BGR, ``img_shape`` and ``ori_shape``."""
        path = results['img_path']
        pixels = self._reduced(path)
        if pixels is None:
            pixels = read_picture(path)
        shape = pixels.shape[:2]
        return dict(results, img=pixels, img_shape=shape, ori_shape=shape)

    def _reduced(self, path: str) -> np.ndarray | None:
        """Pixels of a large JPEG; None for anything else, damaged files included."""
        check_plain_file(path)
        with open(path, 'rb') as file:
            data = file.read(3)
            if data != JPEG:
                return None
            data += file.read()
        try:
            with Image.open(io.BytesIO(data), formats=('JPEG', )) as image:
                width, height = image.size
        except (OSError, ValueError, Image.DecompressionBombError):
            return None
        check_size(width, height)
        check_scans(data)
        for factor, flag in REDUCED.items():
            if min(width, height) >= factor * self.least:
                return cv2.imdecode(np.frombuffer(data, np.uint8), flag)
        return None


@TRANSFORMS.register_module()
class KeepPrepared(BaseTransform):
    """Runs the first steps of a pipeline once per image and keeps the pixels in a folder.

    Later epochs and runs read the prepared pixels, which are bit-identical. Changed images and
    other steps are prepared again. An image of 224 x 224 pixels takes 150 kB.

    Args:
        steps (Sequence[dict]): Transforms without randomness, beginning with the loading.
        folder (str): Folder for the pixels. Several processes and runs may share it.
    """

    def __init__(self, steps: Sequence[dict], folder: str) -> None:
        random = [str(step.get('type')) for step in steps if 'Random' in str(step.get('type'))]
        if random:
            raise ValueError(f'KeepPrepared.steps must give the same result every time, but holds '
                             f'{", ".join(random)}. Put it after KeepPrepared.')
        self.steps = Compose(list(steps))
        self.key = json.dumps([dict(step) for step in steps], sort_keys=True, default=str)
        self.folder = Path(folder).expanduser()

    def transform(self, results: dict) -> dict | None:
        """Adds ``img`` (H, W, 3), ``img_shape`` and ``ori_shape``."""
        path = self._place(results['img_path'])
        pixels = _read(path)
        if pixels is None:
            prepared = self.steps(results)
            if prepared is None:
                return None
            pixels = np.ascontiguousarray(prepared['img'])
            _write(path, pixels)
        shape = pixels.shape[:2]
        return dict(results, img=pixels, img_shape=shape, ori_shape=shape)

    def _place(self, image: str) -> Path:
        state = Path(image).stat()
        name = sha256(self.key.encode(), str(Path(image).absolute()).encode(),
                      f'{state.st_size} {state.st_mtime_ns}'.encode(), digits=32)
        return self.folder / name[:2] / f'{name}.npy'


def _read(path: Path) -> np.ndarray | None:
    """The pixels, or None if there are none, or not whole ones."""
    try:
        pixels = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return pixels if pixels.dtype == np.uint8 and pixels.ndim == 3 else None


def _write(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    np.save(content, pixels)
    write_bytes(path, content.getvalue())
