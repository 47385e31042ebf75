"""The inferencer against the model itself, and every form an image comes in."""
import json
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from mmcluspro import load
from mmcluspro.artefact.images import list_images
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.evaluation import head_feasibility
from mmcluspro.models import Candidates


def reference(model, pictures, space, temperature, bias, keep=None):
    """Probabilities (B, P) by the formula, from the scores of the model's own head.

    As in validation, pairs that are not kept take part in the softmax of p(c), but are no answer.
    """
    inputs = [torch.from_numpy(picture.transpose(2, 0, 1).copy()) for picture in pictures]
    with torch.no_grad():
        feats = model.extract_feat(model.data_preprocessor(dict(inputs=inputs))['inputs'])
        scores = model.head.score(feats, Candidates.from_space(space)).pair.double().numpy()
    weights = scores**(1 / temperature) * np.exp(-bias / temperature * space.seen.numpy())
    if keep is not None:
        weights = weights * keep.numpy()
    return weights / weights.sum(1, keepdims=True)


def check(answers, expected, space):
    assert len(answers) == len(expected)
    for answer, row in zip(answers, expected):
        order = np.argsort(-row)[:len(answer.pairs)]
        np.testing.assert_allclose([p.probability for p in answer.pairs], row[order], rtol=1e-4)
        for pair, place in zip(answer.pairs, order):
            if np.isclose(np.delete(row, place), row[place], rtol=1e-4).any():
                continue  # a tie by rounding
            assert space.index(pair.attribute, pair.object) == place
            assert pair.seen == bool(space.seen[place])


def same(one, other):
    """Whether two answers agree but for the rounding of batches of other sizes."""
    left, right = ({(p.attribute, p.object): p.probability for p in answer.pairs}
                   for answer in (one, other))
    return left == pytest.approx(right, rel=1e-4)


def test_closed_world_equals_the_formula(inferencer, trained, pictures):
    space = ShapesCZSL.make_space('all')
    expected = reference(trained[1], pictures, space, 0.8, 0.6)
    check(inferencer.predict(pictures, top_k=4, batch_size=5), expected, space)


def test_open_world_leaves_out_what_is_not_feasible(trained, pictures):
    model, space = trained[1], ShapesCZSL.make_space('all').open_world()
    rho = head_feasibility(model.head, space)[space.pairs[:, 0], space.pairs[:, 1]]
    threshold = float(rho[~space.seen].median())
    inferencer = load(trained[0], device='cpu')
    inferencer.chosen = dict(
        inferencer.chosen, open=inferencer.chosen_for('open')._replace(threshold=threshold))
    keep = space.seen | (rho > threshold)
    assert 0 < (~keep).sum() < len(keep)
    expected = reference(model, pictures, space, 0.9, 0.4, keep)
    check(inferencer.predict(pictures, world='open', top_k=3), expected, space)
    every, = inferencer.predict(pictures[0], world='open', top_k=1000)
    assert len(every.pairs) == int(keep.sum())


def test_attribute_and_object_scores_are_those_of_their_paths(inferencer, trained, pictures):
    model = trained[1]
    inputs = [torch.from_numpy(picture.transpose(2, 0, 1).copy()) for picture in pictures]
    with torch.no_grad():
        feats = model.extract_feat(model.data_preprocessor(dict(inputs=inputs))['inputs'])
        attr, obj, _ = model.head.logits(feats, model.head.train_candidates)
    for row, answer in enumerate(inferencer.predict(pictures, top_k=3)):
        for table, names, found in ((attr, model.space.attributes, answer.attributes),
                                    (obj, model.space.objects, answer.objects)):
            chance = dict(zip(names, table.softmax(1)[row].tolist()))
            assert [item.name for item in found] == sorted(chance, key=chance.get)[:-4:-1]
            assert [item.score for item in found] == pytest.approx(
                [chance[item.name] for item in found], rel=1e-4)
        best = answer.best
        assert best.attribute_score == pytest.approx(
            attr.softmax(1)[row, model.space.attributes.index(best.attribute)].item(), rel=1e-4)


