import copy
import io
import pickle
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcluspro.datasets import CompositionSpace, UTZappos, build_space

WORD = st.sampled_from(['a', 'B', 'c.d', 'e-f', 'ä', 'z', 'Zz'])
PAIR_LIST = st.lists(st.tuples(WORD, WORD), unique=True, max_size=12)
LISTS = st.fixed_dictionaries({
    'train': PAIR_LIST.filter(len), 'val': PAIR_LIST, 'test': PAIR_LIST})


def names(space):
    return [(space.attributes[a], space.objects[o]) for a, o in space.pairs.tolist()]


@settings(deadline=None)
@given(LISTS, st.sampled_from(['train', 'val', 'test', 'all']))
def test_equals_set_arithmetic_on_names(lists, phase):
    space = CompositionSpace.from_lists(lists, phase)

    every = [pair for pairs in lists.values() for pair in pairs]
    wanted = every if phase == 'all' else lists['train'] + lists[phase]
    assert space.attributes == tuple(sorted({pair[0] for pair in every}))
    assert space.objects == tuple(sorted({pair[1] for pair in every}))
    assert names(space) == sorted(set(wanted))
    assert space.seen.tolist() == [pair in lists['train'] for pair in names(space)]
    assert torch.equal(space.train_pairs, space.pairs[space.seen])
    assert [space.index(*pair) for pair in names(space)] == list(range(len(space)))


@settings(deadline=None)
@given(LISTS)
def test_open_world_is_the_product_and_keeps_the_flags(lists):
    space = CompositionSpace.from_lists(lists, 'test')

    world = space.open_world()

    assert names(world) == [(a, o) for a in space.attributes for o in space.objects]
    assert {pair for pair, seen in zip(names(world), world.seen) if seen} == set(lists['train'])
    assert world.open_world() == world


@settings(deadline=None)
@given(LISTS)
def test_lookup_agrees_with_a_search(lists):
    space = CompositionSpace.from_lists(lists, 'val')
    rows = {tuple(pair): row for row, pair in enumerate(space.pairs.tolist())}
    attrs, objs = torch.meshgrid(torch.arange(len(space.attributes)),
                                 torch.arange(len(space.objects)), indexing='ij')

    found = space.lookup(attrs, objs)

    assert found.shape == attrs.shape
    assert found.flatten().tolist() == [
        rows.get((a, o), -1) for a, o in zip(attrs.flatten().tolist(), objs.flatten().tolist())]


@settings(deadline=None)
@given(LISTS)
def test_a_safe_checkpoint_can_carry_it(lists):
    space = CompositionSpace.from_lists(lists, 'all')
    file = io.BytesIO()
    torch.save(space.to_dict(), file)
    file.seek(0)

    assert CompositionSpace.from_dict(torch.load(file, weights_only=True)) == space


def small():
    return CompositionSpace.from_pairs(['wet', 'dry'], ['dog', 'cat'],
                                       [('wet', 'dog'), ('dry', 'cat')], [True, False])


def test_order_of_the_arguments_does_not_matter():
    same = CompositionSpace.from_pairs(['dry', 'wet'], ['cat', 'dog'],
                                       torch.tensor([[1, 1], [0, 0]]), torch.tensor([True, False]))

    assert same == small() and hash(same) == hash(small())
    assert same.pairs.tolist() == [[0, 0], [1, 1]] and same.seen.tolist() == [False, True]


def test_spaces_that_differ_in_one_flag_differ():
    other = CompositionSpace.from_pairs(['wet', 'dry'], ['dog', 'cat'],
                                        [('wet', 'dog'), ('dry', 'cat')], [True, True])

    assert other != small() and small() != 'something else'


def test_it_cannot_be_changed():
    space = small()
    space.pairs.zero_()
    space.seen.zero_()
    space.train_pairs.zero_()

    assert space == small()
    for name in ('attributes', 'pairs', 'anything'):
        with pytest.raises(AttributeError, match=name):
            setattr(space, name, None)


@pytest.mark.parametrize('clone', [copy.copy, copy.deepcopy,
                                   lambda space: pickle.loads(pickle.dumps(space))])
def test_copies_are_equal_and_work(clone):
    space = small()
    space.index('wet', 'dog')

    twin = clone(space)

    assert twin == space and twin.index('dry', 'cat') == 0
    assert repr(twin) == 'CompositionSpace(2 attributes x 2 objects, 2 pairs: 1 seen, 1 unseen)'


@pytest.mark.parametrize('change, message', [
    ({'pairs': [[0, 0], [0, 0]]}, r'\(wet, dog\) is given twice'),
    ({'pairs': [[0, 0], [0, 2]]}, r'1 of 2 pairs .* first \[0, 2\]'),
    ({'pairs': [[0, 0], [-1, 0]]}, r'1 of 2 pairs'),
    ({'seen': [True]}, '1 flags for 2 pairs'),
    ({'attributes': ['wet', 'wet']}, r"attributes .* more than once: \['wet'\]"),
    ({'objects': ['dog', '']}, 'objects .* non-empty'),
    ({'objects': []}, '2 pairs are outside'),
    ({'pairs': [('wet', 'dog'), ('wett', 'cat')]}, r"1 pairs name .* \('wett', 'cat'\)"),
])
def test_a_wrong_argument_is_named(change, message):
    arguments = {'attributes': ['wet', 'dry'], 'objects': ['dog', 'cat'],
                 'pairs': [[0, 0], [1, 1]], 'seen': [True, False]}
    with pytest.raises(ValueError, match=message):
        CompositionSpace.from_pairs(**{**arguments, **change})


