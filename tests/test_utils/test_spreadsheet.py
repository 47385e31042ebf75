"""Cells that a spreadsheet would run are text, and come back as they were."""
import csv

import pytest

from mmcluspro.apis.result import PairScore, Prediction
from mmcluspro.cli.result_file import ResultFile
from mmcluspro.datasets.table_file import TableRow, read_table, write_table
from mmcluspro.utils.spreadsheet import guard, unguard

CELLS = ['=1+1', '+x', '-x', '@SUM(A1)', '\t=1', "'=1", "''-x", '＝1+1', '＠x', 'plain',
         "'tis", '', '1-2', "'"]


@pytest.mark.parametrize('cell', CELLS)
def test_cells_come_back(cell):
    written = guard(cell)
    assert unguard(written) == cell
    assert written[:1] not in ('=', '+', '-', '@', '\t', '\r', '＝', '＠')


def test_predictions_are_text_and_resumable(tmp_path):
    path, facts = tmp_path / 'r.csv', dict(weights='x')
    pair = PairScore('=cmd', '@obj', 0.5, 0.5, 0.5, True)
    names = ['=HYPERLINK("http://x")', '-a.png', "'=b.png", 'c.png']
    first = ResultFile(path, facts, 1)
    first.append([Prediction(name, (pair, )) for name in names[:3]])
    first.append([Prediction(names[3], error='+not an image')])
    first.close()
    with path.open(newline='') as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell[:1] in ('=', '+', '-', '@')]
    again = ResultFile(path, facts, 1)
    again.close()
    assert list(again.done) == names and again.done['c.png']['error'] == '+not an image'


def test_tables_come_back(tmp_path):
    rows = [TableRow('a.png', '=wet', '-cat', 'train'), TableRow('b.png', "'tis", '@dog', 'test')]
    write_table(tmp_path / 't.csv', rows)
    assert [row[:4] for row in read_table(tmp_path / 't.csv')] == [row[:4] for row in rows]
