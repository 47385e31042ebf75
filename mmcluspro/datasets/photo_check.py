"""Checks own data, a folder or a CSV file, before training: labels, files, pictures."""
from __future__ import annotations

from collections import Counter
from pathlib import Path

from mmcluspro.errors import Fault

from .dataset_check import Report
from .folder_tree import images_below, scan_folders
from .image_folder import ImageFolder, undecodable
from .split_check import too_few_names
from .splits import PHASES
from .table_file import read_table

FEW = 5  # images of a pair below which it is named


def is_own_data(path: str | Path) -> bool:
    """Whether a path is a CSV file or a folder of images, not a dataset in the published layout."""
    path = Path(path).expanduser()
    if path.is_file():
        return path.suffix.lower() == '.csv'
    return path.is_dir() and not (path / 'images').is_dir() and bool(images_below(path))


def check_photos(path: str | Path, separator: str = '_', decode: bool = False) -> Report:
    """Counts own data and lists what is wrong with it.

    Args:
        path (str | Path): CSV file ``image,attribute,object`` beside the images, or folder of
            folders ``attribute_object/``.
        separator (str): As in :func:`scan_folders`. Defaults to '_'.
        decode (bool): Whether to read every image. Slow. Defaults to False.
    """
    path = Path(path).expanduser()
    root, faults = path if path.is_dir() else path.parent, []
    if path.is_dir():
        rows = scan_folders(path, separator)
    else:
        with path.open(encoding='utf-8-sig', errors='replace') as file:
            split = 'split' in file.readline().lower()
        rows = read_table(path, need_split=split)
    folder = ImageFolder(root)
    files = {row: folder.find(row.image) for row in rows}
    faults += [Fault('image', f'{path}:{row.line}', f'no image {row.image!r} in {root}')
               for row, file in files.items() if file is None]
    pairs = Counter((row.attribute, row.object) for row in rows)
    faults += [Fault('few images', str(path), f'{" ".join(pair)} has {count}; twenty are better')
               for pair, count in sorted(pairs.items()) if count < FEW]
    if few := too_few_names(pairs):
        faults.append(Fault('few pairs', str(path), few))
    found = {'images': len(rows), 'attributes': len({attr for attr, _ in pairs}),
             'objects': len({obj for _, obj in pairs}), 'pairs': len(pairs)}
    if rows[0].split:
        phases = Counter(row.split for row in rows)
        found |= {f'{phase} images': phases[phase] for phase in PHASES}
        faults += [Fault('no image', str(path), f'no row has split {phase!r}')
                   for phase in PHASES if not phases[phase]]
    if decode:
        known = {file: row for row, file in files.items() if file}
        faults += [Fault('unreadable image', file, reason)
                   for file, reason in undecodable(list(known))]
    return Report(found, {}, faults)
