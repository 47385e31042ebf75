"""Base class of the datasets: samples of attribute-object pairs with a label space."""
from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from mmengine.logging import print_log
from mmpretrain.datasets import BaseDataset

from mmcluspro.errors import printable
from mmcluspro.features.store import LoadFeature, feature_pipeline, sample_name

from .folders import undecodable
from .layout import PHASES
from .pictures import check_file_size
from .space import CompositionSpace

OnBadImage = Literal['error', 'skip']


class BadImages:
    """Raises about unreadable image files, or counts and names them.

    Args:
        action (str): The config field ``on_bad_image``: 'error' or 'skip'.
        replaceable (bool): Whether another sample may take the place, as in training.

    Attributes:
        count (Tensor): Files left out so far, by all dataloader workers, shape (1,).
    """

    def __init__(self, action: OnBadImage, replaceable: bool) -> None:
        if action not in ('error', 'skip'):
            raise ValueError(f"on_bad_image must be 'error' or 'skip', got {action!r}.")
        self.action, self.replaceable = action, replaceable
        # Workers are other processes: they share this number with the first one.
        self.count = torch.zeros(1, dtype=torch.int64)
        if action == 'skip':
            self.count.share_memory_()
        self._named: set[str] = set()

    def handle(self, info: Mapping[str, Any], error: Exception) -> None:
        """Decides about a sample on which the pipeline failed.

        Args:
            info (Mapping): The sample.
            error (Exception): What the pipeline raised; raised again unless the file is at fault.
        """
        path = str(info.get('img_path', '://'))
        local = '://' not in path
        reason = why_unreadable(path) if local else None
        if reason is None:
            raise error
        if self.action == 'error' or not self.replaceable:
            advice = ("Repair or remove it, or set on_bad_image='skip' in "
                      'train_dataloader.dataset to skip such files'
                      if self.replaceable else 'Repair it, or remove it from the data: validation '
                      'and test use every image')
            raise ValueError(f'The image {path} cannot be read ({reason}). {advice}. mmcluspro '
                             'check-data --decode finds all of them.') from None
        if path not in self._named:
            self._named.add(path)
            self.count += 1
            print_log(f'The image {printable(path)} cannot be read ({reason}) and is left out; '
                      f'{int(self.count)} so far.', 'current', logging.WARNING)


def why_unreadable(path: str) -> str | None:
    """Reason why an image file cannot be decoded; None if it can."""
    bad = undecodable([path])
    return bad[0][1].replace(f' {path!r}', '') if bad else None


