#!/usr/bin/env python
"""Writes a seen/unseen split of your own images as a table that you can look at.

    python tools/dataset_converters/make_split.py photos --out photos/table.csv --seed 0
    python tools/dataset_converters/make_split.py photos --table labels.csv --out photos/table.csv

The same as ``mmcluspro make-split``.
"""
import sys

from mmcluspro.cli import main

if __name__ == '__main__':
    sys.exit(main(['make-split', *sys.argv[1:]]))
