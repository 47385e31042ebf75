"""Writes the features of a frozen backbone to disk, for training without images and backbone.

The same as ``mmcluspro extract-features``; see docs/features.md.
"""
import sys

from mmcluspro.cli.extract_features import main
from mmcluspro.engine.messages import run_command

if __name__ == '__main__':
    run_command(lambda: sys.exit(main()))
