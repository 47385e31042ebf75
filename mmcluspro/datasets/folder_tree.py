"""Own data as folders ``attribute_object/``."""
import os
from pathlib import Path

from .faults import Fault, raise_faults
from .table_file import TableRow

IMAGE_SUFFIXES = frozenset(
    ('.jpg', '.jpeg', '.png', '.bmp', '.gif', '.tif', '.tiff', '.webp', '.ppm', '.pgm'))


def scan_folders(root: str | Path, separator: str = '_') -> list[TableRow]:
    """One row for each image below ``root``, labelled by its folder, without split.

    A folder's name is divided at ``separator`` and must give exactly two parts:
    "wet_fire_truck" could be read in two ways and is refused. Choose another
    separator ("wet__fire_truck" with ``separator='__'``), or ``separator='/'``
    for folders ``attribute/object/``. Deeper folders and hidden files are
    allowed; other files than images are ignored.

    Args:
        root (str | Path): The config field ``data_root``.
        separator (str): What divides attribute and object. Defaults to '_'.
    """
    root = Path(root).expanduser()
    if not separator:
        raise ValueError("separator must not be empty; the default is '_'.")
    if not root.is_dir():
        raise FileNotFoundError(f'No folder {root}. Set the config field data_root to the folder '
                                f'that holds folders attribute{separator}object/ of images.')
    rows, faults = [], []
    for name in _images(root):
        if separator == '/':
            parts, images = name.split('/')[:-1][:2], name.split('/')[2:]
        else:
            folder, *images = name.split('/')
            parts = folder.split(separator)
        if images and len(parts) == 2 and all(parts):
            rows.append(TableRow(name, parts[0], parts[1]))
        else:
            faults.append(Fault('folder', str(root / name), _reason(name, separator)))
    # One message a folder, not one an image.
    once = {os.path.dirname(fault.where): fault for fault in reversed(faults)}
    raise_faults(list(once.values())[::-1],
                 'Rename the folders, set the config field separator, or use a table (CSV).')
    if not rows:
        raise ValueError(f'No image below {root}; expected attribute{separator}object/*.jpg. Set '
                         'the config field data_root, or table for a CSV.')
    return rows


def _images(root: Path) -> list[str]:
    found = []
    for folder, folders, files in os.walk(root, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith('.')]
        found += [
            os.path.relpath(os.path.join(folder, name), root).replace(os.sep, '/')
            for name in files
            if os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES and not name.startswith('.')
        ]
    return sorted(found)


def _reason(name: str, separator: str) -> str:
    folder = name.rpartition('/')[0]
    if not folder:
        return f'the image is in no folder attribute{separator}object/'
    count = folder.split('/')[0].count(separator)
    if separator == '/' or not count:
        return f'the folder {folder!r} is not attribute{separator}object'
    return (f'the folder {folder!r} has the separator {separator!r} {count} times, so attribute '
            'and object cannot be told apart')
