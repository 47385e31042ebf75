"""Answers of the page against the inferencer's, and against hand-made numbers."""
import pytest
import torch
from PIL import Image

from mmcluspro.artefact import trained as inferencer_module
from mmcluspro.demo import logic
from mmcluspro.demo.examples import choose_pairs, draw_examples, find_examples
from mmcluspro.demo.logic import STRANGE, knows_drawings_only, nearest_prototypes
from mmcluspro.demo.render import details_html, message, pairs_html, table_html
from mmcluspro.visualization.prototypes import (
    PrototypeImages,
    ShownExample,
    ShownPrototype,
    as_jpeg,
    bank_digest,
)

PAIRS = [('red', 'star'), ('blue', 'star'), ('red', 'moon'), ('dotted', 'tree')]


@pytest.mark.parametrize('model', ['zero_shot', 'cluspro'])
def test_the_page_says_what_the_inferencer_says(model, examples, request):
    classifier = request.getfixturevalue(model)
    path = examples[0].path
    answer = classifier.answer(classifier.read(path), PAIRS)
    got = classifier.ranking(answer, classifier.calibration.seen_bias)

    expected, = classifier.model.predict(path, pairs=PAIRS, top_k=4)

    assert [(p.attribute, p.object, p.seen) for p in got.pairs] == [
        (p.attribute, p.object, p.seen) for p in expected.pairs]
    for mine, theirs in ((got.pairs, expected.pairs), (got.attributes, expected.attributes),
                         (got.objects, expected.objects)):
        score = 'probability' if mine is got.pairs else 'score'
        torch.testing.assert_close(torch.tensor([getattr(item, score) for item in mine]),
                                   torch.tensor([getattr(item, score) for item in theirs]))


def test_without_a_list_the_pairs_are_those_of_the_data(zero_shot):
    pairs = zero_shot.known_pairs()
    assert len(pairs) == len(zero_shot.model.space.pairs) == len(set(pairs))


def test_the_bias_moves_odds_between_seen_and_unseen_and_nowhere_else(cluspro, examples):
    answer = cluspro.answer(cluspro.read(examples[0].path), cluspro.known_pairs()[:8])
    seen = answer.candidates.seen
    assert 0 < int(seen.sum()) < len(seen)

    def chances(bias):
        return {(p.attribute, p.object): p for p in cluspro.ranking(answer, bias).pairs}

    low, high = chances(-1.0), chances(2.0)
    shift = {pair: torch.tensor(high[pair].probability / low[pair].probability).log()
             for pair in low}
    old = [value for pair, value in shift.items() if low[pair].seen]
    new = [value for pair, value in shift.items() if not low[pair].seen]
    gap = 3.0 / cluspro.calibration.temperature
    torch.testing.assert_close(torch.stack(new) - old[0], torch.full((len(new), ), gap),
                               atol=1e-3, rtol=0)
    torch.testing.assert_close(torch.stack(old), old[0].expand(len(old)), atol=1e-3, rtol=0)


def test_new_words_are_answered_and_said(zero_shot, examples):
    image = zero_shot.read(examples[0].path)
    answer = zero_shot.answer(image, [('redd', 'star'), ('red', 'teapot')])

    assert 'attribute “redd” (did you mean “red”?)' in answer.notes[0]
    assert 'object “teapot”' in answer.notes[1]
    assert not answer.candidates.seen.any()


def test_words_of_earlier_visitors_are_forgotten(zero_shot, examples, monkeypatch):
    text = zero_shot.model.network.head.text
    image = zero_shot.read(examples[0].path)
    before = zero_shot.answer(image, PAIRS).scores[0]
    monkeypatch.setattr(inferencer_module, 'MAX_ADDED', 2)
    for word in ('one', 'two', 'three', 'four', 'five'):
        zero_shot.answer(image, [(word, 'star')])
        assert len(text.attributes) <= len(zero_shot.model.space.attributes) + 4
    torch.testing.assert_close(zero_shot.answer(image, PAIRS).scores[0], before)


def test_long_words_of_earlier_visitors_leave_room_for_others(zero_shot, examples):
    prompt = zero_shot.model.network.head.text.prompt
    known = prompt.attributes.own_lengths + prompt.objects.own_lengths
    room = prompt.max_tokens - max(map(len, prompt.contexts.values())) - max(known)
    long = ' '.join('x' * room)  # one token a letter
    for pair in [(long, 'star'), ('red', long)]:
        assert zero_shot.answer(zero_shot.read(examples[0].path), [pair]).scores[0].shape == (1, 1)
    with pytest.raises(ValueError, match='has room for'):
        zero_shot.answer(zero_shot.read(examples[0].path), [(long, long)])
    assert zero_shot.answer(zero_shot.read(examples[0].path), PAIRS).scores[0].shape == (1, 4)


