"""Names the attribute and the object of images: ``mmcluspro predict``."""
import argparse
import io
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from mmcluspro.apis.images import list_images
from mmcluspro.apis.inferencer import WORLDS, CZSLInferencer
from mmcluspro.apis.pair_file import read_pairs
from mmcluspro.apis.result import Prediction
from mmcluspro.utils.device import find_device
from mmcluspro.utils.digest import content_digest, file_digest
from mmcluspro.utils.model_flags import add_bias_flags, add_model_flags, model_options
from mmcluspro.utils.progress import duration

from .result_file import ResultFile, check_suffix

EXAMPLES = """examples:
  mmcluspro predict best_czsl_auc_epoch_20.pth photo.jpg
  mmcluspro predict best_czsl_auc_epoch_20.pth photos/ --out result.csv
  mmcluspro predict best_czsl_auc_epoch_20.pth 'photos/**/*.png' --world open --out result.jsonl
  mmcluspro predict best_czsl_auc_epoch_20.pth photos/ --pairs pairs.txt --threshold 0.5
  mmcluspro predict best_czsl_auc_epoch_20.pth photos/ --attributes wet dry --objects cat dog

--out .csv: one line per image; .json: a list; .jsonl: one JSON object per line. The same command
again goes on where it stopped. An image that cannot be read gets a line with the reason in the
column error."""


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog='mmcluspro predict', description='Name the attribute and the object of images.',
        epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('checkpoint', help='file that training wrote, best_*.pth')
    parser.add_argument('images', nargs='+', help='files, folders or quoted patterns')
    parser.add_argument('--out', help='file for the answers: .csv, .json or .jsonl '
                        '(default: print them)')
    parser.add_argument('--pairs', metavar='FILE', help='choose from these pairs, one "attribute '
                        'object" or "attribute,object" per line; new words are allowed')
    parser.add_argument('--attributes', nargs='+', metavar='NAME',
                        help='choose from all pairs of these attributes and --objects')
    parser.add_argument('--objects', nargs='+', metavar='NAME', help='see --attributes')
    parser.add_argument('--world', choices=WORLDS, default='closed',
                        help='closed: the pairs of the training data; open: all pairs of its '
                        'attributes and objects that are feasible (default: closed)')
    parser.add_argument('--top-k', type=int, default=3, help='pairs an image (default: 3)')
    parser.add_argument('--threshold', type=float,
                        help='abstain when the best probability is lower (default: never)')
    add_bias_flags(parser)
    parser.add_argument('--batch-size', type=int, default=32)
    parser.add_argument('--workers', type=int, default=2, help='threads that read images')
    parser.add_argument('--device', help='cpu, cuda, cuda:1, mps (default: a GPU if there is one)')
    parser.add_argument('--background', metavar='COLOUR', help='behind transparent pictures, such '
                        "as white or '#ffeedd'; none drops transparency (default: as in training, "
                        'otherwise white)')
    add_model_flags(parser)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Predicts; ends with 0 also when some images cannot be read."""
    args = parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # file names may be any bytes
            stream.reconfigure(errors='surrogateescape')
    if args.out:
        check_suffix(args.out)  # before the model is loaded
    pairs = read_pairs(args.pairs) if args.pairs else None
    names = [item.name for item in list_images(args.images)]
    find_device(args.device)  # before the model is loaded
    inferencer = CZSLInferencer(args.checkpoint, args.device, background=args.background,
                                **model_options(args))
    options = dict(pairs=pairs, top_k=args.top_k, threshold=args.threshold, world=args.world,
                   batch_size=args.batch_size, attributes=args.attributes, objects=args.objects,
                   workers=args.workers, prefer=args.prefer, seen_bias=args.seen_bias)
    if not args.out:
        for answer in inferencer.stream(names, **options):
            print(_sentence(answer))
        return 0
    chosen = inferencer.calibration(args.world, args.prefer, args.seen_bias)
    facts = dict(weights=_digest(args.checkpoint), world=args.world, top_k=args.top_k,
                 **({} if args.background is None else dict(background=args.background)),
                 threshold=args.threshold, seen_bias=chosen.seen_bias,
                 pairs=_choice(pairs, args.attributes, args.objects))
    result = ResultFile(args.out, facts, args.top_k)
    try:
        return _write(inferencer, names, options, result)
    except KeyboardInterrupt:
        print(f'\nInterrupted; {len(result.done)} images are in {result.path}. Run the same '
              'command again to continue.', file=sys.stderr)
        return 130
    finally:
        result.close()


def _write(inferencer: CZSLInferencer, names: list[str], options: dict[str, Any],
           result: ResultFile) -> int:
    left = [name for name in names if name not in result.done]
    if 0 < len(left) < len(names):
        print(f'{len(names) - len(left)} of {len(names)} images are in {result.path} already.')
    start = time.monotonic()
    if left:
        answers = inferencer.stream(left, progress=True, **options)
        for batch in _batches(answers, options['batch_size']):
            result.append(batch)
    seconds = max(time.monotonic() - start, 1e-9)
    records = [result.done[name] for name in names]
    broken = sum(bool(record.get('error')) for record in records)
    quiet = sum(bool(record.get('abstained')) for record in records)
    print(f'{len(names)} images in {result.path}: {len(names) - broken} answered'
          + (f', of which {quiet} below the threshold' if options['threshold'] is not None else '')
          + f', {broken} not readable' + (' (column error)' if broken else '') + '.'
          + (f' {len(left)} new ones in {duration(seconds)}, {len(left) / seconds:.1f} per second.'
             if left else ' Nothing was left to do.'))
    return 0


def _batches(answers: Iterable[Prediction], size: int) -> Iterator[list[Prediction]]:
    iterator = iter(answers)
    while batch := list(islice(iterator, size)):
        yield batch


def _sentence(answer: Prediction) -> str:
    if answer.error is not None:
        return f'{answer.image}: not readable, {answer.error}'
    pairs = ', '.join(f'{pair.attribute} {pair.object} {100 * pair.probability:.1f} %'
                      for pair in answer.pairs)
    return f'{answer.image}: ' + (f'not sure ({pairs})' if answer.abstained else pairs)


def _digest(checkpoint: str) -> str:
    """Identifies the file; an address stands for itself."""
    path = Path(checkpoint).expanduser()
    return file_digest(path) if path.is_file() else checkpoint


def _choice(*parts: Any) -> str | None:
    return None if all(part is None for part in parts) else content_digest(parts)
