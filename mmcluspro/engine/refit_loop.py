"""Training in epochs on all images, measured by trainings without a part of them."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.registry import MODELS
from mmengine.runner import load_checkpoint

from mmcluspro.datasets import CompositionSpace
from mmcluspro.datasets.table_file import read_table
from mmcluspro.features.store import sample_name
from mmcluspro.models.structures import PATHS, as_features
from mmcluspro.registry import LOOPS

from .checkpoint import safe_loading
from .held_out_loops import Fold
from .loops import EpochLoop
from .primitive_features import run_all

LABELS = ('attr', 'obj')


@LOOPS.register_module()
class RefitLoop(EpochLoop):
    """mmengine's loop for :class:`~mmcluspro.engine.held_out_loops.HeldOutValLoop`.

    ``mmcluspro train photos/ --method cluspro`` writes the parts.

    Args:
        *args: As in mmengine.
        folds (Sequence[str]): Table of each part; the rows with the split 'val' were left out. The
            last checkpoint of the training on the others lies beside it.
        regressions (Mapping[str, float], optional): Numbers of two logistic regressions on the
            same parts. Defaults to None.
        **kwargs: As in mmengine.
    """

    def __init__(self, *args: Any, folds: Sequence[str] = (),
                 regressions: Mapping[str, float] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tables, self.regressions = tuple(folds), dict(regressions or {})

    @property
    def fitted(self) -> bool | None:
        """Whether there are parts to measure with."""
        return bool(self.tables) or None

    @cached_property
    def folds(self) -> list[Fold]:
        """The trainings without a part, and that part."""
        dataset = self.dataloader.dataset
        names = [sample_name(dataset.get_data_info(i)) for i in range(len(dataset))]
        return [self._fold(Path(table), names) for table in self.tables]

    def _fold(self, table: Path, names: list[str]) -> Fold:
        rows = read_table(table)
        held = {row.image for row in rows if row.split == 'val'}
        images = np.array([i for i, name in enumerate(names) if name in held])
        fields = dict(self.runner.cfg.model)
        fields['space'] = dict(fields['space'], table=str(table))
        network = MODELS.build(fields)
        with safe_loading():
            load_checkpoint(network, str(max(table.parent.glob('epoch_*.pth'))),
                            map_location='cpu', logger='silent')
        network.eval()
        found = run_all(network, self.dataloader, images, lambda batch: [
            *(batch.features.paths[path] for path in PATHS),
            *(batch.labels[name] for name in LABELS)])
        whole = self.dataloader.dataset.space
        seen = {(row.attribute, row.object) for row in rows if row.split == 'train'}
        space = CompositionSpace(whole.attributes, whole.objects, whole.pairs, [
            (whole.attributes[attr], whole.objects[obj]) in seen
            for attr, obj in whole.pairs.tolist()])
        return Fold(network.head, space, images, as_features(found[:len(PATHS)]),
                    dict(zip(LABELS, found[len(PATHS):])))
