"""Predicts the attribute and the object of images: ``mmcluspro predict``."""
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from mmcluspro.errors import printable

from .flags import (
    WORLDS,
    add_bias_flags,
    add_model_flags,
    add_part_flag,
    make_parser,
    model_options,
)

if TYPE_CHECKING:
    from mmcluspro.artefact import TrainedModel
    from mmcluspro.artefact.results import Prediction, ResultFile

PREDICT_EXAMPLES = """examples:
  mmcluspro predict best_czsl_auc_epoch_16.pth photo.jpg
  mmcluspro predict best_czsl_auc_epoch_16.pth photos/ --out result.csv
  mmcluspro predict best_czsl_auc_epoch_16.pth 'photos/**/*.png' --world open --out result.jsonl
  mmcluspro predict best_czsl_auc_epoch_16.pth photos/ --pairs pairs.txt --threshold 0.5
  mmcluspro predict best_czsl_auc_epoch_16.pth photos/ --attributes wet dry --objects cat dog
  for i in 1 2 3 4; do mmcluspro predict best.pth photos/ --part $i/4 --out part$i.csv & done; wait

--out .csv: one line per image; .json: a list; .jsonl: one JSON object per line. If the command is
interrupted, run it again and it continues. For an image that cannot be read, the column error gives
the reason."""


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro predict``."""
    parser = make_parser('predict', 'Predict the attribute and the object of images.',
                         PREDICT_EXAMPLES)
    parser.add_argument('checkpoint', help='file that training wrote, best_*.pth; or a folder of '
                        'model.save, or hf-hub:user/name')
    parser.add_argument('images', nargs='+', help='files, folders or quoted patterns')
    parser.add_argument('--out', help='file for the predictions: .csv, .json or .jsonl '
                        '(default: print them)')
    parser.add_argument('--pairs', metavar='FILE', help='choose from these pairs, one "attribute '
                        'object" or "attribute,object" per line; new words are allowed')
    parser.add_argument('--attributes', nargs='+', metavar='NAME',
                        help='choose from all pairs of these attributes and --objects')
    parser.add_argument('--objects', nargs='+', metavar='NAME', help='see --attributes')
    parser.add_argument('--world', choices=WORLDS, default='closed',
                        help='closed: the pairs of the training data; open: all feasible pairs of '
                        'its attributes and objects (default: closed)')
    parser.add_argument('--top-k', type=int, default=3, help='pairs per image (default: 3)')
    parser.add_argument('--threshold', type=float,
                        help='abstain if the best probability is lower (default: never)')
    add_bias_flags(parser)
    parser.add_argument('--batch-size', type=int, default=32, help='images per batch (default: 32)')
    parser.add_argument('--workers', type=int,
                        help='threads that read images (default: up to 2, by the free cores)')
    parser.add_argument('--device', help='cpu, cuda, cuda:1, mps (default: a GPU if there is one)')
    parser.add_argument('--background', metavar='COLOUR', help='colour behind transparent images, '
                        "such as white or '#ffeedd'; none drops transparency (default: as in "
                        'training, otherwise white)')
    add_part_flag(parser, 'images')
    add_model_flags(parser)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Predicts. The exit code is 0 even if some images cannot be read."""
    from mmcluspro.api import load
    from mmcluspro.artefact.hub import model_file
    from mmcluspro.artefact.images import list_images
    from mmcluspro.artefact.pairs import read_pairs
    from mmcluspro.artefact.results import ResultFile, check_suffix
    from mmcluspro.utils.device import find_device
    from mmcluspro.utils.safe_load import checkpoint_digest
    args = parse_args(argv)
    if args.out:
        check_suffix(args.out)  # before the model is loaded
    pairs = read_pairs(args.pairs) if args.pairs else None
    part, parts = args.part
    names = [item.name for item in list_images(args.images)][part::parts]
    find_device(args.device)  # before the model is loaded
    model = load(args.checkpoint, args.device, background=args.background, **model_options(args))
    options = dict(pairs=pairs, top_k=args.top_k, threshold=args.threshold, world=args.world,
                   batch_size=args.batch_size, attributes=args.attributes, objects=args.objects,
                   workers=args.workers, prefer=args.prefer, seen_bias=args.seen_bias)
    if not args.out:
        for answer in model.stream(names, **options):
            print(printable(_sentence(answer)))
        return 0
    chosen = model.calibration(args.world, args.prefer, args.seen_bias)
    facts = dict(weights=checkpoint_digest(model_file(args.checkpoint)), world=args.world,
                 top_k=args.top_k, background=args.background, threshold=args.threshold,
                 seen_bias=chosen.seen_bias, **_model_facts(args),
                 pairs=_choice(pairs, args.attributes, args.objects))
    result = ResultFile(args.out, facts, args.top_k, names)
    try:
        return _write(model, names, options, result)
    except KeyboardInterrupt:
        print(f'\nInterrupted; {len(result.done)} images are in {result.path}. Run the same '
              'command again to continue.', file=sys.stderr)
        return 130
    finally:
        result.close()


