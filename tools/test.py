"""Tests a checkpoint: ``python tools/test.py configs/cluspro_shapes.py CHECKPOINT``.

Zero-shot CLIP needs none: ``python tools/test.py clip_zeroshot_shapes.py``.
"""
from mmcluspro.cli.test import main
from mmcluspro.engine.messages import run_command

if __name__ == '__main__':
    run_command(main)
