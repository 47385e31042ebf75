"""Starts the web page: ``mmcluspro demo``."""
import argparse
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Sequence
from typing import Any

from mmcluspro.utils.model_flags import add_model_flags, model_options

EXAMPLES = """examples:
  mmcluspro demo                                  the shipped tiny CLIP, nothing to train
  mmcluspro demo best_czsl_auc_epoch_15.pth       your model, with its prototypes
  mmcluspro demo --port 8000 --host 0.0.0.0       for other machines of the network"""
# Gradio serves what lies in the second one as it is, so that uploads must not get there.
UPLOADS, PICTURES = 'uploads', 'examples'
MAX_PIXELS = 50_000_000  # of strangers; 150 MB once decoded
NO_FILE = ('Zero-shot: the tiny CLIP of the package on the pairs of Shapes, nothing was '
           'trained. Seen and unseen are those of the data.')
NO_PROTOTYPES = ('This model has no prototypes. A ClusPro checkpoint that training wrote has '
                 'them: start the page with mmcluspro demo CHECKPOINT.')


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog='mmcluspro demo', description='A web page that names attribute and object of '
        'pictures.', epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('checkpoint', nargs='?', help='file that training wrote, best_*.pth '
                        '(default: zero-shot with the tiny CLIP of the package)')
    parser.add_argument('--host', default='127.0.0.1', help='address to listen at; 0.0.0.0 lets '
                        'other machines in (default: 127.0.0.1, this machine only)')
    parser.add_argument('--port', type=int, help='default: the first free one from 7860 on')
    parser.add_argument('--share', action='store_true', help='also a public link, through a '
                        "server of Gradio's makers (default: off)")
    parser.add_argument('--device', help='cpu, cuda, cuda:1, mps (default: a GPU if there is one)')
    add_model_flags(parser)
    return parser.parse_args(argv)


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
            print(f'The page is at {address} (Ctrl+C ends it).', flush=True)
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            print('\nEnded.')
        finally:
            app.close(verbose=False)
    return 0


def prepare(args: argparse.Namespace, folder: str) -> Any:
    """The page of a model, with its pictures and uploads in a folder that goes away."""
    print(f'Loading {args.checkpoint or "the tiny CLIP of the package"} …', flush=True)
    # Read when Gradio is imported.
    os.environ.update(GRADIO_ANALYTICS_ENABLED='False',
                      GRADIO_TEMP_DIR=os.path.join(folder, UPLOADS))
    os.environ.setdefault('HF_HUB_DISABLE_TELEMETRY', '1')
    os.environ.setdefault('MMCLUSPRO_MAX_PIXELS', str(MAX_PIXELS))
    try:
        from .app import build_app
    except ModuleNotFoundError as error:
        raise ImportError(f'mmcluspro demo needs {error.name!r}, which is not installed: pip '
                          "install 'mmcluspro[demo]'") from None
    from mmcluspro.apis import CZSLInferencer

    from .examples import draw_examples
    from .logic import Classifier
    from .zero_shot import zero_shot_inferencer
    if args.checkpoint:
        inferencer = CZSLInferencer(args.checkpoint, args.device, **model_options(args))
        title = f'Model: `{os.path.basename(args.checkpoint)}`'
    else:
        inferencer, title = zero_shot_inferencer(args.device), NO_FILE
    examples = os.path.join(folder, PICTURES)
    os.makedirs(examples, exist_ok=True)
    return build_app(Classifier(inferencer), draw_examples(inferencer.space, examples), title,
                     NO_PROTOTYPES)


def serve(app: Any, folder: str, host: str, port: int | None, share: bool = False) -> str:
    """Starts the server in the background.

    Returns:
        str: The page's address.
    """
    from .app import STYLE, theme
    try:
        _, address, public = app.launch(
            server_name=host, server_port=port, share=share, quiet=True,
            prevent_thread_lock=True, show_error=False, max_file_size='20mb', footer_links=[],
            allowed_paths=[os.path.join(folder, PICTURES)], state_session_capacity=200,
            ssr_mode=False, pwa=False, theme=theme(), css_paths=STYLE)
    except OSError as error:
        raise ValueError(f'The page cannot listen at {host}, port {port or "7860 … 7959"}: '
                         f'{error} Choose another with --port.') from error
    return public or address
