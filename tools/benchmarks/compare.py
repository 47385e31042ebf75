"""CPU time of this code beside that of an earlier commit and a limit, in one run.

    python tools/benchmarks/compare.py --before ef3f7c2
    python tools/benchmarks/compare.py --before ef3f7c2 --only 'HSIC' --repeats 20

Both versions wait in processes of their own and take turns, call by call, because a machine is
never quiet; the minimum of each is taken. Only ratios of one run mean anything. The limit is the
least work that the answer needs, at the speed of this machine's matrix products.
"""
import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

ROOT = Path(__file__).resolve().parents[2]
K = 5
# Attributes, objects, batch, channels.
SIZES = {'UT-Zappos': (16, 12, 128, 768), 'MIT-States': (115, 245, 64, 768),
         'C-GQA': (413, 674, 16, 768), '10,000 + 10,000': (10_000, 10_000, 64, 256)}
Case = tuple[Callable[[], object], Callable[[], object] | None]


def unit(generator: torch.Generator, *size: int) -> Tensor:
    """Unit vectors."""
    return normalize(torch.randn(*size, generator=generator), dim=-1)


class Batch:
    """Two filled banks, features of a batch and their assignment."""

    def __init__(self, name: str, queue: int | None = None) -> None:
        from mmcluspro.models.prototypes import PrototypeBank, assign_together
        *sizes, num, dim = SIZES[name]
        generator = torch.Generator().manual_seed(0)
        self.banks, self.labels, self.features = [], [], []
        for size in sizes:
            bank = PrototypeBank(size, dim, K, queue_size=queue).train()
            bank.seeded.fill_(True)
            owner = torch.arange(size).repeat(2 if size > 5000 else 20)
            if size > 5000:  # k-means of 10,000 primitives is not what is measured
                bank.prototypes.copy_(unit(generator, size * K, dim))
                bank.usage.fill_(1 / K)
                bank.initialised.fill_(True)
                bank.fill_queue(unit(generator, len(owner), dim), owner)
            else:
                bank.initialise(unit(generator, len(owner), dim), owner)
            rank = torch.arange(1, size + 1, dtype=torch.float32)
            self.labels.append(torch.multinomial(rank.rsqrt(), num, True, generator=generator))
            self.features.append(unit(generator, num, dim).requires_grad_())
            self.banks.append(bank)
        self.rows = assign_together(self.banks, self.features, self.labels)
        self.tables = [bank.prototypes for bank in self.banks]
        self.num, self.dim = num, dim


def loss_case(kind: str, name: str) -> Case:
    """Forward and backward of a loss; the limit are its products."""
    from mmcluspro.models import losses
    batch = Batch(name, 8 if SIZES[name][0] > 5000 else None)
    loss = getattr(losses, kind)()

    def run() -> None:
        loss(batch.features, batch.rows, batch.tables).backward()

    features = torch.stack([f.detach() for f in batch.features])
    square = torch.randn(2, batch.num, batch.num)
    if kind == 'HSICLoss':  # four Gram matrices, and backward of two
        def limit() -> None:
            for _ in range(2):
                torch.bmm(features, features.transpose(1, 2))
            torch.bmm(square, features)
    else:  # one product with each table forward, one backward
        both = features.flatten(0, 1)

        def limit() -> None:
            for table in batch.tables:
                (both @ table.T) @ table
    return run, limit


def cluster_case(part: str, name: str) -> Case:
    """Assignment or update of both branches."""
    from mmcluspro.models.prototypes import assign_together, update_together
    batch = Batch(name, 8 if SIZES[name][0] > 5000 else None)
    if part == 'update':
        return lambda: update_together(batch.banks, batch.features, batch.labels,
                                       batch.rows), None

    classes = [min(bank.num_classes, batch.num) for bank in batch.banks]

    def limit() -> None:  # one copy of the queues of the batch, and both products with them
        for size, bank in zip(classes, batch.banks):
            context = bank.queue.context()[0][:size].clone()
            torch.bmm(context, context.transpose(1, 2))
            torch.bmm(bank.prototypes.view(-1, K, batch.dim)[:size], context.transpose(1, 2))

    return lambda: assign_together(batch.banks, batch.features, batch.labels), limit


