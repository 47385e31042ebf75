"""The notebook runs from its first cell to its last."""
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

PATH = Path(__file__).resolve().parents[2] / 'docs' / 'examples' / 'own_pictures.ipynb'


def code_cells():
    """Source of the code cells, and what is wrong with the others."""
    notebook = json.loads(PATH.read_text(encoding='utf-8'))
    assert notebook['nbformat'] == 4 and notebook['metadata']['kernelspec']['name'] == 'python3'
    return [''.join(cell['source']) for cell in notebook['cells'] if cell['cell_type'] == 'code']


def test_no_cell_holds_output_or_fails_to_compile():
    for cell in json.loads(PATH.read_text(encoding='utf-8'))['cells']:
        assert not cell.get('outputs') and cell.get('execution_count') is None
    for place, cell in enumerate(code_cells()):
        compile(cell, f'cell {place}', 'exec')


@pytest.mark.slow
def test_the_cells_run_in_an_empty_folder(tmp_path, monkeypatch, capsys):
    pytest.importorskip('pandas')
    shown = []
    display = SimpleNamespace(Image=lambda path, **size: Path(path), display=shown.append)
    monkeypatch.setitem(sys.modules, 'IPython.display', display)  # a notebook has it
    monkeypatch.chdir(tmp_path)
    names = {}
    for place, cell in enumerate(code_cells()):
        cell = cell.replace('epochs = 5', 'epochs = 1')
        exec(compile(cell, f'cell {place}', 'exec'), names)
    assert all(path.is_file() for path in shown) and len(shown) == 2
    # Corrected are those that the table got wrong, and all of them are learned from.
    corrected, moved = names['wrong'], len(list(Path('new_photos').iterdir()))
    assert 0 < corrected.sum() < len(corrected) == moved
    rows, more = (len(Path(name).read_text().splitlines())
                  for name in ('work_dirs/photos/table.csv', 'more.csv'))
    assert more - rows == moved
    assert len(names['answers']) >= 15 and not any(answer.error for answer in names['answers'])
    frame = names['answers'].to_frame()
    assert list(frame.columns[:4]) == ['image', 'error', 'abstained', 'attribute_1']
    assert frame.probability_1.between(0, 1).all() and (frame.probability_1
                                                        >= frame.probability_2).all()
    found = [photo.probability for photo in names['found']]
    assert len(found) == 5 and found == sorted(found, reverse=True)
    assert capsys.readouterr().out.count('as predict will answer') == 2
