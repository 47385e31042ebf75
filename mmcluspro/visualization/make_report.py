"""Writes a report of a run as one HTML file: ``mmcluspro report``."""
from collections.abc import Sequence
from pathlib import Path

from mmcluspro.artefact.prototype_images import PrototypeImages
from mmcluspro.cli.pictures import parse_report as parse_args

from .options import open_checkpoints, open_phase
from .phase_answers import answer_phase
from .report import build_report, leave_report, read_run
from .run_hooks import NAME
from .thumbnails import add_examples, prototype_images


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and writes."""
    args = parse_args(argv)
    checkpoint = find_checkpoint(args.run)
    folder = checkpoint.resolve().parent
    (model, ), dataset = open_checkpoints([str(checkpoint)], args)
    answers = answer_phase(model, dataset, batch_size=args.batch_size,
                           progress=f'Answers for {len(dataset)} {args.phase} images')
    found = PrototypeImages()
    if model.network.head.prototypes:
        found = prototype_images(model, open_phase(model, 'train', args),
                                 max_images=args.max_images, batch_size=args.batch_size,
                                 progress='Training images near the prototypes')
    add_examples(found, dataset, answers)
    report = build_report(args.title or folder.name, str(checkpoint), read_run(folder), model,
                          answers, dataset, found, args.cases, args.config)
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
