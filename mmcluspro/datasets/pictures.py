"""Reads pictures as pixels (BGR, uint8, upright, without transparency), resizes and crops them.

The pixels are those of mmpretrain's ``ResizeEdge``, ``Resize`` and ``CenterCrop``, bit by bit.
"""
from __future__ import annotations

import io
import json
import os
import re
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import cv2
import numpy as np
from mmcv.transforms import BaseTransform, Compose
from PIL import ExifTags, Image, ImageColor, ImageOps

from mmcluspro.registry import TRANSFORMS
from mmcluspro.utils.digest import sha256
from mmcluspro.utils.files import write_bytes

# Signatures at the first byte: Pillow and OpenCV then agree on what a file is.
FORMATS = ('JPEG', 'PNG', 'BMP', 'GIF', 'WEBP', 'TIFF', 'PPM', 'AVIF')
# Builds of OpenCV differ; in a TIFF with two widths, it takes the one that Pillow does not.
BY_PILLOW = ('GIF', 'AVIF', 'HEIF', 'TIFF')
HEIC = (b'heic', b'heix', b'hevc', b'heim', b'heis', b'mif1', b'msf1')
WHITE = (255, 255, 255)
MAX_PIXELS = 100_000_000
BYTES_PER_PIXEL = 8  # of the largest plain picture: four channels of sixteen bits
PART = 1 << 20  # pixels that are converted at once: between formats a pixel takes up to 45 bytes
MAX_SCANS = 100  # of a JPEG; encoders write about ten, and each takes a pass over all pixels

# Of a JPEG: not the 00 after an FF of the data, not those that restart it and stand alone.
MARKER = re.compile(rb'\xff[^\x00\x01\xd0-\xd8\xff]')

Colour = Sequence[int] | None


class Refused(ValueError):
    """A picture that is not even decoded: too large, or not a plain file."""


def pixel_limit() -> int:
    """The largest picture that is decoded: ``MMCLUSPRO_MAX_PIXELS``, or 100 million pixels."""
    text = os.environ.get('MMCLUSPRO_MAX_PIXELS', str(MAX_PIXELS))
    if not text.isdigit() or not int(text):
        raise ValueError(f'MMCLUSPRO_MAX_PIXELS must be a number of pixels, got {text!r}.')
    return int(text)


def check_size(width: int, height: int, what: str = 'the picture') -> None:
    """Refuses a picture that would take too much memory, before it is decoded."""
    limit = pixel_limit()
    if width * height > limit:
        raise Refused(
            f'{what} has {width} x {height} pixels, more than {limit:,}; make it smaller, or set '
            'MMCLUSPRO_MAX_PIXELS')


def check_plain_file(path: str) -> None:
    """Refuses what would never end, or fill the memory, when it is read: pipes, devices, files
    with more bytes than a picture of the allowed size can have."""
    state = os.stat(path)
    if not stat.S_ISREG(state.st_mode):
        raise Refused('it is a pipe, a device or a folder, not a plain file')
    limit = BYTES_PER_PIXEL * pixel_limit() + (1 << 24)
    if state.st_size > limit:
        raise Refused(f'the file has {state.st_size:,} bytes, more than {limit:,}; make the '
                      'picture smaller, or set MMCLUSPRO_MAX_PIXELS')


def check_file_size(path: str) -> None:
    """Refuses a picture file with too many pixels by its header alone.

    A file that is missing or whose header Pillow does not understand is left to the decoder, which
    says what is wrong.
    """
    if not os.path.exists(path):
        return
    check_plain_file(path)
    try:
        with open(path, 'rb') as file, Image.open(file) as image:
            check_size(*image.size)
            if image.format == 'TIFF':
                _check_tags(file)
            if image.format in ('JPEG', 'MPO'):
                file.seek(0)
                check_scans(file.read())
    except Image.DecompressionBombError as error:
        raise _bomb(error) from None
    except Refused:
        raise
    except Exception:  # headers of damaged files raise almost anything
        return


