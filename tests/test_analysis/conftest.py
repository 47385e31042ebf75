"""Configs and a training tool that do in a moment what the real ones do in minutes."""
import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Fails, hangs or answers as its options say; its AUC is 50 + 10 * K + seed.
TOOL = '''
import json, pathlib, sys, time
options = dict(word.split('=', 1) for word in sys.argv if '=' in word and '.' in word)
folder = pathlib.Path(sys.argv[sys.argv.index('--work-dir') + 1])
seed = int(options['randomness.seed'])
k = float(options.get('model.head.k', 1))
with open(folder / 'calls', 'a') as file:
    file.write(' '.join(sys.argv[1:]) + chr(10))
broken = folder / 'broken_once'
if k == 7 and not broken.exists():
    broken.write_text('')
    print('error: no space left on the moon')
    sys.exit(2)
if k == 9:
    print('eta: 0:01:40', flush=True)
    (folder / 'started').write_text('')
    time.sleep(60)
auc = 50 + 10 * k + seed + (0.5 * seed if k > 1 else 0)
vis = folder / 'now' / 'vis_data'
vis.mkdir(parents=True, exist_ok=True)
(vis / 'scalars.json').write_text(chr(10).join(json.dumps(e) for e in [
    {'loss': 1.0, 'step': 1}, {'czsl/auc': 3.0, 'step': 1}, {'czsl/auc': 4.0, 'step': 2},
    {'czsl/auc': 2.0, 'step': 3}]))
(folder / 'test_metrics.json').write_text(json.dumps({
    f'{world}/{name}': auc + shift for world, shift in (('czsl', 0), ('czsl_open', -20))
    for name in ('seen', 'unseen', 'hm', 'auc')}))
'''
TABLES = '''
table1:
  title: A comparison
  world: closed
  together: table2
  reference: three & a half
  datasets: [shapes, utzappos]
  rows:
  - {name: zero-shot, config: 'zero_{dataset}.py', paper: {utzappos: [1.0, 2.0, 3.0, 4.0]}}
  - {name: another paper, paper: {utzappos: [9.0, 9.0, 9.0, 9.0]}}
  - {name: three & a half, config: 'learn_{dataset}.py'}
  - name: K=3
    config: learn_{dataset}.py
    options: [model.head.k=3]
    paper: {utzappos: [70.7, 76.0, 58.5, 46.6]}
    std: {utzappos: [1.0, 1.2, 0.6, 0.5]}
table2:
  title: The same in the open world
  world: open
  together: table1
  datasets: [shapes, utzappos]
  rows:
  - {name: zero-shot, config: 'zero_{dataset}.py'}
  - {name: three & a half, config: 'learn_{dataset}.py'}
  - {name: K=3, config: 'learn_{dataset}.py', options: [model.head.k=3]}
table4a:
  title: K
  world: closed
  datasets: [shapes]
  rows:
  - {name: K=1, config: 'learn_{dataset}.py', options: [model.head.k=1]}
  - {name: K=7, config: 'learn_{dataset}.py', options: [model.head.k=7]}
table4b:
  title: K again
  world: closed
  datasets: [shapes]
  rows:
  - {name: K=9, config: 'learn_{dataset}.py', options: [model.head.k=9]}
table11:
  title: Last
  world: closed
  datasets: [utzappos]
  rows:
  - {name: K=1, config: 'learn_{dataset}.py'}
'''


@pytest.fixture
def home(tmp_path):
    """A folder like the repository's, with the real reproduce.py and stand-ins for the rest."""
    root = tmp_path / 'home'
    tool = root / 'tools' / 'analysis_tools' / 'reproduce.py'
    tool.parent.mkdir(parents=True)
    shutil.copy(ROOT / 'tools' / 'analysis_tools' / 'reproduce.py', tool)
    shutil.copytree(ROOT / 'tools' / 'analysis_tools' / 'experiments', tool.parent / 'experiments',
                    ignore=shutil.ignore_patterns('__pycache__'))
    (tool.parent / 'paper_tables.yml').write_text(TABLES)
    for name in ('train.py', 'test.py'):
        (root / 'tools' / name).write_text(TOOL)
    (root / 'configs').mkdir()
    for dataset in ('shapes', 'utzappos'):
        (root / 'configs' / f'learn_{dataset}.py').write_text(
            'model = dict(head=dict(k=1))\ntrain_cfg = dict(max_epochs=1)\n')
        (root / 'configs' / f'zero_{dataset}.py').write_text(
            'model = dict(head=dict(k=1))\ntrain_cfg = None\n')
    return root


@pytest.fixture
def reproduce(home, monkeypatch, capsys):
    """Calls reproduce.py with flags, in an empty folder; returns exit code and output."""
    spec = importlib.util.spec_from_file_location(
        f'reproduce_{os.getpid()}', home / 'tools' / 'analysis_tools' / 'reproduce.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    place = home.parent / 'place'
    place.mkdir()
    monkeypatch.chdir(place)

    def call(*flags):
        monkeypatch.setattr(sys, 'argv', ['reproduce.py', *flags])
        code = 0
        try:
            module.run_command(module.main)
        except SystemExit as error:
            code = error.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    call.module, call.place = module, place
    return call
