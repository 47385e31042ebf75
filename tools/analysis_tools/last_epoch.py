"""Validation AUC after the last epoch, seed by seed: a comparison that chooses no epoch.

    python tools/analysis_tools/last_epoch.py docs/results/runs --reference baseline_shapes
    python tools/analysis_tools/last_epoch.py docs/results/runs --chosen baseline_ cluspro_

The test of a table is of the epoch that was best on validation; where validation is small, which
epoch that is depends on chance. The second command shows what the choice does to the test. Reads
the records of reproduce.py.
"""
import argparse
import json
from pathlib import Path

from mmcluspro.analysis import mean_and_std, paired_difference
from mmcluspro.engine.launch import run_command


def last_validations(folder: Path, reference: str) -> dict[str, dict[int, float]]:
    """AUC by row and seed, of the records that have validations on the reference's data."""
    rows: dict[str, dict[int, float]] = {}
    data: dict[str, str | None] = {}
    for path in sorted(folder.glob('*_seed*.json')):
        name, _, seed = path.stem.rpartition('_seed')
        record = json.loads(path.read_text())
        if record.get('val_auc'):
            rows.setdefault(name, {})[int(seed)] = record['val_auc'][-1]
            data[name] = record.get('fingerprint', {}).get('val_dataloader')
    if reference not in rows:
        raise ValueError(f'There is no row {reference} in {folder}, which has: '
                         f'{", ".join(rows) or "none"}.')
    return {name: values for name, values in rows.items() if data[name] == data[reference]}


def by_choice(folder: Path, reference: str, names: list[str]) -> dict[int, list[float]]:
    """Test AUC by the epoch that validation chose, of rows whose names start so."""
    tests: dict[int, list[float]] = {}
    for name, values in last_validations(folder, reference).items():
        for seed in values if name.startswith(tuple(names)) else ():
            record = json.loads((folder / f'{name}_seed{seed}.json').read_text())
            tests.setdefault(record['val_metrics']['step'], []).append(
                record['metrics']['czsl/auc'])
    return dict(sorted(tests.items()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder', type=Path, help='records of reproduce.py')
    parser.add_argument('--reference', default='baseline_shapes', help='default baseline_shapes')
    parser.add_argument('--chosen', nargs='+', metavar='PREFIX',
                        help='instead: test AUC by the chosen epoch, of rows that start so')
    args = parser.parse_args()
    if args.chosen:
        print('| chosen epoch | runs | test AUC |\n|---|---|---|')
        for epoch, tests in by_choice(args.folder, args.reference, args.chosen).items():
            mean, spread = mean_and_std(tests)
            print(f'| {epoch} | {len(tests)} | {mean:.2f} ± {spread or 0:.2f} |')
        return
    rows = last_validations(args.folder, args.reference)
    print(f'| row | seeds | AUC | − {args.reference}, paired |\n|---|---|---|---|')
    for name, values in rows.items():
        gap = paired_difference(values, rows[args.reference])
        if gap is None:
            continue
        mean, spread = mean_and_std(list(values.values()))
        interval = '' if gap.half_width is None else f' ± {gap.half_width:.2f}'
        print(f'| {name} | {len(values)} | {mean:.2f} ± {spread or 0:.2f} | '
              + ('reference |' if name == args.reference else f'{gap.mean:+.2f}{interval} |'))


if __name__ == '__main__':
    run_command(main)
