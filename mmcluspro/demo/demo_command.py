"""Starts the web page: ``mmcluspro demo``."""
import argparse
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mmcluspro.cli.apps import parse_demo as parse_args
from mmcluspro.cli.flags import model_options

# Gradio serves what lies in the second one as it is, so that uploads must not get there.
UPLOADS, PICTURES = 'uploads', 'examples'
MAX_PIXELS = 50_000_000  # of strangers; 150 MB once decoded
NO_FILE = ('Zero-shot: the tiny CLIP of the package on the pairs of Shapes, nothing was '
           'trained. Seen and unseen are those of the data.')
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
        app = prepare(args, folder)
        try:
            address = serve(app, folder, args.host, args.port, args.share)
            print(f'The page is at {address} (press Ctrl+C to stop).', flush=True)
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            print('\nStopped.')
        finally:
            app.close(verbose=False)
    return 0


def prepare(args: argparse.Namespace, folder: str) -> Any:
    """The page of a model, with its pictures and uploads in a temporary folder."""
    print(f'Loading {args.checkpoint or "the tiny CLIP of the package"} …', flush=True)
    # Read when Gradio is imported.
    os.environ.update(GRADIO_ANALYTICS_ENABLED='False',
                      GRADIO_TEMP_DIR=os.path.join(folder, UPLOADS))
    os.environ.setdefault('HF_HUB_DISABLE_TELEMETRY', '1')
    os.environ.setdefault('MMCLUSPRO_MAX_PIXELS', str(MAX_PIXELS))
    try:
        from .app import build_app
        from .endpoint import Endpoint
    except ModuleNotFoundError as error:
        raise ImportError(f'mmcluspro demo needs {error.name!r}, which is not installed: pip '
                          "install 'mmcluspro[demo]'") from None
    from mmcluspro.api import load

    from .examples import find_examples
    from .logic import Classifier
    from .zero_shot import zero_shot_model
    if args.checkpoint:
        model = load(args.checkpoint, args.device, **model_options(args))
        title = f'Model: `{os.path.basename(args.checkpoint)}`'
    else:
        model, title = zero_shot_model(args.device), NO_FILE
    images = find_images(args, model.network.head.prototypes)
    classifier = Classifier(model, images)
    pictures = os.path.join(folder, PICTURES)
    os.makedirs(pictures, exist_ok=True)

    def best(path: str) -> tuple[str, str]:
        pair = classifier.ranking(classifier.answer(path, classifier.known_pairs()),
                                  classifier.calibration.seen_bias).pairs[0]
        return pair.attribute, pair.object

    examples = find_examples(model.space, images, pictures, best)
    app = build_app(classifier, examples, title, NO_PROTOTYPES)
    app.endpoint = Endpoint(classifier, os.path.join(folder, UPLOADS))
    return app


def find_images(args: argparse.Namespace, banks: Any) -> Any:
    """The pictures of prototypes and examples next to the checkpoint, or None."""
    from mmcluspro.artefact.prototype_images import NAME, read_prototype_images
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


def serve(app: Any, folder: str, host: str, port: int | None, share: bool = False) -> str:
    """Starts the server in the background.

    Returns:
        str: The page's address.
    """
    from starlette.middleware import Middleware

    from .app import STYLE, theme
    from .gate import Gate, close_unfinished
    names: set[str] = set()
    gate = Middleware(Gate, host=host, uploads=os.path.join(folder, UPLOADS), names=names)
    try:
        server, address, public = app.launch(
            server_name=host, server_port=port, share=share, quiet=True,
            prevent_thread_lock=True, show_error=False, max_file_size='20mb', footer_links=[],
            allowed_paths=[os.path.join(folder, PICTURES)], state_session_capacity=200,
            ssr_mode=False, pwa=False, theme=theme(), css_paths=STYLE, enable_monitoring=False,
            app_kwargs=dict(middleware=[gate]))
    except OSError as error:
        raise ValueError(f'The page cannot listen at {host}, port {port or "7860 … 7959"}: '
                         f'{error} Choose another with --port.') from error
    close_unfinished(app.server)
    if public:
        names.add(str(urlsplit(public).hostname))
    if hasattr(app, 'endpoint'):
        from .endpoint import PATH
        server.add_route(PATH, app.endpoint.answer, methods=['POST'])
    return public or address
