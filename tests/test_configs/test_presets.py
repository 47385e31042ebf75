"""Presets: what they took over from the published code, computed independently."""

import mmpretrain.datasets  # noqa: F401 (registers the transforms)
import numpy as np
import pytest
import torch
from mmengine.dataset import Compose
from mmengine.registry import PARAM_SCHEDULERS, init_default_scope
from mmpretrain.registry import TRANSFORMS
from PIL import Image
from torchvision import transforms

from mmcluspro.engine.configs import config_names
from mmcluspro.engine.launch import read_config

DATASETS = ('mitstates', 'utzappos', 'cgqa')


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
    cfg = read_config(f'cluspro_{dataset}_released.py')
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
    cfg = read_config(f'{method}_{dataset}.py')
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
@pytest.mark.parametrize('name', ['troika_{}.py', 'cluspro_{}_released.py'])
def test_troika_and_released_cluspro_train_as_their_yml_files_say(
        name, dataset, rate, epochs, batch):
    cfg = read_config(name.format(dataset))
    adam, head = cfg.optim_wrapper.optimizer, cfg.model.head
    assert (adam.lr, adam.weight_decay) == (rate, 1e-5)
    assert (cfg.train_cfg.max_epochs, cfg.train_dataloader.batch_size) == (epochs, batch)
    assert head.text.prompt.attr_dropout == (0.0 if dataset == 'cgqa' else 0.3)
    weights = head.get('loss_weights', dict(attr=1.0, obj=1.0))
    assert weights == (dict(attr=0.1, obj=0.1) if dataset == 'cgqa' else dict(attr=1.0, obj=1.0))


def test_all_methods_read_the_names_of_ut_zappos_by_one_rule():
    """But those with word vectors, where any dash splits, and CAILA's own table as released."""
    names = [name for name in config_names() if 'utzappos' in name]
    found = {name: text.readable for name in names for text in [read_config(name).model.head.text]
             if 'prompt' in text}
    assert found.pop('caila_utzappos_released.py')['Hair.Calf'] == 'hairy leather'
    assert len(found) > 20 and set(found.values()) == {'dots'}, found


@pytest.mark.parametrize('dataset, start, decay, batch', [
    ('mitstates', 1e-4, 1e-5, 256), ('utzappos', 5e-4, 1e-5, 256), ('cgqa', 5e-5, 1e-5, 256)])