def check_scans(data: bytes) -> None:
    """Refuses a JPEG of so many scans that decoding it takes minutes: 60 bytes ask for one more."""
    if not data.startswith(b'\xff\xd8'):
        return
    place, scans = 2, 0
    while marker := MARKER.search(data, place):
        kind, place = marker[0][-1], marker.end()
        if kind == 0xd9:  # the end; what follows is another picture
            return
        scans += kind == 0xda
        if scans > MAX_SCANS:
            raise Refused(f'it is a JPEG file of more than {MAX_SCANS} scans')
        place += int.from_bytes(data[place:place + 2], 'big')  # what the marker says of itself


def _check_tags(file: BinaryIO) -> None:
    """Refuses a TIFF with a tag that is there twice: OpenCV takes the first, Pillow the last."""
    file.seek(0)
    head = file.read(16)
    order = '<' if head[:2] == b'II' else '>'
    big = struct.unpack(f'{order}H', head[2:4])[0] == 43
    file.seek(struct.unpack(f'{order}Q', head[8:])[0] if big else
              struct.unpack(f'{order}I', head[4:8])[0])
    count = struct.unpack(f'{order}{"Q" if big else "H"}', file.read(8 if big else 2))[0]
    size = 20 if big else 12
    entries = file.read(size * min(count, 1 << 16))
    tags = [entries[place:place + 2] for place in range(0, len(entries), size)]
    if len(set(tags)) < len(tags):
        raise Refused('it is a TIFF file in which a tag is there twice')


def _bomb(error: Image.DecompressionBombError) -> Refused:
    """The message about Pillow's own limit, which lies above our default."""
    count = re.search(r'(\d+) pixels', str(error))
    return Refused(f'the picture has {int(count[1]) if count else 0:,} pixels, more than '
                    f'{min(pixel_limit(), 2 * (Image.MAX_IMAGE_PIXELS or 0)):,}; make it smaller')


def colour(value: Any) -> Colour:
    """Colour behind transparent pictures: 'white', '#ffeedd', (r, g, b); 'none' drops alpha.

    Returns:
        tuple[int] | None: Red, green and blue; None to drop alpha.
    """
    if isinstance(value, str) and value.lower() == 'none':
        return None
    with suppress(ValueError):
        if isinstance(value, str):
            return ImageColor.getrgb(value)[:3]
        found = tuple(int(part) for part in value)
        if len(found) == 3 and all(0 <= part <= 255 for part in found):
            return found
    raise ValueError("background must be a colour such as 'white', '#ffeedd' or (255, 255, 255), "
                     f"or 'none' to drop transparency, got {value!r}.")


def read_picture(path: str, decoder: str = 'cv2', background: Colour = WHITE) -> np.ndarray:
    """Decodes a file: BGR, uint8, shape (H, W, 3), upright.

    Args:
        path (str): A file on disk; addresses are not followed.
        decoder (str): 'cv2' or 'pillow'. GIF, AVIF, HEIC, transparent pictures and those of 16
            bits always go to Pillow. Defaults to 'cv2'.
        background (Sequence[int], optional): Red, green and blue behind transparent pictures;
            None drops transparency. Defaults to white.
    """
    check_plain_file(path)
    with open(path, 'rb') as file:
        data = file.read()
    if not data:
        raise ValueError('the file is empty')
    formats = (*FORMATS, 'HEIF') if _is_heic(data) and _heic_opener() else FORMATS
    try:
        with Image.open(BytesIO(data), formats=formats) as image:
            check_size(*image.size)
            check_scans(data)
            plain = decoder == 'cv2' and image.format not in BY_PILLOW and (
                image.mode[0] != 'I' and not _transparent(image))
            pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) if (
                plain) else None
            return as_bgr(image, background) if pixels is None else pixels
    except Refused as error:
        raise ValueError(str(error)) from None
    except Image.DecompressionBombError as error:
        raise ValueError(str(_bomb(error))) from None
    except Exception as error:  # decoders of damaged files raise almost anything
        if _is_heic(data) and 'HEIF' not in formats:
            raise ValueError('it is a HEIC picture, which the package pillow-heif reads: pip '
                             'install pillow-heif') from None
        raise ValueError('not an image, or damaged') from error


