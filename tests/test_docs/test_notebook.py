"""The notebook runs from its first cell to its last."""
import json
import os
from pathlib import Path

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
    monkeypatch.chdir(tmp_path)
    names = {}
    for place, cell in enumerate(code_cells()):
        cell = cell.replace('epochs = 5', 'epochs = 1')
        exec(compile(cell, f'cell {place}', 'exec'), names)
    assert len(names['answers']) == 20 and not any(answer.error for answer in names['answers'])
    frame = names['answers'].to_frame()
    assert list(frame.columns[:4]) == ['image', 'error', 'abstained', 'attribute_1']
    assert frame.probability_1.between(0, 1).all() and (frame.probability_1
                                                        >= frame.probability_2).all()
    assert os.path.isfile('work_dirs/photos/photos.py')
    assert 'as predict will answer' in capsys.readouterr().out
