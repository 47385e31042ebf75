"""Predicts the attribute and the object of images: ``mmcluspro predict``."""
import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from mmcluspro.api import load
from mmcluspro.artefact import TrainedModel
from mmcluspro.artefact.images import list_images
from mmcluspro.artefact.pairs import read_pairs
from mmcluspro.artefact.results import Prediction, ResultFile, check_suffix
from mmcluspro.artefact.towers import given_weights
from mmcluspro.engine.launch import read_config
from mmcluspro.errors import printable
from mmcluspro.flags.model_flags import model_options
from mmcluspro.flags.predict_flags import parse_predict as parse_args
from mmcluspro.utils.device import find_device
from mmcluspro.utils.digest import content_digest, file_digest, sha256
from mmcluspro.utils.progress import duration
from mmcluspro.utils.safe_load import checkpoint_digest


def main(argv: Sequence[str] | None = None) -> int:
    """Predicts. The exit code is 0 even if some images cannot be read."""
    args = parse_args(argv)
    if args.out:
        check_suffix(args.out)  # before the model is loaded
    pairs = read_pairs(args.pairs) if args.pairs else None
    names = [item.name for item in list_images(args.images)]
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
    facts = dict(weights=checkpoint_digest(args.checkpoint), world=args.world, top_k=args.top_k,
                 background=args.background, threshold=args.threshold, seen_bias=chosen.seen_bias,
                 pairs=_choice(pairs, args.attributes, args.objects), **_model_facts(args))
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
    config = args.config and sha256(read_config(args.config).pretty_text.encode(), digits=32)
    modules = {name: file_digest(file) for name in args.imports
               if (file := getattr(sys.modules[name], '__file__', None))}
    towers = {part: checkpoint_digest(file)
              for part, file in given_weights(model_options(args)['weights']).items()}
    return dict(config=config, imports=modules or None, towers=towers or None)


def _write(model: TrainedModel, names: list[str], options: dict[str, Any],
           result: ResultFile) -> int:
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
    return None if all(part is None for part in parts) else content_digest(parts)
