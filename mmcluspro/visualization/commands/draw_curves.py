"""Draws the seen-unseen curves of several runs: ``mmcluspro curves``."""
from collections.abc import Sequence
from pathlib import Path

from mmcluspro.flags.picture_flags import parse_curves as parse_args

from .. import StoredCurve, draw_curves, read_curves
from ..options import run_names, save_and_say

WORLDS = {'closed': 'Closed world', 'open': 'Open world'}


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
