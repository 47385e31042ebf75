"""Kills of ``mmcluspro predict --out``: the file must be whole, and end with the right bytes."""
from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fault_kinds import Kind, Scene
from fault_runs import Process, import_all, train_words, write_config
from PIL import Image

from mmcluspro.datasets import ShapesCZSL

LIMIT = 120
IMAGES = 150


class PredictionCampaign:
    """Faults of predictions.

    Args:
        base (Path): Folder for a checkpoint and pictures.
        folder (Path): Folder for the results.
        seed (int): Of the moments.
    """

    def __init__(self, base: Path, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.output = base / 'predict.txt'
        self.output.write_text('')
        self.photos = base / 'photos'
        self.photos.mkdir()
        dataset = ShapesCZSL(phase='test')
        for place in range(IMAGES):
            pixels = dataset.get_data_info(place)['img'][..., ::-1]
            Image.fromarray(pixels.copy()).save(self.photos / f'{place:03d}.png')
        training = Process(train_words(write_config(base / 'model.py', 'epoch'), base / 'model'),
                           self.output)
        if not training.wait(600) or training.code:
            raise SystemExit(f'The training of the model failed:\n{training.said()[-2000:]}')
        self.checkpoint = next((base / 'model').glob('best_*.pth'))
        self.expected: dict[str, bytes] = {}
        for suffix in ('.csv', '.json', '.jsonl'):
            whole = self._start(folder / f'whole{suffix}')
            if not whole.wait(LIMIT) or whole.code:
                raise SystemExit(f'The prediction without faults failed:\n{whole.said()[-2000:]}')
            self.seconds = time.monotonic() - whole.start
            self.expected[suffix] = (folder / f'whole{suffix}').read_bytes()
            import_all(whole.output.with_suffix('.modules').read_text().splitlines())

    def _start(self, out: Path) -> Process:
        return Process(['predict', str(self.checkpoint), str(self.photos), '--out', str(out),
                        '--batch-size', '1', '--device', 'cpu', '--workers', '1'], self.output)

    def inject(self, name: str, kind: Kind, suffix: str, count: int,
               outcome: Callable[..., Any]) -> list[Any]:
        """Injects a fault so many times; the same command then goes on."""
        outcomes: list[Any] = []
        hurt: list[Any] = []
        out = self.folder / 'result' / f'result{suffix}'
        while len(outcomes) < count or hurt:
            process = self._start(out)
            # The first half of a run starts it, the second one predicts.
            moment = self.random.uniform(0, 1) * self.seconds
            if len(outcomes) < count and not process.wait(moment):
                begin = time.monotonic()
                kind.inject(Scene(process, self.folder, out, self.random))
                process.wait(LIMIT)
                phase = 'prediction' if out.exists() and out.stat().st_size > 900 else 'start'
                found = outcome(name, f'predict {suffix}', phase, time.monotonic() - begin)
                if process.code not in kind.codes:
                    found.note = f'exit code {process.code}'
                    process.end()
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
