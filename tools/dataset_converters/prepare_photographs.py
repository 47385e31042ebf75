#!/usr/bin/env python
"""Prepares `Fashion`, `PlantVillage` or `Grocery` from the folder that their authors publish.

Download and unpack it (docs/real_datasets.md says from where), then

    python tools/dataset_converters/prepare_photographs.py fashion --source ~/Downloads/archive
    python tools/dataset_converters/prepare_photographs.py grocery --source ~/GroceryStoreDataset

The photographs of a split of the package are copied (or linked with --mode) to
ROOT/images/<attribute>_<object>/, pair lists and metadata are written, and the result is checked:
missing and unreadable photographs are listed and counted. It can be run again at any time and
deletes nothing. Fashion may have images.tar instead of the folder images/.
"""
import argparse
import lzma
import sys
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from file_steps import Step, carry_out

from mmcluspro.datasets.check import check_dataset
from mmcluspro.datasets.layout import write_layout
from mmcluspro.datasets.photographs import Photograph, PhotographSet, Version, read_version
from mmcluspro.datasets.published import published_datasets
from mmcluspro.engine.messages import run_command
from mmcluspro.errors import FileError, reason_of
from mmcluspro.utils.files import inside, write_bytes

LARGEST = 1 << 26  # bytes of a photograph in a tar
KINDS: dict[str, type[PhotographSet]] = {
    name: kind for name, kind in published_datasets().items() if issubclass(kind, PhotographSet)}


def image_name(photo: Photograph, image: str) -> str:
    """Path of a photograph below images/; ``image`` is its path in the source."""
    suffix = PurePosixPath(image).suffix.lower() or '.jpg'
    return f'{photo.attribute}_{photo.object}/{photo.id}{suffix}'


def unpack(archive: Path, targets: dict[str, Path]) -> None:
    """Writes the wanted photographs of a tar; only the last part of its names is looked at."""
    written = 0
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                target = targets.get(member.name.rpartition('/')[2])
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


def compare_labels(version: Version, source: dict[str, Photograph]) -> None:
    """Says where the source and the split disagree; the split counts."""
    photos = [photo for group in version.phases.values() for photo in group]
    missing = [photo for photo in photos if photo.id not in source]
    other = [photo for photo in photos if photo.id in source
             and source[photo.id].pair != photo.pair]
    for what, found in (('are not in the source', missing), ('have another label there', other)):
        if found:
            print(f'{len(found)} of {len(photos)} photographs {what}, first {found[0].id} '
                  f'({" ".join(found[0].pair)}); the labels of the split count.')


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('dataset', choices=KINDS)
    parser.add_argument('root', type=Path, nargs='?', help='folder of the dataset, the later '
                        'data_root (default: data/<dataset>)')
    parser.add_argument('--source', type=Path, help='what its authors publish (default: ROOT)')
    parser.add_argument('--mode', choices=('copy', 'hardlink'), default='copy')
    parser.add_argument('--version', help='split of the package, or a file of '
                        'draw_photographs.py (default: that of the dataset)')
    parser.add_argument('--dry-run', action='store_true', help='only print what would be done')
    args = parser.parse_args(argv)
    kind = KINDS[args.dataset]
    root = args.root or Path(kind.ROOT)
    version = read_version(args.version or kind.SPLIT)
    split = Path(args.version or kind.SPLIT).stem
    folder = kind.find_source(args.source or root)
    photos, left_out = kind.read_source(folder)
    source = {photo.id: photo for photo in photos}
    print(f'{folder}: {len(photos)} photographs'
          + ''.join(f', {number} left out ({reason})' for reason, number in left_out.items()))
    compare_labels(version, source)
    wanted = [(photo, phase, source.get(photo.id, photo))
              for phase, group in version.phases.items() for photo in group]
    targets = {there.image: inside(root, f'images/{image_name(photo, there.image)}')
               for photo, _, there in wanted if there.image}
    archive = folder / 'images.tar'
    if archive.is_file() and not (folder / 'images').is_dir() and not args.dry_run:
        unpack(archive, {image.rpartition('/')[2]: target for image, target in targets.items()})
    else:
        carry_out([Step(args.mode, folder / image, target) for image, target in targets.items()],
                  root, args.dry_run)
    if args.dry_run:
        return 0
    rows = [dict(image=image_name(photo, there.image), attr=photo.attribute, obj=photo.object,
                 set=phase, **({'title': there.title} if there.title else {}))
            for photo, phase, there in wanted]
    write_layout(root, rows, version.pairs(), split)
    report = check_dataset(root, args.dataset, split, decode=True)
    print(report)
    return 0 if report.ok else 1


if __name__ == '__main__':
    run_command(lambda: sys.exit(main()))
