"""Packaging. Settings live in pyproject.toml; this file adds ``mmcluspro/.mim``.

OpenMMLab packages carry their configs and tools inside the wheel, under
``.mim``, where ``mim`` looks for them. The usual set-up hook tests
``'develop' in sys.argv``, which pip no longer passes: the commands below are
the ones that both kinds of install run today.
"""
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


setup(cmdclass={'build_py': BuildWithMim, 'editable_wheel': EditableWithMim})
