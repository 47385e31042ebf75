"""Draws confusion matrices: ``mmcluspro confusion``."""
from collections.abc import Sequence
from pathlib import Path

from mmcluspro.flags.picture_flags import parse_confusion as parse_args

from ..confusion import confusions, draw_confusions, write_confusions
from ..options import open_checkpoints, save_and_say
from ..phase_answers import answer_phase
from ..phase_run import evenly


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and draws."""
    args = parse_args(argv)
    (model, ), dataset = open_checkpoints([args.checkpoint], args)
    indices = evenly(len(dataset), args.max_images)
    answers = answer_phase(model, dataset, indices, args.bias, args.batch_size,
                           f'{len(indices)} {args.phase} images')
    found = confusions(answers)
    shown = {kind: found[kind] for kind in args.of}
    save_and_say(draw_confusions(shown, args.most), args.out)
    out = Path(args.out)
    print(write_confusions(found, out.with_suffix('.csv') if out.suffix else f'{out}.csv'))
