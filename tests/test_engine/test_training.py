"""Training, testing and resuming through the configs and hooks that users have."""
import json
from pathlib import Path

import pytest
import torch
from mmengine.hooks import Hook

from mmcluspro.engine.hooks import needs_calibration
from mmcluspro.utils.safe_load import safe_load

pytestmark = pytest.mark.slow


class Interrupt(Hook):
    """Ends the process in a validation: its epoch's checkpoint is written, its numbers are not."""

    priority = 'LOWEST'

    def __init__(self, epoch):
        self.epoch = epoch

    def before_val_epoch(self, runner):
        if runner.epoch == self.epoch:
            raise KeyboardInterrupt


@pytest.fixture(scope='module', params=['baseline_shapes.py', 'cluspro_shapes.py'])
def name(request):
    return request.param


@pytest.fixture(scope='module')
def whole(name, tmp_path_factory):
    return tmp_path_factory.mktemp(name.split('.')[0])


@pytest.fixture(scope='module')
def trained(run, name, whole):
    runner = run(whole, name)
    runner.train()
    return runner


@pytest.mark.parametrize('epoch', [1, 2])
def test_a_resumed_run_equals_an_uninterrupted_one(run, name, trained, tmp_path, epoch):
    broken = run(tmp_path / 'broken', name)
    broken.register_hook(Interrupt(epoch))
    with pytest.raises(KeyboardInterrupt):
        broken.train()
    torch.manual_seed(123)
    again = run(tmp_path / 'broken', name, resume=True)
    torch.manual_seed(456)
    again.train()

    expected, resumed = trained.model.state_dict(), again.model.state_dict()
    assert expected.keys() == resumed.keys()
    for key in expected:
        assert expected[key].equal(resumed[key]), key
    for what in ('best_score', 'best_ckpt'):
        ours, theirs = (Path(str(runner.message_hub.get_info(what))).name
                        for runner in (again, trained))
        assert ours == theirs
    assert trained.val() == again.val()


def test_what_is_frozen_stays_and_what_learns_moves(run, name, trained, tmp_path):
    fresh = run(tmp_path / 'fresh', name).model
    before = dict(fresh.named_parameters())
    for key, parameter in trained.model.named_parameters():
        assert parameter.equal(before[key]) != parameter.requires_grad, key


def test_the_checkpoint_is_small_and_predicts_the_same(run, name, trained, whole, tmp_path):
    path = whole / 'epoch_2.pth'
    saved = safe_load(path)
    learnt = sum(p.numel() for p in trained.model.parameters() if p.requires_grad)
    numbers = sum(tensor.numel() for tensor in saved['state_dict'].values())
    buffers = sum(b.numel() for b in trained.model.buffers())
    assert learnt <= numbers <= learnt + buffers
    space = saved['meta']['dataset_meta']['space']
    assert tuple(space['attributes']) == trained.model.space.attributes

    other = run(tmp_path / 'other', name, **{'load_from': str(path)})
    other.load_or_resume()
    images = torch.rand(5, 3, 48, 48)
    for runner in (trained, other):
        runner.model.eval()
    with torch.no_grad():
        assert trained.model(images).equal(other.model(images))


def test_what_validation_chose_travels_to_the_test(run, name, trained, whole, tmp_path):
    best = trained.message_hub.get_info('best_ckpt')
    meta = safe_load(best)['meta']
    assert set(meta['calibration']) == {'closed', 'open'}
    threshold = meta['calibration']['open']['threshold']

    tester = run(tmp_path / 'test', name, load_from=str(best))
    tester.load_or_resume()
    assert not needs_calibration(tester)
    metrics = tester.test()

    assert metrics['czsl_open/threshold'] == pytest.approx(threshold)
    assert json.loads((tmp_path / 'test' / 'test_metrics.json').read_text()) == metrics
    assert (tmp_path / 'test' / 'test_curve.png').stat().st_size > 1000
    # A file that was written before its validation knows no threshold.
    early = safe_load(whole / 'epoch_2.pth')
    early['meta'].pop('calibration', None)
    torch.save(early, tmp_path / 'early.pth')
    tester.load_checkpoint(str(tmp_path / 'early.pth'))
    assert needs_calibration(tester)
    with pytest.raises(ValueError, match='found no stored threshold'):
        tester.test()


