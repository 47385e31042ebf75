"""Command lines of ``check-data``, ``make-split``, ``review`` and ``extract-features``."""
import argparse
from collections.abc import Sequence
from pathlib import Path

from .shared_flags import (
    PHASES,
    add_config_options,
    add_dataset_flag,
    add_photo_flags,
    make_parser,
    parsed,
)

CHECK_DATA = """Count a dataset, compare it with the published numbers, and list what is wrong.

    mmcluspro check-data data/ut-zap50k --dataset utzappos
    mmcluspro check-data photos/ --decode        # your own images: a folder, or a CSV file

The exit code is 0 if nothing is wrong, otherwise 1."""
MAKE_SPLIT = """Split your own images into training, validation and test: seen and unseen pairs.

    mmcluspro make-split photos --out photos/table.csv --seed 0
    mmcluspro make-split photos --table labels.csv --out photos/table.csv
    mmcluspro make-split photos --group-by near-duplicates --out photos/table.csv

The result is a table that you can read and edit; no image is moved. Train with it:
data = dict(type='mmcluspro.TableCZSL', data_root='photos', table='table.csv') in a config."""
EXTRACT_FEATURES = """Store the features of a frozen backbone, to train without images and backbone.

    mmcluspro extract-features frozen_cluspro_shapes.py
    mmcluspro extract-features dino_cluspro_utzappos.py --out data/features/ut_dino

If the command is interrupted, run it again and it continues. See docs/features.md."""
REVIEW_EXAMPLES = """examples:
  mmcluspro predict best.pth new_photos/ --out result.csv
  mmcluspro review out result.csv --root new_photos --out review.csv
  mmcluspro review out result.csv --root new_photos --uncertain 50 --out next.csv
      … correct the columns attribute and object; empty both to leave an image out
  mmcluspro review in review.csv --root new_photos --table work_dirs/photos/table.csv \\
      --table-root photos --out more.csv
  mmcluspro train more.csv
For Label Studio, write review.json instead of review.csv, import it there, and give its JSON export
to review in."""


def parse_check_data(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro check-data``."""
    parser = make_parser('check-data', CHECK_DATA)
    parser.add_argument('root', help='folder with images/, the pair lists and the metadata; or '
                        'your own images: a folder of folders attribute_object/, or a table '
                        '(.csv, .tsv)')
    parser.add_argument('--dataset', default='generic', help='dataset whose published counts are '
                        'expected, such as utzappos or fashion; another word lists them. shapes '
                        'and generic check consistency only (default: generic)')
    parser.add_argument('--split', help='folder of the pair lists (default: that of the dataset)')
    add_photo_flags(parser)
    parser.add_argument('--decode', action='store_true', help='also read every image, and look for '
                        'images that look the same under two labels (slow)')
    parser.add_argument('--limit', type=int, default=10,
                        help='problems of each kind to show (default: 10)')
    return parser.parse_args(argv)


def parse_make_split(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro make-split``."""
    parser = make_parser('make-split', MAKE_SPLIT)
    parser.add_argument('root', type=Path, help='folder of the images, or a table '
                        'image,attribute,object (.csv, .tsv) next to them')
    parser.add_argument('--table', type=Path, help='table image,attribute,object (default: the '
                        'names of the folders)')
    add_photo_flags(parser, fix=True)
    parser.add_argument('--out', type=Path, required=True, help='CSV file to write')
    parser.add_argument('--seed', type=int, default=0, help='another seed gives another split '
                        '(default: 0)')
    parser.add_argument('--unseen-fraction', type=float, default=0.4,
                        help='fraction of the pairs that is held out from training (default: 0.4)')
    for phase, name in (('val', 'validation'), ('test', 'test')):
        parser.add_argument(f'--{phase}-fraction', type=float, default=0.15, help='fraction of '
                            f'the images of seen pairs that goes to {name} (default: 0.15)')
    parser.add_argument('--group-by', metavar='WHAT', help='keep images together that belong '
                        'together: a column of --table, a regular expression with brackets around '
                        "the part of the file name that names the group, such as '([^/]+)_[0-9]+', "
                        'or near-duplicates (default: each image on its own)')
    args = parser.parse_args(argv)
    if args.out.exists():
        parser.error(f'{args.out} exists and is not overwritten. Choose another --out.')
    return args


def parse_review(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro review``."""
    parser = make_parser('review', 'Write predictions for people to correct, and read the '
                         'corrections as training data.', REVIEW_EXAMPLES)
    parser.add_argument('direction', choices=('out', 'in'), help='out: write predictions to '
                        'correct; in: read the corrections')
    parser.add_argument('file', help='out: CSV file of mmcluspro predict; in: the corrected file')
    parser.add_argument('--root', required=True, help='folder of the images that were predicted')
    parser.add_argument('--out', required=True, help='out: .csv for a spreadsheet, .json for Label '
                        'Studio; in: .csv to train with')
    parser.add_argument('--uncertain', type=int, metavar='N', help='out: only the N images '
                        'that are worth a label most, those whose two best answers are '
                        'closest (default: all, least confident first)')
    parser.add_argument('--table', help='in: table of the earlier training, whose rows are kept')
    parser.add_argument('--table-root', help='in: folder of the earlier images (default: the '
                        'folder of --table)')
    parser.add_argument('--prefix', default='/data/local-files/?d=', help='out, for Label Studio: '
                        'prefix of the image names (default: its local files)')
    args = parsed(parser, argv, ('uncertain', ))
    if args.uncertain is not None and args.direction == 'in':
        parser.error('--uncertain is for review out.')
    return args


def parse_extract_features(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro extract-features``."""
    parser = make_parser('extract-features', EXTRACT_FEATURES)
    parser.add_argument('config', help='config file, or the name of a shipped one')
    parser.add_argument('--out', help="folder for the features (default: the field features of "
                        "the config's datasets)")
    parser.add_argument('--phases', nargs='+', choices=PHASES, default=PHASES,
                        help='which images (default: all three phases)')
    parser.add_argument('--batch-size', type=int, default=64, help='images per batch (default: 64)')
    parser.add_argument('--workers', type=int, default=2,
                        help='processes that read images (default: 2)')
    parser.add_argument('--shard-size', type=int, default=4096,
                        help='images per file; an interruption loses at most that many (default: '
                        '4096)')
    parser.add_argument('--dtype', choices=('float32', 'float16'), default='float32',
                        help='number format of the files; float16 halves them (default: float32)')
    parser.add_argument('--device', help='cpu, cuda, cuda:1 (default: a GPU if there is one)')
    add_dataset_flag(parser)
    add_config_options(parser, 'override config fields')
    return parsed(parser, argv, ('batch_size', 'shard_size'))
