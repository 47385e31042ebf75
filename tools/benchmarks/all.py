"""One table of what a run costs, on any machine, in a minute or two of CPU time.

    python tools/benchmarks/all.py          # counts, bytes and ratios
    python tools/benchmarks/all.py --full   # and the long benchmarks, one after the other

Ratios are of CPU times of the same process, so that a busy machine changes them little.
"""
import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image

HERE = Path(__file__).resolve().parent
HEADER = ('part', 'ATen calls', 'host syncs', 'peak MB', 'CPU time')
FULL = (('memory.py', ), ('clustering.py', ), ('text.py', ), ('hsic.py', ), ('metric.py', ),
        ('loading.py', ), ('scale.py', ), ('towers.py', ))


def cpu_seconds(*command: str) -> float:
    """CPU time of a Python process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, '-W', 'ignore', *command], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def start_up() -> list[Sequence[str]]:
    """``mmcluspro --help``, and the first answer against bare imports."""
    from mmcluspro.demo.demo_command import zero_shot_model
    main = 'from mmcluspro.cli import main; main({})'
    with tempfile.TemporaryDirectory() as folder:
        weights, image = Path(folder) / 'tiny.safetensors', Path(folder) / 'image.png'
        zero_shot_model('cpu').save(weights)
        Image.new('RGB', (48, 48)).save(image)
        help_ = cpu_seconds('-c', main.format(['--help']))
        imports = cpu_seconds('-c', 'import torch, mmengine.runner, open_clip')
        answer = cpu_seconds('-c', main.format(['predict', str(weights), str(image)]))
    return [('`mmcluspro --help`', '', '', '', f'{help_:.2f} s'),
            ('`mmcluspro predict` of one image, tiny CLIP, against importing torch, mmengine and '
             'open_clip', '', '', '', f'{answer / imports:.2f}×')]


def steps() -> list[Sequence[str]]:
    """Counts of a training step."""
    from step import table
    return table()


PARTS: tuple[Callable[[], list[Sequence[str]]], ...] = (steps, start_up)


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[0])
    parser.add_argument('--full', action='store_true', help='also run the long benchmarks')
    args = parser.parse_args(argv)
    sys.path.insert(0, str(HERE))
    print('|', ' | '.join(HEADER), '|')
    print('|---' * len(HEADER) + '|')
    for part in PARTS:
        for row in part():
            print('|', ' | '.join(row), '|', flush=True)
    for script, *flags in FULL if args.full else ():
        print(f'\n## {script}', flush=True)
        subprocess.run([sys.executable, '-W', 'ignore', str(HERE / script), *flags], check=True)


if __name__ == '__main__':
    main()
