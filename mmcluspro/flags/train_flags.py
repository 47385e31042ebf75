"""Command lines of ``mmcluspro train`` and ``mmcluspro test``."""
import argparse
from collections.abc import Sequence

from .shared_flags import add_common_flags, add_photo_flags, make_parser

TRAIN_EXAMPLES = """examples:
  mmcluspro train photos/                   # folders attribute_object/, or a CSV file
  mmcluspro train cluspro_shapes.py
  mmcluspro train my_config.py --cfg-options train_cfg.max_epochs=5
  mmcluspro train my_config.py --resume     # continue after an interruption
exit codes: 0 done, 2 an error that the message explains, 75 stopped by SIGTERM, SIGHUP or SIGUSR1
after saving (run again with --resume), 130 interrupted
several GPUs: tools/dist_train.sh CONFIG 4, or torchrun with tools/train.py --launcher pytorch"""
TEST_EXAMPLES = """examples:
  mmcluspro test cluspro_shapes.py work_dirs/cluspro_shapes/best_czsl_auc_epoch_16.pth
  mmcluspro test clip_zeroshot_shapes.py     # zero-shot CLIP needs no checkpoint"""


def parse_train(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro train``; without ``argv``, the command line of ``tools/train.py``."""
    parser = make_parser(None if argv is None else 'train', 'Train a model.', TRAIN_EXAMPLES)
    parser.add_argument('config', help='config file, or the name of a shipped one; or your '
                        'images: a folder of folders attribute_object/, or a table '
                        'image,attribute,object (.csv, .tsv)')
    parser.add_argument('--weights', metavar='FILE', help='for your images: CLIP weights for both '
                        'towers, as a file or a tag of open_clip; or dinov2-s (or -b, -l, -s-reg, '
                        '…) or a file of DINOv2 weights, for a CPU; or tiny_clip, for drawings '
                        'only (default: a known file in this folder, weights/ or data/weights/, '
                        "otherwise OpenAI's CLIP)")
    parser.add_argument('--words', metavar='FILE', help='for your images, with DINOv2: word '
                        'vectors: glove, or a file such as glove.6B.300d.txt (default: a known '
                        'file in the same folders)')
    parser.add_argument('--arch', help='for your images: architecture of CLIP (default: ViT-L-14 '
                        'on a large GPU, otherwise ViT-B-32)')
    add_photo_flags(parser, fix=True)
    parser.add_argument('--method', choices=('auto', 'regression', 'cluspro'), default='auto',
                        help='for your images, with DINOv2: softmax regressions, ClusPro trained '
                        'in epochs, or the better one in cross-validation (default: auto)')
    parser.add_argument('--no-refit', dest='refit', action='store_false', help='for your images, '
                        'with DINOv2: hold out validation and test images for good, instead of '
                        'measuring by cross-validation and training on all images')
    parser.add_argument('--standalone', action='store_true', help='put the frozen towers into the '
                        'best checkpoint, in half precision (45 MB for dinov2-s), so that other '
                        'machines need nothing else')
    parser.add_argument('--resume', nargs='?', const='auto', metavar='CHECKPOINT',
                        help='continue from this checkpoint of the same run; without a value, from '
                        'the latest one in the work folder')
    parser.add_argument('--patience', type=int, metavar='N', help='stop after N validations in a '
                        'row without a better one (default: train all epochs; rates that fall to '
                        'zero over all epochs, as in our configs, gain most at the end)')
    parser.add_argument('--no-validate', action='store_true',
                        help='do not evaluate during training')
    parser.add_argument('--no-test', action='store_true',
                        help='do not test the best checkpoint after training')
    parser.add_argument('--report', action=argparse.BooleanOptionalAction,
                        default=argv is not None, help='after the test, write report.html and the '
                        'pictures of prototypes for mmcluspro demo (default: yes for the command '
                        'mmcluspro, no for tools/train.py)')
    parser.add_argument('--auto-scale-lr', action='store_true',
                        help='scale the learning rate with the batch size')
    parser.add_argument('--no-persistent-workers', action='store_true',
                        help='restart the dataloader workers in each epoch')
    add_common_flags(parser)
    parser.set_defaults(log='full' if argv is None else 'short')
    return parser.parse_args(argv)


def parse_test(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses ``mmcluspro test``; without ``argv``, the command line of ``tools/test.py``."""
    parser = make_parser(None if argv is None else 'test', 'Test a checkpoint.', TEST_EXAMPLES)
    parser.add_argument('config', help='config file, or the name of a shipped one')
    parser.add_argument('checkpoint', nargs='?', help='checkpoint file (default: none; the model '
                        'is tested as the config builds it, for zero-shot CLIP)')
    parser.add_argument('--out', help='file for the results (.pkl, .json or .yaml)')
    parser.add_argument('--out-item', choices=['metrics', 'pred'],
                        help='what --out contains (default: pred)')
    parser.add_argument('--show-dir', help='folder for pictures of the predictions')
    parser.add_argument('--show', action='store_true', help='show the pictures in a window')
    parser.add_argument('--interval', type=int, default=1, help='draw every n-th image only')
    parser.add_argument('--wait-time', type=float, default=2,
                        help='seconds to show each window (default: 2)')
    add_common_flags(parser)
    parser.set_defaults(log='full' if argv is None else 'short')
    args = parser.parse_args(argv)
    if args.out is None and args.out_item is not None:
        parser.error('--out-item needs --out FILE.')
    return args
