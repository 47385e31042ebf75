"""Reproduces tables of the paper: runs their rows over seeds, and writes what was measured.

    python tools/analysis_tools/reproduce.py table1 --dataset shapes --seeds 3 --jobs 2
    python tools/analysis_tools/reproduce.py table3 table4 --dataset utzappos --seeds 5 \
        --launcher slurm --partition gpu --slurm-args='--gres=gpu:1 --time=12:00:00'
    python tools/analysis_tools/reproduce.py table3 table4 --dataset utzappos --collect-only
    python tools/analysis_tools/reproduce.py field fashion.npz --words glove_6B_50d.bin

Each run writes one small JSON file to OUT/runs; tables that have runs in common share them. Runs
with a record are skipped, interrupted ones are resumed, and a run that fails is named at the end
while the others continue. --pack collects the records in one file per config. Tables: table1 …
table11 as in paper_tables.yml, table4 and table6 for all their parts, all; Table 10 is measured by
efficiency.py.
"""
import argparse
import shlex
import sys
from pathlib import Path

import torch

from experiments import (
    Row,
    Run,
    Store,
    Table,
    expand_names,
    load_tables,
    summarise,
    write_report,
)
from experiments.execution import LocalJobs, command
from experiments.forked import warm_up
from experiments.metafile import write_metafile
from experiments.readme import fill_page, page_blocks
from experiments.slurm import SlurmJobs, batch_command
from experiments.summary import row_runs
from mmcluspro.engine.messages import run_command

TOOLS = Path(__file__).resolve().parents[1]
CONFIGS = TOOLS.parent / 'configs'
PAPER = Path(__file__).with_name('paper_tables.yml')
METHODS = Path(__file__).with_name('methods.yml')


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('tables', nargs='+', metavar='TABLE', help='for example table1 table4a')
    parser.add_argument('--dataset', default='shapes',
                        help='shapes (default), utzappos, mitstates or cgqa')
    parser.add_argument('--seeds', type=int, default=3, help='how many (default 3)')
    parser.add_argument('--first-seed', type=int, default=0, help='default 0')
    parser.add_argument('--jobs', type=int, help='runs at a time (default: one per GPU, or 2)')
    parser.add_argument('--fork', action='store_true',
                        help='on CPUs, fork the runs from this process instead of starting Python '
                        'for each: saves seconds per run, which is most of a run on features')
    parser.add_argument('--in-process', action='store_true',
                        help='for configs on stored features: train and evaluate in this process, '
                        'without checkpoints and logs, in seconds per run')
    parser.add_argument('--rows', nargs='+', metavar='NAME', help='only these rows')
    parser.add_argument('--reference', metavar='NAME',
                        help='row to compare with (default: the first of the table; '
                        'the three-path baseline in tables 1, 2 and 9)')
    parser.add_argument('--tables', dest='own', metavar='FILE',
                        help='tables of your own, in the form of paper_tables.yml; configs are '
                        'looked up next to it first')
    parser.add_argument('--out', default='work_dirs/reproduce', metavar='DIR',
                        help='folder of the records and tables (default work_dirs/reproduce)')
    parser.add_argument('--work-dir', default='work_dirs/reproduce', metavar='DIR',
                        help='folder of logs and checkpoints (default work_dirs/reproduce)')
    parser.add_argument('--cfg-options', nargs='+', default=[], metavar='KEY=VALUE',
                        help='override config fields in every row')
    parser.add_argument('--launcher', choices=['none', 'slurm'], default='none',
                        help='slurm: submit one job per run with sbatch, and return')
    parser.add_argument('--partition', help='Slurm partition')
    parser.add_argument('--slurm-args', default='--gres=gpu:1 --cpus-per-task=8', metavar='FLAGS',
                        help="of sbatch (default '--gres=gpu:1 --cpus-per-task=8')")
    parser.add_argument('--accept-changed', nargs='+', default=[], metavar='SECTION',
                        help='take over records whose config differs in these sections only, '
                        'because the change does not bear on the result (the record says so)')
    parser.add_argument('--rerun-changed', action='store_true',
                        help='repeat runs that were made with another config')
    parser.add_argument('--collect-only', action='store_true', help='only write the tables')
    parser.add_argument('--no-tables', action='store_true', help='only run')
    parser.add_argument('--pack', action='store_true',
                        help='at the end, collect the records in one file per config '
                        '(OUT/runs/CONFIG.jsonl), as docs/results keeps them')
    parser.add_argument('--metafile', metavar='FILE',
                        help='also write the model index (configs/metafile.yml) anew, with '
                        'the means')
    parser.add_argument('--readme', nargs='+', default=[], metavar='FILE',
                        help='also update all tables on these pages (README.md configs/README.md)')
    parser.add_argument('--dry-run', action='store_true', help='only print the commands')
    args = parser.parse_args()
    if args.jobs is None:
        args.jobs = torch.cuda.device_count() or 2
    for name in ('seeds', 'jobs'):
        if getattr(args, name) < 1:
            parser.error(f'--{name} must be at least 1, got {getattr(args, name)}.')
    if args.fork and torch.cuda.device_count():
        parser.error('--fork is for CPUs: a forked process cannot use the GPU.')
    if args.first_seed < 0:
        parser.error(f'--first-seed must be at least 0, got {args.first_seed}.')
    return args


