"""Predictions out, corrections in: by hand, and end to end with a training after it."""
import csv
import json
import shlex
import shutil

import numpy as np
import pytest

from mmcluspro.cli import main
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.datasets.table_file import read_table

HEADER = 'image,error,abstained,attribute_1,object_1,probability_1\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ('photos', 'new/deep'):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / 'result.csv').write_text(HEADER + """new/a.png,,0,wet,cat,0.9
new/deep/b.png,,0,"'=dry",dog,0.2
new/c.png,damaged,0,,,
new/d.png,,0,dry,cat,0.5
""")
    (tmp_path / 'photos' / 'table.csv').write_text(
        'image,attribute,object,split\nx.png,wet,cat,train\ny.png,dry,cat,test\n')
    return tmp_path


def review(*words):
    return main(['review', *words])


def test_predictions_come_least_sure_first_and_stay_text(folder, capsys):
    assert review('out', 'result.csv', '--root', 'new', '--out', 'review.csv') == 0
    assert '3 images in review.csv' in capsys.readouterr().out
    with open('review.csv') as file:
        rows = list(csv.DictReader(file))
    assert [row['image'] for row in rows] == ['deep/b.png', 'd.png', 'a.png']
    assert rows[0]['attribute'] == "'=dry"


def test_the_images_to_label_next_are_those_between_two_answers(folder, capsys):
    rng, shares = np.random.default_rng(0), {}
    lines = [HEADER.strip() + ',attribute_2,object_2,probability_2,seen_2']
    for number in range(40):
        best, second = sorted(rng.uniform(0, 0.5, 2))[::-1]
        shares[f'{number:02}.png'] = best - second
        lines.append(f'new/{number:02}.png,,0,wet,cat,{best},dry,cat,{second},1')
    lines.append('new/lone.png,,0,wet,cat,0.4,,,,')  # of one pair only
    (folder / 'result.csv').write_text('\n'.join(lines))
    assert review('out', 'result.csv', '--root', 'new', '--uncertain', '7', '--out', 'next.csv'
                  ) == 0
    assert '7 images in next.csv, those whose two best' in capsys.readouterr().out
    with open('next.csv') as file:
        rows = [row['image'] for row in csv.DictReader(file)]
    assert rows == sorted(shares, key=shares.get)[:7]
    # Without second answers, the least confident ones.
    text = '\n'.join(','.join(line.split(',')[:6]) for line in lines)
    (folder / 'result.csv').write_text(text)
    review('out', 'result.csv', '--root', 'new', '--out', 'next.csv', '--uncertain', '99')
    review('out', 'result.csv', '--root', 'new', '--out', 'all.csv')
    assert (folder / 'next.csv').read_text() == (folder / 'all.csv').read_text()
    for flags in (['out', 'result.csv', '--uncertain', '0'], ['in', 'all.csv', '--uncertain', '5']):
        with pytest.raises(SystemExit):
            review(*flags, '--root', 'new', '--out', 'x.csv')
        assert '--uncertain' in capsys.readouterr().err


def back(name, capsys):
    review('in', name, '--root', 'new', '--table', 'photos/table.csv', '--out', 'more.csv')
    said = capsys.readouterr().out
    return said, {row.image: row[1:4] for row in read_table('more.csv')}


def test_after_a_training_on_all_images_the_next_one_is_on_all_too(folder, capsys):
    """mmcluspro train photos/ writes a table in which every image trains."""
    (folder / 'photos' / 'table.csv').write_text(
        'image,attribute,object,split\nx.png,wet,cat,train\ny.png,dry,cat,train\n')
    review('out', 'result.csv', '--root', 'new', '--out', 'review.csv')
    review('in', 'review.csv', '--root', 'new', '--table', 'photos/table.csv', '--out', 'more.csv')
    with open('more.csv') as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 and all(set(row) == {'image', 'attribute', 'object'} for row in rows)


EXPECTED = {'photos/x.png': ('wet', 'cat', 'train'), 'photos/y.png': ('dry', 'cat', 'test'),
            'new/deep/b.png': ('=dry', 'fox', 'train'), 'new/a.png': ('wet', 'cat', 'train')}


def test_corrections_of_a_spreadsheet_become_rows_of_training(folder, capsys):
    review('out', 'result.csv', '--root', 'new', '--out', 'review.csv')
    text = (folder / 'review.csv').read_text()
    text = text.replace('"dog"', '"fox"').replace('"d.png","dry","cat"', 'd.png,,')
    (folder / 'review.csv').write_text(text)
    said, rows = back('review.csv', capsys)
    assert rows == EXPECTED
    (folder / 'signs.csv').write_text(text.replace(',', ';'))  # as some spreadsheets save it
    assert back('signs.csv', capsys)[1] == EXPECTED
    assert '2 reviewed images and the 2 earlier ones' in said and '1 left out' in said
    assert 'Pairs that become seen: 1 (to keep a pair unseen' in said


def test_label_studio_gets_tasks_and_its_export_is_read(folder, capsys):
    review('out', 'result.csv', '--root', 'new', '--out', 'review.json')
    tasks = json.loads((folder / 'review.json').read_text())
    assert tasks[0]['data']['image'] == '/data/local-files/?d=deep/b.png'
    first = tasks[0]['predictions'][0]
    assert first['score'] == 0.2
    assert [(part['from_name'], part['to_name'], part['value']['choices'])
            for part in first['result']] == [('attribute', 'image', ['=dry']),
                                             ('object', 'image', ['dog'])]
    for item in tasks:
        result = item.pop('predictions')[0]['result']
        if item['data']['name'] == 'deep/b.png':
            result[1]['value']['choices'] = ['fox']
        item['annotations'] = [dict(result=result, was_cancelled=item['data']['name'] == 'd.png')]
    (folder / 'export.json').write_text(json.dumps(tasks))
    assert back('export.json', capsys)[1] == EXPECTED


@pytest.mark.parametrize('words, content, said', [
    (['out', 'x.csv'], 'a,b\n', 'lacks image, attribute_1'),
    (['out', 'x.csv'], HEADER + 'elsewhere/a.png,,0,wet,cat,0.9\n', 'is not below --root'),
    (['in', 'x.csv'], 'image,attribute\n', 'lacks object. Give the file'),
    (['in', 'x.csv'], 'image,attribute,object\na.png,wet,\n', 'x.csv:2: only one of attribute'),
    (['in', 'x.json'], '[{"data": {}}]', 'not an export of Label Studio'),
    (['in', 'x.json'], '{', 'x.json'),
    (['out', 'x.csv'], HEADER + '.,,0,wet,cat,0.9\n', 'is not below --root'),
    (['out', 'x.csv'], HEADER + ',,0,wet,cat,0.9\n', "the image '' is not below --root"),
    (['out', 'x.csv'], HEADER + 'new/link/a.png,,0,wet,cat,0.9\n', 'is not below --root'),
    (["out", "x.csv"], HEADER + "new/a.png,,0,wet,cat,nan\n",
     "x.csv, line 2: the probability is 'nan'"),
    (['out', 'x.csv'], HEADER + 'new/a.png,,0,wet\n', 'x.csv, line 2: 4 cells under 6 columns'),
    (['out', 'x.csv'], HEADER + 'new/a.png,,0,wet,cat,0.9,x\n', 'line 2: 7 cells under 6 columns'),
    (['out', 'x.csv'], HEADER + 'new/a.png,,0,"wet"x,cat,0.9\n', 'x.csv, line 2: it is not a'),
    (['in', 'x.csv'], 'image,attribute,object\n"a.png,wet,cat\n', 'it is not a CSV file'),
    # A corrected file may not relabel what lies outside of --root.
    (['in', 'x.csv'], 'image,attribute,object\n../photos/y.png,wet,dog\n', 'leaves the folder'),
    (['in', 'x.csv'], 'image,attribute,object\nlink/y.png,wet,dog\n', 'leaves the folder'),
    (['in', 'x.csv'], 'image,attribute,object\n/etc/passwd,wet,dog\n', 'leaves the folder'),
    (['in', 'x.json'], '[{"data": {"name": "../photos/y.png"}, "annotations": [{"result": ['
     '{"type": "choices", "from_name": "attribute", "value": {"choices": ["wet"]}}, '
     '{"type": "choices", "from_name": "object", "value": {"choices": ["dog"]}}]}]}]',
     'leaves the folder'),
    (['in', 'x.json'], '[{"data": {"name": ["a.png"]}}]', "['a.png'] is not a name"),
    (['in', 'x.json'], '[{"data": {"name": "a\\u001b[2J.png"}}]', 'is not a name'),
    (['in', 'x.json'], '[[]]', 'not an export of Label Studio')])
def test_wrong_files_are_named(words, content, said, folder, capsys):
    (folder / words[1]).write_text(content)
    (folder / 'new' / 'link').symlink_to(folder / 'photos')
    with pytest.raises(SystemExit) as end:
        review(*words, '--root', 'new', '--table', 'photos/table.csv', '--out', 'more.csv')
    assert end.value.code == 2 and said in ' '.join(capsys.readouterr().err.split())


def test_images_above_the_new_table_are_refused(folder, capsys):
    review('out', 'result.csv', '--root', 'new', '--out', 'review.csv')
    (folder / 'sub').mkdir()
    with pytest.raises(SystemExit):
        review('in', 'review.csv', '--root', 'new', '--table', 'photos/table.csv', '--out',
               'sub/more.csv')
    assert 'put --out into a folder above all images' in capsys.readouterr().err


def _look_at_mistakes(folder, capsys):
    """The command that training printed draws mistakes; without the config it is asked for."""
    config = folder / 'work_dirs' / 'photos' / 'photos.py'
    assert config.read_text().startswith('"""Written by mmcluspro train')
    line = next(line for line in capsys.readouterr().out.splitlines() if 'mmcluspro cases' in line)
    words = shlex.split(line)[1:]
    assert words[-2] == '--config'
    with pytest.raises(SystemExit):
        main(words[:-2])
    assert '--config work_dirs/photos/photos.py' in capsys.readouterr().err
    main(words)
    assert (folder / 'cases.png').is_file()


