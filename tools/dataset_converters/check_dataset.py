#!/usr/bin/env python
"""Counts a dataset, compares with the published numbers, lists what is wrong.

    python tools/dataset_converters/check_dataset.py data/ut-zap50k --dataset ut-zappos

The same as ``mmcluspro check-data``.
"""
import sys

from mmcluspro.cli import main

if __name__ == '__main__':
    sys.exit(main(['check-data', *sys.argv[1:]]))