def _model_facts(args: argparse.Namespace) -> dict[str, Any]:
    """What else decides about the model: digests of the user's config, modules and weights."""
    from mmcluspro.artefact.towers import given_weights
    from mmcluspro.engine.launch import read_config
    from mmcluspro.utils.digest import file_digest, sha256
    from mmcluspro.utils.safe_load import checkpoint_digest
    config = args.config and sha256(read_config(args.config).pretty_text.encode(), digits=32)
    modules = {name: file_digest(file) for name in args.imports
               if (file := getattr(sys.modules[name], '__file__', None))}
    towers = {part: checkpoint_digest(file)
              for part, file in given_weights(model_options(args)['weights']).items()}
    return dict(config=config, imports=modules or None, towers=towers or None)


def _write(model: TrainedModel, names: list[str], options: dict[str, Any],
           result: ResultFile) -> int:
    from mmcluspro.utils.progress import duration
    left = [name for name in names if name not in result.done]
    if result.changed:
        print(f'{result.changed} images have changed since {result.path} was written; they are '
              'answered again.')
    if 0 < len(left) < len(names):
        print(f'{len(names) - len(left)} of {len(names)} images are in {result.path} already.')
    start = time.monotonic()
    if left:
        answers = model.stream(left, progress=True, **options)
        for batch in _batches(answers, options['batch_size']):
            result.append(batch)
    seconds = max(time.monotonic() - start, 1e-9)
    records = [result.done[name] for name in names]
    broken = sum(bool(record.get('error')) for record in records)
    quiet = sum(bool(record.get('abstained')) for record in records)
    print(f'{len(names)} images in {result.path}: {len(names) - broken} answered'
          + (f', of which {quiet} below the threshold' if options['threshold'] is not None else '')
          + f', {broken} cannot be read' + (' (column error)' if broken else '') + '.'
          + (f' {len(left)} new ones in {duration(seconds)}, {len(left) / seconds:.1f} per second.'
             if left else ' Nothing was left to do.'))
    return 0


def _batches(answers: Iterable[Prediction], size: int) -> Iterator[list[Prediction]]:
    iterator = iter(answers)
    while batch := list(islice(iterator, size)):
        yield batch


def _sentence(answer: Prediction) -> str:
    if answer.error is not None:
        return f'{answer.image}: cannot be read: {answer.error}'
    pairs = ', '.join(f'{pair.attribute} {pair.object} {100 * pair.probability:.1f} %'
                      for pair in answer.pairs)
    return f'{answer.image}: ' + (f'not sure ({pairs})' if answer.abstained else pairs)


def _choice(*parts: Any) -> str | None:
    from mmcluspro.utils.digest import content_digest
    return None if all(part is None for part in parts) else content_digest(parts)
