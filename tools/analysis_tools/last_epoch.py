"""Compares validation AUC after the last epoch, seed by seed, without choosing an epoch.

    python tools/analysis_tools/last_epoch.py docs/results/runs --reference baseline_shapes
    python tools/analysis_tools/last_epoch.py docs/results/runs --chosen baseline_ cluspro_

Tables report the test of the epoch that was best on validation. If the validation set is small,
that epoch depends on chance. The second command shows how the choice affects the test. Both read
the records of reproduce.py.
"""
import argparse
from pathlib import Path

from experiments import Store, mean_and_std, paired_difference, row_name
from mmcluspro.engine.messages import run_command


def validated(folder: Path, reference: str) -> dict[str, dict[int, dict]]:
    """Records by row and seed, of those that have validations on the reference's data."""
    rows: dict[str, dict[int, dict]] = {}
    data: dict[str, str | None] = {}
    for (config, _, seed), record in sorted(
            Store(folder).records.items(), key=lambda item: (item[0][0], sorted(item[0][1]))):
        if record.get('val_auc'):
            name = row_name(config, record['options'])
            rows.setdefault(name, {})[seed] = record
            data[name] = record.get('fingerprint', {}).get('val_dataloader')
    if reference not in rows:
        raise ValueError(f'There is no row {reference} in {folder}, which has: '
                         f'{", ".join(rows) or "none"}.')
    return {name: dict(sorted(records.items())) for name, records in rows.items()
            if data[name] == data[reference]}


def by_choice(folder: Path, reference: str, names: list[str]) -> dict[int, list[float]]:
    """Test AUC by the epoch that validation chose, of rows whose names start so."""
    tests: dict[int, list[float]] = {}
    for name, records in validated(folder, reference).items():
        for record in records.values() if name.startswith(tuple(names)) else ():
            tests.setdefault(record['val_metrics']['step'], []).append(
                record['metrics']['czsl/auc'])
    return dict(sorted(tests.items()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder', type=Path, help='records of reproduce.py')
    parser.add_argument('--reference', default='baseline_shapes', help='default baseline_shapes')
    parser.add_argument('--chosen', nargs='+', metavar='PREFIX',
                        help='instead, print test AUC by chosen epoch for rows with this prefix')
    args = parser.parse_args()
    if args.chosen:
        print('| chosen epoch | runs | test AUC |\n|---|---|---|')
        for epoch, tests in by_choice(args.folder, args.reference, args.chosen).items():
            mean, spread = mean_and_std(tests)
            print(f'| {epoch} | {len(tests)} | {mean:.2f} ± {spread or 0:.2f} |')
        return
    rows = {name: {seed: record['val_auc'][-1] for seed, record in records.items()}
            for name, records in validated(args.folder, args.reference).items()}
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