def as_bgr(image: Any, background: Colour = WHITE, channels: str = 'BGR') -> np.ndarray:
    """A PIL image, or an array (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) → (H, W, 3), BGR.

    Large pictures are converted in parts, so that they take three bytes per pixel besides what
    decoded them.

    Args:
        image (Image | np.ndarray): Arrays are uint8.
        background (Sequence[int], optional): As in :func:`read_picture`. Defaults to white.
        channels (str): Channel order of an array, 'BGR' or 'RGB'. Defaults to 'BGR'.
    """
    if not isinstance(image, Image.Image):
        image = image[..., None] if image.ndim == 2 else image
        if image.shape[2] == 4:
            image = _composite(image, background if channels == 'RGB' or background is None
                               else background[::-1])
        image = image.repeat(3, axis=2) if image.shape[2] == 1 else image
        return np.ascontiguousarray(image[..., ::-1] if channels == 'RGB' else image)
    check_size(*image.size)
    image.load()  # some formats say only at the end how they are turned
    if image.getexif().get(ExifTags.Base.Orientation, 1) != 1:  # else it would be copied
        image = ImageOps.exif_transpose(image)
    width, height = image.size
    pixels = np.empty((height, width, 3), np.uint8)
    deep = image.mode[0] == 'I' and any(
        np.asarray(image.crop((0, rows.start, width, rows.stop))).max(initial=0) > 255
        for rows in _parts(height, width))
    clear = background is not None and _transparent(image)
    for rows in _parts(height, width):
        part = image.crop((0, rows.start, width, rows.stop))
        if part.mode[0] == 'I':  # sixteen bits: the upper eight, as OpenCV does
            grey = np.asarray(part).astype(np.int64)
            pixels[rows] = np.clip(grey >> 8 if deep else grey, 0, 255)[..., None]
        elif clear:
            pixels[rows] = _composite(np.asarray(part.convert('RGBA')), background)[..., ::-1]
        else:
            pixels[rows] = np.asarray(part.convert('RGB'))[..., ::-1]
    return pixels


