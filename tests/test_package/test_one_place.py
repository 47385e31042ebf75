"""A walk over the source: one function deletes, one writes tables, one locks."""
import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / 'mmcluspro'
TREES = {str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding='utf-8'))
         for path in PACKAGE.rglob('*.py')}
FILES = {'os', 'shutil', 'fileio', 'mmengine.fileio'}
REMOVERS = {'unlink', 'rmtree', 'rmdir', 'removedirs'}
WRITERS = {'writer', 'DictWriter', 'writerow', 'writerows', 'to_csv', 'savetxt', 'write_csv'}
LOCKERS = {'lockf', 'flock', 'O_EXCL', 'O_EXLOCK', 'F_SETLK', 'F_SETLKW'}
LOCK_MODULES = {'fcntl', 'msvcrt', 'filelock', 'portalocker', 'fasteners', 'oslo_concurrency'}


def parts(tree, left_out=None):
    """All nodes, except those of one function of the module."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(tree, ast.Module) and left_out and
                getattr(node, 'name', '') == left_out):
            yield node
            yield from parts(node)


def removals(tree):
    """Calls and imports that could delete files, outside of the module's function ``remove``."""
    for node in parts(tree, 'remove'):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if owner == 'self.file_backend':  # SafeCheckpointHook's, which calls the guard
                continue
            if node.attr in REMOVERS or node.attr == 'remove' and (
                    owner in FILES or owner.endswith(('backend', 'client', 'path', 'file'))):
                yield f'{owner}.{node.attr}'
        if isinstance(node, ast.ImportFrom) and node.module in FILES:
            yield from (alias.name for alias in node.names
                        if alias.name in REMOVERS | {'remove'})


def tables(tree):
    """Calls and imports that could write CSV, outside of the module's function ``csv_text``."""
    for node in parts(tree, 'csv_text'):
        if isinstance(node, ast.Attribute) and node.attr in WRITERS:
            yield ast.unparse(node)
        if isinstance(node, ast.ImportFrom) and node.module == 'csv':
            yield from (alias.name for alias in node.names if alias.name in WRITERS | {'*'})


def locks(tree):
    """What could lock a file between processes."""
    for node in parts(tree):
        if isinstance(node, ast.Attribute) and node.attr in LOCKERS:
            yield ast.unparse(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names
                        if alias.name.split('.')[0] in LOCK_MODULES)
        if isinstance(node, ast.ImportFrom):
            yield from [str(node.module)] * (str(node.module).split('.')[0] in LOCK_MODULES)
            yield from (alias.name for alias in node.names if alias.name in LOCKERS)


def where(find):
    return {path for path, tree in TREES.items() if list(find(tree))}


@pytest.mark.parametrize('function, find, module', [
    ('remove', removals, 'utils/files.py'), ('csv_text', tables, 'utils/plain_files.py')])
def test_one_function_deletes_and_one_writes_tables(function, find, module):
    assert where(find) == set()
    assert [path for path, tree in TREES.items() for node in tree.body
            if isinstance(node, ast.FunctionDef) and node.name == function] == [module]
    bare = ast.parse((PACKAGE / module).read_text().replace(f'def {function}(', 'def other('))
    assert list(find(bare)), 'the walk does not see what the one function does'


def test_one_module_locks():
    assert where(locks) == {'utils/locks.py'}


@pytest.mark.parametrize('line', [
    'path.unlink()', 'import os\nos.remove(p)', 'from os import unlink', 'shutil.rmtree(p)',
    'from shutil import rmtree as go', 'file_backend.rmtree(p)', 'gone = Path.unlink',
    'backend.remove(p)', 'from mmengine.fileio import remove', 'def f():\n    p.rmdir()'])
def test_every_other_remover_is_found(line):
    assert list(removals(ast.parse(line)))


@pytest.mark.parametrize('line', [
    'csv.writer(f)', 'import csv as c\nc.DictWriter(f, n)', 'from csv import writer as w',
    'frame.to_csv(p)', 'def f():\n    return csv.writer', 'np.savetxt(p, a)'])
def test_every_other_writer_of_tables_is_found(line):
    assert list(tables(ast.parse(line)))


@pytest.mark.parametrize('line', [
    'import fcntl', 'from filelock import FileLock', 'from fcntl import lockf', 'os.lockf(f, 1, 0)',
    'import filelock as f', 'os.open(p, os.O_CREAT | os.O_EXCL)', 'def f():\n    import msvcrt'])
def test_every_other_lock_is_found(line):
    assert list(locks(ast.parse(line)))
