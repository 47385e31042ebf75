"""Every config trains and validates for one iteration, on the tiny tower and Shapes."""
from pathlib import Path

import pytest
from mmengine.hooks import Hook

from mmcluspro.engine.launch import build_runner

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
FILES = sorted(path.relative_to(CONFIGS) for path in CONFIGS.rglob('*.py')
               if '_base_' not in path.parts)


def case(path):
    """A config; slow if it has a sibling that differs in the published dataset and its settings."""
    method, _, dataset = path.stem.rpartition('_')
    sibling = CONFIGS / path.with_name(f'{method}_utzappos.py')
    repeats = dataset in ('mitstates', 'cgqa') and sibling.is_file()
    return pytest.param(path, id=str(path), marks=[pytest.mark.slow] if repeats else [])


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


@pytest.mark.parametrize('path', map(case, FILES))
def test_one_iteration_of_training_and_validation(path, small_config):
    cfg = small_config(CONFIGS / path)
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
