"""``--resume`` with a changed config: the config holds, and what it changes is said."""
import math

import pytest
from mmengine.hooks import Hook

SMALL = {'train_dataloader.batch_size': 16, 'train_dataloader.dataset.indices': 48,
         'train_cfg.val_begin': 1000}
PER_EPOCH, RATE = 3, 0.01


class Rates(Hook):
    """Notes the rate of each iteration, and what the log says."""

    def __init__(self):
        self.rates, self.settings = [], []

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        group = runner.optim_wrapper.optimizer.param_groups[0]
        self.rates.append(group['lr'])
        self.settings.append((group['weight_decay'], tuple(group.get('betas', ()))))


@pytest.fixture(scope='module')
def start(run):
    """Trains by a config and returns rates and warnings."""
    def train(folder, checkpoint=None, **options):
        said = []
        runner = run(folder, **{**SMALL, 'optim_wrapper.optimizer.lr': RATE, **options},
                     resume=checkpoint is not None,
                     load_from=None if checkpoint is None else str(checkpoint))
        runner.logger.warning = lambda text, *args: said.append(str(text))
        rates = Rates()
        runner.register_hook(rates, priority='HIGH')
        runner.train()
        return rates, ' '.join(text for text in said if 'Resuming' in text), runner
    return train


@pytest.fixture(scope='module')
def finished(start, tmp_path_factory):
    """Two epochs of two."""
    folder = tmp_path_factory.mktemp('finished')
    rates, said, _ = start(folder)
    assert not said and rates.rates == pytest.approx(cosine(2, range(6)))
    return folder / 'epoch_2.pth'


def cosine(epochs, steps, rate=RATE):
    """The rate of each iteration from the formula; mmengine's last step is one before the end."""
    return [rate * (1 + math.cos(math.pi * step / (epochs * PER_EPOCH))) / 2 for step in steps]


def test_an_extended_run_has_the_schedule_of_the_extended_run(start, finished, tmp_path):
    rates, said, runner = start(tmp_path, finished, **{'train_cfg.max_epochs': 5})
    assert rates.rates == pytest.approx(cosine(5, range(6, 15)), rel=1e-9)
    assert 'T_max 6 → 15' in said and f'lr goes on at {cosine(5, [6])[0]:.6g}' in said
    assert 'randomness.seed, load_from and initial weights of the config have no effect' in said
    assert runner.epoch == 5 and runner.iter == 15
    again, said, _ = start(tmp_path, tmp_path / 'epoch_4.pth', **{'train_cfg.max_epochs': 5})
    assert not said and again.rates == rates.rates[6:]


def test_another_rate_and_other_settings_hold(start, finished, tmp_path):
    rates, said, _ = start(tmp_path, finished.with_name('epoch_1.pth'), **{
        'optim_wrapper.optimizer.lr': 0.002, 'optim_wrapper.optimizer.weight_decay': 0.25})
    assert rates.rates == pytest.approx(cosine(2, range(3, 6), 0.002), rel=1e-9)
    assert {setting[0] for setting in rates.settings} == {0.25}
    assert 'base_values 0.01, 0.0025 → 0.002, 0.0005' in said
    assert 'optimizer weight_decay 5e-05 → 0.25' in said


def test_another_kind_of_schedule_holds_and_so_does_none(start, finished, tmp_path):
    steps = dict(_delete_=True, type='StepLR', by_epoch=True, step_size=1, gamma=0.5)
    rates, said, _ = start(tmp_path / 'a', finished, **{
        'train_cfg.max_epochs': 4, 'param_scheduler': steps})
    assert rates.rates == pytest.approx([RATE / 4] * 3 + [RATE / 8] * 3)
    rates, said, _ = start(tmp_path / 'b', finished, **{
        'train_cfg.max_epochs': 3, 'param_scheduler': None})
    assert rates.rates == pytest.approx([RATE] * 3) and '1 → 0 schedules' in said


def test_the_same_config_changes_nothing(start, finished, tmp_path):
    rates, said, _ = start(tmp_path, finished.with_name('epoch_1.pth'))
    assert not said and rates.rates == pytest.approx(cosine(2, range(3, 6)))


def test_another_batch_size_keeps_the_epoch(start, finished, tmp_path):
    rates, said, runner = start(tmp_path, finished.with_name('epoch_1.pth'), **{
        'train_dataloader.batch_size': 8})
    assert rates.rates == pytest.approx(
        [RATE * (1 + math.cos(math.pi * step / 12)) / 2 for step in range(6, 12)], rel=1e-9)
    assert runner.iter == 12 and 'iteration 3 is number 6' in said


@pytest.mark.parametrize('options, words', [
    ({'optim_wrapper.optimizer': dict(_delete_=True, type='SGD', lr=0.01, momentum=0.9)},
     'other settings .*betas'),
    ({'optim_wrapper.paramwise_cfg': None}, 'tensors in .* groups, the config .* in 1'),
])
def test_another_optimizer_is_refused(options, words, start, finished, tmp_path):
    with pytest.raises(ValueError, match=words) as refused:
        start(tmp_path, finished, **{'train_cfg.max_epochs': 3, **options})
    assert 'load_from=FILE instead of --resume' in str(refused.value)


def test_a_schedule_that_follows_validation_is_refused(start, finished, tmp_path):
    plateau = dict(_delete_=True, type='ReduceOnPlateauLR', monitor='czsl/auc', rule='greater')
    with pytest.raises(ValueError, match='follows validation, so its rate at this point'):
        start(tmp_path, finished, **{'train_cfg.max_epochs': 3, 'param_scheduler': plateau})
