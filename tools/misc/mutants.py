"""Makes small mistakes in the code, one at a time, and counts those that the tests notice.

    python tools/misc/mutants.py losses --count 60
    python tools/misc/mutants.py --count 40 --seed 3 --out survivors.jsonl
    python tools/misc/mutants.py --again survivors.jsonl    # survivors, with today's tests

Each mutant changes one operator, comparison, constant or condition of a module. A process that has
already imported torch forks, the child imports the mutated module in place of the real one and
runs the test files of its group up to the first failure. A mutant that no test notices survives:
the tests miss something, or the change makes no difference (an equivalent mutant). Linux and macOS.
"""
from __future__ import annotations

import argparse
import ast
import copy
import importlib
import importlib.abc
import importlib.util
import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTOTYPES, EVALUATION = 'mmcluspro/models/prototypes', 'mmcluspro/evaluation'
# Group → (modules, test files).
GROUPS: dict[str, tuple[list[str], list[str]]] = {
    'metric': ([f'{EVALUATION}/{name}.py'
                for name in ('curve', 'margins', 'metric')],
               ['test_evaluation/test_score_matrix.py', 'test_evaluation/test_czsl_metric.py']),
    'transport': ([f'{PROTOTYPES}/exact.py'],
                  ['test_models/test_transport.py', 'test_models/test_gcg.py',
                   'test_models/test_assigners.py']),
    'bank': ([f'{PROTOTYPES}/{name}.py' for name in ('bank', 'problems')],
             ['test_models/test_prototype_queue.py', 'test_models/test_prototypes.py']),
    'losses': (['mmcluspro/models/losses.py'],
               ['test_models/test_pcl_loss.py', 'test_models/test_hsic_loss.py']),
    'readers': (['mmcluspro/artefact/pairs.py', 'mmcluspro/datasets/table_file.py',
                 'mmcluspro/utils/plain_files.py', 'mmcluspro/utils/digest.py',
                 'mmcluspro/utils/safe_load.py'],
                ['test_utils/test_readers.py', 'test_datasets/test_table.py']),
    'descriptions': (['mmcluspro/fields.py', 'mmcluspro/artefact/spec.py',
                      'mmcluspro/artefact/spec.py'],
                     ['test_description/test_fields.py']),
    'features': ([f'mmcluspro/features/{name}.py' for name in ('store', 'writer')],
                 ['test_features/test_features.py']),
}
CPU_SECONDS = 60
# Of the extra test: what the children would otherwise import again and again.
PREPARED = ('hypothesis', 'mmpretrain.models', 'open_clip', 'ot', 'pytest', 'scipy.optimize')
SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And,
}


class _Spots(ast.NodeVisitor):
    """Places to change, as functions that change a node in place; messages and types are left."""

    def __init__(self) -> None:
        self.found: list[tuple[ast.AST, str]] = []

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Raise, ast.AnnAssign, ast.JoinedStr, ast.Import, ast.ImportFrom)):
            return
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            for part in (*node.body, *(node.args.defaults if hasattr(node, 'args') else ())):
                self.visit(part)
            return
        if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in SWAPS:
            self.found.append((node, 'op'))
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            self.found.append((node, 'compare'))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert, ast.USub)):
            self.found.append((node, 'unary'))
        elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
            self.found.append((node, 'constant'))
        elif (isinstance(node, (ast.If, ast.IfExp, ast.While))
              and not isinstance(node.test, (ast.UnaryOp, ast.Compare))):  # those change anyway
            self.found.append((node, 'condition'))
        self.generic_visit(node)


def _change(node: ast.AST, kind: str) -> None:
    if kind == 'op':
        node.op = SWAPS[type(node.op)]()
    elif kind == 'compare':
        node.ops = [SWAPS.get(type(node.ops[0]), type(node.ops[0]))()]
    elif kind == 'unary':
        node.op = ast.Not() if isinstance(node.op, ast.Not) else ast.UAdd()
        if isinstance(node.op, ast.Not):  # "not x" becomes "not not x"
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
    elif kind == 'constant':
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1
    else:
        node.test = ast.UnaryOp(ast.Not(), node.test)


def mutants(source: str) -> Iterator[tuple[int, str, str, ast.Module]]:
    """All mutants of a text: line, the line's expression before and after, and the tree."""
    tree = ast.parse(source)
    spots = _Spots()
    spots.visit(tree)
    for index, (node, kind) in enumerate(spots.found):
        changed = copy.deepcopy(tree)
        again = _Spots()
        again.visit(changed)
        target, before = again.found[index][0], _text(node)
        _change(target, kind)
        yield node.lineno, before, _text(target), ast.fix_missing_locations(changed)


