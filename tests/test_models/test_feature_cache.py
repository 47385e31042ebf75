import copy
import pickle

import pytest
import torch
from torch import nn

from mmcluspro.models.text.encoder import FeatureCache, PairMemo, TextEncoder, log_scale

PAIRS = torch.tensor([[0, 0], [1, 2], [1, 1]])


class Counter(TextEncoder):
    """Learns a vector for each name; the frozen layer behind it counts how often it runs."""

    def __init__(self):
        super().__init__(['old', 'red'], ['cat', 'dog', 'sofa'], 4, log_scale(0.1), False, None)
        self.attr = nn.Parameter(torch.randn(2, 4))
        self.obj = nn.Parameter(torch.randn(3, 4))
        self.tower = nn.Linear(4, 4).requires_grad_(False)
        self.runs = 0

    def parts(self):
        return self.attr, self.obj

    def embed(self, path, parts, pairs):
        self.runs += 1
        attr, obj = parts
        inputs = (dict(attribute=attr, object=obj)[path] if pairs is None or path != 'composition'
                  else attr[pairs[:, 0]] * obj[pairs[:, 1]])
        return self.tower(inputs)


@pytest.fixture
def text():
    torch.manual_seed(0)
    return Counter().eval()


def assert_fresh(text):
    kept = [part.clone() for part in text(PAIRS)]
    text.forget()
    for mine, theirs in zip(kept, text(PAIRS)):
        assert torch.equal(mine, theirs)


@torch.no_grad()
def test_runs_once_in_evaluation(text):
    first = text(PAIRS)
    assert text.runs == 3
    for again in (text(PAIRS), text(PAIRS.clone())):
        assert all(map(torch.equal, first, again))
    text.encode_attributes(), text.encode_objects(), text.encode_pairs(PAIRS)
    assert text.runs == 3
    assert_fresh(text)


@pytest.mark.parametrize('training', [True, False])
def test_runs_anew_where_gradients_are_needed(text, training):
    text.train(training)
    text(PAIRS), text(PAIRS)
    assert text.runs == 6
    assert not text.cache.names


@torch.no_grad()
def test_runs_anew_where_dropout_is_drawn(text):
    text.dropout = nn.Dropout(0.5)
    text.train()
    text(PAIRS), text(PAIRS)
    assert text.runs == 6
    text.eval()
    text(PAIRS), text(PAIRS)
    assert text.runs == 9


def test_runs_once_in_training_when_nothing_learns(text):
    text.requires_grad_(False).train()
    text.logit_scale.requires_grad_(True)
    text(PAIRS), text(PAIRS)
    assert text.runs == 3


def sgd_step(text):
    optimizer = torch.optim.SGD([text.obj], lr=0.1)
    text.obj.grad = torch.ones_like(text.obj)
    optimizer.step()


def write_through_data(text):
    text.attr.data.mul_(-1)


def load_state(text):
    text.load_state_dict({name: value + 1 for name, value in text.state_dict().items()})


def assign_state(text):
    state = {name: value + 1 for name, value in text.state_dict().items()}
    text.load_state_dict(state, assign=True)


def change_frozen(text):
    text.tower.weight += 1


def replace_frozen(text):
    text.tower = nn.Linear(4, 4).requires_grad_(False)


def change_type(text):
    text.double()


def write_into_the_features(text):
    text.encode_pairs(PAIRS).zero_()


def evaluate_averaged_weights(text):
    """What averaging hooks do: swap through ``.data`` with everything frozen, then eval()."""
    text.requires_grad_(False)
    text(PAIRS)
    text.attr.data.mul_(-1)
    text.eval()


@torch.no_grad()
@pytest.mark.parametrize('change', [
    sgd_step, write_through_data, load_state, assign_state, change_frozen, replace_frozen,
    change_type, write_into_the_features, evaluate_averaged_weights])
def test_any_change_drops_the_features(text, change):
    before = [part.clone() for part in text(PAIRS)]

    change(text)

    assert_fresh(text)
    if change not in (change_type, write_into_the_features):
        assert not all(map(torch.equal, before, text(PAIRS)))


@torch.no_grad()
def test_pairs_changed_in_place_are_another_set(text):
    pairs = PAIRS.clone()
    text.encode_pairs(pairs)
    pairs[0] = torch.tensor([1, 0])

    assert torch.equal(text.encode_pairs(pairs), text.encode_pairs(pairs.clone()))
    assert text.runs == 2


def test_filled_in_inference_mode_and_used_outside(text):
    with torch.inference_mode():
        pairs = PAIRS + 0  # an inference tensor, which has no version
        text.encode_pairs(pairs)
        text.encode_pairs(pairs)
    assert text.runs == 1
    with torch.no_grad():
        features = text.encode_pairs(PAIRS)
    assert text.runs == 1
    weight = torch.ones(4, requires_grad=True)
    (features @ weight).sum().backward()  # would fail with an inference tensor
    assert weight.grad is not None


def test_parameters_made_in_inference_mode(text):
    with torch.inference_mode():
        twin = Counter().eval()
        twin(PAIRS), twin(PAIRS)
        assert twin.runs == 3
        twin.attr.mul_(-1)
        assert_fresh(twin)


@torch.no_grad()
def test_full_precision_whatever_autocast_says(text):
    with torch.autocast('cpu', dtype=torch.bfloat16):
        rough = text.encode_pairs(PAIRS)
    assert rough.dtype == torch.float32
    text.forget()
    assert torch.equal(rough, text.encode_pairs(PAIRS))


@torch.no_grad()
def test_copies_start_empty(text):
    text(PAIRS)
    for twin in (copy.deepcopy(text), pickle.loads(pickle.dumps(text))):
        assert not twin.cache.names
        assert not twin.cache.pairs.entries
        assert all(map(torch.equal, twin(PAIRS), text(PAIRS)))


@pytest.mark.parametrize('size', [1, 2, 3])
def test_keeps_the_last_sets_that_were_used(size):
    memo = PairMemo(size)
    sets = [torch.tensor([[i, i]]) for i in range(5)]
    calls = []

    def ask(i):
        return memo.get(sets[i], lambda: calls.append(i) or i)

    for i in range(5):
        assert ask(i) == i
    for i in range(5 - size, 5):
        assert ask(i) == i
    assert calls == [0, 1, 2, 3, 4]
    ask(0)
    assert calls[-1] == 0
    assert len(memo.entries) == size


def test_dead_tensors_are_not_mistaken_for_new_ones_at_their_address():
    memo = PairMemo(2)
    for i in range(50):
        assert memo.get(torch.tensor([[i, i]]), lambda value=i: value) == i


def test_cache_alone():
    module = nn.Linear(2, 2)
    cache = FeatureCache()
    cache.validate(module)
    kept = cache.get_names('attribute', lambda: torch.ones(1))
    cache.validate(module)
    assert cache.get_names('attribute', lambda: torch.zeros(1)) is kept
    with torch.no_grad():
        module.bias += 1
    cache.validate(module)
    assert cache.get_names('attribute', lambda: torch.zeros(1)) is not kept
