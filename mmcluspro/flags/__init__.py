"""The command lines of ``mmcluspro``.

These modules import neither torch nor mmengine, so that ``--help`` and a mistyped option are
answered at once. Each function parses the words of one command.
"""