def test_dfsp_trains_as_in_its_yml_files(dataset, start, decay, batch):
    cfg = read_config(f'dfsp_{dataset}.py')
    assert rates(cfg) == pytest.approx([start * 0.5**(epoch // 3) for epoch in range(20)])
    assert cfg.optim_wrapper.optimizer.weight_decay == decay
    assert cfg.train_dataloader.batch_size * cfg.optim_wrapper.accumulative_counts == batch


@pytest.mark.parametrize('dataset, rate, decay, epochs, batch, stream', [
    ('mitstates', 1e-4, 1e-4, 15, 64, (1.25, 10, 1.5, 1e-6, 1e-4, 2.5)),
    ('utzappos', 5e-4, 1e-5, 10, 128, (0, 7.5, 1, 5e-6, 1e-3, 3.5)),
    ('cgqa', 1e-4, 1e-5, 10, 16, (0.5, 10, 2, 6.25e-6, 1e-4, 1.75))])
def test_tomcat_trains_and_streams_as_in_its_yml_files(dataset, rate, decay, epochs, batch,
                                                       stream):
    cfg = read_config(f'tomcat_{dataset}.py')
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
    cfg = read_config(f'msci_{dataset}.py')
    assert rates(cfg) == pytest.approx([rate * 0.5**(epoch // 5) for epoch in range(epochs)])
    adam = cfg.optim_wrapper.optimizer
    assert adam.type == ('mmcluspro.BertAdamW' if dataset == 'utzappos' else 'Adam')
    assert adam.weight_decay == 1e-5
    assert cfg.train_dataloader.batch_size == batch
    assert (cfg.model.head.low, cfg.model.head.high) == (layers, layers)
    assert cfg.model.backbone.out_layers == [*range(layers), *range(-layers, 0)]
    assert cfg.model.backbone.project_layers


@pytest.mark.parametrize('dataset, start, decay, epochs, batch', [
    ('mitstates', 5e-5, 2e-5, 50, 128), ('utzappos', 1e-4, 1e-5, 25, 256),
    ('cgqa', 1e-5, 1e-5, 20, 128)])
def test_plid_trains_as_in_its_yml_files(dataset, start, decay, epochs, batch):
    cfg = read_config(f'plid_{dataset}.py')
    assert rates(cfg) == pytest.approx(
        [start * 0.5**(epoch // (epochs // 5)) for epoch in range(epochs)])
    assert cfg.optim_wrapper.optimizer.weight_decay == decay
    assert cfg.train_dataloader.batch_size * cfg.optim_wrapper.accumulative_counts == batch


@pytest.mark.parametrize('dataset, start, batch', [
    ('mitstates', 1e-5, 16), ('utzappos', 2e-5, 32), ('cgqa', 1e-5, 16)])
def test_caila_trains_as_in_its_yml_files(dataset, start, batch):
    cfg = read_config(f'caila_{dataset}.py')
    assert rates(cfg) == [start] * 21
    assert cfg.optim_wrapper.optimizer.weight_decay == 5e-5
    assert cfg.train_dataloader.batch_size * cfg.optim_wrapper.accumulative_counts == batch


@pytest.mark.parametrize('dataset, start, decay', [
    ('mitstates', 5e-5, 1e-5), ('utzappos', 5e-4, 1e-5), ('cgqa', 5e-5, 5e-5)])
def test_gipcol_has_two_rates_and_decays(dataset, start, decay):
    cfg = read_config(f'gipcol_{dataset}.py')
    graph = cfg.optim_wrapper.get('paramwise_cfg', {}).get('custom_keys', {}).get(
        'convolutions', {})
    optimizer = cfg.optim_wrapper.optimizer
    assert rates(cfg) == [start] * 10 and optimizer.weight_decay == decay
    assert start * graph.get('lr_mult', 1) == pytest.approx(5e-5)
    assert decay * graph.get('decay_mult', 1) == pytest.approx(5e-5)
    assert cfg.train_dataloader.batch_size * cfg.optim_wrapper.accumulative_counts == 64


@pytest.mark.parametrize('shape', [(300, 400), (411, 277), (256, 256), (90, 130)])
def test_images_of_256_pixels_are_those_of_torchvision(shape):
    """Resize(256), CenterCrop(224) of the word-vector methods, on a picture of any shape."""
    picture = np.random.RandomState(0).randint(0, 256, (*shape, 3), np.uint8)
    steps = [step for step in read_config('cge_utzappos.py').test_dataloader.dataset.pipeline
             if step.type in ('ResizeEdge', 'CenterCrop')]
    got = Compose([TRANSFORMS.build(step) for step in steps])(dict(img=picture))['img']
    expected = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224)])(
        Image.fromarray(picture))
    assert np.array_equal(got, np.asarray(expected))


@pytest.mark.parametrize('name, random', [
    ('cge_utzappos_finetuned.py', True), ('kg_sp_cgqa_finetuned.py', True),
    ('caila_mitstates.py', True), ('ade_utzappos.py', False), ('scen_cgqa.py', False)])
def test_images_of_training_are_published_ones(name, random):
    cfg = read_config(name)
    crop, *_ = [step for step in cfg.train_dataloader.dataset.pipeline if 'Crop' in step.type]
    if not random:
        assert cfg.train_dataloader.dataset.pipeline == cfg.test_dataloader.dataset.pipeline
        return
    ours = TRANSFORMS.build(crop)
    torchs = transforms.RandomResizedCrop(224)
    assert ours.scale == torchs.size and ours.crop_ratio_range == torchs.scale
    assert ours.aspect_ratio_range == torchs.ratio and ours.backend == 'pillow'
    assert ours.interpolation == torchs.interpolation.value
    flip, = [step for step in cfg.train_dataloader.dataset.pipeline if step.type == 'RandomFlip']
    assert flip.prob == 0.5 and cfg.train_dataloader.dataset.pipeline.index(flip) == 2
