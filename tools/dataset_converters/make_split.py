#!/usr/bin/env python
"""Writes a seen/unseen split of your own images as a table that you can look at.

    python tools/dataset_converters/make_split.py photos --out photos/table.csv --seed 0
    python tools/dataset_converters/make_split.py photos --table labels.csv --out photos/table.csv

The same as ``mmcluspro make-split``.
"""
import sys

from mmcluspro.cli.make_split import main
from mmcluspro.engine.messages import run_command

if __name__ == '__main__':
    run_command(lambda: sys.exit(main()))
