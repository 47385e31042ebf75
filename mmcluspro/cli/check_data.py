"""Counts a dataset and lists what is wrong with it: ``mmcluspro check-data``."""
from collections.abc import Sequence
from pathlib import Path

from mmcluspro.datasets.dataset_check import check_dataset
from mmcluspro.datasets.folder_tree import empty_folders, left_out
from mmcluspro.datasets.photo_check import check_photos, is_own_data, is_table
from mmcluspro.datasets.table_file import Columns
from mmcluspro.errors import printable
from mmcluspro.flags.data_flags import parse_check_data


def main(argv: Sequence[str] | None = None) -> int:
    """Parses the command line and runs it."""
    args = parse_check_data(argv)
    _check_root(Path(args.root).expanduser(), args.dataset)
    if args.dataset == 'generic' and args.split is None and is_own_data(args.root):
        report = check_photos(args.root, args.separator, args.decode, Columns(**args.columns))
    else:
        report = check_dataset(args.root, args.dataset, args.split, args.decode)
    print(report.text(args.limit))
    if is_own_data(args.root) and Path(args.root).expanduser().is_dir():
        for line in filter(None, (left_out(args.root), empty_folders(args.root))):
            print(printable(line))
    return 0 if report.ok else 1


def _check_root(root: Path, dataset: str) -> None:
    """Raises a clear error if there is nothing to check."""
    if not root.exists():
        raise FileNotFoundError(f'{root} does not exist. Give a folder of images, a table (.csv, '
                                '.tsv), or the folder of a published dataset.')
    if root.is_file() and not is_table(root):
        raise ValueError(f'{root} is neither a folder nor a table (.csv, .tsv).')
    if dataset == 'generic' and root.is_dir() and not is_own_data(root) and not any(
            root.rglob('*_pairs.txt')):
        raise ValueError(
            f'No image below {root}; expected folders attribute_object/ of images, or a published '
            'dataset with images/ and lists of pairs (docs/data.md).')
