"""Trains configs over several seeds, and makes a table of what was measured.

    python tools/analysis_tools/seeds.py run docs/results/baselines configs/baseline_shapes.py \
        configs/clip_zeroshot_shapes.py --seeds 3
    python tools/analysis_tools/seeds.py table docs/results/baselines

Each run leaves one small JSON file (config, seed, commit, metrics). Runs whose file is there are
skipped, broken ones are resumed, and a run that fails is reported while the others go on.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mmengine.config import Config

TOOLS = Path(__file__).resolve().parents[1]
COLUMNS = ('seen', 'unseen', 'hm', 'auc')


def run_one(config: Path, seed: int, folder: Path, options: list[str], name: str) -> bool:
    """Trains one config with one seed; returns whether its result is there."""
    result = folder / f'{name}_seed{seed}.json'
    if result.exists():
        return True
    work_dir = Path('work_dirs') / folder.name / f'{name}_seed{seed}'
    learns = Config.fromfile(config).get('train_cfg') is not None
    tool = ['train.py', str(config), '--resume'] if learns else ['test.py', str(config)]
    command = [sys.executable, str(TOOLS / tool[0]), *tool[1:], '--work-dir', str(work_dir),
               '--cfg-options', f'randomness.seed={seed}', *options]
    work_dir.mkdir(parents=True, exist_ok=True)
    start = time.time()
    with open(work_dir / 'output.log', 'a') as log:
        done = subprocess.run(command, stdout=log, stderr=log, check=False,
                              env={**os.environ, 'OMP_NUM_THREADS': '1'})
    seconds = time.time() - start
    if done.returncode != 0:
        print(f'FAILED {name} seed {seed}: see {work_dir / "output.log"}', flush=True)
        return False
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], capture_output=True,
                            text=True, cwd=TOOLS, check=False).stdout.strip()
    record = dict(config=config.name, options=options, seed=seed, commit=commit,
                  seconds=round(seconds), metrics=json.loads(
                      (work_dir / 'test_metrics.json').read_text()))
    result.write_text(json.dumps(record, indent=1) + '\n')
    metrics = record['metrics']
    print(f'{name} seed {seed}: AUC {metrics["czsl/auc"]:.2f} in {seconds:.0f} s', flush=True)
    return True


def run(args: argparse.Namespace) -> None:
    """Runs all configs and seeds, ``--jobs`` at a time."""
    folder = Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    todo = [(Path(config), seed) for seed in range(args.first_seed, args.first_seed + args.seeds)
            for config in args.configs]
    with ThreadPoolExecutor(args.jobs) as pool:
        done = list(pool.map(
            lambda job: run_one(*job, folder, args.options, args.name or job[0].stem), todo))
    print(f'{sum(done)} of {len(done)} results in {folder}')
    raise SystemExit(0 if all(done) else 1)


def table(args: argparse.Namespace) -> None:
    """Prints mean ± standard deviation of each group of runs as Markdown."""
    groups: dict[str, list[dict]] = {}
    for path in sorted(Path(args.folder).glob('*_seed*.json')):
        record = json.loads(path.read_text())
        groups.setdefault(path.stem.rsplit('_seed', 1)[0], []).append(record['metrics'])
    if not groups:
        raise SystemExit(f'There are no results (*_seed*.json) in {args.folder}.')
    worlds = [('czsl', 'closed'), ('czsl_open', 'open')]
    heads = [f'{column} ({world})' for _, world in worlds for column in COLUMNS]
    print('| run | seeds | ' + ' | '.join(heads) + ' |')
    print('|---|---|' + '---|' * len(heads))
    order = sorted(groups, key=lambda name: statistics.mean(m['czsl/auc'] for m in groups[name]))
    for name in order:
        cells = []
        for prefix, _ in worlds:
            for column in COLUMNS:
                values = [m[f'{prefix}/{column}'] for m in groups[name]
                          if f'{prefix}/{column}' in m]
                if not values:
                    cells.append('–')
                    continue
                spread = statistics.stdev(values) if len(values) > 1 else 0.0
                cells.append(f'{statistics.mean(values):.1f} ± {spread:.1f}')
        print(f'| {name} | {len(groups[name])} | ' + ' | '.join(cells) + ' |')


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser('run', help='train over seeds')
    runs.add_argument('folder', help='where the JSON files go')
    runs.add_argument('configs', nargs='+')
    runs.add_argument('--seeds', type=int, default=3, help='how many (default 3)')
    runs.add_argument('--first-seed', type=int, default=0)
    runs.add_argument('--jobs', type=int, default=2, help='runs at a time (default 2)')
    runs.add_argument('--name', help='name of the row (default: the name of the config)')
    runs.add_argument('--options', nargs='*', default=[], metavar='KEY=VALUE',
                      help='config fields to override')
    runs.set_defaults(function=run)
    tables = commands.add_parser('table', help='print a Markdown table')
    tables.add_argument('folder')
    tables.set_defaults(function=table)
    args = parser.parse_args()
    args.function(args)


if __name__ == '__main__':
    main()
