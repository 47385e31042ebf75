"""Checks that the OpenMMLab packages are installed, in versions that work.

They are an extra, not a dependency, because the maintained forks (``onedl-mmengine`` and its
siblings) use the same import names: a dependency would overwrite them. The versions here are the
source; a test compares the extra ``mm`` in pyproject.toml with them.
"""
import re
from importlib import import_module

# Import name, lowest version that works, first version that is not known to.
REQUIREMENTS = (
    ('mmengine', '0.10.6', '1.0.0'),
    ('mmcv', '2.1.0', '3.0.0'),
    ('mmpretrain', '1.2.0', '2.0.0'),
)
INSTALL = "pip install 'mmcluspro[mm]' (or the forks: pip install onedl-mmengine onedl-mmcv " \
          'onedl-mmpretrain)'


def _numbers(version: str) -> tuple[int, ...]:
    """``'0.10.7rc1'`` → ``(0, 10, 7)``."""
    return tuple(int(part) for part in re.findall(r'\d+', version)[:3])


def check_requirements() -> None:
    """Raises an ImportError of one line that says what to install."""
    for name, lowest, beyond in REQUIREMENTS:
        try:
            version = import_module(name).__version__
        except ModuleNotFoundError as error:
            if error.name != name:
                raise ImportError(
                    f'mmcluspro needs {name}, which is installed but misses {error.name!r}: '
                    f'pip install {error.name}') from error
            raise ImportError(
                f'mmcluspro needs {name}, which is not installed: {INSTALL}') from None
        if not _numbers(lowest) <= _numbers(version) < _numbers(beyond):
            raise ImportError(
                f'mmcluspro needs {name} >={lowest},<{beyond}, found {version}: {INSTALL}')
