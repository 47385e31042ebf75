"""Ends commands before and after each rename of each file that they write, or fills their disk.

Under its final name a file is whole or absent, one that was there before is lost by no full disk,
and the same command, run again, writes what an undisturbed one writes.
"""
from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fault_kinds import fill, free
from fault_places import run
from fault_renames import AFTER, BEFORE, FULL, at_rename
from fault_runs import CONFIG, MODES, Process, import_all
from PIL import Image

from mmcluspro.datasets import ShapesCZSL

DISK = 'full disk'
SHARES = (0.0, 0.5, 0.9)  # of the bytes that a command writes: room that a full disk has left
LIMIT = 300
FEW = '--max-images 24'
SPLIT = 'extract-features frozen_cluspro_shapes.py --workers 0 --phases val --shard-size 200'
# {base} is read, {out} is written and on the small disk. Those of CONTINUED go on where they were,
# and one that EXISTS is not written over.
ARTEFACTS = {
    **{f'predict {suffix}': f'predict {{model}} {{base}}/photos --out {{out}}/r{suffix} '
       '--device cpu --workers 1 --batch-size 1' for suffix in ('.csv', '.json', '.jsonl')},
    'export': 'export {model} --out {out}/m.onnx --half --int8',
    'publish': 'publish {model} {out}/m.pth',
    'make-split': 'make-split {base}/photos --out {out}/table.csv',
    'review out .csv': 'review out {base}/r.csv --root {base}/photos --out {out}/review.csv',
    'review out .json': 'review out {base}/r.csv --root {base}/photos --out {out}/review.json',
    'review in': 'review in {base}/review.csv --root {out}/photos --table {base}/table.csv '
                 '--table-root {out}/photos --out {out}/more.csv',
    'extract-features': f'{SPLIT} --out {{out}}/features',
    'report': f'report {{base}}/done --out {{out}}/report.html --cases 4 {FEW}',
    'curves': 'curves {base}/done --out {out}/curves.png',
    'cases': f'cases {{model}} --count 4 {FEW} --out {{out}}/cases.png',
    'confusion': f'confusion {{model}} {FEW} --out {{out}}/confusion.png',
    'accuracy': 'accuracy {model} --out {out}/accuracy.png',
    'prototypes': f'prototypes {{model}} --primitive red star {FEW} --out {{out}}/prototypes.png',
    'tsne': f'tsne {{model}} {FEW} --out {{out}}/tsne.png',
}
CONTINUED = ('predict .csv', 'predict .json', 'predict .jsonl', 'extract-features')
EXISTS = 'exists and is not overwritten'


