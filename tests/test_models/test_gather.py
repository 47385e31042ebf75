"""Rows of two ranks; the other rank is played by a copy of this one."""
import pytest
import torch

from mmcluspro.models import gather
from mmcluspro.models.gather import RowGatherer


@pytest.fixture(autouse=True)
def two_ranks(monkeypatch):
    monkeypatch.setattr(gather, 'get_world_size', lambda: 2)
    monkeypatch.setattr(gather, 'get_rank', lambda: 1)
    monkeypatch.setattr(gather, 'all_gather', lambda rows: [rows, rows])


def test_a_run_that_resumes_with_a_small_batch_pads_it_as_before():
    """Full batches have 4 images; without the interruption, the 2 of the last follow them."""
    whole, resumed = RowGatherer(), RowGatherer()
    whole.least = resumed.least = 4
    full, last = torch.randn(2, 4, 3), torch.randn(2, 2, 3)
    expected = [whole(full), whole(last)]
    torch.testing.assert_close(resumed(last), expected[1], rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(resumed(full), expected[0], rtol=0, atol=0)
    assert expected[1].shape == (2, 8, 3) and int(expected[1].isnan().sum()) == 2 * 4 * 3
    assert whole.local(expected[1][0], 2).equal(last[0])


def test_where_nobody_says_it_the_first_batch_must_be_the_largest():
    rows = RowGatherer()
    assert rows(torch.zeros(1, 2, 3)).shape == (1, 4, 3)
    with pytest.raises(ValueError, match='A batch of 4 images follows batches of 2'):
        rows(torch.zeros(1, 4, 3))
