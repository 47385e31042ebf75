"""What released code does in training: the AdamW of BERT, and one call of train()."""
import pytest
import torch
from mmengine.hooks import Hook

from mmcluspro.engine.hooks import TrainOnceHook
from mmcluspro.engine.optim import BertAdamW


def test_bert_adamw_step_by_step():
    torch.manual_seed(0)
    moved = torch.nn.Parameter(torch.randn(5))
    still = torch.nn.Parameter(torch.randn(2))  # gets no gradient
    optimizer = BertAdamW([moved, still], lr=0.1, betas=(0.8, 0.9), weight_decay=0.01)
    expected, first, second = moved.detach().clone().double(), 0.0, 0.0
    for step in range(1, 6):
        gradient = 1e-6 * torch.randn(5)
        moved.grad = gradient.clone()
        optimizer.step()
        first = 0.8 * first + 0.2 * gradient.double()
        second = 0.9 * second + 0.1 * gradient.double()**2
        size = 0.1 * (1 - 0.9**step)**0.5 / (1 - 0.8**step)
        expected = 0.999 * expected - size * first / (second.sqrt() + 1e-6)
        torch.testing.assert_close(moved.detach().double(), expected, rtol=1e-5, atol=1e-6)
    assert optimizer.param_groups[0]['eps'] == 1e-6
    # torch's own moves five times as far with gradients as small as these.
    plain = torch.nn.Parameter(torch.zeros(5))
    plain.grad = torch.full((5, ), 1e-7)
    torch.optim.AdamW([plain], lr=0.1).step()
    other = torch.nn.Parameter(torch.zeros(5))
    other.grad = plain.grad.clone()
    BertAdamW([other], lr=0.1).step()
    assert float(plain.detach().abs()[0]) > 10 * float(other.detach().abs()[0])


class ModeHook(Hook):
    """Notes the mode in which each iteration runs."""

    priority = 'LOWEST'

    def __init__(self):
        self.modes = []

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        self.modes.append((runner.epoch, runner.model.training))


@pytest.mark.slow
@pytest.mark.parametrize('once', [False, True])
def test_training_mode_ends_with_the_first_validation(run, tmp_path, once):
    runner, modes = run(tmp_path), ModeHook()
    runner.register_hook(modes)
    if once:
        runner.register_hook(TrainOnceHook())
    runner.train()
    assert len({epoch for epoch, _ in modes.modes}) > 1
    assert all(training == (epoch == 0 or not once) for epoch, training in modes.modes)
