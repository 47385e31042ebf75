"""The records of runs: a small JSON file per run, or lines of one file per config."""
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from mmcluspro.errors import FileError, reason_of
from mmcluspro.utils.files import write_text

from .records import Run

Key = tuple[str, frozenset[str], int]


class Store:
    """The folder of the records.

    A run writes a file of its own (``<run>.json``), so that many processes can share the folder.
    :meth:`pack` collects them in one file per config (``<config>.jsonl``, a record per line), which
    is what the repository keeps. A file of its own takes precedence over a line.

    Args:
        folder (str | Path): Read now; created when the first record is saved.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.records: dict[Key, dict[str, Any]] = {}
        self.files: dict[Key, Path] = {}
        for path in sorted(self.folder.glob('*.jsonl')):
            for record in read_lines(path):
                self.records[_key(record, path)] = record
        for path in sorted(self.folder.glob('*.json')):
            record = _parse(path.read_bytes(), path)
            key = _key(record, path)
            self.records[key], self.files[key] = record, path

    def find(self, run: Run) -> dict[str, Any] | None:
        """The record of a run, if there is one."""
        return self.records.get(run.key)

    def changes(self, run: Run) -> list[str]:
        """Sections in which the record's config differs from today's.

        The files of the model are compared only on a machine that has all of them, so that a fresh
        clone without data reads the same records.
        """
        record = self.find(run)
        if record is None or 'fingerprint' not in record:
            return []
        then, now = record['fingerprint'], run.fingerprint
        ignored = set() if run.has_files else {'weights'}
        return sorted(key for key in (then.keys() | now.keys()) - ignored
                      if then.get(key) != now.get(key))

    def accept(self, run: Run, sections: Collection[str]) -> bool:
        """Takes over a record whose config differs in the given sections only.

        For changes that do not bear on the result, such as a default that is now written out. The
        record says which sections were accepted.

        Args:
            run (Run): The run with today's config.
            sections (Collection[str]): Sections that may differ.

        Returns:
            bool: Whether the record was taken over.
        """
        changes = self.changes(run)
        if not changes or not set(changes) <= set(sections):
            return False
        record = dict(self.records[run.key])
        accepted = sorted({*record.pop('accepted', ()), *changes})
        fields = {key: value for key, value in record.items()
                  if key not in ('config', 'options', 'seed', 'fingerprint')}
        self.save(run, **fields, accepted=accepted)
        return True

    def save(self, run: Run, **fields: Any) -> Path:
        """Writes the record of a run.

        Args:
            run (Run): The run.
            **fields: ``commit``, ``seconds``, ``metrics`` …

        Returns:
            Path: The file.
        """
        record = dict(config=run.config.name, options=list(run.options), seed=run.seed, **fields,
                      fingerprint=run.fingerprint)
        path = self.files.get(run.key, self.folder / f'{run.name}.json')
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(record, indent=1) + '\n')
        self.records[run.key], self.files[run.key] = record, path
        return path

    def pack(self) -> list[Path]:
        """Moves all records into one file per config, a record per line, by options and seed.

        Returns:
            list[Path]: The files.
        """
        names = sorted({config for config, _, _ in self.records})
        packed = []
        for name in names:
            rows = {key: record for key, record in self.records.items() if key[0] == name}
            lines = [json.dumps(rows[key]) for key in sorted(
                rows, key=lambda key: (sorted(key[1]), key[2]))]
            packed.append(self.folder / f'{Path(name).stem}.jsonl')
            write_text(packed[-1], '\n'.join(lines) + '\n')
        for path in self.files.values():
            path.unlink(missing_ok=True)
        self.files.clear()
        return packed


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON-lines file."""
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            yield _parse(line, f'{path}, line {number}')


def _parse(text: bytes, where: str | Path) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refusal(where, error) from error
    if not isinstance(record, dict):
        raise _refusal(where, TypeError(f'{type(record).__name__} instead of an object'))
    return record


def _key(record: dict[str, Any], where: str | Path) -> Key:
    try:
        float(record['metrics']['czsl/auc'])
        return Path(record['config']).name, frozenset(record['options']), int(record['seed'])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _refusal(where, error) from error


def _refusal(where: str | Path, error: Exception) -> FileError:
    return FileError(where, f'it is not the record of a run ({type(error).__name__}: '
                     f'{reason_of(error)})', 'Delete it to run again, or keep other files '
                     'elsewhere.')
