"""Kills of ``mmcluspro predict --out``: the file must be whole, and end with the right bytes."""
from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fault_kinds import Kind, Scene
from fault_runs import Process, chance_of, import_all
from PIL import Image

from mmcluspro.datasets import ShapesCZSL

LIMIT = 120
IMAGES = 60


class PredictionCampaign:
    """Faults of predictions.

    Args:
        base (Path): Folder for pictures.
        folder (Path): Folder for the results.
        checkpoint (Path): What predicts.
        seed (int): Of the moments.
    """

    def __init__(self, base: Path, folder: Path, checkpoint: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.output = base / 'predict.txt'
        self.output.write_text('')
        self.photos = base / 'photos'
        self.photos.mkdir()
        dataset = ShapesCZSL(phase='test')
        for place in range(IMAGES):
            pixels = dataset.get_data_info(place)['img'][..., ::-1]
            Image.fromarray(pixels.copy()).save(self.photos / f'{place:03d}.png')
        self.checkpoint = checkpoint
        self.expected: dict[str, bytes] = {}
        for suffix in ('.csv', '.json', '.jsonl'):
            whole = self._start(folder / f'whole{suffix}')
            if not whole.wait(LIMIT) or whole.code:
                raise SystemExit(f'The prediction without faults failed:\n{whole.said()[-2000:]}')
            self.expected[suffix] = (folder / f'whole{suffix}').read_bytes()
            import_all(whole.output.with_suffix('.modules').read_text().splitlines())

    def _start(self, out: Path) -> Process:
        return Process(['predict', str(self.checkpoint), str(self.photos), '--out', str(out),
                        '--batch-size', '1', '--device', 'cpu', '--workers', '1'], self.output)

    def inject(self, name: str, kind: Kind, suffix: str, numbers: range,
               outcome: Callable[..., Any]) -> list[Any]:
        """Injects a fault so many times; the same command then goes on."""
        outcomes: list[Any] = []
        hurt: list[Any] = []
        attempt = 0
        out = self.folder / 'result' / f'result{suffix}'
        while len(outcomes) < len(numbers) or hurt:
            process = self._start(out)
            if len(outcomes) < len(numbers):
                chance = chance_of(self.seed, suffix, name, numbers[len(outcomes)], attempt)
                attempt += 1
                if self._wait(process, out, chance):
                    phase = 'prediction' if _size(out) else 'start'
                    begin = time.monotonic()
                    kind.inject(Scene(process, self.folder, out, chance))
                    process.wait(LIMIT)
                    if not kind.came_too_late(process):
                        found = outcome(name, f'predict {suffix}', phase,
                                        time.monotonic() - begin)
                        if process.code not in kind.codes:
                            found.note = f'exit code {process.code}'
                            process.end()
                        attempt = 0
                        outcomes.append(found)
                        hurt.append(found)
                        continue
            equal = process.wait(LIMIT) and process.code == 0 and (
                out.read_bytes() == self.expected[suffix])
            for found in hurt:
                found.equal = equal
            hurt = []
            shutil.rmtree(out.parent, ignore_errors=True)
        return outcomes

    def _wait(self, process: Process, out: Path, chance: random.Random) -> bool:
        """Waits until a random share of the file is there; whether the process still runs."""
        size = chance.uniform(-0.2, 1) * len(self.expected[out.suffix])
        delay = chance.uniform(0, 0.1 if size > 0 else 1)
        while _size(out) < size:
            if process.wait(0.01):
                return False
        return not process.wait(delay)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
