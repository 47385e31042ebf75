"""``mmcluspro predict``: files that are complete at any end, and go on where they stopped."""
import csv
import json
import math
import os
import resource
import shutil
import subprocess
import sys

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from PIL import Image

from mmcluspro.apis.images import list_images
from mmcluspro.apis.pair_file import read_pairs
from mmcluspro.apis.result import NameScore, PairScore, Prediction
from mmcluspro.cli import main
from mmcluspro.cli.result_file import ResultFile
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.engine.launch import find_config
from mmcluspro.registry import MODELS

CHOSEN = dict(bias=0.2, threshold=None, temperature=0.8, seen_bias=0.6)


@pytest.fixture(scope='module')
def checkpoint(tmp_path_factory):
    cfg = Config.fromfile(find_config('baseline_shapes.py'))
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = MODELS.build(cfg.model)
    path = tmp_path_factory.mktemp('checkpoint') / 'best.pth'
    meta = dict(cfg=cfg.pretty_text, calibration=dict(closed=CHOSEN, open=CHOSEN),
                dataset_meta=ShapesCZSL(phase='train', lazy_init=True).metainfo)
    torch.save(dict(state_dict=model.state_dict(), meta=meta), path)
    return path


@pytest.fixture(scope='module')
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp('drawn')
    dataset = ShapesCZSL(phase='test')
    for place in range(7):
        picture = dataset.get_data_info(100 * place)['img'][..., ::-1].copy()
        Image.fromarray(picture).save(folder / f'{place}.png')
    (folder / '3.png').write_bytes(b'not a picture')
    return folder


@pytest.fixture
def photos(drawn, tmp_path):
    return shutil.copytree(drawn, tmp_path / 'photos')


def answer(name, probability=0.5, error=None, abstained=False):
    if error:
        return Prediction(name, error=error)
    return Prediction(name, (PairScore('wet', 'cat', probability, 0.7, 0.6, True), ),
                      (NameScore('wet', 0.7), ), (NameScore('cat', 0.6), ), abstained)


def rows_of(path):
    if path.suffix == '.csv':
        with path.open(newline='') as file:
            return list(csv.DictReader(file))
    if path.suffix == '.json':
        return json.loads(path.read_text())
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize('suffix', ['.csv', '.json', '.jsonl'])
def test_a_file_is_complete_after_every_batch(suffix, tmp_path):
    path = tmp_path / f'result{suffix}'
    result = ResultFile(path, {'weights': 'a'}, top_k=1)
    assert rows_of(path) == []
    for number in range(3):
        result.append([answer(f'{number} "x", ü.png'), answer(f'{number}.jpg', error='bad')])
        assert [row['image'] for row in rows_of(path)][-2:] == [
            f'{number} "x", ü.png', f'{number}.jpg']
        assert len(rows_of(path)) == 2 * number + 2


@pytest.mark.parametrize('suffix', ['.csv', '.json', '.jsonl'])
@pytest.mark.parametrize('cut', [1, 2, 3, 7, 40, 10**6])
def test_it_goes_on_after_an_end_at_any_byte(suffix, cut, tmp_path):
    path = tmp_path / f'result{suffix}'
    result = ResultFile(path, {'weights': 'a'}, top_k=1)
    names = [f'{number}.png' for number in range(4)]
    result.append([answer(name) for name in names])
    result.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:max(1, len(whole) - cut)])
    if suffix == '.csv' and cut > 10**5:
        path.write_bytes(whole[:whole.index(b'\n') + 1])

    result = ResultFile(path, {'weights': 'a'}, top_k=1)
    assert list(result.done) == names[:len(result.done)]
    result.append([answer(name) for name in names if name not in result.done])
    result.close()
    assert path.read_bytes() == whole


def test_another_model_or_other_pairs_are_not_mixed_in(tmp_path):
    path = tmp_path / 'result.csv'
    ResultFile(path, {'weights': 'a', 'pairs': None}, 1).close()
    with pytest.raises(ValueError, match=r"something else \(weights: 'a', now 'b'\)"):
        ResultFile(path, {'weights': 'b', 'pairs': None}, 1)
    (tmp_path / 'result.csv.run.json').unlink()
    with pytest.raises(ValueError, match='nothing can be added'):
        ResultFile(path, {'weights': 'a', 'pairs': None}, 1)