def _text(node: ast.AST) -> str:
    """The code of a node; of a statement its condition."""
    return ast.unparse(getattr(node, 'test', node))[:120]


class _Loader(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a changed tree."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self.name = '.'.join(path.relative_to(ROOT).with_suffix('').parts)
        self.path, self.tree = path, tree

    def find_spec(self, name, path=None, target=None):
        return (importlib.util.spec_from_file_location(name, self.path, loader=self)
                if name == self.name else None)

    def exec_module(self, module) -> None:
        exec(compile(self.tree, str(self.path), 'exec'), module.__dict__)


def outcome(path: Path, tree: ast.Module | None, tests: Sequence[str]) -> tuple[str, float]:
    """``killed``, ``survived`` or ``timeout``, and CPU seconds; without a tree, the real code."""
    start = os.times()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1), os.dup2(null, 2)
        code = 1
        try:
            pytest, settings = sys.modules['pytest'], sys.modules['hypothesis'].settings
            settings.register_profile('mutants', database=None, derandomize=True, deadline=None)
            settings.load_profile('mutants')
            if tree is not None:
                sys.meta_path.insert(0, _Loader(path, tree))
            code = pytest.main(['-x', '-q', '-n', '0', '-p', 'no:cacheprovider', *tests])
        finally:
            os._exit(int(code))
    status = os.waitpid(child, 0)[1]
    end = os.times()
    seconds = end.children_user + end.children_system - start.children_user - start.children_system
    if os.WIFSIGNALED(status):
        late = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
        return 'timeout' if late else 'killed', seconds
    return 'survived' if os.WEXITSTATUS(status) == 0 else 'killed', seconds


def survivors(path: str) -> list[dict]:
    """The mutants that survived, by the records of a run."""
    records = map(json.loads, Path(path).read_text(encoding='utf-8').splitlines())
    return [record for record in records if record['result'] == 'survived']


def find(every: Sequence[tuple], record: dict) -> list[tuple]:
    """The mutant of a record; its line may have moved, so the nearest one with the same code."""
    same = [item for item in every
            if (item[0], *item[1][1:3]) == (record['file'], record['before'], record['after'])]
    return sorted(same, key=lambda item: abs(item[1][0] - record['line']))[:1]


def run(group: str, count: int, seed: int, until: float,
        again: Sequence[dict] | None = None) -> Iterator[dict]:
    """Tries a sample of the mutants of a group, or those of earlier records."""
    files, names = GROUPS[group]
    tests = [str(ROOT / 'tests' / name) for name in names if (ROOT / 'tests' / name).exists()]
    if outcome(ROOT / files[0], None, tests)[0] != 'survived':
        raise SystemExit(f'The tests of {group} fail without any mutant.')
    every = [(file, mutant) for file in files
             for mutant in mutants((ROOT / file).read_text(encoding='utf-8'))]
    chosen = random.Random(seed).sample(every, min(count, len(every)))
    if again is not None:
        chosen = [item for record in again for item in find(every, record)]
    for file, (line, before, after, tree) in chosen:
        if time.time() > until:
            return
        result, seconds = outcome(ROOT / file, tree, tests)
        yield dict(group=group, file=file, line=line, before=before, after=after, result=result,
                   cpu_seconds=round(seconds, 1), of=len(every))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('groups', nargs='*', choices=[*GROUPS, []], default=[],
                        help=f'from {", ".join(GROUPS)}; all by default')
    parser.add_argument('--count', type=int, default=40, help='mutants of each group')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--minutes', type=float, default=1e6, help='stop after this many minutes')
    parser.add_argument('--again', metavar='FILE', help='try the mutants that survived by this '
                        'file of --out, instead of a sample')
    parser.add_argument('--out', help='file to which each mutant is added as a JSON line')
    args = parser.parse_args(argv)
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT), str(ROOT / 'tools' / 'analysis_tools')]
    for name in PREPARED:
        importlib.import_module(name)
    until, survived = time.time() + 60 * args.minutes, 0
    again = survivors(args.again) if args.again else None
    for group in args.groups or GROUPS:
        results: Counter[str] = Counter()
        for record in run(group, args.count, args.seed, until, again):
            results[record['result']] += 1
            if record['result'] == 'survived':
                print(f'{record["file"]}:{record["line"]}: {record["before"]}  →  '
                      f'{record["after"]}', flush=True)
            if args.out:
                with open(args.out, 'a', encoding='utf-8') as file:
                    file.write(json.dumps(record) + '\n')
        print(f'{group:10}', *(f'{name} {results[name]}' for name in
                               ('killed', 'timeout', 'survived')), flush=True)
        survived += results['survived']
    return int(survived > 0)


if __name__ == '__main__':
    sys.exit(main())
