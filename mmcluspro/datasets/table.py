"""Your own data: a CSV file or a tree of folders."""
from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmcluspro.errors import Fault, raise_faults
from mmcluspro.registry import DATASETS

from .czsl_dataset import CZSLDataset
from .folders import ImageFolder, scan_folders
from .space import CompositionSpace
from .splitting import make_split as split_rows
from .table_file import MAKE_ONE, TableRow, read_table, table_pairs


@DATASETS.register_module()
class TableCZSL(CZSLDataset):
    """Your own images, labelled by a table or by their folders.

    ``table`` is a CSV file with the header ``image,attribute,object,split`` (``image`` relative to
    ``data_root``, or an absolute path below it; ``split`` is train, val or test). Without a table,
    folders ``attribute_object/`` below ``data_root``, or below ``train/``, ``val/`` and ``test/``
    in it, are read. The seen pairs are those of the training rows.

    Args:
        data_root (str): Folder of the images.
        phase (str): 'train', 'val' or 'test'. Defaults to 'train'.
        table (str, optional): CSV file, absolute or relative to ``data_root``. Defaults to None:
            folders.
        separator (str): Separates attribute and object in the name of a folder; it must occur once.
            '/' means folders ``attribute/object/``. Defaults to '_'.
        make_split (dict, optional): Arguments of :func:`mmcluspro.datasets.make_split`, such as
            ``dict(seed=0)``, for data without a split. Every process makes the same split. Defaults
            to None.
        allow_unknown (bool): Warn instead of raising an error if a primitive has no training row.
            Defaults to False.
        check_images (bool | str): True: a row without an image file is an error; 'skip': such rows
            are skipped and counted; False: files are not checked. Defaults to True.
        follow_links (bool): Allow links in the image folder that lead out of ``data_root``.
            Defaults to False.
        **kwargs: ``pipeline``, ``test_mode`` ... of :class:`CZSLDataset`.
    """

    def __init__(self,
                 data_root: str,
                 phase: str = 'train',
                 table: str | None = None,
                 separator: str = '_',
                 make_split: Mapping[str, Any] | None = None,
                 allow_unknown: bool = False,
                 check_images: bool | str = True,
                 follow_links: bool = False,
                 **kwargs: Any) -> None:
        if check_images not in (True, False, 'skip'):
            raise ValueError(f"check_images must be True, False or 'skip', got {check_images!r}.")
        self.check_images = check_images
        self.follow_links = follow_links
        rows, self._source = _read(data_root, table, separator, make_split)
        lists = table_pairs(rows, self._source, allow_unknown)
        self._rows = [row for row in rows if row.split == phase]
        super().__init__(
            space=CompositionSpace.from_lists(lists, phase),
            known=CompositionSpace.from_lists(lists, 'all'),
            phase=phase,
            data_root=os.path.expanduser(data_root),
            **kwargs)

    @classmethod
    def make_space(  # type: ignore[override]
            cls, phase: str = 'train', *, data_root: str, table: str | None = None,
            separator: str = '_', make_split: Mapping[str, Any] | None = None,
            allow_unknown: bool = False) -> CompositionSpace:
        rows, source = _read(data_root, table, separator, make_split)
        return CompositionSpace.from_lists(table_pairs(rows, source, allow_unknown), phase)

    def load_data_list(self) -> list[dict]:
        rows, paths = self._rows, [os.path.join(self.data_root, row.image) for row in self._rows]
        if self.check_images:
            folder = ImageFolder(self.data_root, follow_links=self.follow_links)
            found = [folder.find(row.image) for row in rows]
            missing = [row for row, path in zip(rows, found) if path is None]
            if self.check_images == 'skip':
                self.skipped = {'image file missing': len(missing)} if missing else {}
            else:
                raise_faults(
                    [Fault('image', f'{self._source}:{row.line}',
                           f'no image {row.image!r} in {folder.root}') for row in missing],
                    "Correct the table or the config field data_root, or set check_images='skip' "
                    'to leave these rows out.' + folder.remark)
            rows = [row for row, path in zip(rows, found) if path]
            paths = [path for path in found if path]
        if not rows:
            raise ValueError(f'{self._source} has no image for phase={self.phase!r}.')
        labels = self.labels([row.attribute for row in rows], [row.object for row in rows])
        return [{'img_path': path, 'name': row.image, **label}
                for row, path, label in zip(rows, paths, labels)]


def _read(data_root: str, table: str | None, separator: str,
          make_split: Mapping[str, Any] | None) -> tuple[list[TableRow], Path]:
    root = Path(data_root).expanduser()
    source = root if table is None else root / Path(table).expanduser()
    rows = scan_folders(root, separator) if table is None else read_table(
        source, need_split=make_split is None, root=root.absolute())
    if make_split is None:
        if not rows[0].split:
            raise ValueError(f'The folders below {root} have no split; {MAKE_ONE}.')
        return rows, source
    if rows[0].split:
        raise ValueError(f'{source} already has a split; remove make_split from the config, or the '
                         'split (a column of the table, or folders train/, val/ and test/).')
    return split_rows(rows, **make_split), source