def test_scores_are_the_probabilities_of_pairs_among_all(inferencer, trained, pictures):
    space = ShapesCZSL.make_space('all')
    expected = reference(trained[1], pictures, space, 0.8, 0.6)
    np.testing.assert_allclose(inferencer.scores(pictures, batch_size=5), expected, rtol=1e-4)
    names = [(space.attributes[a], space.objects[o]) for a, o in space.pairs.tolist()]
    rows = [7, 0, 30]
    got = inferencer.scores(pictures, [names[row] for row in rows])
    np.testing.assert_allclose(got, expected[:, rows], rtol=1e-4)


def test_a_new_pair_is_scored_beside_the_known_ones(inferencer, pictures):
    space = inferencer.space
    known = [(space.attributes[a], space.objects[o]) for a, o in space.pairs.tolist()]
    with pytest.warns(UserWarning, match="object 'teapot'"):
        got = inferencer.scores(pictures[:3], [('Red', 'teapot'), known[3]], workers=0)
    answers = inferencer.predict(pictures[:3], [*known, ('red', 'teapot')], top_k=1000)
    for row, answer in zip(got.tolist(), answers):
        chance = {(pair.attribute, pair.object): pair.probability for pair in answer.pairs}
        assert row == pytest.approx([chance['red', 'teapot'], chance[known[3]]], rel=1e-4)


def test_scores_need_pictures_that_can_be_read(inferencer, tmp_path):
    (tmp_path / 'x.png').write_text('no picture')
    with pytest.raises(ValueError, match=r'x\.png cannot be read: not an image'):
        inferencer.scores(tmp_path)


def test_probabilities_of_all_pairs_sum_to_one(inferencer, pictures):
    answer, = inferencer.predict(pictures[0], top_k=1000)
    assert len(answer.pairs) == len(inferencer.space)
    assert sum(pair.probability for pair in answer.pairs) == pytest.approx(1, abs=1e-5)


def test_listed_pairs_in_any_order_give_the_same(inferencer, pictures):
    """Four pairs of two attributes and two objects take the shortcut for all pairs."""
    listed = [('red', 'star'), ('blue', 'circle'), ('blue', 'star'), ('red', 'circle')]
    one, = inferencer.predict(pictures[0], pairs=listed)
    other, = inferencer.predict(pictures[0], pairs=listed[::-1])
    crossed, = inferencer.predict(
        pictures[0], attributes=['blue', 'red'], objects=['star', 'circle'])
    assert one == other == crossed
    assert {(pair.attribute, pair.object) for pair in one.pairs} == set(listed)
    assert sum(pair.probability for pair in one.pairs) == pytest.approx(1)


def test_pairs_may_stand_in_a_file(inferencer, pictures, tmp_path):
    (tmp_path / 'pairs.txt').write_text('# mine\nred star\nblue, circle\n')
    listed = inferencer.predict(pictures[:1], pairs=[('red', 'star'), ('blue', 'circle')])
    for path in (tmp_path / 'pairs.txt', str(tmp_path / 'pairs.txt')):
        assert inferencer.predict(pictures[:1], pairs=path) == listed


def test_new_words_come_in_by_their_tokens_and_leave_the_known_alone(inferencer, pictures):
    before = inferencer.predict(pictures[:2])
    with pytest.warns(UserWarning, match="data: attribute 'shiny'"):
        answer, = inferencer.predict(pictures[0], pairs=[('shiny', 'star'), ('red', 'star')])
    text = inferencer.network.head.text
    table = text.prompt.attributes
    expected = text.tower.embed(['shiny'])[0].mean(0)
    torch.testing.assert_close(table()[text.attributes.index('shiny')], expected)
    assert [pair.seen for pair in sorted(answer.pairs, key=lambda p: p.attribute)] == [True, False]
    assert inferencer.predict(pictures[:2]) == before
    with warnings.catch_warnings():
        warnings.simplefilter('error')  # known by now
        inferencer.predict(pictures[0], pairs=[('shiny', 'star'), ('red', 'star')])


