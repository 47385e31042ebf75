"""Every config trains and validates for one iteration, on the tiny tower and Shapes."""
import re

import pytest
from mmengine.hooks import Hook

from mmcluspro.engine.configs import config_names
from mmcluspro.engine.launch import build_runner


def case(name):
    """A config; slow if it has a sibling that differs in the dataset and its settings."""
    sibling = re.sub('_(mitstates|cgqa)', '_utzappos', name)
    sibling = re.sub('_(fashion_v2|grocery|plantvillage)', '_fashion', sibling)
    repeats = sibling != name and sibling in config_names()
    return pytest.param(name, marks=[pytest.mark.slow] if repeats else [])


class Snapshot(Hook):
    """Keeps the parameters as training finds them, and the metrics of validation."""

    def before_train(self, runner):
        self.parameters = {name: p.detach().clone()
                           for name, p in runner.model.named_parameters()}

    before_val = before_train

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        self.loss, self.before_val = outputs['loss'], lambda runner: None

    def after_val_epoch(self, runner, metrics=None):
        self.metrics = metrics


@pytest.mark.parametrize('path', map(case, config_names()))
def test_one_iteration_of_training_and_validation(path, small_config):
    cfg = small_config(path)
    learns = cfg.train_cfg is not None
    runner, seen = build_runner(cfg), Snapshot()
    runner.register_hook(seen)

    if learns:
        runner.train()
        assert runner.iter == 1 and seen.loss.isfinite()
    else:
        runner.val()

    for world in ('czsl', 'czsl_open'):
        assert 0 <= seen.metrics[f'{world}/auc'] <= 100
    parameters = dict(runner.model.named_parameters())
    moved = {name for name, p in parameters.items() if not p.equal(seen.parameters[name])}
    assert moved <= {name for name, p in parameters.items() if p.requires_grad}
    assert bool(moved) == learns
