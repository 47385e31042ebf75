"""Command lines of the commands that draw pictures."""
import argparse
from collections.abc import Sequence

from .flags import add_out_flag, add_run_flags, make_parser, parsed

MOST = 16  # classes in a confusion matrix: as many as are legible at the text width of a paper
MAX_IMAGES = 2000  # training images to search for those near a prototype
REPORT = """Write a report of a run as one HTML file: numbers, curves, tables, mistakes, prototypes.

    mmcluspro report work_dirs/cluspro_shapes
    mmcluspro report best_czsl_auc_epoch_16.pth --out report.html

mmcluspro train writes it at the end of training. The file needs no other file and no network. The
command also writes prototype_images.json next to the checkpoint. With it, mmcluspro demo shows the
training images nearest to each prototype."""
CURVES = """Draw the seen-unseen curves of several runs in one picture.

    mmcluspro curves work_dirs/baseline_shapes work_dirs/cluspro_shapes

A run is the work folder of a training or test, which contains test_curve.json, or such a file. AUC
and HM in the legend follow the standard protocol; the dots mark the best harmonic means."""
CASES = """Show images with the answers of one or two models, right or wrong (Fig. 3 of the paper).

    mmcluspro cases CHECKPOINT.pth              mistakes of one model, the most confident first
    mmcluspro cases BASELINE.pth CLUSPRO.pth    one model against another

Two models give three groups: only the second is right, only the first is right, neither is right.
Images are sampled at random, alternating between seen and unseen pairs. Answers are those of
mmcluspro predict: the best of all known pairs, with the bias that validation chose for each
checkpoint (--bias sets another one)."""
CONFUSION = """Draw which attributes, objects and pairs are confused with which others; also as CSV.

    mmcluspro confusion CHECKPOINT.pth

Rows are true classes and columns are the answers of mmcluspro predict, in percent of the row. The
picture shows the classes with the most mistakes, the CSV file lists all mistakes."""
ACCURACY = """Draw the accuracy of each attribute and object for one or several models; also as CSV.

    mmcluspro accuracy BASELINE.pth CLUSPRO.pth

The accuracy is that of the attribute (object) in the best pair of the closed world, as in attr_acc
and obj_acc of the evaluation: without a bias, unless --bias adds one."""
PROTOTYPES = """Show what each prototype stands for: the training images nearest to it.

    mmcluspro prototypes CLUSPRO.pth --primitive red star

The number before a row is the share of the primitive's images that are closer to this prototype
than to the others. A prototype that training hardly used is called dead; its images are pale."""
TSNE = """Draw t-SNE maps of attribute and object features, as in Fig. 4 of the paper.

    mmcluspro tsne BASELINE.pth CLUSPRO.pth

Colours are primitives, stars are their prototypes. The silhouette in the titles is computed from
the features themselves: 1 if classes are far apart, 0 if they overlap."""


