"""Datasets in the published layout: pair lists, a metadata file, a folder of images."""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from mmcluspro.errors import Fault, raise_faults
from mmcluspro.registry import DATASETS

from .czsl_dataset import CZSLDataset
from .folders import ImageFolder
from .layout import (
    DEFAULT_SPLIT,
    metadata_file,
    missing_file,
    read_metadata,
    read_splits,
    row_faults,
    select_rows,
)
from .space import CompositionSpace


class Counts(NamedTuple):
    """Expected numbers; ``images`` of a phase below 1000 stand for thousands, None is not known.

    Attributes:
        primitives (tuple): Attributes, objects.
        train (int): Training pairs.
        val (tuple): Seen and unseen validation pairs.
        test (tuple): Seen and unseen test pairs.
        images (tuple): Images of train, val, test.
        total (int, optional): Images of the three together.
    """
    primitives: tuple[int, int] | None = None
    train: int | None = None
    val: tuple[int, int] | None = None
    test: tuple[int, int] | None = None
    images: tuple[int, int, int] | None = None
    total: int | None = None


class PublishedCZSL(CZSLDataset):
    """Base class of :class:`MITStates`, :class:`UTZappos`, :class:`CGQA` and others.

    What the package knows about a dataset stands in its class, and a registered subclass is known
    to all commands by the name of the class in lower case: a new dataset is one class and one
    config.

    The layout is that of :mod:`mmcluspro.datasets.layout`. Rows are selected by their ``set``. Rows
    with ``NA`` and rows whose pair is in no list are skipped and counted in :func:`repr`.

    Args:
        data_root (str): Folder that holds ``images/``, the split folder and the
            metadata file.
        phase (str): 'train', 'val' or 'test'. Defaults to 'train'.
        split (str, optional): Folder of the pair lists, also part of the metadata file's
            name. Defaults to None: that of the class, mostly 'compositional-split-natural'.
        allow_unknown (bool): Warn instead of raising an error if a primitive has no training pair.
            Defaults to False.
        check_images (bool | str): True: a row without an image file is an error; 'skip': such rows
            are skipped and counted; False: files are not checked, and paths are used as in the
            metadata. Defaults to True.
        follow_links (bool): Allow links in the image folder that lead out of ``data_root``.
            Defaults to False.
        **kwargs: ``pipeline``, ``test_mode``, ``indices``, ``lazy_init`` ... of
            :class:`CZSLDataset`.
    """

    #: Where configs and commands look for the dataset.
    ROOT: ClassVar[str] = ''
    #: The split that is meant when none is named.
    SPLIT: ClassVar[str] = DEFAULT_SPLIT
    #: Published counts by split; '' is any split.
    COUNTS: ClassVar[Mapping[str, Counts]] = {}
    #: The first 16 digits of SHA-256 over the sorted pairs of the published lists, a line each, by
    #: phase, as far as they are known to us.
    LISTS: ClassVar[Mapping[str, str]] = {}
    #: Keys of a row that may name the image file, the first that exists counts.
    IMAGE_KEYS: ClassVar[tuple[str, ...]] = ('image', )
    #: Separator between the names of a pair in the lists; None is white space.
    SEPARATOR: ClassVar[str | None] = None

    def __init__(self,
                 data_root: str,
                 phase: str = 'train',
                 split: str | None = None,
                 allow_unknown: bool = False,
                 check_images: bool | str = True,
                 follow_links: bool = False,
                 **kwargs: Any) -> None:
        if check_images not in (True, False, 'skip'):
            raise ValueError(f"check_images must be True, False or 'skip', got {check_images!r}.")
        self.split = split = split or self.SPLIT
        self.check_images = check_images
        self.follow_links = follow_links
        self._lists = read_splits(data_root, split, allow_unknown, self.SEPARATOR)
        kwargs.setdefault('data_prefix', 'images')
        super().__init__(
            space=CompositionSpace.from_lists(self._lists, phase),
            known=CompositionSpace.from_lists(self._lists, 'all'),
            phase=phase,
            data_root=os.path.expanduser(data_root),
            **kwargs)

    @classmethod
    def make_space(  # type: ignore[override]
            cls, phase: str = 'train', *, data_root: str, split: str | None = None,
            allow_unknown: bool = False) -> CompositionSpace:
        return CompositionSpace.from_lists(
            read_splits(data_root, split or cls.SPLIT, allow_unknown, cls.SEPARATOR), phase)

    def load_data_list(self) -> list[dict]:
        path = metadata_file(self.data_root, self.split)
        rows = read_metadata(path)
        raise_faults(row_faults(rows, path),
                     'Each row of the metadata needs image, attr, obj and set.')
        selection = select_rows(rows, self._lists, self.phase, path)
        raise_faults(selection.faults,
                     'The metadata and the pair lists belong to different splits; check the config '
                     f'field split={self.split!r}.')
        self.skipped = dict(selection.skipped)
        numbers, paths = self._find_images(rows, selection.numbers, str(path))
        if not numbers:
            raise ValueError(f'{path} has no image for phase={self.phase!r} '
                             f'(rows: {len(rows)}, skipped: {self.skipped or "none"}).')
        labels = self.labels([rows[i]['attr'] for i in numbers], [rows[i]['obj'] for i in numbers])
        return [{'img_path': image, 'name': rows[i]['image'], **label}
                for i, image, label in zip(numbers, paths, labels)]

    def _find_images(self, rows: list[dict], numbers: list[int],
                     path: str) -> tuple[list[int], list[str]]:
        if not self.check_images:
            return numbers, [os.path.join(self.img_prefix, rows[i]['image']) for i in numbers]
        folder = ImageFolder(self.img_prefix, self.data_root, self.follow_links)
        if not folder.root.is_dir():
            raise missing_file(folder.root, 'image folder')
        found = {i: folder.find(*(rows[i][key] for key in self.IMAGE_KEYS if key in rows[i]))
                 for i in numbers}
        missing = [i for i, image in found.items() if image is None]
        if self.check_images == 'skip':
            self.skipped.update({'image file missing': len(missing)} if missing else {})
        else:
            raise_faults(
                [Fault('image', f'{path} row {i}', f'no image {rows[i]["image"]!r} in '
                       f'{folder.root}') for i in missing],
                "Complete the images, or set check_images='skip' to leave these rows out."
                + folder.remark)
        return ([i for i in numbers if found[i]],
                [image for i in numbers if (image := found[i])])


