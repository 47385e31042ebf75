"""Packaging. Settings live in pyproject.toml; this file adds ``mmcluspro/.mim`` and the page.

Links of README.md are relative, for readers of the repository. The package page stands elsewhere:
with ``MMCLUSPRO_URL``, the address of the repository, and ``MMCLUSPRO_REF``, a tag, as the release
workflow sets them, its links are absolute.

OpenMMLab packages carry their configs and tools inside the wheel, under
``.mim``, where ``mim`` looks for them. The usual set-up hook tests
``'develop' in sys.argv``, which pip no longer passes: the commands below are
the ones that both kinds of install run today.
"""
import os
import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

ROOT = Path(__file__).resolve().parent
CARRIED = ('configs', 'tools', 'model-index.yml')


class BuildWithMim(build_py):
    """Copies configs and tools into the wheel."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / 'mmcluspro' / '.mim'
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        # What runs many trainings stays in the repository, with the tables and records it renews.
        skip = shutil.ignore_patterns('__pycache__', '*.pyc', 'analysis_tools')
        for name in CARRIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, target / name, ignore=skip)
            elif source.exists():
                shutil.copy2(source, target / name)


class EditableWithMim(editable_wheel):
    """Links configs and tools, so that edits are seen at once."""

    def run(self) -> None:
        target = ROOT / 'mmcluspro' / '.mim'
        target.mkdir(exist_ok=True)
        for name in CARRIED:
            link = target / name
            if (ROOT / name).exists() and not link.exists():
                link.symlink_to(Path('..') / '..' / name)
        super().run()


def package_page(text: str, url: str, ref: str) -> str:
    """README.md with absolute links; unchanged without an address."""
    if not url:
        return text

    def absolute(link: re.Match) -> str:
        kind = 'raw' if link[1] == '!' else 'blob'
        return f'{link[1]}{link[2]}({url}/{kind}/{ref}/{link[3]})'
    return re.sub(r'(!?)(\[[^\]]*\])\((?!https?:|#)([^)\s]+)\)', absolute, text)


def project_urls(url: str, ref: str) -> dict[str, str]:
    """Links beside the package page."""
    return {'Source': url, 'Issues': f'{url}/issues', 'Documentation': f'{url}/tree/{ref}/docs',
            'Changelog': f'{url}/blob/{ref}/CHANGELOG.md'} if url else {}


URL, REF = os.environ.get('MMCLUSPRO_URL', '').rstrip('/'), os.environ.get('MMCLUSPRO_REF', 'main')
setup(cmdclass={'build_py': BuildWithMim, 'editable_wheel': EditableWithMim},
      long_description=package_page((ROOT / 'README.md').read_text(encoding='utf-8'), URL, REF),
      long_description_content_type='text/markdown', project_urls=project_urls(URL, REF))
