"""Runs with CUDA's rules, on the CPU."""
import copy
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.hooks import Hook
from torch import nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parent))
from pretend_cuda import DeviceFault, PretendCuda

from mmcluspro.demo.demo_command import zero_shot_model
from mmcluspro.engine.configs import config_names
from mmcluspro.engine.cross_validation import FitLoop
from mmcluspro.engine.launch import build_runner, read_config

ROOT = Path(__file__).resolve().parents[2]


def host_index(layer, x):
    return x[torch.arange(2)]


def forgotten_buffer(layer, x):
    return layer(x) + torch.ones(3)


def to_numpy(layer, x):
    return x.detach().numpy()


FAULTS = dict(
    forgotten_buffer=forgotten_buffer,
    host_index=host_index,
    to_numpy=to_numpy,
    host_weight=lambda layer, x: x @ torch.ones(4, 3),
    host_label=lambda layer, x: nn.functional.cross_entropy(layer(x), torch.zeros(5).long()),
    host_scalar_in_cat=lambda layer, x: torch.stack([x.sum(), torch.tensor(1.0)]),
    device_index=lambda layer, x: torch.ones(5)[torch.arange(2, device=x.device)],
    silent_copy=lambda layer, x: torch.zeros(5, 4).__setitem__(slice(None), x),
    generator=lambda layer, x: torch.rand(2, device=x.device, generator=torch.Generator()),
    moved_too_late=lambda layer, x: nn.Linear(4, 3)(x),
    in_backward=lambda layer, x: Late.apply(layer(x)).sum().backward(),
    in_checkpoint=lambda layer, x: checkpoint(
        Changing(), layer(x), use_reentrant=False).sum().backward(),
)


