"""Draws the seen-unseen curves of several runs in one picture.

    mmcluspro curves work_dirs/baseline_shapes work_dirs/cluspro_shapes

A run is the work folder of tools/train.py or tools/test.py, which leave test_curve.json there, or
such a file. The AUC and HM of the legend are those of the standard protocol; the dots are the best
harmonic means.
"""
import argparse
from collections.abc import Sequence
from pathlib import Path

from .. import StoredCurve, draw_curves, read_curves
from ..options import add_out_flag, run_names, save_and_say

WORLDS = {'closed': 'Closed world', 'open': 'Open world'}


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog='mmcluspro curves', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('runs', nargs='+', metavar='RUN', help='work folder, or *_curve.json')
    parser.add_argument('--names', nargs='+', help='names of the runs (default: their folders)')
    parser.add_argument('--phase', choices=['val', 'test'], default='test',
                        help='which evaluation of a folder (default: test)')
    parser.add_argument('--world', choices=['closed', 'open', 'both'], default='both',
                        help='default: both, side by side')
    add_out_flag(parser, 'curves.png')
    return parser.parse_args(argv)


def read_run(run: str, phase: str) -> dict[str, StoredCurve]:
    """Curves of a work folder or file, by world."""
    path = Path(run)
    if not path.exists():
        raise FileNotFoundError(f'The run {run} does not exist: give the work folder of a run.')
    if path.is_dir():
        path = path / f'{phase}_curve.json'
        if not path.is_file():
            raise FileNotFoundError(
                f'{run} has no {path.name}. Evaluate its checkpoint once more: python '
                f'tools/test.py CONFIG CHECKPOINT --work-dir {run}')
    return read_curves(path)


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and draws."""
    args = parse_args(argv)
    names = run_names(args.runs, args.names)
    found = {name: read_run(run, args.phase) for name, run in zip(names, args.runs)}
    panels = {
        title: {f'{name}: AUC {curves[world].auc:.1f}, HM {curves[world].hm:.1f}':
                curves[world].curve for name, curves in found.items() if world in curves}
        for world, title in WORLDS.items() if args.world in (world, 'both')}
    panels = {title: curves for title, curves in panels.items() if curves}
    if not panels:
        raise ValueError(f'None of the runs was evaluated in the {args.world} world.')
    for title, curves in panels.items():
        if len(curves) < len(found):
            raise ValueError(f'Not every run was evaluated in the {title.lower()}: choose the '
                             'other one with --world.')
    save_and_say(draw_curves(panels), args.out)
