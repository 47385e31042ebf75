"""Finding image files: each folder is listed once, no file is touched."""
import os
from collections.abc import Sequence
from pathlib import Path


class ImageFolder:
    """Looks up image names below a root folder.

    A folder written with spaces in the metadata is also found with underscores
    and the other way round: the MIT-States archive has "ancient building/", the
    published metadata "ancient_building/". The name as written goes first.

    Args:
        root (str | Path): Folder that the names are relative to.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).expanduser()
        self._listed: dict[str, frozenset[str]] = {}

    def find(self, *names: str) -> str | None:
        """The first of the names that is there, as a path, or None."""
        for name in names:
            folder, _, file = name.rpartition('/')
            for spelling in dict.fromkeys(
                    (folder, folder.replace(' ', '_'), folder.replace('_', ' '))):
                if file in self._files(spelling):
                    return os.path.join(self.root, spelling, file)
        return None

    def _files(self, folder: str) -> frozenset[str]:
        if folder not in self._listed:
            try:
                with os.scandir(self.root / folder) as entries:
                    self._listed[folder] = frozenset(
                        entry.name for entry in entries if not entry.is_dir())
            except (FileNotFoundError, NotADirectoryError):
                self._listed[folder] = frozenset()
        return self._listed[folder]


def undecodable(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Images that cannot be decoded, with the reason (slow: reads every file)."""
    from PIL import Image
    bad = []
    for path in paths:
        try:
            with Image.open(path) as image:
                image.load()
        except Exception as error:
            bad.append((path, f'{type(error).__name__}: {error}'))
    return bad
