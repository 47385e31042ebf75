"""Finding image files: each folder is listed once, no file is touched."""
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mmcluspro.errors import reason_of
from mmcluspro.utils.files import leaves, within
from mmcluspro.utils.progress import Progress


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

    from .picture_file import FORMATS, Refused, check_file_size, read_picture
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