@pytest.mark.parametrize('options, reason', [
    (dict(pairs=[]), 'pairs is empty'),
    (dict(pairs=[('red', 'star'), ('red', 'star')]), r"more than once: \[\('red', 'star'\)\]"),
    (dict(pairs=[('red', 'star'), ('Red', 'star')]), 'more than once'),
    (dict(pairs=['red star']), r'pairs\[0\] must be two names'),
    (dict(pairs=[('red', ' ')]), r'pairs\[0\] must be two names'),
    (dict(pairs=[('red', 'star')], world='open'), "world='open' means all pairs"),
    (dict(pairs=[('red', 'star')], objects=['star']), 'not both'),
    (dict(attributes=[]), 'attributes must be a list of at least one name'),
    (dict(attributes='red'), 'attributes must be a list'),
    (dict(world='half'), "'closed' or 'open', got 'half'"),
    (dict(top_k=0), 'top_k must be an integer of at least 1, got 0'),
    (dict(batch_size=0), 'batch_size must be'),
    (dict(threshold=1.5), 'threshold is a probability between 0 and 1, got 1.5'),
])
def test_wrong_arguments_are_said_before_anything_runs(inferencer, pictures, options, reason):
    with pytest.raises(ValueError, match=reason):
        inferencer.stream(pictures, **options)


def test_a_spelling_slip_gets_a_hint(inferencer, pictures):
    with pytest.warns(UserWarning, match=r"'strippd' \(did you mean 'striped'\?\)"):
        inferencer.predict(pictures[0], pairs=[('strippd', 'star')])


def test_it_abstains_below_the_threshold(inferencer, pictures):
    best = [answer.best.probability for answer in inferencer.predict(pictures)]
    middle = float(np.median(best))
    answers = inferencer.predict(pictures, threshold=middle)
    assert [answer.abstained for answer in answers] == [value < middle for value in best]
    assert all(answer.pairs for answer in answers)


def test_every_form_of_a_picture_gives_the_same(inferencer, pictures, tmp_path):
    bgr = pictures[3]
    rgb = Image.fromarray(np.ascontiguousarray(bgr[..., ::-1]))
    rgb.save(tmp_path / 'plain.png')
    alpha = rgb.copy()
    alpha.putalpha(255)
    alpha.save(tmp_path / 'alpha.png')
    turned = rgb.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6  # stored turned: show it turned clockwise
    turned.save(tmp_path / 'turned.png', exif=exif)
    forms = [bgr, rgb, alpha, tmp_path / 'plain.png', str(tmp_path / 'alpha.png'),
             np.dstack([bgr, np.full(bgr.shape[:2], 255, np.uint8)])]
    first, *others = inferencer.predict(forms)
    for other in others:
        assert same(other, first)
    stored = Image.open(tmp_path / 'turned.png')
    assert same(inferencer.predict(stored)[0], first)
    rgb.convert('L').save(tmp_path / 'grey.png')
    grey = np.asarray(Image.open(tmp_path / 'grey.png'))
    from_file, from_pil, from_array, from_column = inferencer.predict(
        [tmp_path / 'grey.png', Image.fromarray(grey), grey, grey[..., None]])
    assert all(same(from_file, other) for other in (from_pil, from_array, from_column))
    rgb.quantize(16).save(tmp_path / 'palette.png')
    from_file, from_pil = inferencer.predict(
        [tmp_path / 'palette.png', Image.open(tmp_path / 'palette.png')])
    assert same(from_file, from_pil)


def test_jpeg_orientation_of_a_file_is_followed(inferencer, pictures, tmp_path):
    image = Image.fromarray(np.ascontiguousarray(pictures[3][..., ::-1]))
    exif = Image.Exif()
    exif[0x0112] = 3
    image.transpose(Image.Transpose.ROTATE_180).save(
        tmp_path / 'upside.jpg', exif=exif, quality=100, subsampling=0)
    image.save(tmp_path / 'upright.jpg', quality=100, subsampling=0)
    upside, upright = inferencer.predict(
        [tmp_path / 'upside.jpg', tmp_path / 'upright.jpg'], top_k=1)
    assert upside.best.probability == pytest.approx(upright.best.probability, abs=0.05)
    assert upside.best.attribute == upright.best.attribute


def test_other_sizes_are_resized(inferencer, pictures):
    large = Image.fromarray(np.ascontiguousarray(pictures[0][..., ::-1])).resize((144, 96))
    assert inferencer.predict(large)[0].error is None


