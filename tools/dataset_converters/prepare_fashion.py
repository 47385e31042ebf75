#!/usr/bin/env python
"""Prepares the dataset `Fashion` from Kaggle's "Fashion Product Images (Small)".

Download it (kaggle.com/datasets/paramaggarwal/fashion-product-images-small), unpack it, then

    python tools/dataset_converters/prepare_fashion.py data/fashion --source ~/Downloads/archive

SOURCE holds styles.csv and images/<id>.jpg, or images.tar instead of the folder. The photographs
of the version are copied (or linked with --mode) to ROOT/images/<colour>_<type>/, pair lists and
metadata with the titles are written, and the result is checked: missing and unreadable
photographs are listed and counted. It can be run again at any time and deletes nothing.
"""
import argparse
import lzma
import re
import sys
import tarfile
import zlib
from pathlib import Path

from mmcluspro.datasets.dataset_check import check_dataset
from mmcluspro.datasets.fashion import VERSION, Product, Version, read_styles, read_version
from mmcluspro.datasets.file_steps import Step, carry_out
from mmcluspro.datasets.layout import write_layout
from mmcluspro.engine.messages import run_command
from mmcluspro.errors import FileError, reason_of
from mmcluspro.utils.files import inside, write_bytes

LARGEST = 1 << 26  # bytes of a photograph; those of the set have a few thousand


def image_name(product: Product) -> str:
    """Path of a photograph below images/."""
    return f'{product.attribute}_{product.object}/{product.id}.jpg'


def find_source(folder: Path) -> tuple[Path, Path]:
    """styles.csv, and the folder or tar of images: in ``folder`` or one level deeper."""
    for place in (folder, *sorted(path for path in folder.glob('*') if path.is_dir())):
        for images in (place / 'images', place / 'images.tar'):
            if (place / 'styles.csv').is_file() and images.exists():
                return place / 'styles.csv', images
    raise FileNotFoundError(
        f'{folder} has no styles.csv beside a folder images/ (or images.tar). Unpack the archive '
        'of kaggle.com/datasets/paramaggarwal/fashion-product-images-small and set --source.')


def unpack(archive: Path, targets: dict[int, Path]) -> None:
    """Writes the wanted photographs of a tar; only the numbers in its names are used."""
    written = 0
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                found = re.fullmatch(r'(?:.*/)?([0-9]{1,9})\.jpg', member.name, re.DOTALL)
                target = targets.get(int(found[1])) if found else None
                if target is None or not member.isfile() or target.exists():
                    continue
                if member.size > LARGEST:  # it may be made of holes, which take no room in a tar
                    raise ValueError(f'{member.name[-40:]!r} claims {member.size:,} bytes')
                file = tar.extractfile(member)
                target.parent.mkdir(parents=True, exist_ok=True)
                write_bytes(target, file.read() if file else b'')
                written += 1
    except (tarfile.TarError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise FileError(archive, f'it cannot be unpacked ({reason_of(error)})', f'{written} '
                        'photographs are in place. Download the archive again.') from error
    print(f'{written} unpacked, of {len(targets)}')


def compare_labels(version: Version, styles: dict[int, Product]) -> None:
    """Says where the table and the version disagree; the version counts."""
    products = [product for group in version.phases.values() for product in group]
    missing = [product for product in products if product.id not in styles]
    other = [product for product in products if product.id in styles
             and styles[product.id][1:3] != product[1:3]]
    for what, found in (('are not in styles.csv', missing), ('have another label there', other)):
        if found:
            print(f'{len(found)} of {len(products)} products {what}, first {found[0].id} '
                  f'({found[0].attribute} {found[0].object}); the labels of the version count.')


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('root', type=Path, help='folder of the dataset, the later data_root')
    parser.add_argument('--source', type=Path, help='the unpacked archive (default: ROOT)')
    parser.add_argument('--mode', choices=('copy', 'hardlink'), default='copy')
    parser.add_argument('--version', default=VERSION,
                        help=f'version, or a file of draw_fashion.py (default: {VERSION})')
    parser.add_argument('--dry-run', action='store_true', help='only print what would be done')
    args = parser.parse_args(argv)
    version = read_version(args.version)
    split = Path(args.version).stem if args.version != VERSION else VERSION
    table, images = find_source(args.source or args.root)
    products, left_out = read_styles(table)
    styles = {product.id: product for product in products}
    print(f'{table}: {len(products)} products'
          + ''.join(f', {number} left out ({reason})' for reason, number in left_out.items()))
    compare_labels(version, styles)
    targets = {product.id: inside(args.root, f'images/{image_name(product)}')
               for group in version.phases.values() for product in group}
    if args.dry_run or images.is_dir():
        carry_out([Step(args.mode, images / f'{number}.jpg', target)
                   for number, target in targets.items()], args.root, args.dry_run)
    else:
        unpack(images, targets)
    if args.dry_run:
        return 0
    rows = [dict(image=image_name(product), attr=product.attribute, obj=product.object, set=phase,
                 title=styles[product.id].title if product.id in styles else '')
            for phase, group in version.phases.items() for product in group]
    write_layout(args.root, rows, version.pairs(), split)
    report = check_dataset(args.root, 'fashion' if split == VERSION else 'generic', split,
                           decode=True)
    print(report)
    return 0 if report.ok else 1


if __name__ == '__main__':
    run_command(lambda: sys.exit(main()))