def test_a_checkpoint_of_other_labels_is_refused(trained, whole, tmp_path):
    saved = safe_load(whole / 'epoch_2.pth')
    saved['meta']['dataset_meta']['space']['attributes'][0] = 'purple'
    torch.save(saved, tmp_path / 'other.pth')
    with pytest.raises(ValueError, match='objects that differ from those of model.space'):
        trained.load_checkpoint(str(tmp_path / 'other.pth'))


@pytest.mark.parametrize('change, message', [
    (lambda state: state.pop(next(key for key in state if 'contexts' in key)),
     'missing .*contexts'),
    (lambda state: state.update(extra=torch.ones(1)), 'unexpected extra'),
])
def test_a_missing_or_surplus_key_is_named(trained, whole, tmp_path, change, message):
    saved = safe_load(whole / 'epoch_2.pth')
    change(saved['state_dict'])
    torch.save(saved, tmp_path / 'other.pth')
    with pytest.raises(ValueError, match=message):
        trained.load_checkpoint(str(tmp_path / 'other.pth'))


def test_dataset_and_model_must_agree(run, name, tmp_path):
    runner = run(tmp_path, name, **{'train_dataloader.dataset.version': 'shapes-large-v1'})
    with pytest.raises(ValueError, match='must name the same data'):
        runner.train()


@pytest.mark.parametrize('train_cfg', [
    {}, dict(by_epoch=False, max_iters=2, val_interval=2)])
def test_a_training_without_a_batch_is_refused(run, tmp_path, train_cfg):
    options = {'train_dataloader.batch_size': 256, 'train_dataloader.drop_last': True}
    if train_cfg:
        options['train_cfg'] = dict(train_cfg, _delete_=True)
    with pytest.raises(ValueError, match='gives no batch: 128 samples do not fill .* batch_size'):
        run(tmp_path, **options).train()


@pytest.mark.parametrize('options', [
    {'model.backbone.with_cp': True, 'model.head.text.with_cp': True,
     'model.head.text.chunk_size': 16},
    {'compile': {'backend': 'eager'}},
], ids=['checkpointed activations', 'torch.compile'])
def test_what_saves_memory_or_time_changes_no_loss(run, tmp_path, options):
    losses = []
    for i, extra in enumerate(({}, options)):
        runner = run(tmp_path / str(i), **{
            'train_cfg.max_epochs': 1, 'train_dataloader.dataset.indices': 128,
            'train_cfg.val_interval': 2, **extra})
        runner.train()
        losses.append(runner.message_hub.log_scalars['train/loss'].data[0].tolist())
    assert len(losses[0]) == 2
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)


def test_gradients_accumulate(run, tmp_path):
    runner = run(tmp_path, **{
        'train_cfg.max_epochs': 1, 'train_dataloader.batch_size': 32,
        'optim_wrapper.accumulative_counts': 4, 'train_cfg.val_interval': 2})
    before = {key: value.clone() for key, value in runner.model.state_dict().items()}
    steps = []
    runner.register_hook(type('Count', (Hook, ), {
        'after_train_iter': lambda self, runner, **kwargs: steps.append(
            any(not value.equal(before[key]) for key, value in runner.model.state_dict().items()
                if 'contexts' in key))})())
    runner.train()
    assert steps == [False, False, False, True]


def test_runs_that_start_in_the_same_second_keep_their_numbers_apart(run, tmp_path, monkeypatch):
    monkeypatch.setattr('mmengine.runner.runner.time.strftime', lambda *args: '20260101_000000')
    first, second = (run(tmp_path / name) for name in ('first', 'second'))
    assert second.experiment_name == f'{first.experiment_name}_2'
    assert first.visualizer is not second.visualizer and first.logger is not second.logger
    first.message_hub.update_scalar('train/loss', 1.0)
    assert 'train/loss' not in second.message_hub.log_scalars
