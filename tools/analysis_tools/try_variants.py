"""Compares variants on stored features, several seeds in one process; see docs/variants.md.

    python tools/analysis_tools/try_variants.py fashion --seeds 8 --out work_dirs/fashion.jsonl
    python tools/analysis_tools/try_variants.py fashion --table docs/results/variants.jsonl

Each run appends one JSON line; runs that have one are skipped. Validation is measured after the
last epoch. --test measures the test as well: only for variants that validation has chosen.
"""
import argparse
import json
import subprocess
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
import yaml
from mmengine.logging import MMLogger

import variants  # noqa: F401  registers the parts
from experiments import mean_and_std, paired_difference
from experiments.fast_runs import evaluate, read_phases, read_vectors_once, train
from experiments.run_store import read_lines
from mmcluspro.engine.launch import read_config
from mmcluspro.engine.messages import run_command

HERE = Path(__file__).resolve().parent
CONFIGS = dict(fashion='frozen_dinov2_{}_fashion.py', fashion_clip='frozen_{}_fashion.py',
               shapes='frozen_{}_shapes.py')
KEPT = ('auc', 'auc_exact', 'hm', 'seen', 'unseen', 'attr_acc', 'obj_acc')
REFERENCE = 'baseline'


def filled(value: Any, sizes: dict[str, int]) -> Any:
    """A field of a variant with the names of sizes replaced by numbers."""
    if isinstance(value, dict):
        return {key: filled(each, sizes) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, sizes) for each in value]
    return sizes.get(value, value) if isinstance(value, str) else value


def build_config(dataset: str, row: dict[str, Any], sizes: dict[str, int]) -> Any:
    """The config of a variant."""
    method = row.get('method', 'cluspro')
    cfg = deepcopy(read_config(HERE.parents[1] / 'configs' / CONFIGS[dataset].format(method)))
    cfg.merge_from_dict(filled(dict(model=dict(head=row.get('head', {}))), sizes))
    return cfg


def run(dataset: str, names: list[str] | None, seeds: range, out: Path, test: bool) -> None:
    """Trains what has no record yet, seed by seed, so that an interruption leaves whole pairs."""
    rows = yaml.safe_load((HERE / 'variants.yml').read_text(encoding='utf-8'))
    chosen = names or [name for name, row in rows.items() if not row.get('extra')]
    unknown = [name for name in chosen if name not in rows]
    if unknown:
        raise ValueError(f'variants.yml has no variant {unknown[0]!r}, but: {", ".join(rows)}.')
    plain = build_config(dataset, dict(method='cluspro'), {})
    data = read_phases(plain, ('train', 'val', 'test') if test else ('train', 'val'))
    space = data['train'].candidates
    sizes = dict(A=len(space.attributes), O=len(space.objects),
                 D=plain.model['head']['in_channels'])
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], cwd=HERE, text=True,
                            capture_output=True).stdout.strip()
    done = {(each['dataset'], each['variant'], each['seed']) for each in read_records(out)
            if 'test' in each or not test}
    for seed in seeds:
        for name in chosen:
            if (dataset, name, seed) in done:
                continue
            row, start = rows[name], time.time()
            model = train(build_config(dataset, row, sizes), data['train'], seed,
                          row.get('schedule'))
            seconds = round(time.time() - start, 1)
            for label, fields in {name: {}, **row.get('also', {})}.items():
                for field, value in fields.items():
                    setattr(model.head, field, value)
                record = dict(
                    dataset=dataset, variant=label, seed=seed, commit=commit, seconds=seconds,
                    config=CONFIGS[dataset].format(row.get('method', 'cluspro')),
                    head=row.get('head', {}), schedule=row.get('schedule', {}), scoring=fields)
                for phase in ('val', 'test')[:1 + test]:
                    numbers = evaluate(model, data[phase])
                    record[phase] = {key: round(numbers[key], 4) for key in KEPT}
                with out.open('a', encoding='utf-8') as file:
                    file.write(json.dumps(record) + '\n')
                print(f'{dataset} {label} seed {seed}: AUC {record["val"]["auc"]:.2f}, '
                      f'{seconds} s', flush=True)


def read_records(out: Path) -> list[dict[str, Any]]:
    """Records of a file that may not be there yet, without those of a dropped setting."""
    found = read_lines(out) if out.exists() else []
    return [each for each in found if not each.get('dropped')]


def table(dataset: str, out: Path, phase: str) -> None:
    """Prints mean AUC and its difference to the baseline, seed by seed."""
    values: dict[str, dict[int, dict[str, float]]] = {}
    for each in read_records(out):
        if each['dataset'] == dataset and phase in each:
            values.setdefault(each['variant'], {})[each['seed']] = each[phase]
    print(f'| variant | seeds | AUC | AUC − {REFERENCE}, paired | HM | seen | unseen |\n'
          '|---|---|---|---|---|---|---|')
    for name, runs in values.items():
        mean = {key: mean_and_std([run[key] for run in runs.values()]) for key in KEPT}
        gap = paired_difference({seed: run['auc'] for seed, run in runs.items()},
                                {seed: run['auc'] for seed, run in values[REFERENCE].items()})
        shown = 'reference' if name == REFERENCE else '–' if gap is None else (
            f'{gap.mean:+.2f}'.replace('-', '−')
            + (f' ± {gap.half_width:.2f}' if gap.half_width is not None else ''))
        spread = '' if mean['auc'][1] is None else f' ± {mean["auc"][1]:.2f}'
        print(f'| {name} | {len(runs)} | {mean["auc"][0]:.2f}{spread} '
              f'| {shown} | {mean["hm"][0]:.1f} | {mean["seen"][0]:.1f} '
              f'| {mean["unseen"][0]:.1f} |')


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('dataset', choices=list(CONFIGS))
    parser.add_argument('--variants', nargs='+', metavar='NAME', help='of variants.yml')
    parser.add_argument('--seeds', type=int, default=8, help='how many (default 8)')
    parser.add_argument('--first-seed', type=int, default=0, help='default 0')
    parser.add_argument('--out', type=Path, default=Path('work_dirs/variants.jsonl'))
    parser.add_argument('--test', action='store_true', help='also measure the test')
    parser.add_argument('--table', type=Path, metavar='FILE', help='print the table of a file')
    args = parser.parse_args()
    if args.table:
        table(args.dataset, args.table, 'test' if args.test else 'val')
        return
    torch.set_num_threads(1)
    read_vectors_once()
    MMLogger.get_instance('mmengine', log_level='WARNING')  # a line per weight and model
    args.out.parent.mkdir(parents=True, exist_ok=True)
    run(args.dataset, args.variants, range(args.first_seed, args.first_seed + args.seeds),
        args.out, args.test)


if __name__ == '__main__':
    run_command(main)
