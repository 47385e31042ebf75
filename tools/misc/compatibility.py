"""Installs the package with other versions of Python, OpenMMLab and torch, and tries it.

    python tools/misc/compatibility.py --list
    python tools/misc/compatibility.py --only py3.12-onedl --out outcome.jsonl
    python tools/misc/compatibility.py                  # all, one after the other

Each combination gets an environment of its own (about 7 GB, removed afterwards), an installation,
and a short trial in an empty folder: import, one epoch on Shapes, prediction, the tests of the
metric. One JSON line per combination says how far it came.
"""
from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPENMMLAB = ['mmengine>=0.10.6,<1', 'mmcv-lite>=2.1,<3', 'mmpretrain>=1.2,<2']
ONEDL = ['onedl-mmengine', 'onedl-mmcv', 'onedl-mmpretrain']
# The lowest versions of pyproject.toml. numpy 1 needs an OpenCV that takes it.
OLDEST = ['torch==2.6.0', 'torchvision==0.21.0', 'numpy==1.26.4', 'opencv-python<4.12',
          'mmengine==0.10.6', 'mmcv-lite==2.1.0', 'mmpretrain==1.2.0', 'open_clip_torch==3.3.0']
# Name → (Python, packages beside this one).
COMBINATIONS = {
    **{f'py{python}-{name}': (python, packages)
       for python in ('3.10', '3.11', '3.12', '3.13')
       for name, packages in (('openmmlab', OPENMMLAB), ('onedl', ONEDL))},
    'py3.10-oldest': ('3.10', OLDEST),
    'py3.11-oldest': ('3.11', OLDEST),
}
SHOWN = ('torch', 'torchvision', 'numpy', 'open-clip-torch', 'mmengine', 'mmcv-lite', 'mmpretrain',
         'onedl-mmengine', 'onedl-mmcv', 'onedl-mmpretrain')
SHORT = ['train_cfg.max_epochs=1', 'train_dataloader.dataset.indices=64',
         'val_dataloader.dataset.indices=[0,400,800,1000]',
         'test_dataloader.dataset.indices=[0,400,800,1000]']
PICTURE = "from PIL import Image; Image.new('RGB', (64, 64), 'red').save('picture.png')"


def find_python(version: str) -> str | None:
    """The interpreter of a version: on the path, or of pyenv."""
    pyenv = Path(os.environ.get('PYENV_ROOT', Path.home() / '.pyenv')) / 'versions'
    found = [shutil.which(f'python{version}'), *map(str, pyenv.glob(f'{version}.*/bin/python'))]
    for path in filter(None, found):
        done = subprocess.run([path, '--version'], capture_output=True, text=True, check=False)
        if done.returncode == 0 and f' {version}.' in done.stdout:
            return path
    return None


def trial(python: str) -> dict[str, list[str]]:
    """Name of a step → its command, in the order in which they run."""
    command = [python, '-c', 'from mmcluspro.cli import main; raise SystemExit(main())']
    tests = ROOT / 'tests' / 'test_evaluation'
    return {
        'import': [python, '-c', 'import mmcluspro; print(mmcluspro.__version__)'],
        'train': [*command, 'train', str(ROOT / 'configs' / 'cluspro_shapes.py'), '--work-dir',
                  'run', '--cfg-options', *SHORT],
        'picture': [python, '-c', PICTURE],
        'predict': [*command, 'predict', 'run/epoch_1.pth', 'picture.png', '--out', 'result.csv'],
        'metric': [python, '-m', 'pytest', '-q', '-n', '0', '-p', 'no:cacheprovider',
                   '--rootdir', str(ROOT), '-c', str(ROOT / 'pyproject.toml'),
                   str(tests / 'test_czsl_metric.py'), str(tests / 'test_score_matrix.py')],
    }


def attempt(name: str, folder: Path) -> dict:
    """Installs and tries one combination; ``reached`` is the last step that worked."""
    version, packages = COMBINATIONS[name]
    outcome: dict = dict(name=name, python=version, reached='nothing', seconds={})
    found = find_python(version)
    if found is None:
        return {**outcome, 'error': f'python{version} is not installed'}
    python = str(folder / 'venv' / 'bin' / 'python')
    steps = {
        'environment': [found, '-m', 'venv', str(folder / 'venv')],
        'install': [python, '-m', 'pip', 'install', '-q', '-e', str(ROOT), *packages, 'pytest',
                    'pytest-xdist', 'hypothesis', 'setuptools<82'],
        **trial(python),
    }
    for step, command in steps.items():
        start = time.monotonic()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False,
                              env={**os.environ, 'OMP_NUM_THREADS': '1', 'PYTHONPATH': ''})
        outcome['seconds'][step] = round(time.monotonic() - start)
        if done.returncode:
            return {**outcome, 'error': f'{step}: ' + _last_lines(done.stderr or done.stdout)}
        outcome['reached'] = step
        if step == 'install':
            outcome['versions'] = _versions(python)
    return outcome


def _last_lines(text: str, count: int = 4) -> str:
    """The end of a message, without paths of this machine."""
    text = text.replace(str(ROOT), '.').replace(tempfile.gettempdir(), '…')
    return '\n'.join([line for line in text.splitlines() if line.strip()][-count:])


def _versions(python: str) -> dict[str, str]:
    done = subprocess.run([python, '-m', 'pip', 'list', '--format', 'json'], capture_output=True,
                          text=True, check=True)
    found = {row['name'].lower().replace('_', '-'): row['version']
             for row in json.loads(done.stdout)}
    return {name: found[name] for name in SHOWN if name in found}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--only', nargs='+', choices=COMBINATIONS, default=list(COMBINATIONS))
    parser.add_argument('--list', action='store_true', help='print the combinations and stop')
    parser.add_argument('--place', help='folder for the environments (default: temporary)')
    parser.add_argument('--out', help='file to which the JSON lines are added')
    args = parser.parse_args(argv)
    if args.list:
        for name, (_, packages) in COMBINATIONS.items():
            print(f'{name:18}', *packages)
        return 0
    failed = 0
    for name in args.only:
        with tempfile.TemporaryDirectory(dir=args.place) as folder:
            outcome = attempt(name, Path(folder))
            line = json.dumps(outcome)
            print(line, flush=True)  # removing the environment takes a while
        failed += 'error' in outcome
        if args.out:
            with open(args.out, 'a', encoding='utf-8') as file:
                file.write(line + '\n')
    return int(failed > 0)


if __name__ == '__main__':
    sys.exit(main())
