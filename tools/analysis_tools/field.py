#!/usr/bin/env python
"""Compares methods on draws of the split: the same photographs and stored features, paired.

    python tools/analysis_tools/reproduce.py field fashion.npz --words glove_6B_50d.bin --draws 5
    python tools/analysis_tools/field.py fashion.npz --words glove_6B_50d.bin \\
        --sizes 300 600 --few-types --methods regressions now

A file of features has the arrays ``features`` (N, D), ``attribute`` and ``object`` (N,). A draw
makes pairs unseen and may cut training and validation to a size, see :func:`draw`. Methods:

* ``regressions``: two logistic regressions, attribute and object, and the product of their
  probabilities; both penalties are chosen together by the AUC on validation.
* ``means``: cosine with the mean of the attribute plus cosine with the mean of the object.
* ``neighbours``: shares of attribute and object among the 20 nearest photographs, multiplied.
* ``now``: what ``mmcluspro train photos/`` fits with DINOv2 and word vectors today.
* ``before``: ClusPro as ``mmcluspro train photos/ --no-refit`` trains it, its best epoch.
* any other name: the config ``<name>_fashion.py``, as it is; the last epoch counts.

Each method chooses its bias on its own held-out answers: validation, or those of its
cross-validation. The draw is the seed of the training. Records are lines of JSON; those that are
there are not computed again.
"""
import argparse
import json
import resource
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from mmengine.logging import MMLogger
from mmengine.model import BaseModule
from mmengine.registry import init_default_scope
from mmpretrain.structures import DataSample
from torch.nn import functional as F

from experiments.execution import commit_of
from experiments.fast_runs import PhaseData, read_vectors_once, score, train
from mmcluspro.cli.own_routes import BATCH, STEPS, words_for
from mmcluspro.datasets.splitting import make_split, shuffled
from mmcluspro.datasets.table_file import TableRow, write_table
from mmcluspro.engine.launch import build_runner, read_config
from mmcluspro.engine.messages import run_command
from mmcluspro.evaluation.curve import czsl_curve, exact_metrics
from mmcluspro.evaluation.held_out import CrossValidation
from mmcluspro.evaluation.tensors import log_scores
from mmcluspro.features.source import source_facts
from mmcluspro.features.writer import PhaseWriter, start_folder
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.softmax import Problems, fit
from mmcluspro.registry import DATASETS, MODELS

FIELD = ('regressions', 'means', 'neighbours', 'frozen_dinov2_baseline', 'frozen_dinov2_cluspro',
         'frozen_dinov2_cluspro_plus', 'compcos', 'oadis')
NEIGHBOURS = 20
PER_PAIR = 20  # photographs of a pair, where types are left out
UNSEEN = 0.35
TRAINED = 0.45  # of all photographs, about, go to training
STRENGTHS = tuple(10.0 ** power for power in np.arange(0.5, 4.6, 0.5))  # C of scikit-learn


class Answers(NamedTuple):
    """Log scores of N photographs for P pairs, and what is right.

    Attributes:
        scores (Tensor): Shape (N, P).
        true (Tensor): Row of the right pair, (N,).
        seen (Tensor): Which pairs training had, (P,).
    """
    scores: torch.Tensor
    true: torch.Tensor
    seen: torch.Tensor

    def margins(self) -> tuple[np.ndarray, np.ndarray]:
        """Least bias at which each answer is right, and whether its pair was seen."""
        is_seen = self.seen[self.true]
        own = self.scores.gather(1, self.true[:, None])[:, 0]
        others = self.scores.scatter(1, self.true[:, None], -torch.inf)
        rival, other = (others.masked_fill(side != is_seen[:, None], -torch.inf).amax(dim=1)
                        for side in (self.seen, ~self.seen))
        margin = torch.where(own > rival, other - own, torch.inf)
        return margin.double().numpy(), is_seen.numpy()


class Method(NamedTuple):
    """What a method answers, its bias and what it chose."""
    test: Answers
    bias: float
    chosen: dict