def plan(args: argparse.Namespace) -> tuple[list[Table], dict[str, dict[str, list[Run]]]]:
    """The tables, and the runs of each by row."""
    every = load_tables(PAPER) | (load_tables(args.own) if args.own else {})
    tables = expand_names(args.tables, every, args.dataset)
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    runs = {}
    for table, rows in pick_rows(tables, args.rows):
        if args.reference is not None:
            table.pick([args.reference])
        runs[table.key] = row_runs(rows, args.dataset, CONFIGS, seeds, args.cfg_options)
    tables = [table for table in tables if table.key in runs]
    for table in list(tables):
        other = every.get(table.together)
        if other is not None and other.key not in runs:
            tables.append(other)
            runs[other.key] = runs[table.key]
    return tables, runs


def pick_rows(tables: list[Table],
              names: list[str] | None) -> list[tuple[Table, tuple[Row, ...]]]:
    """Rows of each table; a name need be known to one of the tables only."""
    if names is None:
        return [(table, table.pick(None)) for table in tables]
    picked = []
    for table in tables:
        known = {row.name.casefold() for row in table.pick(None)}
        if own := [name for name in names if name.casefold() in known]:
            picked.append((table, table.pick(own)))
    found = {row.name.casefold() for _, rows in picked for row in rows}
    for name in names:
        if name.casefold() not in found:
            tables[0].pick([name])
    return picked


def missing(args: argparse.Namespace, store: Store,
            runs: dict[str, dict[str, list[Run]]]) -> list[tuple[Run, str, str]]:
    """Runs to do with their table and row, first seeds first; says what is left out and why."""
    todo: dict[tuple, tuple[Run, str, str]] = {}
    finished, changed = set(), {}
    for table, rows in runs.items():
        for row, own in rows.items():
            for run in own:
                changes = store.changes(run)
                if changes and not args.rerun_changed:
                    changed[run.name] = changes
                elif store.find(run) is not None and not changes:
                    finished.add(run.name)
                else:
                    todo.setdefault(run.key, (run, table, row))
    say_changed(changed)
    print(f'{len(todo) + len(finished) + len(changed)} runs: {len(finished)} finished, '
          f'{len(todo)} to do.', flush=True)
    return sorted(todo.values(), key=lambda item: item[0].seed)


def say_changed(changed: dict[str, list[str]]) -> None:
    for name, sections in changed.items():
        print(f'CHANGED {name}: its record was made with another config (differs in '
              f'{", ".join(sections)}); it is left out. --rerun-changed runs it again.')


def worker(args: argparse.Namespace, table: str, row: str, run: Run) -> list[str]:
    """The command of a Slurm job: this tool for one row and one seed."""
    options = ['--cfg-options', *args.cfg_options] if args.cfg_options else []
    again = ['--rerun-changed'] if args.rerun_changed else []
    own = ['--tables', args.own] if args.own else []
    return [sys.executable, str(Path(__file__).resolve()), table, '--dataset', args.dataset,
            '--rows', row, '--first-seed', str(run.seed), '--seeds', '1', '--jobs', '1',
            '--out', args.out, '--work-dir', args.work_dir, '--no-tables', *own, *again, *options]