@pytest.mark.parametrize('pair, message', [
    (('wett', 'dog'), "'wett' is not an attribute .* 'wet'"),
    (('wet', 'whale'), "'whale' is not an object of the space"),
    (('wet', 'cat'), 'open_world'),
])
def test_index_says_what_is_unknown(pair, message):
    with pytest.raises(ValueError, match=message):
        small().index(*pair)


@pytest.mark.parametrize('attr, obj', [(2, 0), (0, -1)])
def test_lookup_refuses_labels_of_another_space(attr, obj):
    with pytest.raises(ValueError, match=r'must lie in \[0, 2\)'):
        small().lookup(torch.tensor([attr]), torch.tensor([obj]))


def test_lookup_of_nothing():
    assert small().lookup(torch.tensor([], dtype=torch.long), []).tolist() == []


@pytest.mark.parametrize('prefix, newline', [(b'', b'\n'), (b'\xef\xbb\xbf', b'\r\n')])
def test_lists_with_mark_returns_and_empty_lines(layout, prefix, newline):
    for path in layout.lists.iterdir():
        lines = path.read_bytes().split()
        text = newline.join(b' '.join(pair) + newline for pair in zip(lines[::2], lines[1::2]))
        path.write_bytes(prefix + text)

    for phase in ('train', 'val', 'test', 'all'):
        assert (CompositionSpace.from_splits(layout.root, phase=phase)
                == CompositionSpace.from_lists(layout.pairs, phase))


def test_every_broken_line_is_counted_and_the_first_are_shown(layout):
    path = layout.lists / 'val_pairs.txt'
    path.write_text('wet cat\n\nwet\nwet big cat\nwet cat\n' + 'x\n' * 5)

    with pytest.raises(ValueError) as error:
        CompositionSpace.from_splits(layout.root)

    text = str(error.value)
    assert text.startswith('8 problems')
    for part in (f"{path}:3: expected two words", ":4: expected", ":5: 'wet cat' is already "
                 'in line 1', '… and 3 more'):
        assert part in text


def test_an_empty_list_is_a_fault(layout):
    (layout.lists / 'test_pairs.txt').write_text('\n')

    with pytest.raises(ValueError, match='test_pairs.txt: holds no pair'):
        CompositionSpace.from_splits(layout.root)


def test_a_wrong_root_says_what_there_is(layout):
    with pytest.raises(FileNotFoundError) as error:
        CompositionSpace.from_splits(layout.root / 'images')

    text = str(error.value)
    assert str(layout.root / 'images' / layout.split / 'train_pairs.txt') in text
    assert 'data_root' in text and 'old_cat/' in text


def test_a_missing_list_says_which(layout):
    (layout.lists / 'val_pairs.txt').unlink()

    with pytest.raises(FileNotFoundError, match='val_pairs.txt.*test_pairs.txt, train_pairs.txt'):
        CompositionSpace.from_splits(layout.root)


def test_a_primitive_without_training_pair(layout):
    with open(layout.lists / 'test_pairs.txt', 'a') as file:
        file.write('dry cat\nwet whale\n')

    with pytest.raises(ValueError, match=r"test_pairs.txt:3: attribute 'dry'.*\n.*:4: object 'wh"):
        CompositionSpace.from_splits(layout.root)
    with pytest.warns(UserWarning, match='2 pairs have an attribute or object that no training'):
        space = CompositionSpace.from_splits(layout.root, phase='test', allow_unknown=True)
    assert space.index('dry', 'cat') >= 0


def test_a_wrong_phase(layout):
    with pytest.raises(ValueError, match="phase must be .* got 'validation'"):
        CompositionSpace.from_splits(layout.root, phase='validation')


def test_build_space_takes_a_space_its_dict_or_a_dataset(layout):
    space = UTZappos.make_space('val', data_root=str(layout.root))
    config = {'type': 'mmcluspro.UTZappos', 'data_root': str(layout.root)}

    assert build_space(config, 'val') == space == build_space(space) == build_space(space.to_dict())
    assert len(build_space(config)) == 6


@pytest.mark.parametrize('cfg, message', [
    (3, 'got 3'),
    ({'attributes': ['a']}, r"\['objects', 'pairs', 'seen'\] is missing"),
    ({'type': 'mmcluspro.NoSuchData'}, 'NoSuchData.*UTZappos'),
    ({'type': 'mmpretrain.CIFAR10'}, 'makes no space'),
])
def test_build_space_says_what_is_wrong(cfg, message):
    with pytest.raises((ValueError, KeyError), match=message):
        build_space(cfg)


def test_published_c_gqa_lists(real_splits):
    spaces = {phase: CompositionSpace.from_splits(real_splits / 'cgqa', phase=phase)
              for phase in ('train', 'val', 'test')}
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        world = CompositionSpace.from_splits(real_splits / 'cgqa', phase='test').open_world()
        seconds.append(time.perf_counter() - start)

    assert min(seconds) < 1
    assert len(world) == 413 * 674 == 278362 and world.seen.sum() == 5592
    assert [len(space) for space in spaces.values()] == [5592, 5592 + 1252, 5592 + 923]
    everything = (torch.arange(413)[:, None].expand(413, 674),
                  torch.arange(674)[None].expand(413, 674))
    assert torch.equal(world.lookup(*everything).flatten(), torch.arange(278362))
