"""Starts the web page: ``mmcluspro demo``."""
from __future__ import annotations

import argparse
import os
import re
import signal
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmcluspro.cli.apps import parse_demo as parse_args
from mmcluspro.cli.flags import model_options

if TYPE_CHECKING:
    from mmcluspro.artefact import TrainedModel

CONFIG = 'clip_zeroshot_shapes.py'
MAX_PIXELS = 50_000_000  # of strangers; 150 MB once decoded
NO_FILE = ('**Zero-shot CLIP** for Shapes, the drawings of this package: its tiny CLIP without any '
           'training on them. Seen and unseen are those of the data.')
NO_PROTOTYPES = ('This model has no prototypes. A ClusPro checkpoint that training wrote has '
                 'them: start the page with mmcluspro demo CHECKPOINT.')


def main(argv: Sequence[str] | None = None) -> int:
    """Serves the page until Ctrl+C."""
    args = parse_args(argv)
    for flag, value in (('config', args.config), ('import', args.imports),
                        ('weights', args.weights)):
        if value and not args.checkpoint:
            raise ValueError(f'--{flag} belongs to a checkpoint: mmcluspro demo CHECKPOINT '
                             f'--{flag} …')
    if args.port is not None and not 0 < args.port < 65536:
        raise ValueError(f'--port must lie between 1 and 65535, got {args.port}.')
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clears up as after Ctrl+C
    # Of mmcv-lite, about a part that is not used here.
    warnings.filterwarnings('ignore', 'Fail to import ``MultiScale')
    with tempfile.TemporaryDirectory(prefix='mmcluspro_demo_') as folder:
        app, endpoint = prepare(args, folder)
        from .server import serve
        try:
            address = serve(app, endpoint, folder, args.host, args.port, args.share)
            print(f'The page is at {address} (press Ctrl+C to stop).', flush=True)
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            print('\nStopped.')
        finally:
            app.close(verbose=False)
    return 0


def prepare(args: argparse.Namespace, folder: str) -> tuple[Any, Any]:
    """The page of a model and its endpoint, with pictures and uploads in a temporary folder."""
    print(f'Loading {args.checkpoint or "the tiny CLIP of the package"} …', flush=True)
    # Read when Gradio is imported.
    os.environ.update(GRADIO_ANALYTICS_ENABLED='False',
                      GRADIO_TEMP_DIR=os.path.join(folder, 'uploads'))
    os.environ.setdefault('HF_HUB_DISABLE_TELEMETRY', '1')
    os.environ.setdefault('MMCLUSPRO_MAX_PIXELS', str(MAX_PIXELS))
    try:
        from .app import build_app
        from .server import PICTURES, Endpoint
    except ModuleNotFoundError as error:
        raise ImportError(f'mmcluspro demo needs {error.name!r}, which is not installed: pip '
                          "install 'mmcluspro[demo]'") from None
    from mmcluspro.api import load

    from .examples import find_examples
    from .logic import Classifier
    if args.checkpoint:
        model = load(args.checkpoint, args.device, **model_options(args))
        title = title_of(model, args.checkpoint)
    else:
        model, title = zero_shot_model(args.device), NO_FILE
    images = find_images(args, model.network.head.prototypes)
    classifier = Classifier(model, images)
    pictures = os.path.join(folder, PICTURES)
    os.makedirs(pictures, exist_ok=True)

    def best(path: str) -> tuple[str, str]:
        pair = classifier.ranking(
            classifier.answer(classifier.read(path), classifier.known_pairs()),
            classifier.calibration.seen_bias).pairs[0]
        return pair.attribute, pair.object

    examples = find_examples(model.space, images, pictures, best)
    app = build_app(classifier, examples, title, NO_PROTOTYPES)
    return app, Endpoint(classifier, os.environ['GRADIO_TEMP_DIR'])


def zero_shot_model(device: str | None = None) -> TrainedModel:
    """Zero-shot CLIP on the pairs of Shapes, without training or loading anything."""
    from mmengine.registry import DefaultScope

    from mmcluspro.artefact import TrainedModel
    from mmcluspro.artefact.familiar import Familiar
    from mmcluspro.datasets import ShapesCZSL
    from mmcluspro.engine.launch import read_config
    from mmcluspro.registry import MODELS
    from mmcluspro.utils.device import find_device
    from mmcluspro.utils.files import configs_folder

    # By its path: a config is a program, and the current folder may be a stranger's.
    config = read_config(configs_folder() / CONFIG)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        network = MODELS.build(config.model)
    model = TrainedModel.of(network.to(find_device(device)).eval(), config)
    model.familiar = Familiar.of(
        model.prepare, *(ShapesCZSL(phase=phase) for phase in ('train', 'val')))
    return model


def title_of(model: TrainedModel, checkpoint: str) -> str:
    """Run, data and accuracy in words, as Markdown."""
    from mmcluspro.utils.plain_files import read_json
    path, space = Path(checkpoint).expanduser().resolve(), model.space
    run = path.parent.name if path.name.startswith(('best_', 'epoch_', 'iter_')) else path.stem
    kind = str((model.spec.get('data') or {}).get('type', '')).rpartition('.')[2]
    data = {'TableCZSL': 'own photographs', '': 'other data'}.get(kind, kind.removesuffix('CZSL'))
    seen = int(space.seen.sum())
    head = type(model.network.head).__name__.removesuffix('Head')
    words = (f'**{_plain(run)}**: {head} for {_plain(data)}, {len(space.attributes)} attributes '
             f'and {len(space.objects)} objects, {seen} seen and {len(space) - seen} unseen pairs.')
    numbers = path.with_name('test_metrics.json')
    metrics = read_json(numbers, dict, 'Remove it.') if numbers.is_file() else {}
    shares = [metrics.get(f'predict/{side}') for side in ('seen', 'unseen')]
    if all(isinstance(share, float) for share in shares):
        words += (f' Its test got {shares[0]:.0f} % of pictures of seen pairs right, and '
                  f'{shares[1]:.0f} % of unseen ones.')
    return words


def _plain(name: str) -> str:
    """A name without signs that Markdown or HTML would read."""
    return re.sub(r'([\\`*_{}\[\]()#+!|~<>&-])', r'\\\1', name)


def find_images(args: argparse.Namespace, banks: Any) -> Any:
    """The pictures of prototypes and examples next to the checkpoint, or None."""
    from mmcluspro.visualization.prototypes import NAME, read_prototype_images
    if args.images is None:
        path = Path(args.checkpoint).expanduser().parent / NAME if args.checkpoint else None
        if path is None or not path.is_file():
            return None
    elif args.images == 'none':
        return None
    else:
        path = Path(args.images).expanduser()
        if not path.is_file():
            raise FileNotFoundError(f'--images {path} does not exist. mmcluspro report CHECKPOINT '
                                    f'writes {NAME} next to the checkpoint.')
    found = read_prototype_images(path)
    if banks and not found.fits(banks):
        print(f'{path} belongs to another checkpoint: prototypes are shown without pictures. '
              f'Make it again with mmcluspro report {args.checkpoint}.', flush=True)
    return found
