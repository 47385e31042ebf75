import zlib
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapes_captions import (
    STUDIO,
    STUDIO_SHARE,
    WILD,
    WORDING,
    Captioner,
    draw_pretraining,
    neighbours,
    pretraining_pairs,
)

from mmcluspro.datasets.shapes import ATTRIBUTES, OBJECTS, VERSIONS, Look, draw_image, split_pairs
from mmcluspro.datasets.shapes.draw import (
    Draws,
    Scene,
    Style,
    box,
    cut,
    disc,
    join,
    line,
    meet,
    poly,
    star,
    triangle_wave,
    value_noise,
)
from mmcluspro.datasets.shapes.versions import (
    ATTR_MODES,
    OBJ_MODES,
    draw_object,
    pair_modes,
    partner_modes,
)

GRID = np.mgrid[-1:1:41j, -1:1:41j]
V, U = GRID[0], GRID[1]
CLEAN = Look(clutter=0, noise=0, turn=0, veil=0, haze=0, tint=0, scales=(.75, .75), first_mode=1)


def test_same_bytes_on_every_machine():
    # The sum was computed once; any machine, numpy or library must come to it.
    total = 0
    for i, name in enumerate(ATTRIBUTES):
        image = draw_image(name, list(OBJECTS)[i], ('fixed', i), VERSIONS['shapes-v1'].look)[0]
        total = zlib.crc32(image.tobytes(), total)
    assert total == 2728142733


def test_same_bytes_of_v2_on_every_machine():
    total = 0
    for i, name in enumerate(ATTRIBUTES):
        for k, version in enumerate(('shapes-v2', 'shapes-v2', 'shapes-large-v2')):
            obj = list(OBJECTS)[(i + 7 * k) % len(OBJECTS)]
            image, *modes = draw_image(name, obj, ('fixed', i, k), VERSIONS[version].look)
            total = zlib.crc32(image.tobytes() + bytes(modes), total)
    assert total == 3956587711


def test_raw_stream_is_numpys_own():
    draws = Draws('x', 3)
    bits = np.random.PCG64(np.random.SeedSequence([1, ord('x'), 8, 3, 0, 0, 0, 0, 0, 0, 0]))
    assert draws.uniform() == (bits.random_raw() >> 11) * 2.0**-53


@given(st.floats(-50, 50), st.integers(0, 2**31))
def test_waves_and_noise_stay_in_range(phase, seed):
    wave = triangle_wave(np.array([phase]))
    noise = value_noise(Draws(seed), np.array([[phase]]), np.array([[-phase]]), 3.0)

    assert 0 <= wave[0] <= 1 and 0 <= noise[0, 0] < 1
    assert wave[0] == pytest.approx(triangle_wave(np.array([phase + 1]))[0], abs=1e-9)


@given(st.integers(1, 100), st.integers(0, 2**31))
def test_permutation_is_one(count, seed):
    assert sorted(Draws(seed).permutation(count).tolist()) == list(range(count))


def test_polygon_distance_is_the_boxs():
    square = poly((-.5, -.3), (.5, -.3), (.5, .3), (-.5, .3))
    assert np.allclose(square(U, V), box(0, 0, .5, .3)(U, V), atol=1e-12)


def test_stroke_is_a_capsule_and_sets_combine():
    capsule = join(disc(-.5, 0, .2), disc(.5, 0, .2), box(0, 0, .5, .2))
    assert ((line(.2, (-.5, 0), (.5, 0))(U, V) < 0) == (capsule(U, V) < 0)).all()
    inside = lambda shape: shape(U, V) < 0
    one, two = disc(-.2, 0, .5), disc(.2, 0, .5)
    assert (inside(meet(one, two)) == (inside(one) & inside(two))).all()
    assert (inside(cut(one, two)) <= (inside(one) & ~inside(two))).all()


@pytest.mark.parametrize('count', [3, 4, 5, 8])
def test_star_has_its_points(count):
    turn = np.linspace(0, 2 * np.pi, 3600, endpoint=False)
    tips = star(count, .4)(.8 * np.cos(turn), .8 * np.sin(turn)) < 0
    assert (np.diff(np.append(tips, tips[0]).astype(int)) == 1).sum() == count


@pytest.mark.parametrize('name', sorted(OBJECTS))
def test_object_modes_fill_the_frame_and_differ(name):
    first, second = (shape(U, V) < 0 for shape in OBJECTS[name])
    edge = max(np.abs(U[mask]).max() for mask in (first, second))

    for mask in (first, second):
        assert 0.04 < mask.mean() < 0.9
        assert max(np.abs(U[mask]).max(), np.abs(V[mask]).max()) > 0.65
    assert edge <= 1.0
    assert (first & second).sum() / (first | second).sum() < 0.87


def test_no_two_objects_look_the_same():
    masks = np.stack([(shape(U, V) < 0).ravel() for modes in OBJECTS.values() for shape in modes])
    masks = masks.astype(float)
    both = masks @ masks.T
    overlap = both / (masks.sum(1)[:, None] + masks.sum(1) - both)
    np.fill_diagonal(overlap, 0)
    assert overlap.max() < 0.9


def draw_mode(name, mode, number):
    """A clean star; the same number has the same object, place and background in all modes."""
    scene = Scene(48, Draws('modes', number), CLEAN, Style('star', 0))
    draw_object(scene, name, mode, OBJECTS['star'][0])
    return scene.compose().astype(int)