class Late(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient * torch.ones(gradient.shape)


class Changing:
    """Correct in the forward pass, and with a tensor of the host when it is run again."""

    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return (x * torch.ones(3, device=x.device if self.calls == 1 else 'cpu')).exp()


@pytest.mark.parametrize('fault', FAULTS.values(), ids=FAULTS)
def test_planted_faults_are_found(fault):
    with PretendCuda() as cuda:
        layer, x = nn.Linear(4, 3).to('cuda'), torch.ones(5, 4).to('cuda')
        with pytest.raises(DeviceFault):
            fault(layer, x)
    assert len(cuda.faults) == 1


def test_what_cuda_allows_passes():
    with PretendCuda() as cuda:
        layer, x = nn.Linear(4, 3).to('cuda'), torch.ones(5, 4).to('cuda')
        y = torch.where(x > 0, x, torch.tensor(0.0)) * torch.tensor(2.0)
        labels = torch.zeros(5, dtype=torch.long, device=x.device)
        nn.functional.cross_entropy(layer(y), labels).backward()
        torch.optim.AdamW(layer.parameters()).step()
        rows = x[torch.arange(2, device=x.device)].clone()
        rows[0] = x[1]
        twin = copy.deepcopy(layer)
        assert {p.device.type for p in (*twin.parameters(), y, rows, layer.weight.grad)} == {'cuda'}
        assert x.cpu().numpy().sum() == 20 and x.is_cuda and not x.cpu().is_cuda
        assert layer(x).sum().item() == layer(x).sum().item()
        nn.functional.one_hot(labels, 3).argmax(dim=1) + torch.arange(5, device='cuda')
        layer.to('cpu')(torch.ones(5, 4))
        torch.tensor([1, 2]).pin_memory().to('cuda', non_blocking=True)  # the host does not wait
        before = sum(cuda.waits.values())
        torch.tensor([1, 2], device='cuda'), torch.ones(2).to('cuda')
        torch.ones(2).to('cuda', non_blocking=True)  # from memory that is not pinned
    here = Path(__file__).name, test_what_cuda_allows_passes.__name__
    assert not cuda.faults and sum(cuda.waits.values()) == before + 3
    assert min(cuda.waits[(name, *here)] for name in ('copy', '_local_scalar_dense')) >= 2


def require_cuda(model):
    """Nothing of a model stayed on the host."""
    left = [name for name, value in (*model.named_parameters(), *model.named_buffers())
            if value.device.type != 'cuda']
    assert not left


SHORT = {'train_cfg.max_epochs': 1, 'train_dataloader.batch_size': 32,
         'train_dataloader.dataset.indices': 64}
SAVING = {'model.backbone.with_cp': True, 'model.micro_batch': 16,
          'model.head.text.with_cp': True, 'model.head.text.chunk_size': 64}
SLOW = pytest.mark.slow
NO_FEATURES = {f'{phase}_dataloader.dataset.features': None for phase in ('train', 'val', 'test')}
METHODS = [Path(name) for name in config_names() if name.endswith('_shapes.py')
           and not name.startswith(('clip_zeroshot', 'frozen'))]
# Methods that do something else from the second epoch on.
CHANGING = {'compcos_open_shapes', 'co_cge_open_shapes'}
# Of the methods only ClusPro itself runs without --slow.
RUNS = {
    **{path.stem: pytest.param(
        path.name, {**NO_FEATURES,
                    **({'train_cfg.max_epochs': 2} if path.stem in CHANGING else {})},
        marks=() if path.stem == 'cluspro_shapes' else SLOW) for path in METHODS},
    **{name: pytest.param('cluspro_shapes.py', options, marks=SLOW) for name, options in dict(
        ema={'custom_hooks': [dict(type='EMAHook')]}, saving=SAVING,
        accumulation={'optim_wrapper.accumulative_counts': 2},
        bfloat16={'optim_wrapper.type': 'mmcluspro.BFloat16OptimWrapper'}).items()},
    'dfsp_i2t': pytest.param(
        'dfsp_shapes.py', {'model.head.direction': 'i2t'}, marks=SLOW),
}


# Of mmengine, once per iteration: images and labels come, the log reads the losses, EMA its steps.
OUTSIDE = {'data_preprocessor.py', 'message_hub.py', 'averaged_model.py'}
# Methods that read from the device in a step: k-means, which pairs are nodes of a graph, whether
# the embeddings of the margins are finite, and whether drawn pairs are those of another step.
WAITING = {'cds_czsl_shapes.py': 'start.py', 'cge_shapes.py': 'cge.py',
           'co_cge_shapes.py': 'cge.py', 'co_cge_open_shapes.py': 'cge.py',
           'compcos_open_shapes.py': 'pair_feasibility.py', 'oadis_shapes.py': 'encoder.py'}


@pytest.mark.parametrize('name, options', RUNS.values(), ids=RUNS)
def test_training_validation_and_test(cuda, run, tmp_path, name, options):
    """Nothing is on the wrong device, and no part of ours makes the host wait in a step."""
    waits = []

    class Count(Hook):
        priority = 'LOWEST'

        def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
            waits.append({file for _, file, _ in cuda.waits})
            cuda.waits.clear()

    runner = run(tmp_path, name, **{**SHORT, **options})
    runner.register_hook(Count())
    require_cuda(runner.model)
    runner.train()
    waits = waits[1::2]  # the first step of an epoch prepares: plans of the prompts, margins
    metrics = runner.test()
    require_cuda(runner.model)
    assert not cuda.faults and {'czsl/auc', 'czsl_open/auc'} <= set(metrics)
    epochs = 0 if isinstance(runner.train_loop, FitLoop) else runner.max_epochs
    assert len(waits) == epochs and all(files & OUTSIDE for files in waits)
    assert set().union(*waits) - OUTSIDE == {
        WAITING[file] for file in [Path(name).name] if file in WAITING}


def test_zero_shot_and_the_inferencer(cuda, run, tmp_path, monkeypatch):
    monkeypatch.setattr('mmcluspro.utils.device.find_device', torch.device)
    cfg = read_config('clip_zeroshot_shapes.py')
    cfg.merge_from_dict({'work_dir': str(tmp_path), 'launcher': 'none', 'log_level': 'WARNING',
                         'val_dataloader.dataset.indices': list(range(0, 1020, 16)),
                         'test_dataloader.dataset.indices': list(range(0, 1020, 16))})
    for phase in ('val', 'test'):
        cfg[f'{phase}_dataloader'].collate_fn = dict(type='default_collate')
    cfg.default_hooks.checkpoint = None
    runner = build_runner(cfg)
    runner.val()
    assert runner.test()['czsl/auc'] > 0
    inferencer = zero_shot_model('cuda')
    require_cuda(inferencer.network)
    image = np.full((48, 48, 3), 128, np.uint8)
    for question in (dict(), dict(world='open'), dict(pairs=[('red', 'heart'), ('odd', 'thing')]),
                     dict(attributes=['red', 'blue'], objects=['moon'])):
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # nothing was calibrated
            (answer, ) = inferencer.predict([image], **question)
        assert answer.error is None and answer.best is not None
    assert not cuda.faults
