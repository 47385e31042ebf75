"""Paths of files that come with the package."""
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
WEIGHTS = PACKAGE / 'models' / 'weights'


def configs_folder() -> Path:
    """Folder of the shipped configs: that of the installed package, or of the repository."""
    installed = PACKAGE / '.mim' / 'configs'
    return installed if installed.is_dir() else PACKAGE.parent / 'configs'


def weights_file(name: str) -> Path:
    """Path that a ``pretrained`` field names: a file of the package, or one of the user.

    Args:
        name (str): ``'tiny_clip'`` or a path.
    """
    return WEIGHTS / 'tiny_clip.pt' if name == 'tiny_clip' else Path(name).expanduser()
