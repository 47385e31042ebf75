"""Puts measured numbers into the model index that ``mim`` reads."""
from pathlib import Path
from typing import Any

import yaml

from .records import Run
from .run_store import Store
from .statistics import mean_and_std
from .tables import METRICS, WORLDS

NAMES = dict(seen='Seen', unseen='Unseen', hm='HM', auc='AUC')


def results(store: Store, config: Path, count: int | None = None) -> list[dict[str, Any]]:
    """Means over the records of a config without options, as a model index has them.

    Args:
        store (Store): Records.
        config (Path): Config file.
        count (int, optional): How many records to use, those of the first seeds. Defaults to
            None, all.

    Returns:
        list[dict]: One entry per world; empty without records of today's config.
    """
    plain = Run.make(config)
    found = [record for (name, options, seed), record in sorted(
        store.records.items(), key=lambda item: item[0][2])
        if name == config.name and not options and not store.changes(plain.with_seed(seed))][:count]
    if not found:
        return []
    entries = []
    for world, prefix in WORLDS.items():
        metrics = {NAMES[metric]: round(mean_and_std(
            [record['metrics'][f'{prefix}/{metric}'] for record in found])[0], 1)
            for metric in METRICS}
        entries.append({'Task': 'Compositional Zero-Shot Learning',
                        'Dataset': f'{_data(plain)}, {world} world',
                        'Metrics': {**metrics, 'Runs': len(found)}})
    return entries


def _data(run: Run) -> str:
    space = run.cfg.space
    return space.get('version', space.type.rpartition('.')[2])


def fill_metafile(path: str | Path, store: Store, root: str | Path) -> list[str]:
    """Writes the results of all its models anew.

    Args:
        path (str | Path): ``metafile.yml``.
        store (Store): Records.
        root (str | Path): Folder that the configs' paths are relative to.

    Returns:
        list[str]: Models that have results.
    """
    path = Path(path)
    content = yaml.safe_load(path.read_text(encoding='utf-8'))
    filled = []
    for model in content['Models']:
        model.pop('Results', None)
        entries = results(store, Path(root) / model['Config'])
        if entries:
            model['Results'] = entries
            filled.append(model['Name'])
    path.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100),
                    encoding='utf-8')
    return filled
