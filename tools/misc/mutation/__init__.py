"""Sample files of every reader, and what each reader makes of its file: for ``mutate.py``."""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / 'tools' / 'analysis_tools'), str(ROOT / 'tools' / 'dataset_converters')]
