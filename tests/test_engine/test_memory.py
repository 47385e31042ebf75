"""The dry run counts the bytes that a real step holds; what saves memory changes no result."""
import copy
from contextlib import nullcontext

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from mmcluspro.engine.hooks import MemoryHook
from mmcluspro.engine.hooks.memory import LiveBytes, estimate_step

BATCH = 16


@pytest.fixture(scope='module')
def step(run, tmp_path_factory):
    """A tiny ClusPro with LoRA dropout, its prototypes filled, and a batch."""
    runner = run(tmp_path_factory.mktemp('run'), 'cluspro_shapes.py', **{
        'train_dataloader.dataset.indices': BATCH, 'train_dataloader.batch_size': BATCH,
        'model.backbone.peft.drop_rate': 0.1})
    runner.call_hook('before_run')
    next(hook for hook in runner.hooks if type(hook).__name__ == 'PrototypeHook').before_train(
        runner)
    batch = next(iter(runner.train_dataloader))
    return runner, runner.model.train(), batch


def real_step(model, batch, context=None):
    """Losses, gradients and LiveBytes of a step with data."""
    model = copy.deepcopy(model)
    data = model.data_preprocessor(batch, True)
    torch.manual_seed(0)
    known = [*model.parameters(), *model.buffers(), data['inputs']]
    with LiveBytes(known) as live, context or nullcontext():
        losses = model(**data, mode='loss')
        sum(losses.values()).backward()
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return losses, grads, live


OPTIONS = {
    'plain': {}, 'checkpointed': dict(cp=True), 'micro-batches': dict(micro=4),
    'bfloat16': dict(amp=True), 'all': dict(cp=True, micro=4, amp=True)}


@pytest.mark.parametrize('options', OPTIONS.values(), ids=OPTIONS)
def test_the_dry_run_counts_what_a_real_step_holds(step, options):
    _, model, batch = step
    model = copy.deepcopy(model)
    model.backbone.visual.set_grad_checkpointing(options.get('cp', False))
    model.micro_batch = options.get('micro')
    before = copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()

    def context():
        return torch.autocast('cpu', torch.bfloat16) if options.get('amp') else None

    need = estimate_step(model, (BATCH, *batch['inputs'][0].shape), batch['data_samples'],
                         context())

    assert torch.get_rng_state().equal(state) and not model.head.observed
    assert all(value.equal(before[key]) for key, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    measured = real_step(model, batch, context())[2].peak
    assert need.step == pytest.approx(measured, rel=0.02)
    weights = {t.data_ptr(): t.nbytes for t in [*model.parameters(), *model.buffers()]}
    assert need.weights == pytest.approx(sum(weights.values()), rel=0.01)


def test_the_bytes_after_forward_are_those_that_autograd_keeps(step):
    """Counted in another way: the tensors that autograd saves, each storage once."""
    _, model, batch = step
    tower, images = model.backbone, model.data_preprocessor(batch, True)['inputs']
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage.nbytes()
        return tensor

    known = [*tower.parameters(), *tower.buffers(), images]
    with LiveBytes(known) as live, saved_tensors_hooks(keep, lambda tensor: tensor):
        output = tower(images)
    for tensor in known:
        kept.pop(tensor.untyped_storage()._cdata, None)
    kept[output[0].untyped_storage()._cdata] = output[0].untyped_storage().nbytes()
    assert sum(kept.values()) == pytest.approx(live.now, rel=0.05)


@pytest.mark.parametrize('options', [dict(micro=4), dict(cp=True), dict(cp=True, micro=5)],
                         ids=['micro-batches', 'checkpointed', 'both'])
def test_saving_memory_changes_neither_losses_nor_gradients(step, options):
    _, model, batch = step
    model = copy.deepcopy(model)
    for module in model.modules():  # masks of parts are drawn in another order
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    losses, grads, before = real_step(model, batch)
    model.backbone.visual.set_grad_checkpointing(options.get('cp', False))
    model.micro_batch = options.get('micro')
    again, others, after = real_step(model, batch)
    torch.testing.assert_close(again, losses)
    torch.testing.assert_close(others, grads, atol=1e-5, rtol=1e-4)
    assert after.peak < 0.9 * before.peak


def test_micro_batch_must_be_positive(step):
    with pytest.raises(ValueError, match=r'model\.micro_batch must be positive or None, got 0'):
        type(step[1])({}, {}, {}, micro_batch=0)


def test_the_hook_says_it_once_and_warns_where_it_does_not_fit(step, monkeypatch):
    runner, _, batch = step
    lines, warnings = [], []
    monkeypatch.setattr(runner.logger, 'info', lines.append)
    monkeypatch.setattr(runner.logger, 'warning', warnings.append)
    runner.optim_wrapper = runner.build_optim_wrapper(runner.optim_wrapper)
    for size in (10**12, 10**9):
        monkeypatch.setattr('mmcluspro.engine.hooks.memory.device_bytes',
                            lambda _, size=size: size)
        hook = MemoryHook(devices=['cpu'])
        for i in range(2):
            hook.before_train_iter(runner, i, batch)
    MemoryHook().before_train_iter(runner, 0, batch)  # this one is for GPUs
    assert len(lines) == 2 and lines[0].startswith('Training needs about 2.')
    assert len(warnings) == 1 and 'but cpu has 1.0 GB. Set model.backbone.with_cp' in warnings[0]