@pytest.mark.parametrize('content', [b'just some words\n', b'', b'\x89PNG\r\n\x1a\nbroken'])
def test_a_file_that_is_no_picture_is_refused_in_words(zero_shot, tmp_path, content):
    path = tmp_path / 'note.png'
    path.write_bytes(content)
    with pytest.raises(ValueError, match='cannot be read as a picture: .*Choose a picture'):
        zero_shot.answer(zero_shot.read(str(path)), PAIRS)


@pytest.mark.parametrize('kind', ['L', 'RGBA', 'P', '1'])
def test_pictures_of_all_modes_and_sizes_are_answered(zero_shot, tmp_path, kind):
    path = tmp_path / 'picture.png'
    Image.new('RGB', (301, 17), 'red').convert(kind).save(path)
    assert zero_shot.answer(zero_shot.read(str(path)), PAIRS).scores[0].shape == (1, 4)


def test_nearest_prototypes_of_a_case_made_by_hand():
    prototypes = torch.tensor([[1.0, 0], [0, 1], [-1, 0], [0, -1], [3, 4]])
    got = nearest_prototypes(torch.tensor([2.0, 0]), prototypes, torch.tensor([0, 2, 2, 5]),
                             ['red', 'never', 'blue'], count=3)
    assert [(item.name, item.place, item.size) for item in got] == [
        ('red', 1, 2), ('blue', 3, 3), ('red', 2, 2)]
    assert [item.cosine for item in got] == pytest.approx([1.0, 0.6, 0.0])


def test_prototypes_of_a_checkpoint_are_searched_with_the_feature_of_their_branch(
        cluspro, examples):
    path = examples[0].path
    found = cluspro.answer(cluspro.read(path), PAIRS).prototypes
    image, _ = cluspro.model.prepare(logic.Item(path, path))
    feats = cluspro.model.features([image])
    for branch, feat in feats.primitives.items():
        bank = cluspro.model.network.head.bank(branch)
        cosine = torch.cosine_similarity(feat, bank.prototypes)
        assert found[branch][0].cosine == pytest.approx(float(cosine.max()), abs=1e-5)
        row = int(cosine.argmax())
        owner = int(torch.searchsorted(bank.offsets, row, right=True)) - 1
        names = getattr(cluspro.model.space, dict(attr='attributes', obj='objects')[branch])
        assert found[branch][0].name == names[owner]


def test_a_model_without_a_bank_has_no_prototypes(zero_shot, examples):
    assert zero_shot.answer(zero_shot.read(examples[0].path), PAIRS).prototypes == {}


@pytest.mark.parametrize('count', [1, 4, 6])
def test_examples_show_unseen_and_seen_pairs_in_turn(zero_shot, tmp_path, count):
    examples = draw_examples(zero_shot.model.space, tmp_path, count)
    assert [item.seen for item in examples] == [i % 2 == 1 for i in range(count)]
    names = [name for item in examples for name in (item.attribute, item.object)]
    assert len(set(names)) == 2 * count
    assert all(Image.open(item.path).size == (240, 240) for item in examples)


def test_a_space_that_cannot_be_drawn_has_no_examples(zero_shot):
    space = zero_shot.model.space
    other = type(space)(['ripe'] + list(space.attributes[1:]), ['pear'], [(0, 0)], [True])
    assert choose_pairs(other, 6) == []


def test_names_cannot_become_html(zero_shot, examples):
    answer = zero_shot.answer(zero_shot.read(examples[0].path), [('<b>x</b>', 'star')])
    ranking = zero_shot.ranking(answer, 0.0)
    page = pairs_html(answer, ranking) + details_html(answer, ranking, 'none <i>here</i>')
    assert '<b>' not in page and '&lt;b&gt;x&lt;/b&gt; star' in page
    assert '<i>' not in page
    assert '<script>' not in message('<script>')


def test_the_page_says_seen_or_unseen_of_each_pair(zero_shot, examples):
    answer = zero_shot.answer(zero_shot.read(examples[0].path), PAIRS)
    ranking = zero_shot.ranking(answer, 0.0)
    page = pairs_html(answer, ranking)
    assert page.count('>seen<') == sum(pair.seen for pair in ranking.pairs)
    assert page.count('>unseen<') == sum(not pair.seen for pair in ranking.pairs)
    assert 'best of 4 pairs' in page


