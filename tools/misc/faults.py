"""Hurts small trainings and predictions at random moments, and looks at what is left.

A run of a few seconds is killed, signalled, or loses its disk or its folder, then continues with
``--resume``, until it is done; its weights, optimizer, best checkpoint, calibration, validations
and test numbers must equal those of a run that nothing happened to, bit by bit. ::

    python tools/misc/faults.py                           # each fault once, a few minutes
    python tools/misc/faults.py --count 8                 # the long run, more than 200 faults
    python tools/misc/faults.py --only SIGKILL --runs epoch iter --count 100

The seed chooses the moment of each fault: phase, delay, and what the fault itself draws. It is the
    same for the same seed, fault and number, whatever else is run. What the process does at that
    moment also depends on the machine. With ``--log``, an interrupted campaign continues.

Full disks and read-only folders need root (mount); without, file sizes are limited instead and
the read-only folder is left out. Prints the table as Markdown; ends with 1 if a fault was not
survived.
"""
from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from fault_artefacts import ARTEFACTS, DISK, ArtefactCampaign
from fault_findings import FINDINGS
from fault_kinds import PREDICTION, TRAINING, Kind, Scene
from fault_places import NEED_ROOT, PLACES, Place
from fault_predictions import PredictionCampaign
from fault_ranks import RANK_FAULTS, RankCampaign
from fault_renames import RENAMES, RenameCampaign
from fault_runs import (
    MODES,
    Moments,
    Process,
    chance_of,
    damaged_files,
    import_all,
    result_of,
    train_words,
    write_config,
)
from fault_tables import Outcome, areas, read_log, table

RUNS = (*MODES, 'predict', 'renames', 'artefacts', 'places', 'findings', 'ranks')
LIMIT = 180  # seconds after which a process counts as hanging


