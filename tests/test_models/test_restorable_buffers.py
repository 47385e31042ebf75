"""BatchNorm of a frozen tower comes back with it, also where a file lacks its statistics."""
import torch
from torch import nn

from mmcluspro.models.state import check_state_keys, compact_state_hooks, declare_restorable


class Model(nn.Module):
    """A declared tower with BatchNorm, and a layer that trains."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tower = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).requires_grad_(False)
        self.tower[1].running_mean.uniform_()
        declare_restorable(self.tower)
        self.proj = nn.Linear(4, 2)
        compact_state_hooks(self)


def test_statistics_are_saved_and_restored_where_they_are_missing():
    model = Model()
    saved = model.state_dict()
    assert 'tower.1.running_mean' in saved and 'tower.0.weight' not in saved
    stored = {key: value.clone() for key, value in saved.items() if not key.startswith('tower.1')}
    other = Model()
    check_state_keys(other, stored)
    other.load_state_dict(stored)
    assert torch.equal(other.tower[1].running_mean, model.tower[1].running_mean)


def test_statistics_of_the_file_win():
    saved = Model().state_dict()
    saved['tower.1.running_mean'] = torch.full((4, ), 5.0)
    other = Model()
    other.load_state_dict(saved)
    assert other.tower[1].running_mean.tolist() == [5.0] * 4