class CZSLDataset(BaseDataset):
    """Images labelled with an attribute and an object.

    A subclass has a classmethod :meth:`make_space`, implements ``load_data_list`` with the help of
    :meth:`labels`, and may count skipped rows in ``self.skipped`` (reason -> number), which
    :func:`repr` shows.

    A sample has ``img_path`` (or ``img``), for files their ``name`` in the data,
    ``attr_label``, ``obj_label``, ``pair_label`` (row of ``self.space.pairs``) and, for classifiers
    of mmpretrain, ``gt_label``: its row among the pairs of all three phases, the same in each
    phase. ``metainfo`` has ``space`` (see :meth:`CompositionSpace.to_dict`), ``known_pairs`` (the
    pairs of all phases, rows of attribute and object index) and ``classes`` (their raw names), so
    that a checkpoint carries the label space.

    Args:
        space (CompositionSpace): Pairs of the phase.
        known (CompositionSpace): Pairs of all phases.
        phase (str): 'train', 'val' or 'test'. Defaults to 'train'.
        data_root (str): Folder of the data. Defaults to ''.
        pipeline (Sequence): Transforms. Defaults to ().
        test_mode (bool, optional): Raise an error if the pipeline returns None for a sample;
            otherwise another sample replaces it. Defaults to None: True except in training.
        features (str, optional): Folder that ``mmcluspro extract-features`` wrote. Samples then
            contain the stored feature instead of the image. ``pipeline`` must be that of the
            extraction; only its packing step is run. Defaults to None.
        on_bad_image (str): What to do if an image file cannot be decoded. 'error' raises an error
            that names it. 'skip', for training, logs and counts it and replaces it by another
            sample. Defaults to 'error'.
        **kwargs: ``indices``, ``serialize_data``, ``lazy_init``,
            ``max_refetch`` ... of mmpretrain's ``BaseDataset``.
    """

    def __init__(self,
                 space: CompositionSpace,
                 known: CompositionSpace,
                 phase: str = 'train',
                 data_root: str = '',
                 pipeline: Sequence = (),
                 test_mode: bool | None = None,
                 metainfo: dict | None = None,
                 features: str | None = None,
                 on_bad_image: OnBadImage = 'error',
                 **kwargs: Any) -> None:
        if phase not in PHASES:
            raise ValueError(f"phase must be 'train', 'val' or 'test', got {phase!r}.")
        self.space, self.known = space, known
        self.phase = phase
        self.skipped: dict[str, int] = {}
        self.features = features
        self._image_pipeline = pipeline
        test_mode = phase != 'train' if test_mode is None else test_mode
        self.bad_images = BadImages(on_bad_image, replaceable=not test_mode)
        if features is not None:
            pipeline = feature_pipeline(pipeline, features, phase)
        state = space.to_dict()
        names = [f'{known.attributes[attr]} {known.objects[obj]}'
                 for attr, obj in known.pairs.tolist()]
        metainfo = {'classes': tuple(names), **(metainfo or {}), 'space': state,
                    'known_pairs': known.pairs.tolist()}
        super().__init__(
            ann_file=kwargs.pop('ann_file', ''),
            metainfo=metainfo,
            data_root=data_root,
            pipeline=pipeline,
            test_mode=test_mode,
            **kwargs)

    def full_init(self) -> None:
        """Reads the samples; with ``features``, compares them with the stored image list."""
        if self._fully_initialized:
            return
        super().full_init()
        if self.features is not None:
            load: LoadFeature = self.pipeline.transforms[0]
            names = [sample_name(self.get_data_info(i)) for i in range(len(self))]
            load.store.check(names, self._image_pipeline, subset=self._indices is not None)

    def prepare_data(self, idx: int) -> Any:
        """A sample after the pipeline; None if the image is skipped."""
        info = self.get_data_info(idx)
        try:
            if self.features is None and '://' not in info.get('img_path', '://'):
                check_file_size(info['img_path'])  # before a decoder fills the memory
            return self.pipeline(dict(info))
        except Exception as error:
            if self.features is not None:
                raise
            self.bad_images.handle(info, error)
            return None

    @classmethod
    def make_space(cls, phase: str = 'train', **kwargs: Any) -> CompositionSpace:
        """The space of 'train', 'val', 'test' or 'all' from the dataset's own arguments."""
        raise NotImplementedError(f'{cls.__name__} must define make_space.')

    def labels(self, attrs: Sequence[str], objs: Sequence[str]) -> list[dict[str, int]]:
        """The label fields of samples from raw names that are in the space."""
        attr_index = {name: i for i, name in enumerate(self.space.attributes)}
        obj_index = {name: i for i, name in enumerate(self.space.objects)}
        attr_labels = [attr_index[name] for name in attrs]
        obj_labels = [obj_index[name] for name in objs]
        pair_labels, known_labels = (space.lookup(attr_labels, obj_labels).tolist()
                                     for space in (self.space, self.known))
        return [
            {'attr_label': attr, 'obj_label': obj, 'pair_label': pair, 'gt_label': known}
            for attr, obj, pair, known in zip(attr_labels, obj_labels, pair_labels, known_labels)
        ]

    def extra_repr(self) -> list[str]:
        seen = int(self.space.seen.sum())
        body = [
            f'Phase: \t{self.phase}',
            f'Primitives: \t{len(self.space.attributes)} attributes, '
            f'{len(self.space.objects)} objects',
            f'Pairs: \t{seen} seen, {len(self.space) - seen} unseen',
        ]
        body += [f'Skipped: \t{number} ({reason})' for reason, number in self.skipped.items()]
        if self.features is not None:
            body.append(f'Features: \t{self.features}')
        if self.data_root:
            body.append(f'Root of the data: \t{self.data_root}')
        return body