class TrainingCampaign:
    """Faults of trainings in one process.

    Args:
        base (Path): For what the campaign itself reads and writes: no fault may reach it.
        folder (Path): For the work folders; on a small file system if there is one.
        mode (str): 'epoch' or 'iter'.
        seed (int): Of the moments.
    """

    def __init__(self, base: Path, folder: Path, mode: str, seed: int) -> None:
        self.folder, self.mode, self.seed = folder, mode, seed
        self.count = 0
        self.output = base / 'output.txt'
        self.moments = Moments(base / 'phases')
        self.config = write_config(base / f'{mode}.py', mode, self.moments.path)
        whole = self._start(self.new(), None)
        if not whole.wait(LIMIT * 4) or whole.code:
            raise SystemExit(f'The run without faults failed:\n{whole.said()[-2000:]}')
        import_all(whole.output.with_suffix('.modules').read_text().splitlines())
        self.length = len(self.moments.phases())
        self.expected = result_of(self.run, mode)
        self.checkpoint = base / f'{mode}.pth'  # for predictions
        shutil.copy(next(self.run.glob('best_*.pth')), self.checkpoint)

    def new(self) -> Path:
        """A new work folder; the one before goes."""
        if self.count:
            shutil.rmtree(self.run, ignore_errors=True)
        for path in self.folder.glob('gone-*'):
            shutil.rmtree(path)
        self.count += 1
        self.run = self.folder / f'run{self.count}'
        self.output.write_text('')
        return self.run

    def _start(self, run: Path, kind: Kind | None) -> Process:
        self.moments.path.write_text('start\n')
        return Process(train_words(self.config, run), self.output,
                       None if kind is None else kind.prepare)

    def inject(self, name: str, kind: Kind, numbers: range) -> list[Outcome]:
        """Injects the faults of these numbers, into as many runs as it takes."""
        outcomes: list[Outcome] = []
        hurt: list[Outcome] = []  # of the run that is under way
        attempt = 0
        self.new()
        while len(outcomes) < len(numbers) or hurt:
            process = self._start(self.run, kind)
            found = None
            if len(outcomes) < len(numbers):
                chance = chance_of(self.seed, self.mode, name, numbers[len(outcomes)], attempt)
                attempt += 1
                moment = chance.randrange(self.length)
                delay = chance.uniform(0, 0.1 if moment else 2)  # the first phase is the longest
                if self.moments.wait(process, moment, delay, LIMIT):
                    found = self._hurt(name, kind, process, chance)
            if found is not None:
                attempt = 0
                outcomes.append(found)
                hurt.append(found)
                if found.note:
                    self._keep(found)
                    hurt = []
                if kind.hurts:
                    if found.note or not kind.repeats:
                        self.new()
                    continue
            equal = self.finish(process)
            for found in hurt:
                found.equal = equal
            hurt = []
            self.new()
        return outcomes

    def _hurt(self, name: str, kind: Kind, process: Process, chance: random.Random
              ) -> Outcome | None:
        """Injects a fault; None if the process was done before it came."""
        scene = Scene(process, self.run, self.config, chance)
        phase = self.moments.phases()[-1]
        said = len(process.said())
        begin = time.monotonic()
        target = kind.inject(scene) or process
        ended = target.wait(LIMIT)
        found = Outcome(name, self.mode, phase, time.monotonic() - begin)
        text = target.said()[said if target is process else 0:]
        if kind.came_too_late(process) and target is process:
            return None
        if not ended:
            found.note = f'still running after {LIMIT} s'
            target.end()
        elif target.code == 0 and target is not process and process.wait(0):
            return None  # the first run was done before the second one looked
        elif target.code not in kind.codes:
            found.note = f'exit code {target.code}'
        elif 'Traceback' in text:
            found.note = 'a traceback'
        elif target.code and kind.says not in text:
            found.note = f'did not say {kind.says!r}'
        kind.mend(scene)
        bad = damaged_files(self.run) if target is process else []
        found.note = found.note or '; '.join(bad)
        return found

    def finish(self, process: Process) -> bool:
        if not process.wait(LIMIT * 2) or process.code:
            process.end()
            print(f'a run did not finish (exit code {process.code}):\n{process.said()[-1500:]}',
                  file=sys.stderr)
            return False
        found = result_of(self.run, self.mode)
        other = [key for key in found if found[key] != self.expected[key]]
        if other:
            print(f'other bits in {", ".join(other)}', file=sys.stderr)
        return not other

    def _keep(self, found: Outcome) -> None:
        print(f'{found.kind}, {found.mode}, {found.phase}: {found.note}\n'
              f'{self.output.read_text(errors="replace")[-1500:]}', file=sys.stderr)


