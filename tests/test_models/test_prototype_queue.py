from collections import defaultdict, deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcluspro.models.prototypes import FeatureQueue


def numbered(start, count):
    """Features that tell their own number."""
    return torch.arange(start, start + count, dtype=torch.float32)[:, None].repeat(1, 2)


@settings(max_examples=50, deadline=None)
@given(size=st.integers(1, 5),
       batches=st.lists(st.lists(st.integers(0, 3), max_size=12), max_size=5))
def test_holds_the_last_features_of_each_class(size, batches):
    queue = FeatureQueue(num_classes=4, size=size, dim=2)
    want = defaultdict(lambda: deque(maxlen=size))
    start = 0
    for batch in batches:
        labels = torch.tensor(batch, dtype=torch.long)
        queue.push(numbered(start, len(batch)), labels)
        for i, label in enumerate(batch):
            want[label].append(start + i)
        start += len(batch)

    features, pushed = queue.context()

    for c in range(4):
        assert sorted(features[c, :pushed[c], 0].tolist()) == list(want[c])
    assert (queue.features[0] == 0).all()


def test_features_that_are_not_valid_are_not_kept():
    queue = FeatureQueue(num_classes=2, size=3, dim=2)

    queue.push(numbered(1, 4), torch.tensor([0, 0, 0, 1]), torch.tensor([True, False, True, False]))

    features, pushed = queue.context()
    assert pushed.tolist() == [2, 0]
    assert features[0, :2, 0].tolist() == [1, 3]
    assert features.sum() == 8


def test_empty_at_first_and_after_clear():
    queue = FeatureQueue(num_classes=2, size=3, dim=2)
    assert queue.context()[1].tolist() == [0, 0]
    queue.push(numbered(0, 2), torch.tensor([0, 0]))
    queue.clear()
    assert queue.context()[1].tolist() == [0, 0]


def test_saved_and_resumed():
    queue = FeatureQueue(num_classes=2, size=3, dim=2)
    queue.push(numbered(0, 4), torch.tensor([0, 1, 0, 0]))
    copy = FeatureQueue(num_classes=2, size=3, dim=2)
    copy.load_state_dict(queue.state_dict())

    for one in (queue, copy):
        one.push(numbered(4, 1), torch.tensor([0]))

    torch.testing.assert_close(copy.context(), queue.context())


def test_keeps_its_dtype():
    queue = FeatureQueue(num_classes=1, size=2, dim=2)
    queue.push(numbered(1, 1).half(), torch.tensor([0]))
    features, _ = queue.context()
    assert features.dtype == torch.float32 and features.sum() == pytest.approx(2)