def _parts(height: int, width: int) -> Iterator[slice]:
    """Rows of a picture, so many at once that they have few pixels."""
    step = max(1, PART // max(1, width))
    return (slice(top, min(top + step, height)) for top in range(0, height, step))


def _composite(pixels: np.ndarray, background: Colour) -> np.ndarray:
    """(H, W, 4) over one colour in the order of the pixels → (H, W, 3)."""
    if background is None:
        return pixels[..., :3]
    found = np.empty((*pixels.shape[:2], 3), np.uint8)
    for rows in _parts(*pixels.shape[:2]):
        alpha = pixels[rows, :, 3:].astype(np.float32) / 255
        mixed = pixels[rows, :, :3] * alpha + np.asarray(background, np.float32) * (1 - alpha)
        found[rows] = np.rint(mixed)
    return found


def _transparent(image: Image.Image) -> bool:
    return image.mode in ('RGBA', 'LA', 'PA', 'RGBa', 'La') or 'transparency' in image.info


def _is_heic(data: bytes) -> bool:
    return data[4:8] == b'ftyp' and data[8:12] in HEIC


def _heic_opener() -> bool:
    """Whether pillow-heif is installed; lets Pillow know of it."""
    try:
        import pillow_heif
    except ImportError:
        return False
    pillow_heif.register_heif_opener()
    return True


@TRANSFORMS.register_module()
class LoadPicture:
    """Reads the image file of a sample in the same way as prediction.

    Args:
        decoder (str): As in :func:`read_picture`. Defaults to 'cv2'.
        background (str | Sequence[int]): As in :func:`colour`. Defaults to 'white'.
    """

    def __init__(self, decoder: str = 'cv2', background: Any = 'white') -> None:
        self.decoder, self.background = decoder, colour(background)

    def __call__(self, results: dict[str, Any]) -> dict[str, Any]:
        image = read_picture(results['img_path'], self.decoder, self.background)
        return dict(results, img=image, img_shape=image.shape[:2], ori_shape=image.shape[:2])


INTERPOLATIONS: dict[str, dict[str, Any]] = dict(
    cv2=dict(nearest=cv2.INTER_NEAREST, bilinear=cv2.INTER_LINEAR, bicubic=cv2.INTER_CUBIC,
             area=cv2.INTER_AREA, lanczos=cv2.INTER_LANCZOS4),
    pillow=dict(nearest=Image.Resampling.NEAREST, bilinear=Image.Resampling.BILINEAR,
                bicubic=Image.Resampling.BICUBIC, box=Image.Resampling.BOX,
                lanczos=Image.Resampling.LANCZOS, hamming=Image.Resampling.HAMMING))
EDGES = ('short', 'long', 'width', 'height')


def apply_steps(image: np.ndarray, steps: Sequence[dict[str, Any]]) -> np.ndarray:
    """Resizes and crops.

    Args:
        image (np.ndarray): uint8, shape (H, W, 3).
        steps (Sequence[dict]): ``dict(step='resize', size=224, edge='short',
            interpolation='bicubic', backend='pillow')``, where ``size`` is (width, height) for an
            ``edge`` of None, ``dict(step='crop', size=(width, height))``, and ``dict(step='fit',
            size=(width, height), fill=0, …)``: as large as fits, with a grey border.

    Returns:
        np.ndarray: uint8, shape (H', W', 3).
    """
    kinds: dict[str, Any] = dict(resize=_resize, crop=_crop, fit=_fit)
    for step in steps:
        image = kinds[step['step']](image, **_fields(step))
    return image


def _fields(step: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in step.items() if name != 'step'}


def _resize(image: np.ndarray, size: Any, edge: str | None, interpolation: str,
            backend: str) -> np.ndarray:
    height, width = image.shape[:2]
    if edge is None:
        target = size[0], size[1]
    elif edge == 'width' or edge == 'short' and width < height or (
            edge == 'long' and width > height):
        target = size, int(size * height / width)
    else:
        target = int(size * width / height), size
    target = max(target[0], 1), max(target[1], 1)
    check_size(*target, 'the resized picture')
    code = INTERPOLATIONS[backend][interpolation]
    if backend == 'cv2':
        return cv2.resize(image, target, interpolation=code)
    return np.array(Image.fromarray(image).resize(target, code))


def _fit(image: np.ndarray, size: Sequence[int], fill: int, interpolation: str,
         backend: str) -> np.ndarray:
    """open_clip's ``ResizeKeepRatio`` of the long edge and ``CenterCropOrPad``."""
    rows, columns = image.shape[:2]
    ratio = max(columns / size[0], rows / size[1])
    image = _resize(image, [round(columns / ratio), round(rows / ratio)], None, interpolation,
                    backend)
    rest = [size[1] - image.shape[0], size[0] - image.shape[1], 0]
    return np.pad(image, [(side // 2, side - side // 2) for side in rest], constant_values=fill)


def _crop(image: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """The middle; what is smaller stays as it is."""
    (rows, columns), (width, height) = image.shape[:2], size
    height, width = min(height, rows), min(width, columns)
    top, left = (max(0, int(round(rest / 2.))) for rest in (rows - height, columns - width))
    return image[top:top + height, left:left + width]


@TRANSFORMS.register_module()
class PrepareImage:
    """Resizes and crops ``img`` of a sample, as :func:`apply_steps`.

    Args:
        steps (Sequence[dict]): As in :func:`apply_steps`.
    """

    def __init__(self, steps: Sequence[dict[str, Any]]) -> None:
        self.steps = [dict(step) for step in steps]

    def __call__(self, results: dict[str, Any]) -> dict[str, Any]:
        image = apply_steps(results['img'], self.steps)
        return dict(results, img=image, img_shape=image.shape[:2])


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
