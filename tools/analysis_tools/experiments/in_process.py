"""Runs on stored features one after the other in this process, a few seconds each."""
import json
import time
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import torch
from mmengine.logging import MMLogger

from mmcluspro.registry import MODELS

from .execution import clock, commit_of
from .fast_runs import (
    PhaseData,
    evaluate,
    evaluate_open,
    read_phases,
    read_vectors_once,
    train,
)
from .records import Run
from .run_store import Store

KEPT = ('seen', 'unseen', 'hm', 'auc', 'auc_exact', 'attr_acc', 'obj_acc')


class InProcess:
    """Trains and evaluates in both worlds without work folders, see :mod:`.fast_runs`.

    Args:
        store (Store): Where the records go.
        tools (Path): Folder of the checkout, whose commit goes into the records.
    """

    def __init__(self, store: Store, tools: Path) -> None:
        self.store, self.commit = store, commit_of(tools)
        self.data: dict[str, dict[str, PhaseData]] = {}

    def __call__(self, runs: Sequence[Run]) -> dict[str, str]:
        """Runs them all; returns the message by the name of a run that failed."""
        torch.set_num_threads(1)
        read_vectors_once()
        MMLogger.get_instance('mmengine', log_level='WARNING')
        failed = {}
        for number, run in enumerate(runs, 1):
            start = time.process_time()
            try:
                metrics = self.measure(run)
            except (OSError, ValueError, KeyError) as error:
                failed[run.name] = str(error)
                print(f'[{number}/{len(runs)}] FAILED {run.name}: {error}', flush=True)
                continue
            seconds = time.process_time() - start
            self.store.save(run, commit=self.commit, seconds=round(seconds, 1),
                            metrics=metrics['test'], val_metrics=metrics['val'],
                            val_auc=[round(metrics['val']['czsl/auc'], 3)])
            print(f'[{number}/{len(runs)}] {run.name}: validation AUC '
                  f'{metrics["val"]["czsl/auc"]:.2f}, in {clock(seconds)} of one core', flush=True)
        return failed

    def measure(self, run: Run, phases: tuple[str, ...] = ('val', 'test')
                ) -> dict[str, dict[str, float]]:
        """Numbers of the last epoch by phase, named as ``CZSLMetric`` does.

        The first phase chooses the threshold of the open world for the others.
        """
        loaders = {phase: dict(run.cfg[f'{phase}_dataloader']['dataset'])
                   for phase in ('train', *phases) if run.cfg.get(f'{phase}_dataloader')}
        key = json.dumps(loaders, sort_keys=True, default=str)
        if key not in self.data:
            self.data = {key: read_phases(run.cfg, tuple(loaders))}
        data = self.data[key]
        cfg = deepcopy(run.cfg)  # building a model changes its config, which identifies the run
        model = train(cfg, data['train'], run.seed) if run.learns else MODELS.build(cfg.model)
        found, threshold = {}, None
        for phase in phases:
            closed = evaluate(model, data[phase])
            open_ = evaluate_open(model, data[phase], threshold)
            threshold = open_['threshold']
            found[phase] = {
                **{f'czsl/{name}': round(closed[name], 4) for name in KEPT},
                **{f'czsl_open/{name}': round(open_[name], 4) for name in (*KEPT, 'threshold')}}
        return found
