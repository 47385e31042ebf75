"""A run, what identifies it, and the small file that it leaves."""
import argparse
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from mmengine.config import Config, DictAction

from mmcluspro.datasets.features import FACTS
from mmcluspro.engine.launch import read_config

SHIPPED_WEIGHTS = Path(__file__).resolve().parents[1] / 'models' / 'weights'
# These say where and how verbosely a run works, not what comes out of it.
IRRELEVANT = ('work_dir', 'launcher', 'log_level', 'resume', 'visualizer', 'vis_backends',
              'env_cfg', 'randomness', 'default_scope')


def parse_options(options: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` texts as ``--cfg-options`` reads them."""
    for option in options:
        if '=' not in option:
            raise ValueError(f'A config option is written KEY=VALUE, got {option!r}.')
    if not options:
        return {}
    parser = argparse.ArgumentParser()
    parser.add_argument('--cfg-options', nargs='+', action=DictAction)
    return parser.parse_args(['--cfg-options', *options]).cfg_options


def resolve(config: str | Path, options: Sequence[str] = ()) -> tuple[Config, tuple[str, ...]]:
    """The config with its options, and those options that change something in it.

    Options of a section that the config has switched off (``train_dataloader=None`` of zero-shot)
    do not matter to it.

    Args:
        config (str | Path): Config file.
        options (Sequence[str]): ``KEY=VALUE``.

    Returns:
        tuple: The config, and the options that matter.
    """
    if not Path(config).is_file():
        raise FileNotFoundError(f'The config {config} does not exist.')
    plain = read_config(config)
    before = plain.to_dict()
    kept = []
    # Of two values for a field the later one counts.
    for option in {option.partition('=')[0]: option for option in options}.values():
        section, _, rest = option.partition('=')[0].partition('.')
        if rest and section in before and before[section] is None:
            continue
        changed = read_config(config)
        changed.merge_from_dict(parse_options([option]))
        if changed.to_dict() != before:
            kept.append(option)
    plain.merge_from_dict(parse_options(kept))
    return plain, tuple(kept)


def fingerprint(cfg: Config) -> dict[str, str]:
    """A hash of each section of a config that bears on the result, and of the weights' file.

    Args:
        cfg (Config): Resolved config.

    Returns:
        dict[str, str]: Eight hex digits by section.
    """
    content = {key: value for key, value in cfg.to_dict().items() if key not in IRRELEVANT}
    hooks = deepcopy(content.get('default_hooks') or {})
    hooks.pop('logger', None)
    hooks.get('checkpoint', {}).pop('max_keep_ckpts', None)
    content['default_hooks'] = hooks
    found = {key: _digest(json.dumps(value, sort_keys=True, default=str).encode())
             for key, value in content.items()}
    files = sorted({_file_digest(path, path.stat().st_mtime_ns)
                    for name in _texts(content.get('model')) if (path := _file_of(name))})
    if files:
        found['weights'] = files[0] if len(files) == 1 else _digest(''.join(files).encode())
    return dict(sorted(found.items()))


def _texts(value: Any) -> Iterator[str]:
    """All texts in nested containers."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _file_of(name: str) -> Path | None:
    """The file that a field of the model names: weights, word vectors, stored features."""
    for path in (Path(name), SHIPPED_WEIGHTS / f'{name}.pt', Path(name) / FACTS):
        if os.path.isfile(path):  # Path.is_file raises for a text that is too long for a name
            return path
    return None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:8]


@lru_cache
def _file_digest(path: Path, changed: int) -> str:
    """Digest of a file, once for all rows and seeds; ``changed`` is its time stamp."""
    return _digest(path.read_bytes())


@dataclass(frozen=True)
class Run:
    """One training (or, for zero-shot, one test) with one seed.

    Attributes:
        config (Path): Config file.
        options (tuple[str]): Options that change it.
        seed (int): ``randomness.seed``.
        cfg (Config): Resolved config.
    """
    config: Path
    options: tuple[str, ...]
    seed: int
    cfg: Config

    @classmethod
    def make(cls, config: str | Path, options: Sequence[str] = (), seed: int = 0) -> 'Run':
        """Resolves the config."""
        cfg, kept = resolve(config, options)
        return cls(Path(config), kept, seed, cfg)

    def with_seed(self, seed: int) -> 'Run':
        """The same with another seed."""
        return Run(self.config, self.options, seed, self.cfg)

    @property
    def learns(self) -> bool:
        """bool: Whether there is something to train; otherwise one seed says it all."""
        return self.cfg.get('train_cfg') is not None

    @property
    def name(self) -> str:
        """str: Of the record, for example ``cluspro_shapes-head.bank.momentum=0.5_seed1``."""
        shown = [option.removeprefix('model.').replace('=mmcluspro.', '=')
                 for option in self.options if '._delete_=' not in option]
        full = '-'.join([self.config.stem, *shown])
        name = re.sub(r'[^\w.=-]', '', full)
        # What a file name cannot hold must not make two runs one.
        mark = '' if name == full else f'-{_digest(full.encode())[:4]}'
        return f'{name}{mark}_seed{self.seed}'

    @property
    def key(self) -> tuple[str, frozenset[str], int]:
        """tuple: What a record must agree in."""
        return self.config.name, frozenset(self.options), self.seed

    @cached_property
    def fingerprint(self) -> dict[str, str]:
        """dict[str, str]: See :func:`fingerprint`."""
        return fingerprint(self.cfg)


class Store:
    """The folder of the records, one JSON file a run.

    Args:
        folder (str | Path): Read now; made when the first record is saved.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.records: dict[tuple, dict[str, Any]] = {}
        self.files: dict[tuple, Path] = {}
        for path in sorted(self.folder.glob('*.json')):
            self._read(path)

    def _read(self, path: Path) -> None:
        try:
            record = json.loads(path.read_text(encoding='utf-8'))
            key = Path(record['config']).name, frozenset(record['options']), record['seed']
            record['metrics']['czsl/auc']
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f'{path} is not the record of a run ({type(error).__name__}: {error}). Delete it '
                'to run again, or keep other files elsewhere.') from error
        self.records[key], self.files[key] = record, path

    def find(self, run: Run) -> dict[str, Any] | None:
        """The record of a run, if there is one."""
        return self.records.get(run.key)

    def changes(self, run: Run) -> list[str]:
        """Sections in which the record's config differs from today's."""
        record = self.find(run)
        if record is None or 'fingerprint' not in record:
            return []
        then, now = record['fingerprint'], run.fingerprint
        return sorted(key for key in then.keys() | now.keys() if then.get(key) != now.get(key))

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
        # An interrupt must not leave half a file.
        part = path.with_name(f'{path.name}.{os.getpid()}.part')
        part.write_text(json.dumps(record, indent=1) + '\n', encoding='utf-8')
        part.replace(path)
        self.records[run.key], self.files[run.key] = record, path
        return path
