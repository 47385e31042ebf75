"""Cells that a spreadsheet would run are text, names come back as they were, one place writes."""
import ast
import csv
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcluspro.artefact.results import PairScore, Prediction, ResultFile
from mmcluspro.cli import main
from mmcluspro.datasets.table_file import TableRow, read_table, write_table
from mmcluspro.utils.plain_files import csv_text, guard, parse_csv, unguard

ROOT = Path(__file__).resolve().parents[2]
CELLS = ['=1+1', '+x', '-x', '@SUM(A1)', '\t=1', "'=1", "''-x", '＝1+1', '＠x', 'plain',
         "'tis", '', '1-2', "'"]
NAMES = ['x\r=1+1.png', 'x;=1+1;.png', 'a\r\n=2.png', 'a\n"=3".png', '=4.png', "'=5.png",
         '\r=6.png', ',"', 'tab\t=7.png', '\u2028=8.png', 'plain.png']
PAIR = PairScore('=cmd', '@obj', 0.5, 0.000001, 0.5, True)


@pytest.mark.parametrize('cell', CELLS)
def test_cells_come_back(cell):
    written = guard(cell)
    assert unguard(written) == cell
    assert written[:1] not in ('=', '+', '-', '@', '\t', '\r', '＝', '＠')


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.text(st.characters(codec='utf-8', exclude_characters='\0')),
                         min_size=2, max_size=2), max_size=4))
def test_any_text_comes_back(rows):
    whole = [row for row in rows if any(map(str.strip, row))]  # empty lines are left out
    read = parse_csv(csv_text([['a', 'b'], *rows]), 'x', ('a', 'b'), '')
    assert [list(row.values()) for _, row in read.columns(('a', 'b'), '')] == whole


def bare(text):
    """What stands outside of quotes: there, a spreadsheet finds its cells and rows."""
    return re.sub('"(?:[^"]|"")*"', '', text)


def test_predictions_are_text_and_resumable(tmp_path):
    path, facts = tmp_path / 'r.csv', dict(weights='x')
    first = ResultFile(path, facts, 1)
    first.append([Prediction(name, (PAIR, )) for name in NAMES])
    first.append([Prediction('c.png', error='+not an image')])
    first.close()
    whole = path.read_bytes()
    assert not re.search(r'[=@;\t\r]', bare(whole.decode())) and bare(whole.decode()).count(
        '\n') == len(NAMES) + 2
    with path.open(newline='') as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell[:1] in ('=', '+', '-', '@', '\r')]
    for _ in range(2):
        again = ResultFile(path, facts, 1)
        again.close()
        assert list(again.done) == [*NAMES, 'c.png']
        assert again.done['c.png']['error'] == '+not an image' and path.read_bytes() == whole


@pytest.mark.parametrize('name', NAMES)
def test_a_name_with_a_line_break_is_cut_off_whole(name, tmp_path):
    path = tmp_path / 'r.csv'
    result = ResultFile(path, {}, 1)
    result.append([Prediction('first.png', (PAIR, ))])
    kept = path.read_bytes()
    result.append([Prediction(name, (PAIR, ))])
    result.close()
    whole = path.read_bytes()
    for end in range(len(kept), len(whole)):
        path.write_bytes(whole[:end])
        again = ResultFile(path, {}, 1)
        again.close()
        assert list(again.done) == ['first.png'] and path.read_bytes() == kept


def test_a_cell_that_someone_made_a_formula_is_guarded_on_rewriting(tmp_path):
    path = tmp_path / 'r.csv'
    ResultFile(path, {}, 1).close()
    path.write_text(path.read_text() + '=1+1,,0,=a,b,0.5,0.5,0.5,1\n')
    ResultFile(path, {}, 1).close()
    assert path.read_text().endswith('"\'=1+1","",0,"\'=a","b",0.5,0.5,0.5,1\n')


@pytest.mark.parametrize('row, said', [
    ('a.png,,0,a,b,0.5\n', 'line 3: 6 cells under 9 columns'),
    ('x\r=1+1.png,,0,a,b,0.5,0.5,0.5,1\n', 'line 3: 1 cells under 9 columns'),
    ('a.png,,2,a,b,0.5,0.5,0.5,1\n', "line 3: '2' is neither 0 nor 1"),
    ('a.png,,0,a,b,high,0.5,0.5,1\n', "line 3: could not convert string to float: 'high'"),
    ('a.png,,0,"a"b,b,0.5,0.5,0.5,1\n', 'line 3: it is not a CSV file')])
def test_odd_rows_of_a_result_are_refused_and_nothing_is_lost(row, said, tmp_path):
    path = tmp_path / 'r.csv'
    first = ResultFile(path, {}, 1)
    first.append([Prediction('first.png', (PAIR, ))])
    first.close()
    whole = path.read_bytes() + row.encode()
    path.write_bytes(whole)
    with pytest.raises(ValueError, match=rf'r\.csv, {re.escape(said)}.* Give another --out'):
        ResultFile(path, {}, 1)
    assert path.read_bytes() == whole


def test_a_carriage_return_in_a_name_reaches_the_review_and_comes_back(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path('new').mkdir()
    result = ResultFile('result.csv', {}, 1)
    result.append([Prediction('new/x\r=1+1.png', (PAIR, )), Prediction('new/y;=1.png', (PAIR, ))])
    result.close()
    assert main(['review', 'out', 'result.csv', '--root', 'new', '--out', 'review.csv']) == 0
    text = Path('review.csv').read_bytes().decode()
    assert '"x\r=1+1.png","\'=cmd","\'@obj",0.5,' in text and '=' not in bare(text)
    write_table('table.csv', [TableRow('a.png', 'wet', 'cat', 'train')])
    for name in ('x\r=1+1.png', 'y;=1.png'):
        Path('review.csv').write_bytes(csv_text([
            ['image', 'attribute', 'object'], [name, 'a', 'b']]).encode())
        assert main(['review', 'in', 'review.csv', '--root', 'new', '--table', 'table.csv', '--out',
                     'more.csv']) == 0
        assert f'"new/{name}","a","b"' in Path('more.csv').read_bytes().decode()


def test_tables_come_back(tmp_path):
    rows = [TableRow('a.png', '=wet', '-cat', 'train'), TableRow('b.png', "'tis", '@dog', 'test'),
            TableRow('x;=1.png', 'a;b', 'c,"d"', 'val')]
    write_table(tmp_path / 't.csv', rows)
    assert [row[:4] for row in read_table(tmp_path / 't.csv')] == [row[:4] for row in rows]


def test_one_place_writes_csv():
    found = set()
    for folder in ('mmcluspro', 'tools'):
        for path in (ROOT / folder).rglob('*.py'):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and ast.unparse(node) in (
                        'csv.writer', 'csv.DictWriter') or (
                        isinstance(node, ast.Attribute) and node.attr == 'to_csv') or (
                        isinstance(node, ast.ImportFrom) and node.module == 'csv'):
                    found.add(path.relative_to(ROOT).as_posix())
    assert found == {'mmcluspro/utils/plain_files.py'}