def small_disk(folder: Path) -> bool:
    """Mounts a file system of 64 MB, if this is allowed."""
    folder.mkdir()
    return not subprocess.run(
        ['mount', '-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', str(folder)], check=False,
        capture_output=True).returncode


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--count', type=int, default=1, help='of each fault (default: 1)')
    parser.add_argument('--runs', nargs='+', choices=RUNS, default=RUNS, help='runs to disturb: '
                        'training by epoch or iteration, prediction, each rename of a training, '
                        'each rename and a full disk of each other command that writes files, '
                        'places and inputs that no run should meet, the findings of a review, '
                        'or training on two ranks, '
                        'which takes half a minute per fault (default: all)')
    parser.add_argument('--only', nargs='+', choices=[*TRAINING, *RENAMES, *PLACES, *FINDINGS,
                                                        *RANK_FAULTS],
                        metavar='FAULT',
                        help='only these faults (default: all)')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--areas', metavar='LOG', help='inject nothing; print what was tried, held '
                        'and fell in each area, from this log')
    parser.add_argument('--log', help='file to which each outcome is added as a line of JSON; '
                        'faults that it has are not injected again, the table counts all of it')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Runs the campaign; 1 if something was not survived."""
    args = parse_args(argv)
    if args.areas:
        print(areas(read_log(args.areas)))
        return 0
    os.environ['OMP_NUM_THREADS'] = '1'
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what is mounted goes, too
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's & ignores it for all below
    base = Path(tempfile.mkdtemp(prefix='faults-'))
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], capture_output=True, text=True,
                            cwd=Path(__file__).parent, check=False).stdout.strip()
    disk = base / 'disk'
    mounted = small_disk(disk)
    outcomes: list[Outcome] = []
    if args.log and Path(args.log).exists():
        outcomes = read_log(args.log)

    def add(found: list[Outcome]) -> None:
        if not found:
            return
        for outcome in found:
            outcome.commit = commit
        outcomes.extend(found)
        print(f'{found[0].kind}, {found[0].mode}: {len(outcomes)} faults so far', file=sys.stderr)
        if args.log:
            with open(args.log, 'a') as file:
                file.writelines(json.dumps(asdict(outcome)) + '\n' for outcome in found)

    def left(name: str, mode: str) -> range:
        have = sum((found.kind, found.mode) == (name, mode) for found in outcomes)
        return range(have, args.count)

    def chosen(kinds):
        return {name: kind for name, kind in kinds.items()
                if (args.only is None or name in args.only)
                and (mounted or name != 'read-only folder')}

    try:
        trained = None
        for mode in MODES:
            if mode in args.runs and chosen(TRAINING):
                trained = TrainingCampaign(base, disk, mode, args.seed)
                for name, kind in chosen(TRAINING).items():
                    add(trained.inject(name, kind, left(name, mode)))
        if 'predict' in args.runs and chosen(PREDICTION):
            trained = trained or TrainingCampaign(base, disk, 'epoch', args.seed)
            predictions = PredictionCampaign(base, disk, trained.checkpoint, args.seed)
            for name, kind in chosen(PREDICTION).items():
                for suffix in ('.csv', '.json', '.jsonl'):
                    numbers = left(name, f'predict {suffix}')
                    add(predictions.inject(name, kind, suffix, numbers, Outcome))
        if 'renames' in args.runs and chosen(dict.fromkeys(RENAMES)):
            renames = RenameCampaign(TrainingCampaign(base, disk, 'epoch', args.seed), base)
            for name in chosen(dict.fromkeys(RENAMES)):
                for number in range(left(name, 'renames').start, len(renames.names)):
                    add([renames.inject(name, number, Outcome)])
        if 'artefacts' in args.runs and chosen(dict.fromkeys([*RENAMES, DISK])) and mounted:
            commands = ArtefactCampaign(base, disk, Outcome)
            for name in ARTEFACTS:
                done = {kind: left(kind, f'artefact {name}').start for kind in (*RENAMES, DISK)}
                for kind, number, inject in commands.faults(name):
                    if kind in chosen(dict.fromkeys([*RENAMES, DISK])) and number >= done[kind]:
                        add([inject()])
        trials = {'place': chosen(PLACES) if 'places' in args.runs else {},
                  'finding': chosen(FINDINGS) if 'findings' in args.runs else {}}
        if any(trials.values()):
            place = Place(base)
            for mode, attempts in trials.items():
                for name, attempt in attempts.items():
                    if left(name, mode) and (mounted or name not in NEED_ROOT):
                        begin = time.monotonic()
                        note = attempt(place)
                        add([Outcome(name, mode, 'start', time.monotonic() - begin, note,
                                     not note)])
        if 'ranks' in args.runs and chosen(dict.fromkeys(RANK_FAULTS)):
            ranks = RankCampaign(base, args.seed)
            for name in chosen(dict.fromkeys(RANK_FAULTS)):
                add(ranks.inject(name, left(name, '2 ranks'), Outcome))
    finally:
        if outcomes:
            print(table(outcomes))
        if mounted:
            subprocess.run(['umount', '-l', str(disk)], check=False)
        shutil.rmtree(base, ignore_errors=True)
    return int(any(found.note or not found.equal for found in outcomes))


if __name__ == '__main__':
    sys.exit(main())
