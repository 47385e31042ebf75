#!/usr/bin/env python
"""Counts a dataset, compares with the published numbers, lists what is wrong.

    python tools/dataset_converters/check_dataset.py data/ut-zap50k --dataset utzappos

The same as ``mmcluspro check-data``.
"""
import sys

from mmcluspro.cli.check_data import main
from mmcluspro.engine.messages import run_command

if __name__ == '__main__':
    run_command(lambda: sys.exit(main()))
