"""Makes a checkpoint to hand out: ``python tools/model_converters/publish_model.py IN OUT``."""
import argparse
from pathlib import Path

from mmcluspro.engine.messages import run_command
from mmcluspro.export.publish import publish


def main() -> None:
    parser = argparse.ArgumentParser(
        description='Writes the weights that predict, without optimizer, schedule, history and '
        'prototypes; the first eight hex digits of the SHA-256 go into the name.',
        epilog='example: python tools/model_converters/publish_model.py '
        'work_dirs/cluspro_shapes/best_czsl_auc_epoch_20.pth cluspro_shapes.pth')
    parser.add_argument('source', metavar='IN', help='checkpoint of tools/train.py')
    parser.add_argument('target', metavar='OUT', help='new file, or a folder')
    args = parser.parse_args()
    path = publish(args.source, args.target)
    before, after = (Path(file).stat().st_size / 1e6 for file in (args.source, path))
    print(f'{path} ({after:.1f} MB, from {before:.1f} MB)')


if __name__ == '__main__':
    run_command(main)
