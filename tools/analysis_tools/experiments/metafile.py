"""Makes the model index that ``mim`` reads, with measured numbers only."""
import re
from pathlib import Path
from typing import Any

import yaml

from mmcluspro.engine.configs import config_names, find_method
from mmcluspro.engine.launch import find_config
from mmcluspro.utils.files import PACKAGE, WEIGHTS

from .records import Run
from .run_store import Store
from .statistics import mean_and_std
from .tables import DATASETS, METRICS, WORLDS

NAMES = dict(seen='Seen', unseen='Unseen', hm='HM', auc='AUC')
TOWERS = {'CLIPVision': ['Vision Transformer', 'CLIP'],
          'CAILAVision': ['Vision Transformer', 'CLIP'],
          'DINOv2': ['Vision Transformer', 'DINOv2'], 'DINO': ['Vision Transformer', 'DINO'],
          'ResNet': ['ResNet-18']}
VECTORS = dict(glove='GloVe', GoogleNews='word2vec', crawl='fastText')
OTHERS = dict(DATASETS, shapes_large='Shapes', own_data_tiny='your own', own_data='your own',
              fashion_v2='Fashion', plantvillage='PlantVillage', grocery='Grocery')


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
        if not all(f'{prefix}/seen' in record['metrics'] for record in found):
            continue  # some were tested in the closed world only
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


def model_index(methods: str | Path, configs: Path) -> dict[str, Any]:
    """The index of all configs, without results.

    Args:
        methods (str | Path): ``methods.yml``: what is known of each publication.
        configs (Path): Folder of the configs.
    """
    known = yaml.safe_load(Path(methods).read_text(encoding='utf-8'))
    where = {method: entry['name'] for entry in known for method in entry['methods']}
    collections = [{
        'Name': entry['name'], 'Metadata': {'Architecture': entry['architecture']},
        **({'Paper': {'Title': entry['title'], 'URL': entry['url']}} if 'title' in entry else {}),
        'README': entry['readme']} for entry in known]
    return dict(Collections=collections,
                Models=[_model(name, where, configs) for name in config_names()])


def _model(name: str, where: dict[str, str], configs: Path) -> dict[str, Any]:
    stem = Path(name).stem
    dataset = next(key for key in sorted(OTHERS, key=len, reverse=True) if f'_{key}' in stem)
    method = stem.replace(f'_{dataset}', '', 1)
    if method not in where:
        raise ValueError(f'{method} stands in no entry of methods.yml: add it to one.')
    path = find_config(str(configs / name))
    cfg = Run.make(path).cfg
    learns = cfg.get('train_cfg') is not None
    put_together = find_method(path)
    file = put_together[0] if put_together else path
    weights = WEIGHTS / f'{stem}.safetensors'
    return {'Name': stem, 'In Collection': where[method],
            'Config': f'configs/{file.resolve().relative_to(configs).as_posix()}',
            'Metadata': {'Training Data': [OTHERS[dataset] if learns else 'none, zero-shot'],
                         'Architecture': _architecture(cfg.model)},
            **({'Weights': f'mmcluspro/{weights.relative_to(PACKAGE).as_posix()}'}
               if weights.is_file() else {})}


def _architecture(model: Any) -> list[str]:
    """The image tower, and the word vectors in place of a text tower."""
    tower = next(kind for kind in TOWERS if re.search(rf"\.{kind}'", str(model.backbone)))
    path = str(model.head.text.get('path'))
    return [*TOWERS[tower], *(name for key, name in VECTORS.items() if key in path)]


def write_metafile(path: str | Path, store: Store, methods: str | Path) -> list[str]:
    """Writes ``metafile.yml`` anew.

    Args:
        path (str | Path): The file, in the folder of the configs.
        store (Store): Records.
        methods (str | Path): As for :func:`model_index`.

    Returns:
        list[str]: Models that have results.
    """
    path = Path(path).resolve()
    content = model_index(methods, path.parent)
    filled = []
    for model in content['Models']:
        entries = results(store, path.parent / f'{model["Name"]}.py')
        if entries:
            model['Results'] = entries
            filled.append(model['Name'])
    path.write_text('# Made by tools/analysis_tools/reproduce.py --metafile; edit methods.yml.\n'
                    + yaml.dump(content, Dumper=_Plain, sort_keys=False, allow_unicode=True,
                                width=100), encoding='utf-8')
    return filled


class _Plain(yaml.SafeDumper):
    """Writes a list anew where it stands twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
