"""Measures what configs cost, as ratios to a baseline in the same run (Table 10).

    python tools/analysis_tools/efficiency.py configs/cluspro_shapes.py \
        troika_shapes.py --baseline configs/baseline_shapes.py

Each measurement is a process of its own, because memory is never given back entirely; the configs
take turns and medians are printed, because a machine is never quiet. Time of a step: forward,
backward, optimiser and prototypes, without loading images. Time of an image: one at a time, LoRA
merged, text cached. Memory: the peak of training, of the GPU or, without one, of the process.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from experiments.cost import measure, medians, threads
from experiments.execution import clock
from experiments.work_folder import failure
from mmcluspro.engine.launch import find_config
from mmcluspro.engine.messages import run_command

PAPER = Path(__file__).with_name('paper_tables.yml')


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('configs', nargs='+', metavar='CONFIG')
    parser.add_argument('--baseline', metavar='CONFIG', help='default: the first config')
    parser.add_argument('--repeats', type=int, default=5, help='rounds per config (default 5)')
    parser.add_argument('--steps', type=int, default=20, help='steps to time (default 20)')
    parser.add_argument('--images', type=int, default=50, help='images to time (default 50)')
    parser.add_argument('--cfg-options', nargs='+', default=[], metavar='KEY=VALUE',
                        help='override config fields in every config')
    parser.add_argument('--clock', choices=['wall', 'cpu'], default='wall',
                        help='cpu: CPU time, for a machine that others also use')
    parser.add_argument('--out', metavar='FILE', help='also write every measurement as JSON')
    parser.add_argument('--measure', metavar='FILE', help=argparse.SUPPRESS)
    args = parser.parse_args()
    for name in ('repeats', 'steps', 'images'):
        if getattr(args, name) < 1:
            parser.error(f'--{name} must be at least 1, got {getattr(args, name)}.')
    return args


def measure_apart(config: Path, args: argparse.Namespace, folder: Path) -> dict:
    """Measures one config in a process of its own."""
    result, log = folder / 'result.json', folder / 'output.log'
    options = ['--cfg-options', *args.cfg_options] if args.cfg_options else []
    with open(log, 'w') as file:
        done = subprocess.run(
            [sys.executable, __file__, str(config), '--measure', str(result), '--steps',
             str(args.steps), '--images', str(args.images), '--clock', args.clock, *options],
            stdout=file, stderr=file, check=False)
    if done.returncode != 0:
        raise ValueError(f'{config} could not be measured: {failure(log, done.returncode)}')
    return json.loads(result.read_text())


def table(configs: list[Path], results: list[list[dict]], base: int) -> str:
    """Markdown."""
    def cell(value: tuple[float, float] | None, unit: float, digits: int) -> str:
        return '–' if value is None else f'{value[0] * unit:.{digits}f} ({value[1]:.2f}×)'
    lines = ['| config | trainable (M) | memory (MB) | step (ms) | epoch (min) | image (ms) |',
             '|---|---|---|---|---|---|']
    for config, row in zip(configs, medians(results, base)):
        name = config.name + (', baseline' if config == configs[base] else '')
        lines.append(f'| {name} | ' + ' | '.join((
            cell(row['parameters'], 1e-6, 3), cell(row['memory'], 1, 0), cell(row['step'], 1e3, 1),
            cell(row['epoch'], 1 / 60, 2), cell(row['image'], 1e3, 2))) + ' |')
    return '\n'.join(lines)


def paper() -> str:
    """The paper's Table 10 in a sentence, as ratios to its baseline."""
    methods = yaml.safe_load(PAPER.read_text(encoding='utf-8'))['table10']['methods']
    base = methods['three-path baseline']
    return 'The paper (UT-Zappos, RTX 4090), as ratios to its baseline: ' + '; '.join(
        f'{name} ' + ', '.join(f'{what} {value / other:.2f}×' for what, value, other in zip(
            ('parameters', 'memory', 'training', 'inference'), values, base))
        for name, values in methods.items() if values is not base) + '.'


def main() -> None:
    args = parse_args()
    configs = [find_config(name) for name in args.configs]
    if args.measure is not None:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(str(configs[0]), args.cfg_options, args.steps, args.images, folder,
                            args.clock)
        Path(args.measure).write_text(json.dumps(found))
        return
    baseline = configs[0] if args.baseline is None else find_config(args.baseline)
    configs = [baseline, *(config for config in configs if config != baseline)]
    results: list[list[dict]] = []
    start, done = time.time(), 0
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(args.repeats):
            results.append([])
            for config in configs:
                results[-1].append(measure_apart(config, args, Path(folder)))
                done += 1
                total = args.repeats * len(configs)
                left = (time.time() - start) / done * (total - done)
                print(f'[{done}/{total}] {config.name}, turn {repeat + 1}; about {clock(left)} '
                      'left', file=sys.stderr, flush=True)
    print(f'Medians of {args.repeats} turns on {threads()}, {args.clock} time; in brackets the '
          f'ratio to the baseline of the same turn.\n\n{table(configs, results, 0)}\n\n{paper()}')
    if args.out:
        Path(args.out).parent.mkdir(parents=True, exist_ok=True)
        Path(args.out).write_text(json.dumps(
            dict(configs=[config.name for config in configs], device=threads(),
                 clock=args.clock, steps=args.steps, images=args.images, results=results),
            indent=1) + '\n')


if __name__ == '__main__':
    run_command(main)
