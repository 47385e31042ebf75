"""The report: numbers that were there, names that stay text, files that are checked."""
import base64
import io
import json
import os
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from mmcluspro import load
from mmcluspro.datasets import CompositionSpace
from mmcluspro.engine.hooks.console import next_commands
from mmcluspro.errors import FileError
from mmcluspro.evaluation import Outcomes, class_tables
from mmcluspro.utils.plain_files import with_checksum
from mmcluspro.visualization.confusion import confusions
from mmcluspro.visualization.phase import PhaseAnswers, answer_phase, picture
from mmcluspro.visualization.prototypes import (
    PrototypeImages,
    ShownExample,
    ShownPrototype,
    add_examples,
    as_jpeg,
    bank_digest,
    prototype_images,
    read_prototype_images,
    write_prototype_images,
)
from mmcluspro.visualization.report_page import (
    Report,
    RunFiles,
    ShownCase,
    draw_chart,
    page,
    read_run,
)

EVIL = '<script>alert(1)</script>"&\''
IMAGE = Image.fromarray(np.full((60, 40, 3), 200, np.uint8))


class Tags(HTMLParser):
    """Counts tags and their addresses, and that every tag is closed."""

    def __init__(self, text):
        super().__init__()
        self.names, self.addresses, self.open, self.words = [], [], [], []
        self.feed(text)

    def handle_starttag(self, name, attributes):
        self.names.append(name)
        self.addresses += [value for key, value in attributes if key in ('src', 'href')]
        if name not in ('meta', 'img', 'path', 'use', 'rect'):
            self.open.append(name)

    def handle_endtag(self, name):
        if name not in ('path', 'use', 'rect'):
            assert self.open.pop() == name

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture
def evil_report():
    """A report in which every name is an attack."""
    space = CompositionSpace([EVIL, 'dry'], [EVIL, 'dog'], [[0, 0], [1, 1]], [True, False])
    outcomes = Outcomes(np.array([0, 1, 1]), np.array([1, 1, 0]), np.array([0.5, 0.9, 0.7]),
                        np.array([True, False, False]))
    answers = PhaseAnswers(space, np.arange(3), outcomes)
    shown = PrototypeImages({}, dict(attr={0: ShownPrototype(0.25, False, [0])}),
                            [as_jpeg(IMAGE, 20)])
    run = RunFiles(losses={f'{EVIL}_loss': [(1, 2.0), (2, 1.0)]},
                   metrics={'predict/seen': 12.34, f'predict/coverage_at_{EVIL}': 50.0})
    return Report(EVIL, EVIL, [(EVIL, EVIL)], [EVIL], run, class_tables(outcomes, space),
                  confusions(answers), [ShownCase(as_jpeg(IMAGE, 20), (EVIL, EVIL), ('dry', EVIL),
                                                  0.7, False)],
                  shown, space, dict(attr=[0, 1, 2]))


def test_names_stay_text_and_nothing_is_fetched(evil_report):
    text = page(evil_report)
    tags = Tags(text)
    assert tags.open == [] and 'script' not in tags.names and 'iframe' not in tags.names
    assert EVIL not in text and '&lt;script&gt;alert(1)&lt;/script&gt;' in text
    fetched = [address for address in tags.addresses if not address.startswith('#')]
    assert len(fetched) == 2
    assert all(address.startswith('data:image/jpeg;base64,') for address in fetched)
    assert "default-src 'none'; img-src data:" in text
    assert not re.search(r'(?:https?:)?//[a-z]', text)


def test_the_numbers_of_the_run_stand_there(evil_report):
    words = ' '.join(Tags(page(evil_report)).words)
    assert '12.3' in words and '25%' in words and '70%' in words
    # One of two images of the unseen pair is right, none of the seen one.
    rows = re.findall(r'(seen|unseen) (\d) (\d+\.\d)', re.sub(r'\s+', ' ', words))
    assert ('seen', '1', '0.0') in rows and ('unseen', '2', '50.0') in rows


def test_the_commands_to_paste_quote_the_name():
    words = ' '.join(Tags(page(Report('run', next_commands('a;touch x.pth')))).words)
    assert "mmcluspro demo 'a;touch x.pth'" in words


