"""Checks that the OpenMMLab packages are installed, in versions that work.

They are an extra, not a dependency, because the maintained forks (``onedl-mmengine`` and its
siblings) use the same import names: a dependency would overwrite them. The versions here are the
source; a test compares the extra ``mm`` in pyproject.toml with them.
"""
import json
import re
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

# Import name, lowest version that works, first version that is not known to.
REQUIREMENTS = (
    ('mmengine', '0.10.6', '1.0.0'),
    ('mmcv', '2.1.0', '3.0.0'),
    ('mmpretrain', '1.2.0', '2.0.0'),
)
VERSION = re.compile(r"""^__version__\s*(?::.*)?=\s*['"]([^'"]+)""", re.MULTILINE)
FORKS = '(or the forks: pip install onedl-mmengine onedl-mmcv onedl-mmpretrain)'


def extra_command(extra: str) -> str:
    """The command that installs an extra, for the way in which the package itself was installed.

    A checkout and a file have no name on an index: pip would find nothing, or something else.

    Args:
        extra (str): Name in pyproject.toml.
    """
    checkout = Path(__file__).resolve().parents[1]
    if (checkout / 'pyproject.toml').is_file():
        return f"pip install -e '{checkout}[{extra}]'"
    try:
        source = json.loads(distribution('mmcluspro').read_text('direct_url.json') or '{}')
    except (PackageNotFoundError, ValueError):
        source = {}
    place = source.get('url', '')
    if source.get('vcs_info'):
        place = f'{source["vcs_info"].get("vcs", "git")}+{place}'
    return f"pip install 'mmcluspro[{extra}]{f' @ {place}' if place else ''}'"


def _numbers(version: str) -> tuple[int, ...]:
    """``'0.10.7rc1'`` → ``(0, 10, 7)``."""
    return tuple(int(part) for part in re.findall(r'\d+', version)[:3])


def check_requirements() -> None:
    """Raises an ImportError of one line that says what to install."""
    for name, lowest, beyond in REQUIREMENTS:
        version = _version(name)
        if not _numbers(lowest) <= _numbers(version) < _numbers(beyond):
            raise ImportError(
                f'mmcluspro needs {name} >={lowest},<{beyond}, found {version}: '
                f'{extra_command("mm")} {FORKS}')


def _version(name: str) -> str:
    """Version of a package. One that is not imported yet is not: that would take seconds."""
    if sys.modules.get(name) is not None:
        return sys.modules[name].__version__
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise ImportError(f'mmcluspro needs {name}, which is not installed: '
                          f'{extra_command("mm")} {FORKS}')
    file = Path(spec.origin).with_name('version.py')
    found = file.is_file() and VERSION.search(file.read_text(encoding='utf-8'))
    if found:
        return found[1]
    try:
        return import_module(name).__version__
    except ModuleNotFoundError as error:
        raise ImportError(f'mmcluspro needs {name}, which is installed but misses {error.name!r}: '
                          f'pip install {error.name}') from error
