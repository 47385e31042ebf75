#!/usr/bin/env python
"""What `mmcluspro train photos/` delivers, on photographs that were held out from everything.

    python tools/analysis_tools/delivered.py photos photos_held --json delivered.jsonl

Both folders hold the same folders `attribute_object/`. One record with all pairs labelled:
accuracy on the held photographs, beside the number that cross-validation promised and two
logistic regressions of scikit-learn (product of probabilities, penalties by its own
cross-validation). Then one record for each seed with a fifth of the pairs without photographs, the
same pairs each time: seen and unseen accuracy as delivered. Needs scikit-learn.
"""
import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV

from mmcluspro.api import TrainedModel
from mmcluspro.artefact.images import list_images
from mmcluspro.cli import main as mmcluspro
from mmcluspro.datasets.splitting import choose_unseen, shuffled
from mmcluspro.datasets.table_file import read_table
from mmcluspro.evaluation import probabilities
from mmcluspro.features.store import FeatureStore
from mmcluspro.models.structures import Features
from mmcluspro.utils.plain_files import csv_text

BATCH = 64
UNSEEN = 0.2
PENALTIES = tuple(10.0 ** power for power in (-1, 0, 1, 2, 3, 4))  # C of scikit-learn


def photographs(folder: Path) -> list[tuple[Path, str, str]]:
    """Path, attribute and object of each."""
    return [(path, *path.parent.name.split('_')) for path in sorted(folder.rglob('*.jpg'))]


def train(rows: Sequence[tuple[Path, str, str]], folder: Path, args: argparse.Namespace,
          seed: int, *flags: str) -> tuple[TrainedModel, float]:
    """Trains on some photographs as a user would, and returns what is delivered."""
    folder.mkdir(parents=True)
    table = folder / 'photographs.csv'
    table.write_text(csv_text([('image', 'attribute', 'object'), *(
        (str(path.resolve()), attr, obj) for path, attr, obj in rows)]))
    start = time.process_time()
    if mmcluspro(['train', str(table), '--weights', args.weights, '--words', args.words,
                  '--work-dir', str(folder / 'run'), '--no-report', *flags, '--cfg-options',
                  f'randomness.seed={seed}']):
        raise SystemExit(2)
    best, = (folder / 'run').glob('best_*.pth')
    return TrainedModel.load(str(best)), time.process_time() - start


def raw_features(model: TrainedModel, paths: Sequence[Path]) -> torch.Tensor:
    """Features of the frozen tower, (N, D)."""
    items = list_images([str(path) for path in paths])
    return torch.cat([model.features([model.prepare(item)[0] for item in items[i:i + BATCH]])
                      .composition.clone() for i in range(0, len(items), BATCH)])


def stored_features(run: Path, rows: Sequence[tuple[Path, str, str]]) -> torch.Tensor:
    """Features that training stored, in the order of the rows, (N, D)."""
    store = FeatureStore(run / 'features', 'train')
    names = {Path(row.image).parts[-2:]: row.image for row in read_table(run / 'table.csv')}
    return torch.from_numpy(np.stack([store[names[path.parts[-2:]]] for path, *_ in rows])).float()


def answers(model: TrainedModel, features: torch.Tensor, names: list) -> np.ndarray:
    """Rows of ``names``, pairs that may be new, as `predict --pairs` answers."""
    candidates = model.candidates(names)
    order = [names.index((candidates.attributes[attr], candidates.objects[obj]))
             for attr, obj in candidates.pairs.tolist()]
    with torch.no_grad():
        scores = model.score(Features(features), candidates).pair
    chance = probabilities(scores, candidates.seen, model.calibration(), model.network.head.link)
    return np.asarray(order)[chance.argmax(dim=1).numpy()]


def regressions(x: np.ndarray, rows: Sequence[tuple], new: np.ndarray, names: list) -> np.ndarray:
    """The same of two logistic regressions of scikit-learn."""
    total: np.ndarray | float = 0.0
    for place in (0, 1):
        labels = np.array([row[place + 1] for row in rows])
        search = LogisticRegressionCV(Cs=PENALTIES, cv=5, max_iter=2000).fit(x, labels)
        fit = LogisticRegression(C=float(np.ravel(search.C_)[0]), max_iter=5000).fit(x, labels)
        columns = [list(fit.classes_).index(pair[place]) for pair in names]
        total = total + fit.predict_log_proba(new)[:, columns]
    return np.argmax(total, axis=1)


def accuracy(answer: np.ndarray, target: np.ndarray, mask: np.ndarray | None = None) -> float:
    """In percent."""
    right = answer == target
    return round(100 * float((right if mask is None else right[mask]).mean()), 2)


def main(argv: Sequence[str] | None = None) -> None:
    """Writes the records."""
    parser = argparse.ArgumentParser(description=(__doc__ or '').split('\n')[0])
    parser.add_argument('photos', type=Path, help='folder to train on')
    parser.add_argument('held', type=Path, help='folder with other photographs of the same pairs')
    parser.add_argument('--weights', default='dinov2-s', help='as in mmcluspro train')
    parser.add_argument('--words', default='glove', help='as in mmcluspro train')
    parser.add_argument('--seeds', type=int, default=5, help='trainings of one split (default: 5)')
    parser.add_argument('--name', default='', help='of the draw, for the records')
    parser.add_argument('--json', type=Path, help='file to append the records to')
    args = parser.parse_args(argv)
    rows, held = photographs(args.photos), photographs(args.held)
    names = sorted({row[1:] for row in rows})
    target = np.array([names.index(row[1:]) for row in held])
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], capture_output=True, text=True,
                            cwd=Path(__file__).parent, check=False).stdout.strip()
    common = dict(draw=args.name, images=len(rows), pairs=len(names), held=len(held), commit=commit)

    def record(**fields: object) -> None:
        line = json.dumps({**common, **fields})
        print(line, flush=True)
        if args.json:
            with args.json.open('a') as file:
                file.write(line + '\n')

    with tempfile.TemporaryDirectory() as place:
        model, seconds = train(rows, Path(place) / 'all', args, 0)
        metrics = json.loads((Path(place) / 'all/run/test_metrics.json').read_text())
        new = raw_features(model, [row[0] for row in held])
        old = stored_features(Path(place) / 'all/run', rows)
        x, z = (torch.nn.functional.normalize(part, dim=1).double().numpy() for part in (old, new))
        record(kind='all labelled', accuracy=accuracy(answers(model, new, names), target),
               sklearn=accuracy(regressions(x, rows, z, names), target),
               promised=metrics['czsl/seen'], seconds=round(seconds, 1),
               auc=metrics['czsl/auc'], auc_regressions=metrics['regressions/auc'])
        unseen = set(choose_unseen(shuffled(names, 0), round(UNSEEN * len(names))))
        some = [i for i, row in enumerate(rows) if row[1:] not in unseen]
        is_seen = np.array([row[1:] not in unseen for row in held])
        part = [rows[i] for i in some]
        peer = regressions(x[some], part, z, names)
        record(kind='sklearn', unseen_pairs=len(unseen),
               seen=accuracy(peer, target, is_seen), unseen=accuracy(peer, target, ~is_seen))
        for seed in range(args.seeds):
            model, _ = train(part, Path(place) / str(seed), args, seed, '--no-test')
            found = answers(model, new, names)
            record(kind='seed', seed=seed, unseen_pairs=len(unseen),
                   seen=accuracy(found, target, is_seen),
                   unseen=accuracy(found, target, ~is_seen), bias=model.calibration().seen_bias)


if __name__ == '__main__':
    main()
