"""Outcomes of faults, and tables of them."""
from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

AREAS = {
    **dict.fromkeys(('epoch', 'iter'), 'training: signals, disk, folder, clock'),
    'renames': 'each rename of a training', 'predict': 'prediction into a file: signals',
    '2': 'training on two ranks', 'artefact': 'each file of the other commands: renames, disk',
    'place': 'machines, settings, data and pictures at their edge',
    'finding': 'findings of two reviews, tried again',
}  # by the first word of the mode


@dataclass
class Outcome:
    """What came of one fault.

    Attributes:
        kind (str): The fault.
        mode (str): What was hurt.
        phase (str): What it was doing.
        seconds (float): From the fault to the end of the process.
        note (str): What was wrong; empty if all was well.
        equal (bool): Whether the run ended with the right bits in the end.
        commit (str): Of the code.
    """
    kind: str
    mode: str
    phase: str
    seconds: float
    note: str = ''
    equal: bool = False
    commit: str = ''


def read_log(path: str | Path) -> list[Outcome]:
    """The outcomes of a campaign."""
    return [Outcome(**json.loads(line)) for line in Path(path).read_text().splitlines()]


def areas(outcomes: list[Outcome]) -> str:
    """Markdown: what was tried, held and fell in each area, and what fell, with its last outcome.

    A fault holds if it was survived and the result is that of an undisturbed run.
    """
    lines = ['| Area | Tried | Held | Fell | What fell, and how often it was held since |',
             '|---|---|---|---|---|']
    for area in dict.fromkeys(AREAS.values()):
        group = [found for found in outcomes if AREAS[found.mode.split()[0]] == area]
        fell = [place for place, found in enumerate(group) if found.note or not found.equal]
        last = {(group[place].kind, group[place].mode): place for place in fell}
        since = [f'{kind} ({mode}): {held} of {held}' if held else f'{kind} ({mode}): **open**'
                 for (kind, mode), place in last.items()
                 for held in [sum((found.kind, found.mode) == (kind, mode)
                                  and found.commit != group[place].commit
                                  for found in group[place + 1:])]]
        lines.append(f'| {area} | {len(group)} | {len(group) - len(fell)} | {len(fell)} | '
                     f'{"; ".join(since) or "–"} |')
    return '\n'.join(lines)


def table(outcomes: list[Outcome]) -> str:
    """Markdown: one line per fault and kind of run."""
    lines = ['| Fault | Run | Injected | Survived | Equal bits | Seconds to end: median, max |',
             '|---|---|---|---|---|---|']
    for kind, mode in dict.fromkeys((found.kind, found.mode) for found in outcomes):
        group = [found for found in outcomes if (found.kind, found.mode) == (kind, mode)]
        seconds = sorted(found.seconds for found in group)
        lines.append(
            f'| {kind} | {mode} | {len(group)} | {sum(not found.note for found in group)} | '
            f'{sum(found.equal for found in group)} | {seconds[len(seconds) // 2]:.1f}, '
            f'{seconds[-1]:.1f} |')
    survived, equal = (sum(not found.note for found in outcomes),
                       sum(found.equal for found in outcomes))
    lines.append(f'| **all** | | {len(outcomes)} | {survived} | {equal} | |')
    phases = Counter(found.phase for found in outcomes)
    lines += ['', 'Phases hit: ' + ', '.join(f'{phase} {count}'
                                             for phase, count in phases.most_common()) + '.']
    return '\n'.join(lines)
