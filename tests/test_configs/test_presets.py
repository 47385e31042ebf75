"""Presets: what they took over from the published code, computed independently."""
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import PARAM_SCHEDULERS, init_default_scope

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
DATASETS = ('mitstates', 'utzappos', 'cgqa')


def read(name):
    return Config.fromfile(CONFIGS / name)


def rates(cfg):
    """The learning rate of every epoch."""
    optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)],
                                 lr=cfg.optim_wrapper.optimizer.lr)
    init_default_scope('mmpretrain')
    decay = 'param_scheduler' in cfg and PARAM_SCHEDULERS.build(
        dict(cfg.param_scheduler, optimizer=optimizer))
    found = []
    for _ in range(cfg.train_cfg.max_epochs):
        found.append(optimizer.param_groups[0]['lr'])
        optimizer.step()
        if decay:
            decay.step()
    return found


@pytest.mark.parametrize('dataset, start, end', [
    ('utzappos', 5e-4, 1.5625e-5), ('mitstates', 1e-4, 1.25e-5), ('cgqa', 3.125e-6, 9.765625e-8)])
def test_the_released_schedule_is_stepped_twice_per_epoch(dataset, start, end):
    optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=start)
    step = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
    cfg = read(f'cluspro_{dataset}_released.py')
    expected = []
    for _ in range(cfg.train_cfg.max_epochs):
        expected.append(optimizer.param_groups[0]['lr'])
        optimizer.step()
        step.step()
        step.step()

    assert rates(cfg) == pytest.approx(expected)
    assert expected[-1] == pytest.approx(end)


@pytest.mark.parametrize('dataset', DATASETS)
@pytest.mark.parametrize('method', ['csp', 'coop'])
def test_csp_and_coop_train_as_in_the_readme_of_csp(method, dataset):
    cfg = read(f'baselines/{method}_{dataset}.py')
    rate = 5e-4 if (method, dataset) == ('csp', 'utzappos') else 5e-5
    assert rates(cfg) == [rate] * 20
    assert cfg.optim_wrapper.optimizer.weight_decay == 1e-5
    assert cfg.train_dataloader.batch_size * cfg.optim_wrapper.accumulative_counts == 128
    prompt = cfg.model.head.text.prompt
    assert prompt.attr_dropout == (0.0 if method == 'coop' else
                                   0.2 if dataset == 'utzappos' else 0.3)
    assert prompt.get('names', 'mean') == 'mean'


@pytest.mark.parametrize('dataset, rate, epochs, batch', [
    ('utzappos', 5e-4, 15, 128), ('mitstates', 1e-4, 10, 64), ('cgqa', 3.125e-6, 15, 16)])
@pytest.mark.parametrize('name', ['baselines/troika_{}.py', 'cluspro_{}_released.py'])
def test_troika_and_released_cluspro_train_as_their_yml_files_say(
        name, dataset, rate, epochs, batch):
    cfg = read(name.format(dataset))
    adam, head = cfg.optim_wrapper.optimizer, cfg.model.head
    assert (adam.lr, adam.weight_decay) == (rate, 1e-5)
    assert (cfg.train_cfg.max_epochs, cfg.train_dataloader.batch_size) == (epochs, batch)
    assert head.text.prompt.attr_dropout == (0.0 if dataset == 'cgqa' else 0.3)
    weights = head.get('loss_weights', dict(attr=1.0, obj=1.0))
    assert weights == (dict(attr=0.1, obj=0.1) if dataset == 'cgqa' else dict(attr=1.0, obj=1.0))


@pytest.mark.parametrize('path', sorted(
    path.relative_to(CONFIGS).as_posix() for path in CONFIGS.rglob('*_utzappos*.py')
    if 'dino' not in path.name and path.parent.name != 'zoo'))  # word vectors: any dash splits
def test_all_methods_read_the_names_of_ut_zappos_by_one_rule(path):
    assert read(path).model.head.text.readable == 'dots'


@pytest.mark.parametrize('dataset, start, decay, batch', [
    ('mitstates', 1e-4, 1e-5, 256), ('utzappos', 5e-4, 1e-5, 256), ('cgqa', 5e-5, 1e-5, 256)])
