"""The commands that draw pictures; :mod:`mmcluspro.cli` names them in its table."""
