"""The types of fields by themselves: bounds, wrong types, and what a message names."""
import math

import pytest

from mmcluspro import fields
from mmcluspro.artefact.spec import check_data, check_preparation, describe_data, describe_pipeline
from mmcluspro.fields import Refusal

RESIZE = dict(step='resize', size=224, edge='short', backend='cv2', interpolation='bicubic')
CROP = dict(step='crop', size=[224, 224])


@pytest.mark.parametrize('check, good, bad', [
    (fields.flag, [True, False], [0, 1, None, 'True']),
    (fields.integer(2, 5), [2, 3, 5], [1, 6, True, 2.0, '3', None, 10**30]),
    (fields.number(0, 2), [0, 1.5, 2], [-1e-9, 2.1, True, math.nan, math.inf, '1', None]),
    (fields.number(), [-1e300, 10**200], [math.inf, -math.inf, math.nan]),
    (fields.choice('a', 1), ['a', 1], ['b', True, 1.0, None, ['a']]),
    (fields.text(3), ['', 'abc'], ['abcd', b'abc', 3, None]),
    (fields.optional(fields.flag), [None, True], [0, 'x']),
    (fields.either(fields.flag, fields.integer(3, 4)), [True, 3], [2, None]),
    (fields.items(fields.integer(0, 9), 1, 3), [[0], (1, 2, 3)], [[], [1] * 4, 'ab', {1}, [10]]),
    (fields.mapping(fields.text(2), fields.flag, 2), [{}, dict(a=True, b=False)],
     [dict(a=True, b=True, c=True), dict(abc=True), dict(a=1), [], {1: True}]),
    (fields.record(a=fields.flag, b=fields.flag), [{}, dict(a=True), dict(a=True, b=True)],
     [dict(c=True), dict(a=1), [], None, {('a', ): True}]),
])
def test_what_a_field_takes(check, good, bad):
    for value in good:
        found = check(value, 'place')
        assert found == (list(value) if isinstance(value, tuple) else value)
        assert found is not value or not isinstance(value, (dict, list)), 'an object of the file'
    for value in bad:
        with pytest.raises(Refusal, match='place'):
            check(value, 'place')


def test_the_places_of_entries_are_named():
    with pytest.raises(Refusal, match=r'a\[1\] must be True or False, got 3'):
        fields.items(fields.flag)([True, 3], 'a')
    with pytest.raises(Refusal, match=r"a\['x'\] must be"):
        fields.mapping(fields.text(), fields.flag)(dict(x=3), 'a')
    with pytest.raises(Refusal, match=r'a\.x must be'):
        fields.record(x=fields.flag)(dict(x=3), 'a')
    with pytest.raises(Refusal, match='a lacks the field y'):
        fields.needs(dict(x=1), ('x', 'y'), 'a')
    fields.needs(dict(x=1), ('x', ), 'a')


def test_lists_of_a_thousand_entries_and_no_more():
    check = fields.items(fields.flag)
    names = fields.mapping(fields.integer(0, 1 << 20), fields.flag)
    assert len(check([True] * 1000, 'a')) == 1000
    with pytest.raises(Refusal, match='0 to 1000'):
        check([True] * 1001, 'a')
    assert len(names(dict.fromkeys(range(100_000), True), 'a')) == 100_000
    with pytest.raises(Refusal, match='at most 100000'):
        names(dict.fromkeys(range(100_001), True), 'a')
    assert len(fields.text()('x' * 1000, 'a')) == 1000
    with pytest.raises(Refusal, match='at most 1000'):
        fields.text()('x' * 1001, 'a')


@pytest.mark.parametrize('steps', [[], [RESIZE], [CROP], [RESIZE, CROP], [CROP] * 8,
                                   [dict(RESIZE, edge=None, size=[3, 4])]])
def test_preparations(steps):
    value = dict(decoder='cv2', steps=steps)
    assert check_preparation(value) == value
    assert check_preparation(dict(value, background=[0, 255, 3]))['background'] == [0, 255, 3]


@pytest.mark.parametrize('value', [
    {}, dict(decoder='cv2'), dict(steps=[]), dict(decoder='evil', steps=[]),
    *(dict(decoder='cv2', steps=steps) for steps in (
        [CROP] * 9, [dict(CROP, edge='short')], [dict(CROP, size=224)], [dict(RESIZE, edge=None)],
        [dict(RESIZE, size=[3, 4])], [dict(RESIZE, size=0)], [dict(RESIZE, size=4097)],
        [dict(RESIZE, interpolation='hamming')], [dict(step='resize', size=3)], [dict(size=3)],
        [dict(CROP, size=[224])])),
    *(dict(decoder='cv2', steps=[], background=colour)
      for colour in ([0, 256, 0], [0, 0], [0, 0, 0, 0]))])
def test_other_preparations_are_refused(value):
    with pytest.raises(Refusal, match='preparation'):
        check_preparation(value)


def test_a_pipeline_becomes_numbers():
    found = describe_pipeline([
        dict(type='LoadImageFromFile', imdecode_backend='pillow'),
        dict(type='mmpretrain.ResizeEdge', scale=256, interpolation='bicubic'),
        dict(type='Resize', scale=(30, 40)), dict(type='Resize', scale=50),
        dict(type='CenterCrop', crop_size=224), dict(type='PackInputs')])
    assert found == dict(decoder='pillow', steps=[
        dict(RESIZE, size=256), dict(RESIZE, size=[30, 40], edge=None, interpolation='bilinear'),
        dict(RESIZE, size=[50, 50], edge=None, interpolation='bilinear'), CROP])
    assert describe_pipeline([dict(type='mmcluspro.LoadPicture', background='none')]) == dict(
        decoder='cv2', steps=[], background=None)


@pytest.mark.parametrize('step', [
    3, {}, dict(type=3), dict(type='evil.Resize', scale=3), dict(type='Rotate'),
    dict(type='Resize', scale=3, keep_ratio=True), dict(type='CenterCrop', crop_size=3, other=1),
    dict(type='LoadImageFromFile', to_float32=True),
    dict(type='CenterCrop', crop_size=3, auto_pad=True)])
def test_other_steps_are_refused(step):
    with pytest.raises(Refusal, match='step 0'):
        describe_pipeline([step])


@pytest.mark.parametrize('value', [
    None, {}, dict(type='Evil'), dict(type='MITStates', split='a/b'), dict(type='CGQA', split='..'),
    dict(type='VAWCZSL', split='a\\b'), dict(type='AOCLEVr', data_root='/etc'),
    dict(type='Clothing16K', split='x' * 101), dict(type='ShapesCZSL', seed=-1),
    dict(type='TableCZSL', separator='x' * 11)])
def test_data_is_a_name_without_a_path(value):
    with pytest.raises(Refusal, match='data'):
        check_data(value, 'data')


def test_known_data_without_its_paths():
    assert describe_data(dict(type='VAWCZSL', data_root='/home', split='a')) == dict(
        type='VAWCZSL', split='a')
    assert describe_data(dict(type='Other', split='a')) is None
    assert describe_data(dict(type='VAWCZSL', split='../a')) is None
