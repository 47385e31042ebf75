"""Config switches that save time or memory, each trained on the CPU."""
import pytest
import torch
from mmengine.hooks import Hook

SHORT = {'train_cfg.max_epochs': 1, 'train_cfg.val_interval': 2,
         'train_dataloader.dataset.indices': 128}


class Prototypes(Hook):
    """Keeps the prototypes after each iteration; runs after the hook that moves them."""

    priority = 'LOW'

    def __init__(self):
        self.tables = []

    def after_train_iter(self, runner, *args, **kwargs):
        self.tables.append(runner.model.head.bank('attr').prototypes.clone())


def losses(runner):
    return runner.message_hub.log_scalars['train/loss'].data[0].tolist()


def test_prototypes_move_once_per_step_of_the_optimizer(run, tmp_path, monkeypatch):
    runner, seen, counts = run(tmp_path, 'cluspro_shapes.py', **{
        **SHORT, 'train_dataloader.batch_size': 32, 'optim_wrapper.accumulative_counts': 2,
    }), Prototypes(), []
    runner.register_hook(seen)
    head = runner.model.head
    update = head.update_prototypes
    monkeypatch.setattr(head, 'update_prototypes', lambda: counts.append(
        len(head.observed['attr'].labels)) or update())
    runner.train()
    first, second, third, fourth = seen.tables
    assert not first.equal(second) and second.equal(third) and not third.equal(fourth)
    assert counts == [64, 64]  # the features of both batches


def test_too_many_batches_of_a_step_are_refused(run, tmp_path):
    runner = run(tmp_path, 'cluspro_shapes.py', **{
        **SHORT, 'optim_wrapper.accumulative_counts': 65})
    with pytest.raises(ValueError, match='accumulative_counts=65: prototypes remember'):
        runner.train()


def test_bfloat16_trains_like_float32(run, tmp_path):
    curves = []
    for kind in ('OptimWrapper', 'mmcluspro.BFloat16OptimWrapper'):
        runner = run(tmp_path / kind, 'cluspro_shapes.py', **{
            **SHORT, 'train_dataloader.batch_size': 32, 'optim_wrapper.type': kind})
        runner.train()
        curves.append(torch.tensor(losses(runner)))
    assert not curves[0].equal(curves[1])
    torch.testing.assert_close(curves[0], curves[1], rtol=0.03, atol=0)
    assert all(p.dtype == torch.float32 for p in runner.model.parameters())


def test_channels_last_trains_the_same(run, tmp_path):
    curves, layouts = [], []
    for last in (False, True):
        runner = run(tmp_path / str(last), 'cluspro_shapes.py', **{
            **SHORT, 'train_dataloader.batch_size': 32, 'model.channels_last': last})
        patches = runner.model.backbone.visual.conv1
        patches.register_forward_pre_hook(lambda _, given: layouts.append(
            given[0].is_contiguous(memory_format=torch.channels_last)))
        assert patches.weight.is_contiguous(memory_format=torch.channels_last) == last
        runner.train()
        curves.append(losses(runner))
    assert {*layouts[:len(layouts) // 2]} == {False} and {*layouts[len(layouts) // 2:]} == {True}
    assert curves[0] == pytest.approx(curves[1], abs=1e-4)


@pytest.mark.slow
def test_ema_keeps_an_average_that_validation_uses(run, tmp_path):
    runner = run(tmp_path, 'cluspro_shapes.py', **{
        **SHORT, 'train_cfg.val_interval': 1, 'custom_hooks': [
            dict(type='EMAHook', momentum=0.1)]})
    runner.train()
    hook = next(hook for hook in runner.hooks if type(hook).__name__ == 'EMAHook')
    name = 'head.text.prompt.contexts.composition'
    trained, average = (dict(model.named_parameters())[name]
                        for model in (runner.model, hook.ema_model.module))
    assert trained.isfinite().all() and not trained.equal(average)
    banks = [model.head.bank('attr') for model in (runner.model, hook.ema_model.module)]
    assert banks[0].prototypes.equal(banks[1].prototypes)  # not averaged: they have unit norm
