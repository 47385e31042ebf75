"""Writes a small checkpoint to share: ``python tools/model_converters/publish_model.py IN OUT``.

The same as ``mmcluspro publish``.
"""
from mmcluspro.cli.publish import main
from mmcluspro.engine.messages import run_command

if __name__ == '__main__':
    run_command(main)