class Set(NamedTuple):
    """Photographs as features (N, D), and their names."""
    name: str
    features: torch.Tensor
    attributes: Sequence[str]
    objects: Sequence[str]


def draw(photos: Set, size: int, seed: int, few_types: bool = False) -> list[TableRow]:
    """Splits photographs at random and cuts training and validation.

    Args:
        photos (Set): All photographs.
        size (int): Of the training part, 0 for all. Every seen pair keeps a photograph.
        seed (int): Another seed, another split.
        few_types (bool): Take objects in a drawn order until there are enough photographs, at most
            20 of a pair. Defaults to False: all pairs, with fewer photographs.

    Returns:
        list[TableRow]: ``image`` is the row of the photograph, as text.
    """
    rows = [TableRow(f'{place}', attr, obj) for place, (attr, obj) in enumerate(
        zip(photos.attributes, photos.objects))]
    if few_types:
        rows = _few_types(rows, size, seed)
    split = make_split(rows, seed, UNSEEN)
    phases = defaultdict(list)
    for row in _mixed(split, seed):
        phases[row.split].append(row)
    if not size:
        return split
    train = phases['train']
    if len(train) < size * 0.97:
        raise ValueError(f'{photos.name} has {len(train)} photographs to train, {size} were '
                         'asked for.')
    kept = _first_of_pairs(train, size)
    val = phases['val'][:round(len(phases['val']) * size / len(train))]
    return [TableRow(*row[:3], row.split, place) for place, row in enumerate(
        kept + val + phases['test'])]


def _mixed(rows: list[TableRow], seed: int) -> list[TableRow]:
    """The rows in a drawn order."""
    by_image = {row.image: row for row in rows}
    return [by_image[name] for name, in shuffled(((name, ) for name in by_image), seed)]


def _few_types(rows: list[TableRow], size: int, seed: int) -> list[TableRow]:
    """Objects in a drawn order, until up to 20 photographs of a pair would be enough."""
    by_object: dict[str, list[TableRow]] = defaultdict(list)
    for row in rows:
        by_object[row.object].append(row)
    found: list[TableRow] = []
    for name, in shuffled(((name, ) for name in by_object), f'few {seed}'):
        counts = Counter(row.attribute for row in by_object[name])
        found += by_object[name]
        size -= TRAINED * sum(min(count, PER_PAIR) for count in counts.values())
        if size <= 0:
            break
    return found


def _first_of_pairs(rows: list[TableRow], size: int) -> list[TableRow]:
    """The first photograph of each pair, then others until there are enough."""
    first = {row[1:3]: row for row in reversed(rows)}
    chosen = {row.image for row in first.values()}
    others = [row for row in rows if row.image not in chosen]
    return [*first.values(), *others][:max(size, len(first))]


class Draw:
    """A draw as the methods need it.

    Args:
        photos (Set): All photographs.
        rows (list[TableRow]): Of the draw.
        words (str): File of word vectors.
        folder (Path): For the table and the features.
    """

    def __init__(self, photos: Set, rows: list[TableRow], words: str, folder: Path) -> None:
        self.words, self.folder = words, folder
        self.table = folder / 'table.csv'
        write_table(self.table, rows)
        self.rows = {phase: [row for row in rows if row.split == phase]
                     for phase in ('train', 'val', 'test')}
        self.features = {phase: photos.features[[int(row.image) for row in part]]
                         for phase, part in self.rows.items()}
        names = sorted({name for row in rows for name in row[1:3]})
        self.readable = words_for(names, words).readable
        self.space = dict(type='mmcluspro.TableCZSL', data_root=str(folder), table=str(self.table))
        self.spaces = {phase: DATASETS.get('mmcluspro.TableCZSL').make_space(
            phase, data_root=str(folder), table=str(self.table))
            for phase in ('train', 'val', 'test', 'all')}

    def labels(self, phase: str) -> dict[str, torch.Tensor]:
        """Of the photographs of a phase: attribute, object and row of the pair."""
        space = self.spaces[phase]
        table = {pair: row for row, pair in enumerate(map(tuple, space.pairs.tolist()))}
        attr = [space.attributes.index(row.attribute) for row in self.rows[phase]]
        obj = [space.objects.index(row.object) for row in self.rows[phase]]
        return dict(attr=torch.tensor(attr), obj=torch.tensor(obj),
                    pair=torch.tensor([table[pair] for pair in zip(attr, obj)]))

    def answers(self, phase: str, scores: torch.Tensor) -> Answers:
        """Scores of a phase over its pairs, with what is right."""
        return Answers(scores, self.labels(phase)['pair'], self.spaces[phase].seen)

    def head(self) -> torch.nn.Module:
        """An empty head of regressions."""
        readable = dict(readable=self.readable) if self.readable else {}
        return MODELS.build(dict(
            type='mmcluspro.JoinedHead', in_channels=self.features['train'].shape[1],
            space=self.space, text=dict(
                type='mmcluspro.WordVectorText', path=self.words, out_dim=128, hidden_dim=128,
                learn_vectors=True, temperature=0.1, **readable)))


