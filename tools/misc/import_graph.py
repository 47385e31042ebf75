"""Prints which sub-packages of mmcluspro import which, and the imports against the direction.

    python tools/misc/import_graph.py
    python tools/misc/import_graph.py --package /another/checkout/mmcluspro --verbose

Imports inside functions count as well. The direction is the order of LAYERS: a sub-package may
import those of its own line and of the lines before it.
"""
import argparse
import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LAYERS = (
    ('version', 'requirements', 'errors', 'fields', 'registry', 'utils'),
    ('features', ),
    ('datasets', ),
    ('models', ),
    ('evaluation', ),
    ('artefact', ),
    ('engine', ),
    ('api', ),
    ('cli', 'export', 'demo', 'visualization'),
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


class Edge(NamedTuple):
    """One import statement: ``place`` in sub-package ``source`` imports sub-package ``target``."""
    source: str
    target: str
    place: str
    lazy: bool

    @property
    def upward(self) -> bool:
        """Whether it goes against the direction."""
        return RANK[self.source] < RANK[self.target]


def edges(package: Path) -> Iterator[Edge]:
    """All imports between sub-packages; ``__init__.py`` and ``__main__.py`` are left out."""
    for path in sorted(package.rglob('*.py')):
        parts = path.relative_to(package).with_suffix('').parts
        if parts in (('__init__', ), ('__main__', )) or '.mim' in parts:
            continue
        tree = ast.parse(path.read_text(encoding='utf-8'))
        top = set(map(id, tree.body))
        for node in ast.walk(tree):
            for name in sorted({*_imported(node, (package.name, *parts), package)}):
                if name != parts[0]:
                    yield Edge(parts[0], name, f'{Path(*parts)}.py:{node.lineno}',
                               id(node) not in top)


def _imported(node: ast.AST, module: tuple[str, ...], package: Path) -> Iterator[str]:
    """Sub-packages that a statement imports."""
    if isinstance(node, ast.Import):
        paths = [tuple(alias.name.split('.')) for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        base = module[:len(module) - node.level] if node.level else ()
        base += tuple(node.module.split('.')) if node.module else ()
        paths = [(*base, alias.name) for alias in node.names]
    else:
        return
    for path in paths:
        if path[0] == package.name and len(path) > 1 and (
                (package / path[1]).is_dir() or (package / f'{path[1]}.py').is_file()):
            yield path[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--package', type=Path,
                        default=Path(__file__).resolve().parents[2] / 'mmcluspro',
                        help='folder of the package (default: that of this repository)')
    parser.add_argument('--verbose', action='store_true', help='also list each upward statement')
    args = parser.parse_args()
    counted: dict[tuple[str, str], list[Edge]] = defaultdict(list)
    for edge in edges(args.package):
        RANK.setdefault(edge.source, len(LAYERS))
        RANK.setdefault(edge.target, len(LAYERS))
        counted[edge.source, edge.target].append(edge)
    for (source, target), found in sorted(
            counted.items(), key=lambda item: (RANK[item[0][0]], item[0])):
        lazy = sum(edge.lazy for edge in found)
        print(f'{"UP  " if found[0].upward else "    "}{source:>14} → {target:<14}{len(found):>4}'
              + (f'  ({lazy} inside functions)' if lazy else ''))
        if args.verbose and found[0].upward:
            for edge in found:
                print(f'{"":>24}{edge.place}')
    upward = sum(found[0].upward for found in counted.values())
    print(f'{len(counted)} edges, {upward} against the direction')


if __name__ == '__main__':
    main()
