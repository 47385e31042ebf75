"""Trains a model: ``python tools/train.py configs/cluspro_shapes.py``."""
from mmcluspro.cli.train import main
from mmcluspro.engine.messages import run_command
from mmcluspro.engine.signals import STOP

if __name__ == '__main__':
    STOP.ends_process = True
    run_command(main)
