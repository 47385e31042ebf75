"""Trains on stored features inside one process, in seconds per run, to compare many variants.

The model, its losses, the optimiser and the metric are those of the config; what is left out is
everything that a training on disk needs (checkpoints, logs, hooks other than the prototypes').
"""
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import init_default_scope
from mmpretrain.registry import DATASETS
from mmpretrain.structures import DataSample
from torch import Tensor

from mmcluspro.datasets import CompositionSpace
from mmcluspro.evaluation import CZSLMetric, Evaluation, calculate
from mmcluspro.models import Candidates
from mmcluspro.models.text import words as word_vectors
from mmcluspro.registry import MODELS
from mmcluspro.utils.progress import Progress

BATCH = 512  # of an evaluation


def read_vectors_once() -> None:
    """Keeps the word vectors of a space: a pass over the file takes longer than some trainings."""
    read = lru_cache(word_vectors.load_word_vectors)
    word_vectors.load_word_vectors = lambda path, words, first=0: read(
        path, frozenset(words), first)


@dataclass
class PhaseData:
    """A phase in memory.

    Attributes:
        inputs (Tensor): Stored features, shape (N, D).
        samples (list[DataSample]): Their labels.
        pair (Tensor): Row of the true pair in ``candidates.pairs``, shape (N,).
        candidates (Candidates): Pairs of the phase.
        space (CompositionSpace): Names and pairs of the phase.
    """
    inputs: Tensor
    samples: list[DataSample]
    pair: Tensor
    candidates: Candidates
    space: CompositionSpace


def read_phases(cfg: Config, phases: tuple[str, ...] = ('train', 'val')) -> dict[str, PhaseData]:
    """Reads the stored features of phases of a config."""
    init_default_scope('mmpretrain')
    found = {}
    for phase in phases:
        dataset = DATASETS.build(cfg[f'{phase}_dataloader']['dataset'])
        packed = [dataset[index] for index in _order(cfg[f'{phase}_dataloader'], len(dataset))]
        if packed[0]['inputs'].ndim != 1:
            raise ValueError(f'{cfg.filename} reads images in phase {phase!r}; fast runs need '
                             'stored features, such as frozen_baseline_shapes.py.')
        samples = [each['data_samples'] for each in packed]
        found[phase] = PhaseData(
            torch.stack([each['inputs'] for each in packed]), samples,
            torch.tensor([int(sample.pair_label) for sample in samples]),
            Candidates.from_space(dataset.space), dataset.space)
    return found


def _order(loader: Mapping[str, Any], size: int) -> list[int]:
    """Order of the images; that of ``DefaultSampler`` if it shuffles with a seed of its own."""
    sampler = loader['sampler']
    if not sampler.get('shuffle') or sampler.get('seed') is None:
        return list(range(size))
    generator = torch.Generator().manual_seed(sampler['seed'])
    return torch.randperm(size, generator=generator).tolist()


def train(cfg: Config, data: PhaseData, seed: int) -> torch.nn.Module:
    """Trains a model; a seed gives every variant the same weights at first and the same batches.

    Args:
        cfg (Config): Adam-like optimiser, cosine schedule without other phases.
        data (PhaseData): Training images.
        seed (int): Of weights, order and dropout.
    """
    if cfg.param_scheduler['type'] != 'CosineAnnealingLR':
        raise ValueError('Fast runs know param_scheduler.type=CosineAnnealingLR only, got '
                         f'{cfg.param_scheduler["type"]!r}.')
    torch.manual_seed(seed)
    np.random.seed(seed)
    model: Any = MODELS.build(cfg.model)
    model.init_weights()
    _start_prototypes(model, data)
    optim = build_optim_wrapper(model, cfg.optim_wrapper)
    size, epochs = cfg.train_dataloader['batch_size'], cfg.train_cfg['max_epochs']
    steps = epochs * -(-len(data.samples) // size)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optim.optimizer, lambda step: (1 + np.cos(np.pi * min(step / steps, 1))) / 2)
    model.train()
    progress = Progress('training', steps, 'steps')
    for epoch in range(epochs):
        torch.manual_seed(int(np.random.SeedSequence((seed, epoch)).generate_state(1)[0]))
        model.head.begin_epoch(epoch)
        for batch in torch.randperm(len(data.samples)).split(size):
            with optim.optim_context(model):  # autocast, where the config asks for it
                losses = model.head.loss(model.extract_feat(data.inputs[batch]),
                                         [data.samples[index] for index in batch.tolist()])
            optim.update_params(torch.stack(list(losses.values())).sum())
            rate.step()
            model.head.update_prototypes()
            progress.add()
    progress.close()
    return model


@torch.no_grad()
def _start_prototypes(model: Any, data: PhaseData) -> None:
    """As ``PrototypeHook`` does before training."""
    if not model.head.clustered:
        return
    model.eval()
    features = model.extract_feat(data.inputs).primitives
    labels = model.head.labels(data.samples)
    for branch, bank in model.head.clustered.items():
        bank.initialise(features[branch], labels[branch])


@torch.no_grad()
def evaluate(model: Any, data: PhaseData) -> dict[str, float]:
    """Closed-world numbers of a phase, as ``CZSLMetric`` has them."""
    return calculate(
        torch.cat(list(score(model, data, data.candidates))), data.pair, data.candidates.seen,
        data.candidates.pairs, bias_on='log' if model.head.link == 'log' else 'score')


@torch.no_grad()
def evaluate_open(model: Any, data: PhaseData, threshold: float | None = None) -> dict[str, float]:
    """Open-world numbers of a phase, as ``CZSLMetric`` has them, with ``threshold``.

    Args:
        model (Any): A trained model.
        data (PhaseData): The phase.
        threshold (float, optional): Of the feasibility, which validation chose. Defaults to None:
            the best one is searched for.
    """
    metric = CZSLMetric(world='open', threshold='search' if threshold is None else threshold)
    evaluation = Evaluation.of(model.head, data.space, ['open'], feasibility=True, chosen={})
    metric.dataset_meta = dict(space=data.space.to_dict(), evaluation=evaluation)
    labels = iter(data.samples)
    for scores in score(model, data, Candidates.from_space(data.space.open_world())):
        metric.process(None, [
            dict(open_score=row, attr_label=int(sample.attr_label), obj_label=int(sample.obj_label))
            for row, sample in zip(scores, labels)])
    return {key.partition('/')[2]: value
            for key, value in metric.evaluate(len(data.samples)).items()}


def score(model: Any, data: PhaseData, candidates: Candidates) -> Iterator[Tensor]:
    """Scores (B, P) of the images, batch by batch."""
    model.eval()
    model.head.forget_adaptation()
    with Progress(f'scores of {len(candidates.pairs)} pairs', len(data.inputs)) as progress:
        for inputs in data.inputs.split(BATCH):
            features = model.extract_feat(inputs)
            model.head.adapt(features)
            yield model.head.score(features, candidates).pair
            progress.add(len(inputs))