class ArtefactCampaign:
    """Faults of the commands that write files.

    Args:
        base (Path): For what the commands read.
        disk (Path): A small file system, if there is one.
        outcome (Callable): Makes an outcome.
    """

    def __init__(self, base: Path, disk: Path, outcome: Callable[..., Any]) -> None:
        self.base, self.disk, self.outcome = base / 'artefacts', disk, outcome
        self.out, self.log = disk / 'artefact', base / 'artefact_renames.txt'
        self.base.mkdir()
        self.output = self.base / 'said.txt'
        self._photos()
        config = self.base / 'small.py'
        config.write_text(CONFIG.format(timeout=60, **MODES['epoch']).replace(
            '    curve=None)', ')'))
        trained = run(['train', str(config), '--work-dir', str(self.base / 'done')], self.base)
        if trained.code:
            raise SystemExit(f'The training without faults failed:\n{trained.text[-2000:]}')
        self.model = next((self.base / 'done').glob('best_*.pth'))
        for name in ('predict .csv', 'review out .csv', 'make-split'):
            self._must(self._words(name, self.base))

    def _photos(self) -> None:
        dataset = ShapesCZSL(phase='test')
        for place in range(24):
            folder = self.base / 'photos' / ('wet_cat', 'dry_cat', 'wet_dog', 'dry_dog')[place % 4]
            folder.mkdir(parents=True, exist_ok=True)
            pixels = dataset.get_data_info(place)['img'][..., ::-1]
            Image.fromarray(pixels.copy()).save(folder / f'{place:03d}.png')

    def _words(self, name: str, out: Path) -> list[str]:
        return [word.format(base=self.base, model=self.model, out=out)
                for word in ARTEFACTS[name].split()]

    def _run(self, words: list[str], kind: str = '', number: int = -1) -> Process:
        self.output.write_text('')
        self.log.write_text('')
        process = Process(words, self.output, at_rename(self.log, kind, number))
        if not process.wait(LIMIT):
            process.end()
        return process

    def _must(self, words: list[str]) -> None:
        done = self._run(words)
        if done.code:
            raise SystemExit(f'{words[0]} without faults failed:\n{done.said()[-2000:]}')
        import_all(done.output.with_suffix('.modules').read_text().splitlines())

    def _new(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(self.base / 'photos', self.out / 'photos')

    def _files(self) -> dict[str, bytes]:
        """Files under their final names."""
        return {str(path.relative_to(self.out)): path.read_bytes()
                for path in sorted(self.out.rglob('*'))
                if path.is_file() and '.part' not in path.name and path.suffix != '.lock'
                and path.parent.parent.name != 'photos'}

    def faults(self, name: str) -> Iterator[tuple[str, int, Callable[[], Any]]]:
        """Each fault of a command: its kind, its number among them, and what injects it."""
        found = []
        for _ in range(2):  # twice: some files hold the time, or notes that may be there twice
            self._new()
            self._must(self._words(name, self.out))
            found.append(self._files())
        whole = {path: content if content == found[0].get(path)
                 and not path.endswith(('.images.jsonl', '.html')) else None
                 for path, content in found[1].items()}
        size = sum(map(len, found[1].values()))
        targets = self.log.read_text().split('\n')[:-1]
        for kind in (BEFORE, AFTER, FULL):
            for number, target in enumerate(targets):
                yield kind, number, lambda kind=kind, number=number, target=target: self._inject(
                    name, whole, target, kind, number)
        for number, share in enumerate(SHARES):
            yield DISK, number, lambda share=share: self._inject(
                name, whole, f'{share:.0%} left', DISK, -1, int(size * share))

    def _inject(self, name: str, whole: dict[str, bytes | None], target: str, kind: str,
                number: int, left: int = 0) -> Any:
        words, begin = self._words(name, self.out), time.monotonic()
        self._new()
        kept = kind in (FULL, DISK) and name not in (*CONTINUED, 'make-split')
        if kept:  # writes over an earlier result
            self._must(words)
        if kind == DISK:
            fill(self.disk, left)
            process = self._run(words)
            free(self.disk)
        else:
            process = self._run(words, kind, number)
        said, files = process.said(), self._files()
        found = self.outcome(kind, f'artefact {name}', target, time.monotonic() - begin)
        if process.code not in ((0, 2) if kind in (FULL, DISK) else (-signal.SIGKILL, )):
            found.note = f'exit code {process.code}: {said[-200:]}'
        elif 'Traceback' in said or process.code == 2 and 'error: ' not in said:
            found.note = f'a traceback, or no message: {said[-200:]}'
        elif kept and set(files) != set(whole):
            found.note = f'lost or left: {sorted(set(files) ^ set(whole))}'
        elif name not in CONTINUED:
            found.note = self._differences(files, whole)
        again = self._run(words)
        files = self._files()
        found.equal = ((again.code == 0 or EXISTS in again.said()) and set(files) == set(whole)
                       and not self._differences(files, whole))
        return found

    @staticmethod
    def _differences(files: dict[str, bytes], whole: dict[str, bytes | None]) -> str:
        def differs(path: str, content: bytes) -> bool:
            if path.endswith('.html'):  # says the minute
                return not content.endswith(b'</html>\n')
            return not content if whole[path] is None else content != whole[path]

        return '; '.join(f'{path} is not whole' for path, content in files.items()
                         if path in whole and differs(path, content))