def test_an_empty_report_is_a_page():
    assert Tags(page(Report('run'))).open == []


def test_charts_show_their_lines_and_marks_in_the_colours_of_the_page():
    lines = {f'line {number}': [(0, number), (500, 90)] for number in range(9)}
    chart = draw_chart(lines, 'epoch', 'percent', 'A chart', {'line 0': (250, 45)})
    assert chart.names == list(lines)[:7]
    for number in range(7):  # a mark is drawn twice: its shape, and where it stands
        assert chart.svg.count(f'stroke: var(--c{number})') >= 1 + (number == 0)
    assert 'epoch' in chart.svg and 'percent' in chart.svg and '--c7' not in chart.svg
    assert '<style' not in chart.svg and '#0' not in re.sub(r'#[a-z]\w{6,}', '', chart.svg)


def test_a_chart_of_validations_needs_two_epochs():
    one, two = (page(Report('x', run=RunFiles(validations={'czsl/hm': [
        (epoch, 20.0) for epoch in range(count)]}))) for count in (1, 2))
    assert 'id="curves"' not in one and 'validation, percent' in two


def test_tiles_name_what_predict_delivers_and_what_papers_report():
    text = page(Report('x', run=RunFiles(metrics={'predict/hm': 53.24, 'czsl/auc': 49.04})))
    first, second = (text.index(words) for words in ('What predict delivers',
                                                     'What papers report'))
    assert first < text.index('53.2') < second < text.index('49.0')


def test_a_work_folder_is_read_and_a_killed_run_does_not_matter(tmp_path):
    for name, lines in (('1', ['{"loss": 3.0, "attr_loss": 1.0, "step": 1}',
                               '{"loss": 2.5, "step": 2}', '{"loss": ']),
                        ('2', ['{"loss": 2.0, "step": 2}', '{"czsl/hm": 40.0, "step": 1}',
                               '{"loss": NaN, "step": 3}', '[]', '[' * 100_000,
                               '{"loss": 1' + '0' * 400 + ', "step": 4}'])):
        folder = tmp_path / name / 'vis_data'
        folder.mkdir(parents=True)
        (folder / 'scalars.json').write_text('\n'.join(lines))
    (tmp_path / 'test_metrics.json').write_text('{"predict/seen": 57.5, "x": "y", "z": 1'
                                                + '0' * 400 + '}')
    run = read_run(tmp_path)
    assert run.losses == {'loss': [(1, 3.0), (2, 2.0)], 'attr_loss': [(1, 1.0)]}
    assert run.validations == {'czsl/hm': [(1, 40.0)]}
    assert run.metrics == {'predict/seen': 57.5} and run.curves == {}


@pytest.fixture(scope='module')
def parts(cluspro):
    model = load(cluspro)
    return model, model.dataset('train'), model.dataset('test')


def test_the_nearest_training_images_are_those_of_brute_force(parts):
    trained, train, _ = parts
    model = trained.network
    found = prototype_images(trained, train, count=2, max_images=40)
    assert found.fits(model.head.prototypes)
    batch = [train[i] for i in np.linspace(0, len(train) - 1, 40).round().astype(int)]
    data = model.data_preprocessor(dict(inputs=[item['inputs'] for item in batch]))
    feature = model.extract_feat(data['inputs']).primitives['attr'].detach()
    labels = np.array([int(item['data_samples'].attr_label) for item in batch])
    bank = model.head.bank('attr')
    for row in (0, 7, 20):
        owner = int(bank.owner[row])
        mine = np.flatnonzero(labels == owner)
        cosine = feature[mine] @ bank.prototypes[row] / feature[mine].norm(dim=1)
        best = mine[cosine.argsort(descending=True)[:2].numpy()]
        places = np.linspace(0, len(train) - 1, 40).round().astype(int)[best]
        assert [found.pictures[i] for i in found.prototypes['attr'][row].pictures] == [
            as_jpeg(Image.fromarray(picture(train, int(place))), 72) for place in places]


def test_examples_begin_with_right_answers(parts):
    model, _, test = parts
    answers = answer_phase(model, test, range(0, len(test), 16))
    found = PrototypeImages()
    add_examples(found, test, answers)
    right = {answers.pair_names(row) for row in answers.outcomes.target[answers.outcomes.right]}
    assert len(found.examples) == 6 and len(found.pictures) == 6
    assert len(right) < 2 or all((item.attribute, item.object) in right
                                 for item in found.examples[:2])