def best_bias(answers: Answers) -> float:
    """The bias with the best harmonic mean, finite."""
    curve = czsl_curve(*answers.margins())
    return float(np.clip(curve.bias[int(curve.hm.argmax())], -1e6, 1e6))


def rate(method: Method) -> dict[str, float]:
    """Metrics of the test."""
    margin, is_seen = method.test.margins()
    found = exact_metrics(margin, is_seen)
    delivered = czsl_curve(margin, is_seen, np.array([method.bias]))
    return dict(auc=found['auc_exact'], best_hm=found['hm_exact'], hm=float(delivered.hm[0]),
                seen=float(delivered.seen[0]), unseen=float(delivered.unseen[0]))


def _unit(one: Draw) -> dict[str, torch.Tensor]:
    return {phase: F.normalize(value, dim=1) for phase, value in one.features.items()}


def _product(one: Draw, logs: dict[str, torch.Tensor], phase: str) -> Answers:
    """Sums of the log scores of attributes (N, A) and objects (N, O)."""
    attr, obj = one.spaces[phase].pairs.T
    return one.answers(phase, logs['attr'][:, attr] + logs['obj'][:, obj])


def regressions(one: Draw, seed: int) -> Method:
    """Two logistic regressions, penalties chosen together on validation."""
    x, labels = _unit(one), one.labels('train')
    logs = {}
    for name, names in (('attr', one.spaces['all'].attributes), ('obj', one.spaces['all'].objects)):
        found = fit(Problems.path(x['train'], labels[name], len(names),
                                  [1 / strength for strength in STRENGTHS]), 300, 1e-3)
        for phase in ('val', 'test'):
            logs[name, phase] = (torch.einsum('nd,bcd->bnc', x[phase], found.weight)
                                 + found.bias[:, None]).log_softmax(dim=-1)

    def answers(chosen: tuple[int, int], phase: str) -> Answers:
        return _product(one, {name: logs[name, phase][place]
                              for name, place in zip(('attr', 'obj'), chosen)}, phase)

    best = max(product(range(len(STRENGTHS)), repeat=2),
               key=lambda each: exact_metrics(*answers(each, 'val').margins())['auc_exact'])
    return Method(answers(best, 'test'), best_bias(answers(best, 'val')),
                  {name: float(STRENGTHS[place]) for name, place in zip(('attr', 'obj'), best)})


def means(one: Draw, seed: int) -> Method:
    """Cosines with the means of attribute and object."""
    x, labels = _unit(one), one.labels('train')
    centre = x['train'].mean(dim=0)
    unit = {phase: F.normalize(value - centre, dim=1) for phase, value in x.items()}
    sums = {name: F.normalize(F.one_hot(labels[name]).float().T @ unit['train'], dim=1)
            for name in ('attr', 'obj')}
    test, val = (_product(one, {name: unit[phase] @ each.T for name, each in sums.items()}, phase)
                 for phase in ('test', 'val'))
    return Method(test, best_bias(val), {})


