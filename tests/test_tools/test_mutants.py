"""tools/misc/mutants.py changes one thing at a time, and what it writes is Python."""
import ast
import importlib.util
from pathlib import Path

PATH = Path(__file__).resolve().parents[2] / 'tools' / 'misc' / 'mutants.py'
spec = importlib.util.spec_from_file_location('mutants', PATH)
mutants = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mutants)

SOURCE = """
LIMIT = 3
def f(a: int, b=True):
    if not a:
        raise ValueError(f'{a + 1}')
    return -a * 2 if a < LIMIT and b else a
"""


def test_every_mutant_is_another_program():
    trees = [tree for *_, tree in mutants.mutants(SOURCE)]
    texts = {ast.unparse(tree) for tree in trees} | {ast.unparse(ast.parse(SOURCE))}
    for tree in trees:
        compile(tree, 'x', 'exec')
    # LIMIT, b, not, *, -, 2, if-else, <, and: each once; messages and annotations never.
    assert len(trees) == 9 and len(texts) == 10
    assert all("f'{a + 1}'" in text and 'a: int' in text for text in texts)


def test_every_module_and_test_of_a_group_exists():
    for files, tests in mutants.GROUPS.values():
        assert all((mutants.ROOT / file).is_file() for file in files)
        assert all((mutants.ROOT / 'tests' / test).is_file() for test in tests)


def test_a_survivor_is_found_again_where_its_line_moved(tmp_path):
    every = [('a.py', mutant) for mutant in mutants.mutants('x = 1\n\ny = 1\n')]
    records = [dict(file='a.py', line=line, before='1', after='2', result=result)
               for line, result in ((4, 'survived'), (1, 'killed'))]
    path = tmp_path / 'records.jsonl'
    path.write_text(''.join(mutants.json.dumps(record) + '\n' for record in records))
    (record, ) = mutants.survivors(path)
    ((file, (line, *_)), ) = mutants.find(every, record)
    assert (file, line) == ('a.py', 3)
    assert mutants.find(every, dict(record, before='2')) == []