def small_file():
    return PrototypeImages(dict(attr='abc'), dict(attr={3: ShownPrototype(0.5, True, [0])}),
                           [as_jpeg(IMAGE, 20), as_jpeg(IMAGE, 30, square=False)],
                           [ShownExample(1, 'wet', 'cat', True)])


def test_the_file_is_read_as_it_was_written(tmp_path):
    path = write_prototype_images(small_file(), tmp_path / 'p.json')
    assert read_prototype_images(path) == small_file()
    sizes = [Image.open(io.BytesIO(item)).size for item in small_file().pictures]
    assert sizes == [(20, 20), (20, 30)]


def picture_of(kind, size):
    file = io.BytesIO()
    Image.new('RGB', size).save(file, kind)
    return base64.b64encode(file.getvalue()).decode()


@pytest.mark.parametrize('change', [
    dict(pictures=['"><script>alert(1)</script>']), dict(pictures=[picture_of('PNG', (9, 9))]),
    dict(pictures=[picture_of('JPEG', (900, 9))]), dict(pictures=['A' * 300_000]),
    dict(pictures='x'), dict(pictures=[]), dict(pictures=[base64.b64encode(b'<svg/>').decode()]),
    dict(prototypes=dict(attr=[[0, 0.5, True, [-1]]])), dict(prototypes=[1]),
    dict(prototypes=dict(attr=[[0, 0.5, True, [0] * 17]])),  # a page would hold each of them
    dict(prototypes=dict(attr=[[0, float('nan'), True, [0]]])),
    dict(prototypes=dict(attr=[[0, 2, True, [0]]])),
    dict(examples=[[0, 'a']]), dict(examples=[[True, 'a', 'b', True]] * 101), dict(other=1),
    dict(digests=3), dict(digests=dict(attr=[])), dict(digests=dict(attr='x' * 1001)),
    dict(prototypes=dict(attr=[[float('inf'), 0.5, True, [0]]])),
    dict(prototypes=dict(attr=[[10**300, 0.5, True, [0]]])),
    dict(prototypes=dict(attr=[['0', 0.5, True, [0]]])),
    dict(prototypes={'<script>': [[0, 0.5, True, [0]]]}),
    dict(examples=[[0, 'x' * 1001, 'b', True]]), dict(examples=[[0, 3, 'b', True]])])
def test_a_file_of_a_stranger_is_checked(change, tmp_path):
    path = write_prototype_images(small_file(), tmp_path / 'p.json')
    content = {key: value for key, value in json.loads(path.read_text()).items()
               if key != 'checksum'}
    path.write_text(json.dumps(with_checksum({**content, **change})))
    with pytest.raises(FileError, match=r'p\.json'):
        read_prototype_images(path)


def test_a_file_of_another_model_does_not_fit(parts):
    banks = parts[0].network.head.prototypes
    found = small_file()
    assert not found.fits(banks) and not PrototypeImages().fits(banks)
    found.digests['attr'] = bank_digest(banks['attr'])
    assert found.fits(banks) and not found.fits({})


def test_the_log_of_a_stranger_takes_no_time_and_no_memory(tmp_path):
    path = tmp_path / '1' / 'vis_data' / 'scalars.json'
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(FileError, match='not a plain file'):
        read_run(tmp_path)
    path.unlink()
    with path.open('wb') as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(FileError, match='1,099,511,627,776 bytes'):
        read_run(tmp_path)


def test_numbers_that_no_axis_can_hold_are_left_out(tmp_path):
    path = tmp_path / '1' / 'vis_data' / 'scalars.json'
    path.parent.mkdir(parents=True)
    path.write_text('{"step": 1, "loss": 2.0}\n{"step": 1e308, "loss": 1.0}\n'
                    '{"step": 2, "loss": -1e308}\n{"step": 3, "loss": 1e99}\n')
    run = read_run(tmp_path)
    assert run.losses == dict(loss=[(1, 2.0), (3, 1e99)])
    assert '<svg' in page(Report('x', run=run))