def _add_names(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument('--names', nargs='+', metavar='NAME',
                        help=f'names of the {what} (default: their folders)')


def _add_max_images(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--max-images', type=int, metavar='N',
                        help='use only N evenly spaced images (default: all)')


def parse_report(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro report``."""
    parser = make_parser('report', REPORT)
    parser.add_argument('run', help='work folder of a run, or a checkpoint')
    parser.add_argument('--out', help='file to write (default: report.html in the folder of the '
                        'run)')
    parser.add_argument('--title', help='title of the report (default: the name of the folder)')
    parser.add_argument('--cases', type=int, default=24, help='mistakes to show (default: 24)')
    parser.add_argument('--max-images', type=int, default=MAX_IMAGES, metavar='N',
                        help='training images to search for those near a prototype, evenly spaced '
                        f'(default: {MAX_IMAGES})')
    add_run_flags(parser, 'test')
    return parser.parse_args(argv)


def parse_curves(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro curves``."""
    parser = make_parser('curves', CURVES)
    parser.add_argument('runs', nargs='+', metavar='RUN', help='work folder, or *_curve.json')
    _add_names(parser, 'runs')
    parser.add_argument('--phase', choices=['val', 'test'], default='test',
                        help='which evaluation of a work folder to draw (default: test)')
    parser.add_argument('--world', choices=['closed', 'open', 'both'], default='both',
                        help='which world to draw (default: both, side by side)')
    add_out_flag(parser, 'curves.png')
    return parser.parse_args(argv)


def parse_cases(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro cases``."""
    parser = make_parser('cases', CASES)
    parser.add_argument('checkpoints', nargs='+', metavar='CHECKPOINT',
                        help='one file, or two to compare')
    _add_names(parser, 'models')
    parser.add_argument('--count', type=int, help='images per group (default: 24 for one model, 6 '
                        'for two)')
    parser.add_argument('--columns', type=int, default=6, help='images per row (default: 6)')
    parser.add_argument('--bias', type=float, help='bias to add to the scores of unseen pairs '
                        "(default: each checkpoint's own)")
    _add_max_images(parser)
    parser.add_argument('--seed', type=int, default=0,
                        help='with two models: another seed shows other images (default: 0)')
    add_run_flags(parser, 'test')
    add_out_flag(parser, 'cases.png')
    args = parsed(parser, argv, ('count', 'columns'))
    if len(args.checkpoints) > 2:
        parser.error(f'Give one checkpoint or two, not {len(args.checkpoints)}.')
    if args.count is None:
        args.count = 24 if len(args.checkpoints) == 1 else 6
    return args


def parse_confusion(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro confusion``."""
    kinds = ('attributes', 'objects', 'pairs')
    parser = make_parser('confusion', CONFUSION)
    parser.add_argument('checkpoint', help='file that training wrote, best_*.pth')
    parser.add_argument('--of', nargs='+', choices=kinds, default=kinds,
                        help='what to draw (default: all three)')
    parser.add_argument('--most', type=int, default=MOST,
                        help=f'number of classes in a picture (default: {MOST})')
    parser.add_argument('--bias', type=float, help='bias to add to the scores of unseen pairs '
                        '(default: that of the checkpoint)')
    _add_max_images(parser)
    add_run_flags(parser, 'test')
    add_out_flag(parser, 'confusion.png')
    return parser.parse_args(argv)


def parse_accuracy(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro accuracy``."""
    parser = make_parser('accuracy', ACCURACY)
    parser.add_argument('checkpoints', nargs='+', metavar='CHECKPOINT',
                        help='one or several files that training wrote')
    _add_names(parser, 'models')
    parser.add_argument('--most', type=int, default=24, help='number of rows in a panel, the most '
                        'frequent primitives (default: 24); the CSV file has all')
    parser.add_argument('--bias', type=float, default=0.0,
                        help='bias to add to the scores of unseen pairs (default: 0)')
    add_run_flags(parser, 'test')
    add_out_flag(parser, 'primitive_accuracy.png')
    return parser.parse_args(argv)


def parse_prototypes(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro prototypes``."""
    parser = make_parser('prototypes', PROTOTYPES)
    parser.add_argument('checkpoint', help='file of a ClusPro model, with its prototypes')
    parser.add_argument('--primitive', nargs='+', required=True, metavar='NAME',
                        help='attributes or objects; attr:NAME or obj:NAME if a name is both')
    parser.add_argument('--images', type=int, default=5, help='images per prototype (default: 5)')
    _add_max_images(parser)
    add_run_flags(parser, 'train')
    add_out_flag(parser, 'prototypes.png')
    return parser.parse_args(argv)


def parse_tsne(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro tsne``."""
    parser = make_parser('tsne', TSNE)
    parser.add_argument('checkpoints', nargs='+', metavar='CHECKPOINT',
                        help='usually the baseline, then ClusPro')
    _add_names(parser, 'models')
    parser.add_argument('--primitives', nargs='+', metavar='NAME',
                        help='attributes and objects to show (default: the most frequent ones)')
    parser.add_argument('--most', type=int, default=8,
                        help='how many of the most frequent ones to show (default: 8)')
    parser.add_argument('--max-images', type=int, default=2000, metavar='N',
                        help='use only N evenly spaced images (default: 2000)')
    parser.add_argument('--perplexity', type=float, default=30.0,
                        help='perplexity of t-SNE (default: 30)')
    parser.add_argument('--seed', type=int, default=0, help='the same seed gives the same picture '
                        '(default: 0)')
    add_run_flags(parser, 'test')
    add_out_flag(parser, 'tsne.png')
    return parser.parse_args(argv)