def neighbours(one: Draw, seed: int) -> Method:
    """Shares among the nearest photographs; one photograph is shared out evenly."""
    x, labels = _unit(one), one.labels('train')

    def answers(phase: str) -> Answers:
        near = (x[phase] @ x['train'].T).topk(min(NEIGHBOURS, len(x['train']))).indices
        logs = {}
        for name in ('attr', 'obj'):
            votes = F.one_hot(labels[name])[near].sum(dim=1).float()
            logs[name] = ((votes + 1 / votes.shape[1]) / (near.shape[1] + 1)).log()
        return _product(one, logs, phase)

    return Method(answers('test'), best_bias(answers('val')), {})


@MODELS.register_module(force=True)  # run as a script, and imported
class StoredFeatures(BaseModule):
    """Returns features (N, D) as they are."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x, )


def trained(config: str) -> Callable[[Draw, int], Method]:
    """A method of this package, as its config for Fashion trains it."""

    def run(one: Draw, seed: int) -> Method:
        cfg = read_config(f'{config}_fashion.py')
        cfg.model.space = one.space
        cfg.model.backbone.backbone = dict(type='mmcluspro.StoredFeatures')
        text = {**cfg.model.head.text.to_dict(), 'path': one.words, 'readable': one.readable}
        cfg.model.head.text = text
        data = {phase: PhaseData(
            one.features[phase], [DataSample(metainfo=dict(
                attr_label=attr, obj_label=obj, pair_label=pair))
                for attr, obj, pair in zip(*(one.labels(phase)[name].tolist()
                                             for name in ('attr', 'obj', 'pair')))],
            one.labels(phase)['pair'], Candidates.from_space(one.spaces[phase]), one.spaces[phase])
            for phase in one.rows}
        model = train(cfg, data['train'], seed)

        @torch.no_grad()
        def answers(phase: str) -> Answers:
            scores = torch.cat(list(score(model, data[phase], data[phase].candidates)))
            return one.answers(phase, log_scores(scores, model.head.link))

        return Method(answers('test'), best_bias(answers('val')), {})

    return run


def before(one: Draw, seed: int) -> Method:
    """ClusPro on features, as ``mmcluspro train photos/`` trains it."""
    count = len(one.rows['train'])
    features = one.folder / 'features'
    tower = dict(type='mmcluspro.DINOv2', arch='small', pretrained=None)
    text = dict(path=one.words, **(dict(readable=dict(_delete_=True, **one.readable))
                                   if one.readable else {}))
    fields = dict(
        data=dict(data_root=str(one.folder), table=str(one.table), features=str(features)),
        model=dict(backbone=dict(in_channels=one.features['train'].shape[1], backbone=dict(
            features=str(features), backbone=dict(_delete_=True, **tower))), head=dict(text=text)),
        train_cfg=dict(max_epochs=min(40, max(20, -(-STEPS * BATCH // count)))))
    path = one.folder / 'before.py'
    path.write_text("_base_ = '{{$MMCLUSPRO_CONFIGS:configs}}/frozen_dinov2_cluspro_own_data.py'\n"
                    + ''.join(f'{name} = {value!r}\n' for name, value in fields.items()))
    cfg = read_config(path)
    start_folder(features, dict(
        source_facts(tower), pool='cls_avg', fingerprint=1, shard_size=1 << 20, dtype='float32',
        pipeline=cfg.test_pipeline, preprocessor=cfg.model.data_preprocessor))
    for phase, rows in one.rows.items():
        writer = PhaseWriter(features, phase, [row.image for row in rows])
        for span in writer.missing():
            writer.write(span, one.features[phase].numpy())
    cfg.merge_from_dict({'work_dir': str(one.folder / 'run'), 'launcher': 'none',
                         'log_level': 'ERROR', 'randomness.seed': seed})
    cfg.val_evaluator = cfg.val_evaluator[:1]  # that of the open world chooses nothing
    for hook in ('curve', 'prediction', 'memory', 'description'):
        cfg.default_hooks[hook] = None
    runner = build_runner(cfg)
    runner.train()
    best = next((one.folder / 'run').glob('best_*.pth'))
    runner.load_checkpoint(str(best))
    model = runner.model.eval()

    @torch.no_grad()
    def answers(phase: str) -> Answers:
        f = model.extract_feat(one.features[phase])
        scores = model.head.score(f, Candidates.from_space(one.spaces[phase])).pair
        return one.answers(phase, log_scores(scores, model.head.link))

    return Method(answers('test'), best_bias(answers('val')), dict(epoch=best.stem))


def now(one: Draw, seed: int) -> Method:
    """The head of regressions, with what cross-validation chooses."""
    head, labels = one.head(), one.labels('train')
    choice = CrossValidation(head, one.features['train'], labels).choose()
    head.fit(one.features['train'], labels, choice.best.settings)
    with torch.no_grad():
        test = one.answers('test', head.score(
            [one.features['test']], Candidates.from_space(one.spaces['test'])).pair)
    return Method(test, choice.best.bias, choice.best.settings._asdict())


METHODS: dict[str, Callable[[Draw, int], Method]] = dict(
    regressions=regressions, means=means, neighbours=neighbours, before=before, now=now)


def read_set(path: Path) -> Set:
    """Reads a file of features."""
    with np.load(path, allow_pickle=False) as arrays:
        return Set(path.stem, torch.from_numpy(arrays['features'].astype(np.float32)),
                   arrays['attribute'].tolist(), arrays['object'].tolist())


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('features', type=Path, help='file of features, .npz')
    parser.add_argument('--words', required=True, help='file of word vectors')
    parser.add_argument('--out', type=Path, default=Path('docs/results/field.jsonl'),
                        help='records (default: docs/results/field.jsonl)')
    parser.add_argument('--sizes', type=int, nargs='+', default=[0],
                        help='photographs to train (default: 0, all)')
    parser.add_argument('--draws', type=int, default=5, help='draws of the split (default: 5)')
    parser.add_argument('--methods', nargs='+', default=FIELD, help='default: the field')
    parser.add_argument('--few-types', action='store_true',
                        help='few objects with up to 20 photographs of a pair')
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    photos = read_set(args.features)
    name = photos.name + ('-few' if args.few_types else '')
    done = set()
    if args.out.is_file():
        records = map(json.loads, args.out.read_text().splitlines())
        done = {(each['set'], each['size'], each['draw'], each['method']) for each in records}
    commit = commit_of(Path(__file__).parent)
    init_default_scope('mmpretrain')
    read_vectors_once()
    MMLogger.get_instance('mmengine', log_level='WARNING')
    for seed, size in product(range(args.draws), args.sizes):
        wanted = [method for method in args.methods if (name, size, seed, method) not in done]
        if not wanted:
            continue
        rows = draw(photos, size, seed, args.few_types)
        for method in wanted:
            with tempfile.TemporaryDirectory() as folder:
                one = Draw(photos, rows, str(Path(args.words).resolve()), Path(folder))
                start = _cpu()
                found = (METHODS.get(method) or trained(method))(one, seed)
                seconds = _cpu() - start
            seen = one.spaces['train']
            record = dict(
                set=name, size=size, draw=seed, method=method,
                **{key: round(value, 2) for key, value in rate(found).items()},
                bias=round(found.bias, 3), seconds=round(seconds, 1),
                images={phase: len(part) for phase, part in one.rows.items()},
                pairs=[len(seen.pairs), len(one.spaces['all'].pairs) - len(seen.pairs)],
                chosen=found.chosen, commit=commit)
            args.out.parent.mkdir(parents=True, exist_ok=True)
            with args.out.open('a') as file:
                file.write(json.dumps(record) + '\n')
            print(f'{name} {size} {seed} {method}: AUC {record["auc"]} HM {record["hm"]} '
                  f'({record["best_hm"]}) {record["seconds"]} s {found.chosen}', flush=True)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == '__main__':
    run_command(main)
