"""A run, and what identifies it."""
import argparse
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

from mmcluspro.engine.configs import find_method, merge_options
from mmcluspro.engine.launch import find_config, read_config
from mmcluspro.features.store import FACTS
from mmcluspro.utils.digest import sha256
from mmcluspro.utils.files import WEIGHTS

# These say where and how verbosely a run works, not what comes out of it.
IRRELEVANT = ('work_dir', 'launcher', 'log_level', 'resume', 'visualizer', 'vis_backends',
              'env_cfg', 'randomness', 'default_scope', 'runner_type', 'family')
# Of the hooks, those that write, report or stop.
WATCHING = ('IterTimerHook', 'LoggerHook', 'mmcluspro.FiniteHook', 'mmcluspro.StopHook')


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
    path = find_config(str(config))
    method = find_method(path)
    state = (method[0] if method else path).stat()
    plain = deepcopy(_read(Path(config), state.st_mtime_ns, state.st_size))
    before = plain.to_dict()
    kept = []
    # Of two values for a field the later one counts.
    for option in {option.partition('=')[0]: option for option in options}.values():
        section, _, rest = option.partition('=')[0].partition('.')
        if rest and section in before and before[section] is None:
            continue
        changed = deepcopy(plain)
        merge_options(changed, parse_options([option]))
        if changed.to_dict() != before:
            kept.append(option)
    merge_options(plain, parse_options(kept))
    return plain, tuple(kept)


@lru_cache(maxsize=256)
def _read(config: Path, changed: int, size: int) -> Config:
    """A config, read once for all rows and seeds as long as its file does not change."""
    return read_config(config)


def fingerprint(cfg: Config) -> dict[str, str]:
    """A hash of each section of a config that bears on the result, and of the weights' file.

    Args:
        cfg (Config): Resolved config.

    Returns:
        dict[str, str]: Eight hex digits by section.
    """
    content = {key: value for key, value in cfg.to_dict().items() if key not in IRRELEVANT}
    content['hooks'] = _hooks(content.pop('default_hooks', None), content.pop('custom_hooks', None))
    found = {key: _digest(json.dumps(value, sort_keys=True, default=str).encode())
             for key, value in content.items()}
    files = sorted({_file_digest(path, path.stat().st_mtime_ns)
                    for name in _texts(content.get('model')) if (path := _file_of(name))})
    if files:
        found['weights'] = files[0] if len(files) == 1 else _digest(''.join(files).encode())
    return dict(sorted(found.items()))


def _hooks(default: dict[str, dict | None] | None, custom: list[dict] | None) -> list[dict]:
    """The hooks that bear on the result, wherever the config lists them.

    Ours count only where a field is set: without one they are the same for every config.
    """
    kept = [{key: value for key, value in hook.items() if key != 'max_keep_ckpts'}
            for hook in [*(default or {}).values(), *(custom or [])]
            if hook and hook.get('type') not in WATCHING]
    for hook in kept:
        if hook.get('type') == 'mmcluspro.SafeCheckpointHook':
            hook['type'] = 'CheckpointHook'  # the same files, written more safely
    counted = [hook for hook in kept
               if len(hook) > 1 or not str(hook.get('type')).startswith('mmcluspro.')]
    return sorted(counted, key=lambda hook: str(hook.get('type')))


def _texts(value: Any) -> Iterator[str]:
    """All texts in nested containers."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _file_of(name: str) -> Path | None:
    """The file that a field of the model names: weights, word vectors, stored features."""
    for path in (Path(name), WEIGHTS / f'{name}.pt', Path(name) / FACTS):
        if os.path.isfile(path):  # Path.is_file raises for a text that is too long for a name
            return path
    return None


def _digest(content: bytes) -> str:
    return sha256(content, digits=8)


@lru_cache
def _file_digest(path: Path, changed: int) -> str:
    """Digest of a file, once for all rows and seeds; ``changed`` is its time stamp."""
    return _digest(path.read_bytes())


def row_name(config: str | Path, options: Sequence[str]) -> str:
    """A file name for a config with options, for example ``cluspro_shapes-head.bank.momentum=0.5``.
    """
    shown = [option.removeprefix('model.').replace('=mmcluspro.', '=')
             for option in options if '._delete_=' not in option]
    full = '-'.join([Path(config).stem, *shown])
    name = re.sub(r'[^\w.=-]', '', full)
    # What a file name cannot hold must not make two runs one.
    return name if name == full else f'{name}-{_digest(full.encode())[:4]}'


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
        return f'{row_name(self.config, self.options)}_seed{self.seed}'

    @property
    def key(self) -> tuple[str, frozenset[str], int]:
        """tuple: What a record must agree in."""
        return self.config.name, frozenset(self.options), self.seed

    @cached_property
    def fingerprint(self) -> dict[str, str]:
        """dict[str, str]: See :func:`fingerprint`."""
        return fingerprint(self.cfg)

    @cached_property
    def has_files(self) -> bool:
        """bool: Whether all files and folders that the model names by a path are here."""
        return all(os.path.exists(name) for name in _texts(self.cfg.get('model')) if '/' in name)