def test_dfsp_trains_as_in_its_yml_files(dataset, start, decay, batch):
    cfg = read(f'baselines/dfsp_{dataset}.py')
    assert rates(cfg) == pytest.approx([start * 0.5**(epoch // 3) for epoch in range(20)])
    assert cfg.optim_wrapper.optimizer.weight_decay == decay
    assert cfg.train_dataloader.batch_size * cfg.optim_wrapper.accumulative_counts == batch


@pytest.mark.parametrize('dataset, rate, decay, epochs, batch, stream', [
    ('mitstates', 1e-4, 1e-4, 15, 64, (1.25, 10, 1.5, 1e-6, 1e-4, 2.5)),
    ('utzappos', 5e-4, 1e-5, 10, 128, (0, 7.5, 1, 5e-6, 1e-3, 3.5)),
    ('cgqa', 1e-4, 1e-5, 10, 16, (0.5, 10, 2, 6.25e-6, 1e-4, 1.75))])
def test_tomcat_trains_and_streams_as_in_its_yml_files(dataset, rate, decay, epochs, batch,
                                                       stream):
    cfg = read(f'baselines/tomcat_{dataset}.py')
    assert rates(cfg) == pytest.approx([rate * 0.5**(epoch // 5) for epoch in range(epochs)])
    assert (cfg.optim_wrapper.optimizer.weight_decay, cfg.train_dataloader.batch_size) == (
        decay, batch)
    head = cfg.model.head
    assert (head.alpha, head.beta, head.theta, head.test_lr, head.test_decay,
            head.align_weight) == stream
    assert head.text.prompt.attr_dropout == (0.0 if dataset == 'cgqa' else 0.3)


@pytest.mark.parametrize('dataset, rate, epochs, batch, layers', [
    ('mitstates', 1e-4, 20, 64, 4), ('utzappos', 2.5e-4, 15, 48, 3), ('cgqa', 1.25e-5, 15, 48, 4)])
def test_msci_trains_as_in_its_yml_files(dataset, rate, epochs, batch, layers):
    cfg = read(f'baselines/msci_{dataset}.py')
    assert rates(cfg) == pytest.approx([rate * 0.5**(epoch // 5) for epoch in range(epochs)])
    adam = cfg.optim_wrapper.optimizer
    assert adam.type == ('AdamW' if dataset == 'utzappos' else 'Adam') and adam.weight_decay == 1e-5
    assert cfg.train_dataloader.batch_size == batch
    assert (cfg.model.head.low, cfg.model.head.high) == (layers, layers)
    assert cfg.model.backbone.out_layers == [*range(layers), *range(-layers, 0)]
    assert cfg.model.backbone.project_layers


@pytest.mark.parametrize('dataset, start, decay, epochs, batch', [
    ('mitstates', 5e-5, 2e-5, 50, 128), ('utzappos', 1e-4, 1e-5, 25, 256),
    ('cgqa', 1e-5, 1e-5, 20, 128)])
def test_plid_trains_as_in_its_yml_files(dataset, start, decay, epochs, batch):
    cfg = read(f'baselines/plid_{dataset}.py')
    assert rates(cfg) == pytest.approx(
        [start * 0.5**(epoch // (epochs // 5)) for epoch in range(epochs)])
    assert cfg.optim_wrapper.optimizer.weight_decay == decay
    assert cfg.train_dataloader.batch_size * cfg.optim_wrapper.accumulative_counts == batch


@pytest.mark.parametrize('dataset, start, batch', [
    ('mitstates', 1e-5, 16), ('utzappos', 2e-5, 32), ('cgqa', 1e-5, 16)])
def test_caila_trains_as_in_its_yml_files(dataset, start, batch):
    cfg = read(f'baselines/caila_{dataset}.py')
    assert rates(cfg) == [start] * 20
    assert cfg.optim_wrapper.optimizer.weight_decay == 5e-5
    assert cfg.train_dataloader.batch_size * cfg.optim_wrapper.accumulative_counts == batch


@pytest.mark.parametrize('dataset, start, decay', [
    ('mitstates', 5e-5, 1e-5), ('utzappos', 5e-4, 1e-5), ('cgqa', 5e-5, 5e-5)])
def test_gipcol_has_two_rates_and_decays(dataset, start, decay):
    cfg = read(f'baselines/gipcol_{dataset}.py')
    graph = cfg.optim_wrapper.get('paramwise_cfg', {}).get('custom_keys', {}).get(
        'convolutions', {})
    optimizer = cfg.optim_wrapper.optimizer
    assert rates(cfg) == [start] * 10 and optimizer.weight_decay == decay
    assert start * graph.get('lr_mult', 1) == pytest.approx(5e-5)
    assert decay * graph.get('decay_mult', 1) == pytest.approx(5e-5)
    assert cfg.train_dataloader.batch_size * cfg.optim_wrapper.accumulative_counts == 64
