"""Command lines of ``mmcluspro demo`` and ``mmcluspro export``."""
import argparse
from collections.abc import Sequence

from .flags import WORLDS, add_bias_flags, add_model_flags, make_parser

DEMO_EXAMPLES = """examples:
  mmcluspro demo                                  # the tiny CLIP of the package, without training
  mmcluspro demo best_czsl_auc_epoch_16.pth       # your model, with its prototypes
  mmcluspro demo --port 8000 --host 0.0.0.0       # for other machines in the network"""
EXPORT_EXAMPLES = """examples:
  mmcluspro export work_dirs/cluspro_shapes/best.pth --out tagger.onnx
  mmcluspro export best.pth --out tagger.onnx --half --int8   # also tagger_fp16.onnx, …
  mmcluspro export best.pth --pairs pairs.txt --table-only --table pets.npz
docs/examples/onnx_predict.py reads the files without torch."""


def parse_demo(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro demo``."""
    parser = make_parser('demo', 'Try a model in the browser: upload images and see its '
                         'predictions.', DEMO_EXAMPLES)
    parser.add_argument('checkpoint', nargs='?', help='file that training wrote, best_*.pth '
                        '(default: zero-shot with the tiny CLIP of the package)')
    parser.add_argument('--host', default='127.0.0.1', help='address to listen on; 0.0.0.0 lets '
                        'other machines in (default: 127.0.0.1, this machine only)')
    parser.add_argument('--port', type=int, help='port (default: the first free one from 7860 on)')
    parser.add_argument('--share', action='store_true', help="also request a public link from "
                        "Gradio's servers (default: off)")
    parser.add_argument('--images', metavar='FILE', help='pictures of prototypes and examples: the '
                        'file prototype_images.json of mmcluspro train or mmcluspro report, or '
                        'none to show none (default: the one next to the checkpoint)')
    parser.add_argument('--device', help='cpu, cuda, cuda:1, mps (default: a GPU if there is one)')
    add_model_flags(parser)
    return parser.parse_args(argv)


def parse_export(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro export``."""
    parser = make_parser('export', 'Export a checkpoint: an ONNX file for the images and a table '
                         'of text features.', EXPORT_EXAMPLES)
    parser.add_argument('checkpoint', help='file that training or mmcluspro publish wrote')
    parser.add_argument('--out', help='ONNX file (default: the name of the checkpoint with .onnx, '
                        'in the current folder)')
    parser.add_argument('--table', help='file for the text features (default: as --out, with .npz)')
    parser.add_argument('--pairs', metavar='FILE', help='one "attribute object" or '
                        '"attribute,object" per line; new words are allowed (default: the pairs of '
                        'the training data)')
    parser.add_argument('--world', choices=WORLDS, default='closed',
                        help='without --pairs: the pairs of the training data, or all feasible '
                        'ones (default: closed)')
    parser.add_argument('--table-only', action='store_true',
                        help='write only a table, for other pairs with an existing ONNX file')
    parser.add_argument('--half', action='store_true', help='also write a half-precision file')
    parser.add_argument('--int8', action='store_true', help='also write a file with 8-bit weights')
    add_bias_flags(parser)
    add_model_flags(parser)
    return parser.parse_args(argv)
