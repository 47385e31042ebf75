"""Own data as folders ``attribute_object/``, and finding image files below a folder."""
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mmcluspro.errors import Fault, raise_faults, reason_of
from mmcluspro.utils.files import leaves, within
from mmcluspro.utils.progress import Progress

from .table_file import TableRow, one_form

PHASE_FOLDERS = {'train': 'train', 'training': 'train', 'val': 'val', 'valid': 'val',
                 'validation': 'val', 'test': 'test', 'testing': 'test'}
IMAGE_SUFFIXES = frozenset(
    ('.jpg', '.jpeg', '.jfif', '.png', '.bmp', '.gif', '.tif', '.tiff', '.webp', '.avif', '.heic',
     '.heif', '.ppm', '.pgm'))


def scan_folders(root: str | Path, separator: str = '_') -> list[TableRow]:
    """One row for each image below ``root``, labelled by its folder.

    Folders ``train/``, ``val/`` (or ``valid/``, ``validation/``) and ``test/`` above these folders
    are the split; without them, rows have none.

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
        raise FileNotFoundError(f'There is no folder {root}. Give the folder that holds folders '
                                f'attribute{separator}object/ of images (in a config: data_root).')
    rows, faults, names = [], [], images_below(root)
    raise_faults([Fault('name', os.path.join(_written(str(root)), _written(name)),
                        'the name is not UTF-8, so a table cannot hold it')
                  for name in names if _written(name) != name], _as_text())
    phases = _phase_folders(names)
    for name in names:
        top, _, rest = name.partition('/')
        split, labelled = (phases[top], rest) if phases else ('', name)
        if separator == '/':
            parts, images = labelled.split('/')[:-1][:2], labelled.split('/')[2:]
        else:
            folder, *images = labelled.split('/')
            parts = folder.split(separator)
        if images and len(parts) == 2 and all(parts):
            rows.append(TableRow(name, parts[0], parts[1], split))
        else:
            faults.append(Fault('folder', str(root / name), _reason(labelled, separator)))
    # One message per folder, not one per image.
    once = {os.path.dirname(fault.where): fault for fault in reversed(faults)}
    raise_faults(list(once.values())[::-1],
                 _advice(once.values(), separator))
    if not rows:
        raise ValueError(f'No image below {root}; expected folders attribute{separator}object/ of '
                         'images, or a CSV file image,attribute,object. Check the path (in a '
                         'config: data_root and table).')
    return one_form(rows, root)


def _phase_folders(names: Iterable[str]) -> dict[str, str]:
    """Split of each folder if all of them are named as one, 'train' among them; otherwise {}."""
    tops = {name.partition('/')[0] for name in names}
    found = {top: PHASE_FOLDERS[top.lower()] for top in tops if top.lower() in PHASE_FOLDERS}
    return found if len(found) == len(tops) and 'train' in found.values() else {}


def images_below(root: str | Path, once: bool = False) -> list[str]:
    """Images of a folder and its folders, relative to it, sorted.

    Hidden files and folders are left out. Links to folders are followed, except to one that they
    lie in, which would never end.

    Args:
        root (str | Path): A folder.
        once (bool): List a folder that several links lead to only once. Defaults to False.
    """
    return [name for name in _files_below(root, once) if _is_image(name)]


def left_out(root: str | Path) -> str:
    """A sentence about the files of a folder that are not images; '' if there are none.

    Args:
        root (str | Path): As in :func:`images_below`.
    """
    others = [name for name in _files_below(root, True) if not _is_image(name)]
    if not others:
        return ''
    kinds = Counter(os.path.splitext(name)[1].lower() or 'no ending' for name in others)
    counts = ', '.join(f'{kind} {count}' for kind, count in kinds.most_common(5))
    first = ', '.join(others[:3]) + (', …' if len(others) > 3 else '')
    what = 'file is not an image' if len(others) == 1 else 'files are not images'
    return f'{len(others)} {what} and skipped ({counts}): {first}'


def empty_folders(root: str | Path) -> str:
    """A sentence about folders of a folder that hold no image; '' if there are none.

    Args:
        root (str | Path): As in :func:`images_below`.
    """
    full = {name.partition('/')[0] for name in images_below(root, once=True)}
    empty = sorted(entry.name for entry in _entries(str(root))
                   if entry.is_dir() and entry.name not in full)
    if not empty:
        return ''
    first = ', '.join(empty[:3]) + (', …' if len(empty) > 3 else '')
    return f'{len(empty)} {"folder has" if len(empty) == 1 else "folders have"} no image: {first}'


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def _files_below(root: str | Path, once: bool) -> list[str]:
    found: list[str] = []
    seen: set[str] = set()
    # Links wait until all folders are listed under their own names.
    folders: list[tuple[str, str, frozenset[str]]] = [(str(root), '', frozenset())]
    links: list[tuple[str, str, frozenset[str]]] = []
    while folders or links:
        is_link = not folders
        folder, prefix, above = (folders or links).pop()
        place = os.path.realpath(folder)
        if place in above or (once and is_link and place in seen):
            continue
        seen.add(place)
        for entry in _entries(folder):
            if entry.is_dir():
                (links if entry.is_symlink() else folders).append(
                    (entry.path, f'{prefix}{entry.name}/', above | {place}))
            else:
                found.append(prefix + entry.name)
    return sorted(found)


def _entries(folder: str) -> list[os.DirEntry]:
    try:
        return [entry for entry in os.scandir(folder) if not entry.name.startswith('.')]
    except OSError as error:
        warnings.warn(f'The folder {folder} cannot be read ({error.strerror}): its images are left '
                      'out.', stacklevel=3)
        return []


def _written(name: str) -> str:
    """A name that can be printed: bytes that are not UTF-8 as ``\\udcff``."""
    return name.encode('utf-8', 'backslashreplace').decode()


def _as_text() -> str:
    """What to do about a name that is not text, or not in this locale."""
    encoding = sys.getfilesystemencoding()
    if encoding.lower() == 'utf-8':
        return 'Rename the file or its folder.'
    return (f'This locale reads names as {encoding}. Set the environment variable PYTHONUTF8=1, or '
            'a locale with UTF-8 (LC_ALL=C.UTF-8).')


def _advice(faults: Iterable[Fault], separator: str) -> str:
    if separator != '/' and any('told apart' in fault.what for fault in faults):
        return (f'Write names of several words with spaces or dashes ("red{separator}flip flops"), '
                'or divide all folders with another separator ("red__flip_flops" and --separator '
                "__, in a config separator='__'), or list the images in a CSV file.")
    return (f'Put each image into a folder attribute{separator}object/, choose another separator '
            '(--separator of mmcluspro make-split, separator=… in a config), or list the images in '
            'a CSV file image,attribute,object.')


def _reason(name: str, separator: str) -> str:
    folder = name.rpartition('/')[0]
    if not folder:
        return f'the image is in no folder attribute{separator}object/'
    count = folder.split('/')[0].count(separator)
    if separator == '/' or not count:
        return f'the folder {folder!r} is not attribute{separator}object'
    return (f'the folder {folder!r} has the separator {separator!r} {count} times, so attribute '
            'and object cannot be told apart')


class ImageFolder:
    """Looks up image names below a root folder.

    A folder written with spaces in the metadata is also found with underscores
    and the other way round: the MIT-States archive has "ancient building/", the published metadata
        "ancient_building/". The name as written is tried first. Paths outside the root, by name or
        through a link, are not found.

    Args:
        root (str | Path): Folder that the names are relative to; it may be a link.
        top (str | Path, optional): Folder of the dataset, which links may lead to as well.
            Defaults to None: ``root``.
        follow_links (bool): Whether links may lead anywhere. Defaults to False.
    """

    def __init__(self, root: str | Path, top: str | Path | None = None,
                 follow_links: bool = False) -> None:
        self.root = Path(root).expanduser()
        self.tops = (self.root, self.root if top is None else Path(top).expanduser())
        self.follow_links = follow_links
        self._listed: dict[str, frozenset[str]] = {}
        self._left_out = 0

    def find(self, *names: str) -> str | None:
        """The first of the names that is there, as a path, or None."""
        for name in names:
            if leaves(name):
                continue
            folder, _, file = name.rpartition('/')
            for spelling in dict.fromkeys(
                    (folder, folder.replace(' ', '_'), folder.replace('_', ' '))):
                if file in self._files(spelling):
                    return os.path.join(self.root, spelling, file)
        return None

    @property
    def remark(self) -> str:
        """Advice about links that lead out of the dataset; '' if there are none."""
        return ('' if not self._left_out else
                f'\n{self._left_out} links lead out of {self.tops[-1]} and were not followed. If '
                'they are yours, copy what they lead to, or set follow_links=True in a config.')

    def _files(self, folder: str) -> frozenset[str]:
        if folder not in self._listed:
            self._listed[folder] = frozenset(self._list(self.root / folder))
        return self._listed[folder]

    def _list(self, folder: Path) -> list[str]:
        if not self._allowed(folder):
            return []
        try:
            with os.scandir(folder) as entries:
                return [entry.name for entry in entries if not entry.is_dir()
                        and (not entry.is_symlink() or self._allowed(entry.path))]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _allowed(self, path: str | Path) -> bool:
        allowed = self.follow_links or any(within(top, path) for top in self.tops)
        self._left_out += not allowed
        return allowed


def undecodable(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Images that cannot be decoded, with the reason (slow: reads every file)."""
    found = []
    with (ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool,
          Progress('decoding', len(paths)) as progress):
        for path, reason in zip(paths, pool.map(_why_not, paths)):
            if reason:
                found.append((path, reason))
            progress.add()
    return found


def _why_not(path: str) -> str | None:
    """Why a file cannot be decoded; None if it can."""
    from PIL import Image

    from .pictures import FORMATS, Refused, check_file_size, read_picture
    try:
        check_file_size(path)
        with Image.open(path, formats=FORMATS) as image:
            image.load()  # stricter than OpenCV, which fills the rest of half a file with grey
        return None
    except Refused as error:
        return str(error)
    except Exception as error:
        try:
            read_picture(path)  # HEIC, and formats with a message of their own
        except (OSError, ValueError) as other:
            if other.__cause__ is None:
                return str(other)
        else:
            if not isinstance(error, OSError) or 'cannot identify' in str(error):
                return None
        return 'it is not an image' if 'cannot identify' in str(error) else reason_of(error)