def step_case(head: str) -> Case:
    """A training step on stored features of 768 channels at UT-Zappos' sizes, Adam included."""
    from mmpretrain.structures import DataSample

    from mmcluspro.datasets import CompositionSpace
    from mmcluspro.registry import MODELS
    torch.manual_seed(0)
    num_attrs, num_objs, num, dim = SIZES['UT-Zappos']
    every = torch.cartesian_prod(torch.arange(num_attrs), torch.arange(num_objs))
    picked = every[torch.linspace(0, len(every) - 1, 83).long()]
    space = CompositionSpace.from_pairs(
        [f'attribute{i}' for i in range(num_attrs)], [f'object{i}' for i in range(num_objs)],
        picked, torch.ones(83, dtype=torch.bool))
    words = Path(tempfile.mkdtemp()) / 'words.txt'
    names = [*space.attributes, *space.objects]
    vectors = torch.randn(len(names), 300)
    words.write_text(''.join(f'{name} {" ".join(f"{v:.4f}" for v in vector.tolist())}\n'
                             for name, vector in zip(names, vectors)))
    options = dict(in_channels=dim) if head == 'ClusProHead' else {}
    model = MODELS.build(dict(
        type='mmcluspro.CompositionalClassifier', space=space.to_dict(),
        backbone=dict(
            type='mmcluspro.ProjectedBackbone', in_channels=dim, out_dim=dim, pool=None,
            frozen=True, backbone=dict(
                type='mmcluspro.CachedFeatures', features='none',
                backbone=dict(type='mmpretrain.ResNet', depth=18))),
        neck=dict(type='mmcluspro.PrimitiveAdapter', in_channels=dim),
        head=dict(type=f'mmcluspro.{head}', text=dict(
            type='mmcluspro.WordVectorText', path=str(words), out_dim=dim, learn_vectors=True),
            **options))).train()
    model.backbone.backbone._compared = True  # there are no files to compare with
    generator = torch.Generator().manual_seed(0)
    for bank in model.head.clustered.values():
        owner = torch.arange(20 * bank.num_classes) % bank.num_classes
        bank.initialise(unit(generator, len(owner), dim), owner)
    samples = []
    for pair in torch.randint(83, (num, ), generator=generator).tolist():
        attr, obj = model.head.space.pairs[pair].tolist()
        sample = DataSample().set_gt_label(pair)
        for key, value in (('attr', attr), ('obj', obj), ('pair', pair)):
            sample.set_field(value, f'{key}_label')
        samples.append(sample)
    features = torch.randn(num, dim, generator=generator)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-4)

    def run() -> None:
        losses = model(features, samples, mode='loss')
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
        model.head.update_prototypes()

    return run, None


CASES: dict[str, Callable[[], Case]] = {
    'step on stored features, baseline': lambda: step_case('ThreePathHead'),
    'step on stored features, ClusPro': lambda: step_case('ClusProHead'),
    **{f'HSIC, {name}': lambda name=name: loss_case('HSICLoss', name)
       for name in ('UT-Zappos', 'MIT-States')},
    **{f'PCL, {name}': lambda name=name: loss_case('PCLLoss', name)
       for name in ('UT-Zappos', 'MIT-States', '10,000 + 10,000')},
    **{f'assignment, {name}': lambda name=name: cluster_case('assign', name)
       for name in ('UT-Zappos', 'MIT-States', 'C-GQA')},
    **{f'update, {name}': lambda name=name: cluster_case('update', name)
       for name in ('UT-Zappos', 'MIT-States', '10,000 + 10,000')},
}


def work() -> None:
    """Answers ``case`` or ``case limit`` on stdin with CPU seconds."""
    torch.set_num_threads(1)
    name, case = '', (lambda: None, None)
    for line in sys.stdin:
        wanted, what = line.strip().split('\t')
        if wanted != name:
            name, case = wanted, CASES[wanted]()
            for call in case:
                if call:
                    call()
        call = case[what == 'limit']
        if call is None:
            print('nan', flush=True)
            continue
        begin = time.process_time()
        call()
        print(time.process_time() - begin, flush=True)


class Worker:
    """A process that runs the cases with the package in a folder."""

    def __init__(self, root: str | Path) -> None:
        env = dict(os.environ, PYTHONPATH=str(root), OMP_NUM_THREADS='1')
        self.process = subprocess.Popen(
            [sys.executable, '-W', 'ignore', __file__, '--work'], env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def seconds(self, case: str, what: str = '') -> float:
        """CPU time of one call."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f'{case}\t{what or "own"}\n')
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f'{case}: the process ended; run it alone to see why.')
        return float(answer)


def unpack(revision: str, folder: str) -> str:
    """The files of a commit in a folder."""
    data = subprocess.run(['git', 'archive', revision], cwd=ROOT, check=True,
                          capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(data)) as archive:
        archive.extractall(folder, filter='data')
    return folder


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--before', default='ef3f7c2', help='commit to compare with')
    parser.add_argument('--only', default='', help='cases whose name holds this')
    parser.add_argument('--repeats', type=int, default=15)
    parser.add_argument('--work', action='store_true', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work()
        return
    print('| | before | now | gain | limit | now / limit |\n|---|---|---|---|---|---|')
    with tempfile.TemporaryDirectory() as folder:
        before, now = Worker(unpack(args.before, folder)), Worker(ROOT)
        for case in (name for name in CASES if args.only in name):
            rounds = [(before.seconds(case), now.seconds(case), now.seconds(case, 'limit'))
                      for _ in range(args.repeats)]
            old, new, least = (min(column) for column in zip(*rounds))
            tail = ('', '') if least != least else (f'{1e3 * least:.1f} ms', f'{new / least:.1f}×')
            print(f'| {case} | {1e3 * old:.1f} ms | {1e3 * new:.1f} ms | {old / new:.2f}× | '
                  f'{tail[0]} | {tail[1]} |', flush=True)


if __name__ == '__main__':
    main()