def short(word: str) -> str:
    """A path as one would type it here."""
    if word == sys.executable:
        return 'python'
    path = Path(word)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else word


def print_commands(args: argparse.Namespace, todo: list[tuple[Run, str, str]]) -> None:
    for run, table, row in todo:
        folder = Path(args.work_dir) / run.name
        if args.launcher == 'slurm':
            words = batch_command(run, worker(args, table, row, run), folder / 'slurm.log',
                                  args.partition, args.slurm_args)
        else:
            words = command(run, TOOLS, folder)
        print(f'# {table}, {row}, seed {run.seed}\n{shlex.join(map(short, words))}')


def execute(args: argparse.Namespace, store: Store,
            todo: list[tuple[Run, str, str]]) -> dict[str, str]:
    """Runs or submits; returns the failures."""
    if args.launcher == 'slurm':
        jobs = SlurmJobs(store, Path(args.work_dir), args.partition, args.slurm_args)
        return jobs([(run, worker(args, table, row, run)) for run, table, row in todo])
    if args.in_process:
        from experiments.in_process import InProcess  # imports the models
        return InProcess(store, TOOLS)([run for run, _, _ in todo])
    if args.fork:
        warm_up()
    local = LocalJobs(store, TOOLS, Path(args.work_dir), args.jobs, torch.cuda.device_count(),
                      fork=args.fork)
    return local([run for run, _, _ in todo])


def write_tables(args: argparse.Namespace, tables: list[Table], store: Store,
                 runs: dict[str, dict[str, list[Run]]]) -> None:
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    for table in tables:
        summaries = summarise(table, runs[table.key], store, args.reference)
        path = write_report(table, summaries, args.dataset, seeds, args.out)
        print(f'\n{path.read_text(encoding="utf-8")}\n→ {path.with_suffix("")}.md, .csv, .tex'
              + (', .png, .svg' if path.with_suffix('.png').exists() else ''))
    if args.readme:
        every = load_tables(PAPER) | (load_tables(args.own) if args.own else {})
        blocks = page_blocks(every.values(), store, CONFIGS)
        for page in args.readme:
            print(f'{page}: {", ".join(fill_page(page, blocks)) or "no tables"}.')
    if args.metafile:
        filled = write_metafile(args.metafile, store, METHODS)
        print(f'{args.metafile}: results of {", ".join(filled) or "no model"}.')


def main() -> None:
    if sys.argv[1:2] == ['field']:
        import field  # reads stored features, not configs
        field.main(sys.argv[2:])
        return
    args = parse_args()
    tables, runs = plan(args)
    store = Store(Path(args.out) / 'runs')
    taken = [run.name for rows in runs.values() for own in rows.values() for run in own
             if store.accept(run, args.accept_changed)]
    if taken:
        print(f'Took over {len(taken)} records of an earlier config: {", ".join(taken)}.')
    failed: dict[str, str] = {}
    interrupted = False
    if args.collect_only:
        say_changed({run.name: changes for rows in runs.values() for own in rows.values()
                     for run in own if (changes := store.changes(run))})
    else:
        todo = missing(args, store, runs)
        if args.dry_run:
            return print_commands(args, todo)
        try:
            failed = execute(args, store, todo)
        except KeyboardInterrupt:
            interrupted = True
    if not args.no_tables and not (args.launcher == 'slurm' and not args.collect_only):
        write_tables(args, tables, store, runs)
    elif args.launcher == 'slurm':
        print('When the jobs are done, the same command with --collect-only writes the tables.')
    if args.pack:
        for path in store.pack():
            print(f'→ {path}')
    for name, message in failed.items():
        print(f'FAILED {name}: {message}', file=sys.stderr)
    if interrupted:
        print('Interrupted. Finished runs are kept; run the same command again to continue.',
              file=sys.stderr)
    if failed or interrupted:
        raise SystemExit(130 if interrupted else 1)


if __name__ == '__main__':
    run_command(main)
