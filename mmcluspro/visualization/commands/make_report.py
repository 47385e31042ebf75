"""Writes a report of a run as one HTML file: numbers, curves, tables, mistakes, prototypes.

    mmcluspro report work_dirs/cluspro_shapes
    mmcluspro report best_czsl_auc_epoch_16.pth --out report.html

mmcluspro train writes it at its end. The file needs nothing else and no network. Beside the
checkpoint, prototype_images.json is written, with which mmcluspro demo shows the training images
nearest to each prototype.
"""
import argparse
from collections.abc import Sequence
from pathlib import Path

from mmcluspro.apis.prototype_images import PrototypeImages

from ..options import add_run_flags, open_checkpoints, open_phase
from ..phase_answers import answer_phase
from ..report import build_report, leave_report, read_run
from ..report_hook import NAME
from ..thumbnails import MAX_IMAGES, add_examples, prototype_images


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog='mmcluspro report', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('run', help='work folder of a run, or a checkpoint')
    parser.add_argument('--out', help=f'default: {NAME} in the folder of the run')
    parser.add_argument('--title', help='default: the name of the folder')
    parser.add_argument('--cases', type=int, default=24, help='mistakes to show (default: 24)')
    parser.add_argument('--max-images', type=int, default=MAX_IMAGES, metavar='N',
                        help='training images to look at for the pictures of prototypes, evenly '
                        f'spread (default: {MAX_IMAGES})')
    add_run_flags(parser, 'test')
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and writes."""
    args = parse_args(argv)
    checkpoint = find_checkpoint(args.run)
    folder = checkpoint.resolve().parent
    (model, ), dataset = open_checkpoints([str(checkpoint)], args)
    answers = answer_phase(model, dataset, batch_size=args.batch_size,
                           progress=f'Answers for {len(dataset)} {args.phase} images')
    found = PrototypeImages()
    if model.head.prototypes:
        found = prototype_images(model, open_phase(model, 'train', args),
                                 max_images=args.max_images, batch_size=args.batch_size,
                                 progress='Training images near the prototypes')
    add_examples(found, dataset, answers)
    report = build_report(args.title or folder.name, str(checkpoint), read_run(folder), model,
                          answers, dataset, found, args.cases)
    path = leave_report(report, args.out or folder / NAME, folder)
    print(f'{path} ({path.stat().st_size / 1e6:.1f} MB)')


def find_checkpoint(run: str) -> Path:
    """The best checkpoint of a work folder, or the file that was given."""
    path = Path(run).expanduser()
    if not path.is_dir():
        return path  # that it does not exist is said when it is read
    for pattern in ('best_*.pth', 'epoch_*.pth', '*.pth'):
        files = sorted(path.glob(pattern), key=lambda file: file.stat().st_mtime)
        if files:
            return files[-1]
    raise FileNotFoundError(f'{run} has no checkpoint (*.pth). Give the work folder of a training, '
                            'or a checkpoint.')