def test_folders_patterns_and_lists_are_searched(inferencer, pictures, tmp_path):
    (tmp_path / 'deep').mkdir()
    for name in ('b.png', 'a.PNG', 'deep/c.jpg', 'deep/.hidden.png'):
        Image.fromarray(pictures[0]).save(tmp_path / name, format='PNG')
    (tmp_path / 'notes.txt').write_text('no image')
    names = [item.name for item in list_images(tmp_path)]
    assert names == [str(tmp_path / name) for name in ('a.PNG', 'b.png', 'deep/c.jpg')]
    assert [item.name for item in list_images(f'{tmp_path}/**/*.jpg')] == names[2:]
    assert [item.name for item in list_images([names[1], tmp_path])] == [
        names[1], names[0], names[2]]
    batch = np.stack(pictures[:3])
    assert [item.name for item in list_images(batch)] == ['image 0', 'image 1', 'image 2']


@pytest.mark.parametrize('images, kind, reason', [
    ('nowhere.jpg', FileNotFoundError, 'No image nowhere.jpg'),
    ('nothing*.jpg', FileNotFoundError, 'matches no file'),
    ([], ValueError, 'There are no images'),
    (3, ValueError, '3 is not an image'),
    ([None], ValueError, 'image 0 is a NoneType'),
    (np.zeros((4, 4, 3)), ValueError, 'array of float64'),
    (np.zeros((4, 4, 2), np.uint8), ValueError, r'shape \(4, 4, 2\)'),
    (np.zeros((0, 4, 3), np.uint8), ValueError, r'shape \(0, 4, 3\)'),
])
def test_what_is_no_image_is_said_at_once(inferencer, images, kind, reason):
    with pytest.raises(kind, match=reason):
        inferencer.predict(images)


def test_an_empty_folder_is_said(inferencer, tmp_path):
    with pytest.raises(ValueError, match='No image below'):
        inferencer.predict(tmp_path)


@pytest.mark.parametrize('workers', [0, 3])
def test_a_broken_file_does_not_end_the_run(inferencer, pictures, tmp_path, workers):
    for place in (0, 2):
        Image.fromarray(pictures[place]).save(tmp_path / f'{place}.png')
    (tmp_path / '1.png').write_bytes(b'\x89PNG but not really')
    (tmp_path / '3.jpg').write_bytes(b'')
    answers = inferencer.predict(tmp_path, batch_size=2, workers=workers)
    assert [answer.error for answer in answers] == [
        None, 'not an image, or damaged', None, 'the file is empty']
    assert answers[1].best is None and same(answers[0], inferencer.predict(tmp_path / '0.png')[0])


def test_answers_stream(inferencer, pictures):
    stream = inferencer.stream(pictures, batch_size=1)
    assert next(stream).image == 'image 0'
    assert next(stream).image == 'image 1'
    stream.close()


def test_a_result_goes_through_json(inferencer, pictures):
    answer, = inferencer.predict(pictures[0], top_k=2)
    again = json.loads(json.dumps(answer.to_dict()))
    assert again['pairs'][0]['probability'] == answer.best.probability
    assert set(again) == {'image', 'pairs', 'attributes', 'objects', 'abstained', 'error'}


@pytest.mark.parametrize('name', ['csp_shapes.py', 'clip_zeroshot_shapes.py'])
def test_a_head_of_one_path_sums_over_pairs(write, name, pictures, tmp_path):
    path, _ = write(tmp_path / 'one.pth', name)
    one = load(path, device='cpu')
    answer, = one.predict(pictures[0], top_k=1000)
    for item in answer.attributes:
        total = sum(p.probability for p in answer.pairs if p.attribute == item.name)
        assert item.score == pytest.approx(total, rel=1e-4)


def test_scores_that_are_logits_are_not_taken_for_probabilities(write, pictures, tmp_path):
    path, model = write(tmp_path / 'logits.pth', **{'model.head.fusion': 'logits'})
    answer, = load(path, device='cpu').predict(pictures[0], top_k=3)
    inputs = [torch.from_numpy(pictures[0].transpose(2, 0, 1).copy())]
    with torch.no_grad():
        feats = model.extract_feat(model.data_preprocessor(dict(inputs=inputs))['inputs'])
        scores = model.head.score(feats, model.head.known_candidates).pair
    seen = model.head.known_candidates.seen
    expected = ((scores - 0.6 * seen) / 0.8).softmax(1).topk(3).values[0]
    assert [pair.probability for pair in answer.pairs] == pytest.approx(expected.tolist(), rel=1e-3)


