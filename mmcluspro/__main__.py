"""``python -m mmcluspro`` is the command ``mmcluspro``."""
import sys

from mmcluspro.cli import main

sys.exit(main())
