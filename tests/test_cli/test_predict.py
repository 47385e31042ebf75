"""``mmcluspro predict``: files that are complete at any end, and go on where they stopped."""
import csv
import json
import math
import multiprocessing
import os
import re
import resource
import shutil
import time

import pytest
import torch
from mmengine.registry import DefaultScope
from PIL import Image

from mmcluspro.artefact.images import list_images
from mmcluspro.artefact.pairs import read_pairs
from mmcluspro.artefact.results import NameScore, PairScore, Prediction, ResultFile
from mmcluspro.artefact.spec import describe
from mmcluspro.cli import main
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.engine.launch import read_config
from mmcluspro.registry import MODELS

CHOSEN = dict(bias=0.2, threshold=None, temperature=0.8, seen_bias=0.6)


@pytest.fixture(scope='module')
def checkpoint(tmp_path_factory):
    cfg = read_config('baseline_shapes.py')
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = MODELS.build(cfg.model)
    path = tmp_path_factory.mktemp('checkpoint') / 'best.pth'
    meta = dict(description=describe(cfg), calibration=dict(closed=CHOSEN, open=CHOSEN),
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


@pytest.mark.parametrize('suffix', ['.csv', '.json', '.jsonl'])
def test_a_photo_that_was_replaced_is_answered_again(suffix, checkpoint, photos, tmp_path, capsys):
    out = tmp_path / f'result{suffix}'
    command = ['predict', str(checkpoint), str(photos), '--out', str(out), '--device', 'cpu',
               '--batch-size', '1']
    assert main(command) == 0
    before = {row['image']: row for row in rows_of(out)}
    time.sleep(0.01)
    shutil.copyfile(photos / '5.png', photos / '0.png')  # another photo under the same name
    shutil.copyfile(photos / '6.png', photos / '3.png')  # was no picture
    with open(f'{out}.images.jsonl', 'a') as file:
        file.write('\n["half')
    capsys.readouterr()
    assert main(command) == 0
    said = capsys.readouterr().out
    assert '2 images have changed since' in said and '7 answered, 0 cannot be read' in said
    after = {row['image']: row for row in rows_of(out)}
    names = [str(photos / f'{i}.png') for i in range(7)]
    assert len(rows_of(out)) == 7 and set(after) == set(names)
    for changed, same in ((0, 5), (3, 6)):
        assert {**after[names[changed]], 'image': ''} == {**after[names[same]], 'image': ''}
    assert all(after[name] == before[name] for name in names if name not in (names[0], names[3]))
    whole = out.read_bytes()
    assert main(command) == 0 and out.read_bytes() == whole
    assert 'Nothing was left to do' in capsys.readouterr().out


def test_another_config_module_or_weights_is_another_model(
        checkpoint, photos, tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module, config = tmp_path / 'module_of_mine.py', tmp_path / 'mine.py'
    module.write_text('A = 1\n')
    config.write_text("_base_ = '{{$MMCLUSPRO_CONFIGS:configs}}/baseline_shapes.py'\n")
    command = ['predict', str(checkpoint), str(photos / '0.png'), '--device', 'cpu', '--out']

    def refused(out, *words):
        with pytest.raises(SystemExit):
            main([*command, str(tmp_path / out), *words])
        return capsys.readouterr().err

    own = ['--import', 'module_of_mine']
    assert main([*command, str(tmp_path / 'a.csv'), *own]) == 0
    assert main([*command, str(tmp_path / 'a.csv'), *own]) == 0
    assert 'something else (imports' in refused('a.csv')
    module.write_text('A = 2\n')
    assert 'something else (imports' in refused('a.csv', *own)
    assert main([*command, str(tmp_path / 'b.csv'), '--config', str(config)]) == 0
    assert main([*command, str(tmp_path / 'b.csv'), '--config', str(config)]) == 0
    config.write_text(config.read_text() + "model = dict(head=dict(fusion='logits'))\n")
    assert 'something else (config' in refused('b.csv', '--config', str(config))
    assert main([*command, str(tmp_path / 'c.csv'), '--background', 'black']) == 0
    assert "something else (background: 'black', now None)" in refused('c.csv')


def test_an_address_is_a_model_of_its_own_and_may_change(
        checkpoint, photos, tmp_path, serve, capsys):
    """Two folders of a server name their checkpoints alike, as training does."""
    content = torch.load(checkpoint, weights_only=False)
    content['meta']['calibration']['closed'] = dict(CHOSEN, temperature=2.0)
    for place in 'ab':
        (tmp_path / place).mkdir()
    shutil.copy(checkpoint, tmp_path / 'a' / 'best.pth')
    torch.save(content, tmp_path / 'b' / 'best.pth')
    address, photo, out = serve(tmp_path), str(photos / '0.png'), str(tmp_path / 'out.csv')

    def answer_of(place, *words):
        assert main(['predict', f'{address}/{place}/best.pth', photo, '--device', 'cpu',
                     *words]) == 0
        return capsys.readouterr().out

    answers = [answer_of(place) for place in 'ab']
    assert answers[0] != answers[1] and answers == [answer_of(place) for place in 'ab']
    answer_of('a', '--out', out)
    answer_of('a', '--out', out)
    shutil.rmtree(tmp_path / 'torch')
    shutil.copy(tmp_path / 'b' / 'best.pth', tmp_path / 'a' / 'best.pth')
    with pytest.raises(SystemExit):
        answer_of('a', '--out', out)
    assert 'was made with something else (weights' in capsys.readouterr().err


def test_an_interrupt_keeps_what_is_there(checkpoint, photos, tmp_path, capsys, monkeypatch):
    from mmcluspro import TrainedModel
    whole = TrainedModel.score
    calls = []

    def score(self, *args):
        calls.append(0)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(self, *args)

    monkeypatch.setattr(TrainedModel, 'score', score)
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


def write_one(path, start, report):
    start.wait()
    try:
        result = ResultFile(path, {}, 1)
    except ValueError as error:
        report.put(str(error))
        return
    result.append([answer(f'{os.getpid()}.png')])
    report.put(f'{os.getpid()}.png')
    time.sleep(0.02)
    result.close()


@pytest.mark.parametrize('suffix', ['.csv', '.json'])
def test_of_two_that_start_together_one_writes_and_no_record_is_lost(suffix, tmp_path):
    fork = multiprocessing.get_context('fork')
    refused = 0
    for number in range(20):
        path = tmp_path / f'{number}{suffix}'
        start, report = fork.Barrier(2), fork.Queue()
        both = [fork.Process(target=write_one, args=(path, start, report)) for _ in range(2)]
        for process in both:
            process.start()
        said = [report.get(timeout=60) for _ in both]
        for process in both:
            process.join()
        written = [line for line in said if line.endswith('.png')]
        assert sorted(row['image'] for row in rows_of(path)) == sorted(written)
        assert all(re.search(rf'{path} is in use by .*or give another --out', line)
                   for line in said if line not in written)
        refused += 2 - len(written)
        assert not path.with_name(f'{path.name}.lock').exists()
    assert refused > 0


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