def test_a_folder_to_csv_and_on_again(checkpoint, photos, tmp_path, capsys):
    out = tmp_path / 'result.csv'
    command = ['predict', str(checkpoint), str(photos), '--out', str(out), '--batch-size', '2',
               '--device', 'cpu', '--top-k', '2']
    assert main(command) == 0
    said = capsys.readouterr().out
    assert '7 images in' in said and '6 answered, 1 cannot be read (column error)' in said
    rows = rows_of(out)
    assert [row['image'] for row in rows] == [str(photos / f'{i}.png') for i in range(7)]
    assert rows[3]['error'] == 'not an image, or damaged' and rows[3]['attribute_1'] == ''
    assert float(rows[0]['probability_1']) >= float(rows[0]['probability_2']) > 0

    whole = out.read_text()
    out.write_text(whole[:-30])
    assert main(command) == 0
    assert '6 of 7 images are in' in capsys.readouterr().out
    assert out.read_text() == whole
    with pytest.raises(SystemExit) as ended:
        main([*command, '--world', 'open'])
    assert ended.value.code == 2
    assert "world: 'closed', now 'open'" in capsys.readouterr().err


def test_an_interrupt_keeps_what_is_there(checkpoint, photos, tmp_path, capsys, monkeypatch):
    from mmcluspro.apis.inferencer import CZSLInferencer
    whole = CZSLInferencer.score
    calls = []

    def score(self, *args):
        calls.append(0)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(self, *args)

    monkeypatch.setattr(CZSLInferencer, 'score', score)
    out = tmp_path / 'result.json'
    assert main(['predict', str(checkpoint), str(photos), '--out', str(out), '--batch-size', '2',
                 '--device', 'cpu']) == 130
    assert len(rows_of(out)) == 2
    assert 'Run the same command again to continue.' in capsys.readouterr().err


def test_without_a_file_answers_are_printed(checkpoint, photos, tmp_path, capsys):
    (tmp_path / 'pairs.txt').write_text('red star\nblue circle\n')
    assert main(['predict', str(checkpoint), str(photos / '0.png'), str(photos / '3.png'),
                 '--pairs', str(tmp_path / 'pairs.txt'), '--threshold', '1', '--device',
                 'cpu']) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert 'not sure (' in first and 'red star' in first and 'blue circle' in first
    assert second.endswith('cannot be read: not an image, or damaged')


@pytest.mark.parametrize('words, reason', [
    (['nothing.pth', 'PHOTOS'], 'nothing.pth does not exist'),
    (['CHECKPOINT', 'nowhere'], 'No image nowhere'),
    (['CHECKPOINT', 'PHOTOS', '--out', 'result.xlsx'], 'must end with .csv, .json, .jsonl'),
    (['CHECKPOINT', 'PHOTOS', '--pairs', 'none.txt'], 'The file of pairs none.txt does not exist'),
])
def test_wrong_input_is_said_in_words(words, reason, checkpoint, photos, capsys, monkeypatch,
                                      tmp_path):
    monkeypatch.chdir(tmp_path)
    places = dict(CHECKPOINT=str(checkpoint), PHOTOS=str(photos))
    with pytest.raises(SystemExit) as ended:
        main(['predict', *(places.get(word, word) for word in words)])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and reason in said and 'Traceback' not in said


def test_names_that_are_not_utf8_end_no_run(checkpoint, photos, tmp_path, capfdbinary):
    strange = os.fsdecode(b'\xff-\xe4.png')
    shutil.copy(photos / '0.png', photos / strange)
    for suffix in ('.csv', '.json', '.jsonl'):
        out = tmp_path / f'result{suffix}'
        command = ['predict', str(checkpoint), str(photos), '--out', str(out), '--device', 'cpu']
        assert main(command) == 0
        whole = out.read_bytes()
        content = whole.decode(errors='strict' if suffix != '.csv' else 'surrogateescape')
        names = ([row[0] for row in csv.reader(content.splitlines())][1:] if suffix == '.csv' else
                 [json.loads(line.rstrip(','))['image'] for line in content.splitlines()
                  if line.startswith('{')])
        assert str(photos / strange) in names
        assert main(command) == 0  # all are found again
        assert out.read_bytes() == whole
    capfdbinary.readouterr()
    assert main(['predict', str(checkpoint), str(photos / strange), '--device', 'cpu']) == 0
    assert b'\xff-\xe4.png: ' in capfdbinary.readouterr().out


def test_nan_passes_no_threshold_and_is_no_json(tmp_path):
    row = ((PairScore('wet', 'cat', math.nan, 0.7, 0.6, True), ), (NameScore('wet', 0.7), ),
           (NameScore('cat', 0.6), ))
    for threshold in (None, 0.5):
        found = Prediction.of('a.png', row, threshold)
        assert found.error.startswith('the scores are NaN') and found.best is None
    result = ResultFile(tmp_path / 'a.json', {}, 1)
    result.append([found])
    assert 'NaN' not in (tmp_path / 'a.json').read_text().replace('are NaN', '')
    fine = ((PairScore('wet', 'cat', 0.5, 0.7, 0.6, True), ), *row[1:])
    assert not Prediction.of('a.png', fine, 0.5).abstained
    assert Prediction.of('a.png', fine, 0.51).abstained