@pytest.mark.slow
def test_from_predictions_over_corrections_to_a_better_model(tmp_path, monkeypatch, capsys):
    """The commands of docs/corrections.md, on drawings, with the truth as the corrector."""
    monkeypatch.chdir(tmp_path)
    ShapesCZSL().export('drawn')
    shutil.move('drawn/images', 'photos')
    folders = sorted(path for path in (tmp_path / 'photos').iterdir())
    for path in folders:  # of eight images of each pair two are new ones
        new = tmp_path / 'new_photos' / path.name
        new.mkdir(parents=True)
        for number, file in enumerate(sorted(path.iterdir())):
            if number >= 8:
                file.unlink()
            elif number >= 6:
                file.rename(new / file.name)
    brief = ['--weights', 'tiny_clip', '--no-report', '--cfg-options', 'train_cfg.max_epochs=1']
    main(['train', 'photos', *brief])
    _look_at_mistakes(tmp_path, capsys)
    best, = (tmp_path / 'work_dirs' / 'photos').glob('best_*.pth')
    main(['predict', str(best), 'new_photos', '--out', 'result.csv'])
    review('out', 'result.csv', '--root', 'new_photos', '--out', 'review.csv')
    with open('review.csv') as file:
        rows = list(csv.DictReader(file))
    wrong = 0
    for row in rows:
        truth = row['image'].split('/')[0].split('_')
        wrong += [row['attribute'], row['object']] != truth
        row['attribute'], row['object'] = truth
    assert wrong > 0
    with open('review.csv', 'w', newline='') as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    review('in', 'review.csv', '--root', 'new_photos', '--table', 'work_dirs/photos/table.csv',
           '--table-root', 'photos', '--out', 'more.csv')
    before, after = read_table('work_dirs/photos/table.csv'), read_table('more.csv')
    assert len(after) == len(before) + len(rows)
    assert sum(row.split == 'train' for row in after) == len(rows) + sum(
        row.split == 'train' for row in before)
    assert all((tmp_path / row.image).is_file() for row in after)
    capsys.readouterr()
    main(['train', 'more.csv', *brief])
    assert f'train      {sum(row.split == "train" for row in after)} images' in (
        capsys.readouterr().out)
    assert list((tmp_path / 'work_dirs' / 'more').glob('best_*.pth'))