def test_the_page_says_which_prototype_or_that_there_are_none(zero_shot, cluspro, examples):
    answer = cluspro.answer(cluspro.read(examples[0].path), PAIRS)
    page = details_html(answer, cluspro.ranking(answer, 0.0), 'none here')
    near = answer.prototypes['attr'][0]
    assert f'{near.name}, {near.place} of {near.size}<' in page and f'{near.cosine:.2f}' in page
    assert 'none here' not in page
    other = zero_shot.answer(zero_shot.read(examples[0].path), PAIRS)
    assert 'none here' in details_html(other, zero_shot.ranking(other, 0.0), 'none here')


def test_the_page_opens_with_an_example_that_is_right(zero_shot, tmp_path):
    space = zero_shot.model.space
    drawn = draw_examples(space, tmp_path)
    third = (drawn[2].attribute, drawn[2].object)
    found = find_examples(space, None, tmp_path, lambda path: third)
    assert (found[0].attribute, found[0].object) == third
    assert sorted(found) == sorted(drawn)
    # None of the first drawings is right: another drawing of a pair takes its place.
    later = find_examples(space, None, tmp_path,
                          lambda path: third if '_2.png' in path else ('', ''))
    assert later[0].path.endswith('_2.png') and len(later) == len(drawn)
    assert find_examples(space, None, tmp_path, lambda path: ('', '')) == drawn


def test_stored_examples_stand_in_where_nothing_can_be_drawn(zero_shot, tmp_path):
    space = zero_shot.model.space
    other = type(space)(['ripe'], ['pear'], [(0, 0)], [True])
    images = PrototypeImages(pictures=[as_jpeg(Image.new('RGB', (90, 60)), 64, square=False)],
                             examples=[ShownExample(0, 'ripe', 'pear', True)])
    found = find_examples(other, images, tmp_path, lambda path: ('', ''))
    assert [item[1:] for item in found] == [('ripe', 'pear', True)]
    with Image.open(found[0].path) as image:
        assert image.size == (64, 43)
    assert find_examples(other, None, tmp_path, lambda path: ('', '')) == []


def test_pictures_of_prototypes_are_shown_for_their_own_model_only(cluspro, examples):
    banks = cluspro.model.network.head.prototypes
    answer = cluspro.answer(cluspro.read(examples[0].path), PAIRS)
    near = answer.prototypes['attr'][0]
    images = PrototypeImages({name: bank_digest(bank) for name, bank in banks.items()},
                             dict(attr={near.row: ShownPrototype(0.5, False, [0])}),
                             [as_jpeg(Image.new('RGB', (9, 9), 'red'), 9)])
    ranking = cluspro.ranking(answer, 0.0)
    page = details_html(answer, ranking, '', logic.Classifier(cluspro.model, images).images)
    assert page.count('<img') == 1 and images.address(0) in page
    assert near.name in page.split('<img')[0]
    images.digests['attr'] = 'another'
    assert logic.Classifier(cluspro.model, images).images is None


def test_many_files_are_answered_as_the_inferencer_does(cluspro, examples, tmp_path):
    bad = tmp_path / 'bad.png'
    bad.write_text('words')
    items = [logic.Item('first', examples[0].path), logic.Item('second', str(bad))]
    answers = cluspro.predictions(items, PAIRS, top_k=2)
    first, second = (answer.prediction for answer in answers)
    expected, = cluspro.model.predict(examples[0].path, pairs=PAIRS, top_k=2)
    assert first.image == 'first' and [p.object for p in first.pairs] == [
        p.object for p in expected.pairs]
    assert first.best.probability == pytest.approx(expected.best.probability, rel=1e-5)
    evil = logic.FileAnswer(type(second)('<b>', error='no'), [])
    assert second.error and '&lt;' in table_html([evil])


def test_only_pictures_unlike_the_drawings_get_a_remark(zero_shot, examples, tmp_path):
    white = tmp_path / 'white.png'
    Image.new('RGB', (60, 80), 'white').save(white)

    def remarks(path):
        return [note for note in zero_shot.answer(zero_shot.read(str(path)), PAIRS).notes
                if note.startswith(STRANGE)]

    assert len(remarks(white)) == 1 and 'only drawings' in remarks(white)[0]
    assert not any(remarks(item.path) for item in examples)
    item = logic.Item('white', str(white))
    assert zero_shot.predictions([item])[0].notes == remarks(white)
    assert 'unlike the training pictures' in table_html(zero_shot.predictions([item]))
    assert not knows_drawings_only(dict(model=dict(backbone=dict(pretrained='openai'))))
    assert not knows_drawings_only({})
