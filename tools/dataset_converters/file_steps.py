"""File operations of ``tools/dataset_converters``: planned first, repeatable, nothing deleted."""
import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from mmcluspro.errors import printable
from mmcluspro.utils.files import atomic_path, within


def _copy(source: Path, target: Path) -> None:
    with atomic_path(target) as part:
        shutil.copy2(source, part)


ACTIONS: dict[str, Callable[[Path, Path], object]] = {
    'rename': os.rename,
    'copy': _copy,
    'hardlink': os.link,
    'symlink': lambda source, target: os.symlink(source.resolve(), target),
}


class Step(NamedTuple):
    """One thing to do: rename, copy, hardlink or symlink ``source`` to ``target``."""
    action: str
    source: Path
    target: Path


def carry_out(steps: Sequence[Step], root: Path, dry_run: bool = False,
              say: Callable[[str], None] = print) -> Counter:
    """Does the steps whose target is not there yet.

    An interrupted run continues where it stopped: a file appears under its name only when it is
        complete, and what is there is neither overwritten nor deleted.

    Args:
        steps (Sequence[Step]): What to do.
        root (Path): Folder that nothing is written outside of, also through links.
        dry_run (bool): Only say what would be done. Defaults to False.
        say (callable): Takes the lines of progress. Defaults to print.

    Returns:
        Counter: Number of steps that were 'done', were 'there' already, whose
        source was 'missing', or that found both source and target ('conflict',
        for renames).
    """
    result, shown = Counter[str](), Counter[str]()
    tenth = max(len(steps) // 10, 1)
    for number, step in enumerate(steps, start=1):
        outcome = _outcome(step)
        if outcome == 'done' and not within(root, step.target):
            raise ValueError(f'{step.target} lies outside of {root}, or a link leads there: '
                             'nothing is written to it. Check the metadata and the links in the '
                             'folder.')
        if outcome == 'done' and not dry_run:
            step.target.parent.mkdir(parents=True, exist_ok=True)
            ACTIONS[step.action](step.source, step.target)
        result[outcome] += 1
        shown[outcome] += 1
        if outcome in ('missing', 'conflict') or dry_run and outcome == 'done':
            if shown[outcome] <= 5:
                what = {'done': f'would {step.action}', 'missing': 'missing',
                        'conflict': 'both exist, left alone'}[outcome]
                say(printable(f'{what}: {step.source} -> {step.target}'))
            elif shown[outcome] == 6:
                say(f'… further lines of this sort ({outcome}) are only counted')
        if number % tenth == 0 and len(steps) >= 100:
            say(f'{number}/{len(steps)}')
    say(', '.join(f'{count} {outcome}' for outcome, count in result.items()) or 'nothing to do')
    return result


def _outcome(step: Step) -> str:
    source = step.source.exists()
    if step.target.exists():
        return 'conflict' if source and step.action == 'rename' else 'there'
    return 'done' if source else 'missing'


def lift(root: Path, names: Sequence[str]) -> list[Step]:
    """Steps that bring files of the layout up from where archives unpack them.

    Looks for each name that ``root`` lacks in its folders, two levels deep
    ("release_dataset/images", "cgqa/metadata_...t7").
    """
    steps = []
    for name in names:
        if not (root / name).exists():
            deeper = sorted({*root.glob(f'*/{name}'), *root.glob(f'*/*/{name}')})
            if len(deeper) > 1:
                raise ValueError(f'{root} holds {name} more than once: '
                                 f'{", ".join(map(str, deeper))}; move the right one to {root}.')
            steps += [Step('rename', path, root / name) for path in deeper]
    return steps
