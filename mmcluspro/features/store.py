"""Reads stored features, after checking that they belong to the dataset that asks."""
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from mmcv.transforms import BaseTransform

from mmcluspro.registry import TRANSFORMS

from .folder import (
    NAMES,
    command,
    differences,
    find_shards,
    list_change,
    plain,
    read_facts,
    read_json,
    read_shard,
    sample_name,
)


class FeatureStore:
    """The features of one phase.

    Args:
        root (str | Path): Folder that ``mmcluspro extract-features`` wrote.
        phase (str): 'train', 'val' or 'test'.
    """

    def __init__(self, root: str | Path, phase: str) -> None:
        self.root, self.phase = str(root), phase
        self.folder = Path(root).expanduser() / phase
        self.facts = read_facts(root)
        try:
            self.names: list[str] = read_json(self.folder / NAMES, list, root)
        except FileNotFoundError:
            raise FileNotFoundError(
                f'{root} has no features of phase {phase!r}. Make them first:\n'
                f'  {command(root)}') from None
        self.rows = {name: row for row, name in enumerate(self.names)}
        self._shards: list[np.ndarray] | None = None
        self.open()

    def open(self) -> list[np.ndarray]:
        """Maps all shards into memory, once, and checks that they are whole."""
        if self._shards is None:
            size = self.facts['shard_size']
            count = -(-len(self.names) // size)
            files = find_shards(self.folder)
            missing = [number for number in range(count) if number not in files]
            if missing:
                raise ValueError(
                    f'The features in {self.folder} are not complete: {len(missing)} of {count} '
                    f'shards are missing. The same command continues:\n  {command(self.root)}')
            shards = [read_shard(files[number], min(size, len(self.names) - number * size))
                      for number in range(count)]
            if len({(shard.shape[1], shard.dtype) for shard in shards}) > 1:
                raise ValueError(f'The shards in {self.folder} differ in width or dtype. Delete '
                                 f'the folder and make them again:\n  {command(self.root)}')
            self._shards = shards
        return self._shards

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, name: str) -> np.ndarray:
        """The feature of an image by its name, shape (D,), float32."""
        if name not in self.rows:
            raise ValueError(f'{self.folder} has no feature of image {name!r}. Make the features '
                             f'of this image list in another folder:\n  {command(self.root)}')
        shard, row = divmod(self.rows[name], self.facts['shard_size'])
        return self.open()[shard][row].astype(np.float32)

    def check(self, names: Sequence[str], pipeline: Sequence, subset: bool) -> None:
        """Refuses another image list or pipeline than those of the extraction.

        Args:
            names (Sequence[str]): Images of the dataset, in order.
            pipeline (Sequence): Its transforms, as the config has them.
            subset (bool): Whether ``names`` is a part of the list by intention.
        """
        if subset:
            change = next((f'image {name!r} is not in it' for name in names
                           if name not in self.rows), '')
        else:
            change = list_change(self.names, names)
        if change:
            raise ValueError(
                f'{self.folder} is of another image list: {change}. Make the features of this one '
                f'in another folder:\n  {command("NEW_FOLDER")}')
        changes = list(differences(self.facts['pipeline'], plain(pipeline), 'pipeline'))
        if pipeline and changes:
            raise ValueError(
                f'The features in {self.root} were made with another pipeline than that of '
                f'phase {self.phase!r}: {"; ".join(changes)}. Features cannot be augmented: set '
                'pipeline to the one of the extraction (the test pipeline), or make them again.')

    def __getstate__(self) -> dict:
        """Dataloader workers map the files again; pickled maps would become copies."""
        return {**self.__dict__, '_shards': None}


@TRANSFORMS.register_module()
class LoadFeature(BaseTransform):
    """Adds ``feature`` (D,) to a sample instead of loading and preparing its image.

    A dataset with ``features=root`` inserts it into its own pipeline.

    Args:
        root (str): Folder that ``mmcluspro extract-features`` wrote.
        phase (str): 'train', 'val' or 'test'.
    """

    def __init__(self, root: str, phase: str) -> None:
        self.store = FeatureStore(root, phase)

    def transform(self, results: dict) -> dict:
        results['feature'] = self.store[sample_name(results)]
        return results


def feature_pipeline(pipeline: Sequence, root: str, phase: str) -> list:
    """Replaces the image transforms: load the feature, then pack it as the last one did."""
    last = pipeline[-1] if pipeline else None
    packs = isinstance(last, Mapping) and str(last['type']).split('.')[-1] == 'PackInputs'
    tail = [dict(last, input_key='feature')] if packs and last else []
    return [LoadFeature(root, phase), *tail]