@pytest.mark.parametrize('name', sorted(ATTRIBUTES))
def test_attribute_modes_differ(name):
    pictures = [[draw_mode(name, mode, i) for i in range(8)] for mode in range(ATTR_MODES)]
    for one, other in combinations(pictures, 2):
        differs = [(np.abs(a - b).max(axis=2) > 24).mean() for a, b in zip(one, other)]
        assert np.mean(differs) > 0.02


@pytest.mark.parametrize('name', sorted(name for name in VERSIONS if name.endswith('v1')))
def test_modes_are_drawn_with_the_versions_frequency(name):
    look = VERSIONS[name].look
    modes = np.array([draw_image('red', 'star', ('count', i), look)[1:] for i in range(150)])
    assert np.abs(modes.mean(axis=0) - (1 - look.first_mode)).max() < 0.13


@pytest.mark.parametrize('pair', [('red', 'star'), ('broken', 'key'), ('mossy', 'anchor')])
def test_modes_are_mostly_those_of_the_pair(pair):
    draws = Draws('count', *pair)
    modes = [partner_modes(draws, *pair, share=0.7) for _ in range(3000)]

    attr = np.bincount([mode for mode, _ in modes], minlength=ATTR_MODES) / len(modes)
    obj = np.bincount([mode for _, mode in modes], minlength=OBJ_MODES) / len(modes)

    # 70% have the mode of the pair, 30% any of three or two.
    assert np.allclose(sorted(attr), [0.1, 0.1, 0.8], atol=0.03)
    assert np.allclose(sorted(obj), [0.15, 0.85], atol=0.03)
    assert (attr.argmax(), obj.argmax()) == pair_modes(*pair)


def test_groups_of_partners_have_the_same_size_and_a_seen_pair():
    for name, sizes in (('shapes-v2', (4, 6)), ('shapes-large-v2', None)):
        version, seen = VERSIONS[name], split_pairs(name)['seen']
        for part, own, others, count in ((0, version.attributes, version.objects, ATTR_MODES),
                                         (1, version.objects, version.attributes, OBJ_MODES)):
            for primitive in own:
                pairs = [(primitive, other) if part == 0 else (other, primitive)
                         for other in others]
                modes = [pair_modes(*pair)[part] for pair in pairs]
                assert sizes is None or Counter(modes) == dict.fromkeys(range(count), sizes[part])
                assert {pair_modes(*p)[part] for p in seen if p[part] == primitive} == set(
                    range(count))


def test_plain_objects_are_grey_and_pretraining_can_draw_them():
    image, *_ = draw_image('', 'square', ('plain', 0), CLEAN)
    middle = image[20:28, 20:28].reshape(-1, 3).astype(int)
    assert (middle.max(axis=1) - middle.min(axis=1)).max() < 50

    images, drawn, _ = draw_pretraining(0, 0, plain=1)
    assert drawn == [('', obj) for obj in OBJECTS] and len(images) == len(OBJECTS)
    captions = [Captioner(pretraining_pairs())(Draws('plain', i), ('', 'star'), WILD).split()
                for i in range(200)]
    assert all('star' in words and not set(words) & set(ATTRIBUTES) for words in captions)


def held_out():
    return {pair for name in VERSIONS for part in ('val', 'test')
            for pair in split_pairs(name)[part]}


def test_pretraining_never_sees_a_held_out_pair():
    pairs = pretraining_pairs()
    assert not set(pairs) & held_out()
    assert {a for a, _ in pairs} == set(ATTRIBUTES) and {o for _, o in pairs} == set(OBJECTS)
    images, drawn, looks = draw_pretraining(1, 0)
    assert len(images) == len(drawn) == len(looks) and not set(drawn) & held_out()
    assert abs(looks.count(STUDIO) / len(looks) - STUDIO_SHARE) < 0.06


def test_captions_never_name_a_held_out_pair():
    pairs = pretraining_pairs()
    captioner, draws, held = Captioner(pairs, wrong=0.3, loose=0.4), Draws('captions'), held_out()
    named = 0
    for pair in pairs * 6:
        words = captioner(draws, pair, WILD).split()
        attribute = [word for word in words if word in ATTRIBUTES]
        obj = [word for word in words if word in OBJECTS]
        if attribute and obj:
            named += 1
            assert (attribute[0], obj[0]) not in held
    assert named > 1000


def test_names_are_loose_at_the_rate_asked_for():
    pairs = pretraining_pairs()
    captioner, draws = Captioner(pairs, wrong=0.0, loose=0.3), Draws('captions')
    near = neighbours(sorted({obj for _, obj in pairs}))
    own, loose = 0, 0
    obj = 'star'
    for _ in range(3000):
        words = set(captioner(draws, ('red', obj), STUDIO).split())
        own += obj in words
        loose += bool(words & set(near[obj]))
        assert not words & set(OBJECTS) - {obj, *near[obj]}
    assert abs(loose / (own + loose) - 0.3) < 0.05


@pytest.mark.parametrize('look', [STUDIO, WILD])
def test_the_wording_goes_with_the_kind_of_picture(look):
    captioner, draws = Captioner(pretraining_pairs()), Draws('captions')
    captions = [captioner(draws, ('red', 'star'), look) for _ in range(2000)]

    said = {kind: sum(text.startswith(WORDING[kind]) for text in captions) for kind in WORDING}

    assert said[look] > 8 * (sum(said.values()) - said[look])


def test_neighbours_are_two_other_names():
    near = neighbours(('red', 'green', 'blue', 'dotted'))
    assert all(len({name, *others}) == 3 for name, others in near.items())