def test_without_calibration_there_is_a_warning(write, pictures, tmp_path):
    path, model = write(tmp_path / 'raw.pth', calibration={})
    raw = load(path, device='cpu')
    with pytest.warns(UserWarning, match='holds no calibration for the closed world'):
        answers = raw.predict(pictures)
    space = ShapesCZSL.make_space('all')
    check(answers, reference(model, pictures, space, 1.0, 0.0), space)


def test_new_words_are_forgotten_and_running_streams_keep_theirs(trained, pictures, monkeypatch):
    """Memory stays bounded over any number of calls, and no answer changes."""
    from mmcluspro.artefact import trained as module
    monkeypatch.setattr(module, 'MAX_ADDED', 4)
    one, fresh = (load(trained[0], device='cpu') for _ in range(2))
    pairs = [('red', 'zebra'), ('fluffy', 'star'), ('red', 'star'), ('soft', 'apple'),
             ('fluffy', 'apple')]
    expected = fresh.predict(pictures[:6], pairs, batch_size=2, workers=0)
    stream = one.stream(pictures[:6], pairs, batch_size=2, workers=0)
    got = [next(stream)]
    sizes = []
    for number in range(12):  # other words in between, in another order
        other = [(f'word{number}', 'apple'), ('soft', f'thing{number}'), ('red', 'zebra')]
        one.predict(pictures[0], other, workers=0)
        sizes.append(len(one.network.head.text.attributes) + len(one.network.head.text.objects))
    got += list(stream)
    assert max(sizes) <= 24 + 4 + 6 and len(set(sizes[4:])) < 8
    assert [answer.image for answer in got] == [answer.image for answer in expected]
    for mine, theirs in zip(got, expected):
        assert [(p.attribute, p.object) for p in mine.pairs] == [
            (p.attribute, p.object) for p in theirs.pairs]
        assert [p.probability for p in mine.pairs] == pytest.approx(
            [p.probability for p in theirs.pairs], abs=1e-6)


@pytest.mark.parametrize('size, words', [
    ((30_000, 30_000), '900,000,000 pixels, more than 100,000,000'),
    ((10_000, 10_001), '10000 x 10001 pixels'), ((60_000, 60_000), 'pixels')])
def test_a_decompression_bomb_is_refused_before_it_is_decoded(inferencer, png_bomb, size, words):
    path = png_bomb(*size)
    answer, = inferencer.predict(path)
    assert answer.error is not None and words in answer.error


def test_the_pixel_limit_can_be_set(inferencer, tmp_path, pictures, monkeypatch):
    Image.fromarray(pictures[0]).save(tmp_path / 'a.png')
    monkeypatch.setenv('MMCLUSPRO_MAX_PIXELS', '2000')
    answer, = inferencer.predict(tmp_path / 'a.png')
    assert '48 x 48 pixels, more than 2,000' in answer.error
    assert '48 x 48 pixels' in inferencer.predict(pictures[0])[0].error  # also in memory
    monkeypatch.setenv('MMCLUSPRO_MAX_PIXELS', 'many')
    assert 'MMCLUSPRO_MAX_PIXELS must be a number' in inferencer.predict(pictures[0])[0].error


def test_a_long_thin_picture_does_not_become_a_giant(inferencer):
    image = np.zeros((1, 3_000_000, 3), np.uint8)
    assert 'the resized picture has 144000000 x 48 pixels' in inferencer.predict(image)[0].error


def test_progress_counts_whole_batches(inferencer, pictures, monkeypatch, capsys):
    """The first answer of a batch comes when the whole batch is done, and so does the time left."""
    monkeypatch.setattr('mmcluspro.utils.progress.PAUSE', 0.0)
    list(inferencer.stream(pictures[:5], batch_size=2, progress=True))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(', ')[0] for line in lines] == [
        f'predicting: {done} of 5 images' for done in (2, 4, 5)]
