"""Trains a model: ``python tools/train.py configs/cluspro_shapes.py``."""
from mmcluspro.cli.train import main
from mmcluspro.engine.messages import run_command

if __name__ == '__main__':
    run_command(main)