def test_links_that_go_in_circles_end(photos):
    for name in ('a', 'b'):
        (photos / name).symlink_to('.')
    (photos / 'sub').mkdir()
    (photos / 'sub' / 'up').symlink_to('..')
    shutil.copy(photos / '0.png', photos / 'sub' / 'x.png')
    found = [item.name for item in list_images(str(photos))]
    assert found == [*(str(photos / f'{i}.png') for i in range(7)), str(photos / 'sub' / 'x.png')]


@pytest.mark.parametrize('suffix', ['.csv', '.json', '.jsonl'])
@pytest.mark.parametrize('before', [0, 2])
@pytest.mark.parametrize('part', [0, 1, 17])
def test_a_full_disk_leaves_a_whole_file(suffix, before, part, tmp_path):
    """The limit of a process on the size of files stands for the end of the disk."""
    path = tmp_path / f'result{suffix}'
    result = ResultFile(path, {}, top_k=1)
    if before:
        result.append([answer(f'{i}.png') for i in range(before)])
    whole = path.read_bytes()

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + part, hard))
    try:
        with pytest.raises(OSError, match=rf'{before} images are in it. Make room'):
            result.append([answer('9.png')])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == whole
    result.append([answer('9.png')])
    result.close()
    names = [row['image'] for row in rows_of(path)]
    assert names == [*(f'{i}.png' for i in range(before)), '9.png']


@pytest.mark.slow
def test_a_second_process_does_not_write_to_the_same_file(tmp_path):
    code = ('import sys, time; from mmcluspro.cli.result_file import ResultFile; '
            'file = ResultFile(sys.argv[1], {}, 1); print("open", flush=True); time.sleep(60)')
    path = tmp_path / 'result.csv'
    other = subprocess.Popen([sys.executable, '-c', code, str(path)], stdout=subprocess.PIPE,
                             text=True)
    assert other.stdout.readline() == 'open\n'
    with pytest.raises(ValueError, match='Another process writes to'):
        ResultFile(path, {}, 1)
    other.kill()
    other.wait()
    ResultFile(path, {}, 1).close()


@pytest.mark.parametrize('text, pairs', [
    ('wet cat\n\nold dog\n', [('wet', 'cat'), ('old', 'dog')]),
    ('attribute,object\nfaux fur,boots\n', [('faux fur', 'boots')]),
    ('wet;fire truck\r\nold; dog \r\n', [('wet', 'fire truck'), ('old', 'dog')]),
    ('wet\tfire truck', [('wet', 'fire truck')]),
    ('red apple\nshiny,dragon fruit\n', [('red', 'apple'), ('shiny', 'dragon fruit')]),
    ('# mine\nwet cat  # soaked\n\n', [('wet', 'cat')]),
    ('"red, white",shirt\n"old" , "dog"\n', [('red, white', 'shirt'), ('old', 'dog')]),
    ('5" thick,pipe\nold,dog\n', [('5" thick', 'pipe'), ('old', 'dog')]),
    ('C# book\n', [('C#', 'book')]),
    ('wet cat\u2028x\rold dog', None),
])
def test_lists_of_pairs_are_read(text, pairs, tmp_path):
    (tmp_path / 'pairs.txt').write_text(text)
    if pairs is None:  # only ends of lines that editors write divide lines
        with pytest.raises(ValueError, match=r'pairs.txt:1: expected two words'):
            read_pairs(tmp_path / 'pairs.txt')
    else:
        assert read_pairs(tmp_path / 'pairs.txt') == pairs


@pytest.mark.parametrize('text, reason', [
    ('', 'there is no pair'), ('wet cat dog', 'expected two words'),
    ('a,b\na\n', 'pairs.txt:2: expected two words'),
    ('wet cat\nwet cat', 'is already in line 1'),
    ('wet,cat\n"old,dog\nbig,car\n', r'1 problem .*\n.*pairs.txt:2: a double quote is not closed'),
    ('x' * 200_000 + ',y,z', 'pairs.txt:1: a double quote|pairs.txt:1: expected two names')])
def test_a_bad_list_of_pairs_names_the_line(text, reason, tmp_path):
    (tmp_path / 'pairs.txt').write_text(text)
    with pytest.raises(ValueError, match=reason):
        read_pairs(tmp_path / 'pairs.txt')