def published_datasets() -> dict[str, type[PublishedCZSL]]:
    """The registered datasets of the published layout, by the names that commands take.

    Examples:
        >>> published_datasets()['utzappos'].ROOT
        'data/ut-zap50k'
    """
    return {kind.__name__.lower(): kind for kind in DATASETS.module_dict.values()
            if issubclass(kind, PublishedCZSL)}


@DATASETS.register_module()
class MITStates(PublishedCZSL):
    """MIT-States (Isola et al., 2015) with the compositional split (Purushwalkam et al., 2019).

    The archive's folders have spaces ("ancient building/"), the metadata
    underscores: both are found; ``tools/dataset_converters/prepare_mit_states.py``
    renames them. Arguments as in :class:`~mmcluspro.datasets.PublishedCZSL`.
    """

    ROOT = 'data/mit-states'
    COUNTS = {'': Counts((115, 245), 1262, (300, 300), (400, 400), (30, 10, 13), 53753)}
    LISTS = {'train': '54e7688f3cec6d20'}


@DATASETS.register_module()
class UTZappos(PublishedCZSL):
    """UT-Zappos50K (Yu and Grauman, 2014) with the compositional split.

    A row names its image twice: ``image`` ("<attr>_<obj>/<file>", made by
    ``tools/dataset_converters/prepare_ut_zappos.py``) and ``_image`` (the path
    in the original archive). The first that exists below ``images/`` counts, so
    the archive unpacked as ``images/`` works as well. Arguments as in
    :class:`~mmcluspro.datasets.PublishedCZSL`.
    """

    ROOT = 'data/ut-zap50k'
    COUNTS = {'': Counts((16, 12), 83, (15, 15), (18, 18), (22998, 3, 3))}
    LISTS = {'train': 'ffda9139054c9d68', 'val': '26370ddbe6a0eb49', 'test': '435668fa870685f1'}
    IMAGE_KEYS = ('image', '_image')


@DATASETS.register_module()
class CGQA(PublishedCZSL):
    """C-GQA (Naeem et al., 2021): all images lie flat in ``images/``.

    133 training pairs have no image in the old release; they stay in the label
    space. Of its validation pairs 1040 are seen and 1252 unseen, counted in the lists; the paper's
    table has the two swapped. Arguments as in :class:`~mmcluspro.datasets.PublishedCZSL`.
    """

    ROOT = 'data/cgqa'
    COUNTS = {'': Counts((413, 674), 5592, (1040, 1252), (888, 923), (27, 7, 5), 39298)}
    LISTS = {'train': 'ea2d13b171a6f656', 'val': '04d9972c3ce1fe64', 'test': '606a6e1555f16c8f'}


@DATASETS.register_module()
class VAWCZSL(PublishedCZSL):
    """VAW-CZSL (Saini et al., 2022): attributes of objects cut out of Visual Genome's images.

    The lines of its pair lists are "attribute+object", because names have spaces ("light blue").
    Arguments as in :class:`~mmcluspro.datasets.PublishedCZSL`.
    """

    ROOT = 'data/vaw-czsl'
    COUNTS = {'': Counts()}  # no published table could be looked up
    SEPARATOR = '+'


@DATASETS.register_module()
class AOCLEVr(PublishedCZSL):
    """AO-CLEVr (Atzmon et al., 2020): 8 colours of 3 shapes, rendered with CLEVr's engine.

    The release of IVR has the published layout. The splits of the original release are pickles;
    ``tools/dataset_converters/prepare_ao_clevr.py`` writes pair lists and metadata from them, with
    ``split='UV_random-5000-0'`` and so on. Arguments as in
    :class:`~mmcluspro.datasets.PublishedCZSL`.
    """

    ROOT = 'data/ao-clevr'
    COUNTS = {'': Counts((8, 3))}  # its splits differ


@DATASETS.register_module()
class Clothing16K(PublishedCZSL):
    """Clothing16K (Zhang et al., 2022): 9 colours of 8 kinds of clothes.

    Arguments as in :class:`~mmcluspro.datasets.PublishedCZSL`.
    """

    ROOT = 'data/clothing16k'
    COUNTS = {'': Counts((9, 8), 18, (10, 10), (9, 8), (7242, 5515, 3413), 16170)}
