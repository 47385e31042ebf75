"""Time and memory per rank as primitives, images, rows, pairs and ranks grow, with exponents.

    python tools/benchmarks/scale.py --out docs/results/scale.jsonl
    python tools/benchmarks/scale.py --plot docs/results/scale.jsonl docs/images/scale.png
    python tools/benchmarks/scale.py --exponents docs/results/scale.jsonl

primitives  A step of both prototype banks (assignment, losses, update), 64 images.
batch       The same by the global batch, 200 primitives.
rows        Opening stored features the first and the second time, and reading a row.
pairs       Composing and scoring the pairs of a world with the metric's reduction.
ranks       The step with the features of all ranks gathered, over gloo.

Each row is one process group; CPU seconds and memory are those of the first rank. An exponent is
the slope between the smallest and the largest size in logarithms, and that of the last step.
"""
import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from math import log

import torch
from torch import distributed
from torch.nn.functional import normalize

DIM, IMAGES, QUEUE = 256, 64, 64
SMALL, BATCH = 32, 16  # channels and images of scoring, and of a rank, whose queue is 8
PRIMITIVES = (100, 1000, 10_000)
BATCHES = (64, 512, 2048, 8192)
ROWS = (10_000, 100_000, 1_000_000)
PAIRS = (100_000, 250_000, 500_000, 1_000_000)
RANKS = (1, 2, 4, 8)
KINDS = ('primitives', 'batch', 'rows', 'pairs', 'ranks')


def memory():
    """MB of this process at its largest."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def best(call, repeats=3):
    """Least CPU seconds of a call."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def clustering(primitives, images=IMAGES, dim=DIM, queue=QUEUE):
    """A step of two banks with ``primitives`` in all, on the features of all ranks."""
    from mmcluspro.models.gather import RowGatherer
    from mmcluspro.models.losses import HSICLoss, PCLLoss
    from mmcluspro.models.prototypes import PrototypeBank, assign_together, update_together
    torch.manual_seed(0)
    size = primitives // 2
    banks = []
    for _ in range(2):
        bank = PrototypeBank(size, dim, 5, queue_size=queue)
        # Not bank.initialise: k-means of 5,000 primitives takes longer than what is measured.
        bank.prototypes.copy_(normalize(torch.randn(5 * size, dim), dim=1))
        bank.usage.fill_(1 / 5)
        bank.seeded.fill_(True)
        bank.initialised.fill_(True)
        bank.fill_queue(normalize(torch.randn(8 * size, dim), dim=1), torch.arange(8 * size) % size)
        banks.append(bank)
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    generator = torch.Generator().manual_seed(rank)
    own = normalize(torch.randn(2, images, dim, generator=generator), dim=2).requires_grad_()
    labels = torch.randint(size, (2, images, 1), generator=generator)
    gather_rows, gather_labels = RowGatherer(), RowGatherer()
    spent = {}

    def step():
        features = list(gather_rows(own))
        label = list(gather_labels(labels.float())[..., 0].long())
        tables = [bank.prototypes for bank in banks]

        def timed(part, call):
            start = time.process_time()
            result = call()
            spent[part] = min(spent.get(part, 1e9), time.process_time() - start)
            return result

        rows = timed('assign', lambda: assign_together(banks, features, label))
        for part, loss in (('pcl', PCLLoss()), ('hsic', HSICLoss())):
            timed(part, lambda loss=loss: loss(features, rows, tables).backward(
                retain_graph=True))
        timed('update', lambda: update_together(banks, features, label, rows))

    before = memory()
    step()
    spent.clear()
    return dict(seconds=best(step), parts=spent, mb=memory(), before_mb=before)


def storing(rows, dim=64):
    """Opens stored features of ``rows`` images twice, and reads a thousand of them."""
    import numpy as np

    from mmcluspro.features import FeatureStore, PhaseWriter, start_folder
    with tempfile.TemporaryDirectory() as folder:
        os.environ['TORCH_HOME'] = folder
        start_folder(folder, dict(
            backbone={}, weights={}, fingerprint=0, pool=None, pipeline=[], preprocessor={},
            dtype='float16', shard_size=65536))
        names = [f'attribute_object/{i:08d}.jpg' for i in range(rows)]
        writer = PhaseWriter(folder, 'train', names)
        shard = np.random.default_rng(0).normal(size=(65536, dim))
        for span in writer.missing():
            writer.write(span, shard[:len(span)])
        chosen = np.random.default_rng(1).integers(rows, size=1000).tolist()
        asked = [(names[i], i) for i in chosen]
        del names, writer, shard
        before = memory()
        parts = {}
        for part in ('first', 'again'):
            start = time.process_time()
            store = FeatureStore(folder, 'train')
            parts[part] = time.process_time() - start
        start = time.process_time()
        for name, row in asked:
            store.feature(store.row(name, row))
        parts['row'] = (time.process_time() - start) / len(asked)
        return dict(seconds=parts['again'], parts=parts, mb=memory(), before_mb=before)


def scoring(pairs):
    """Reduces the scores of a batch over ``pairs`` that are composed of two tables."""
    from mmcluspro.evaluation.margins import reduce_scores
    torch.manual_seed(0)
    side = int(pairs**0.5)
    index = torch.cartesian_prod(torch.arange(side), torch.arange(pairs // side))
    tables = normalize(torch.randn(2, max(side, pairs // side), SMALL), dim=2)
    texts = normalize(tables[0][index[:, 0]] + tables[1][index[:, 1]], dim=1)
    seen = torch.rand(len(index)) < 0.1
    features, target = normalize(torch.randn(BATCH, SMALL), dim=1), torch.arange(BATCH)
    return dict(seconds=best(lambda: reduce_scores(features @ texts.T, target, seen)), mb=memory())


def work(kind, size):
    """One row, in this process."""
    torch.set_num_threads(1)
    world = int(os.environ.get('WORLD_SIZE', '1'))
    if world > 1:
        distributed.init_process_group('gloo')
    import mmcluspro.models  # noqa: F401
    start = memory()
    calls = dict(primitives=clustering, batch=lambda size: clustering(200, size), rows=storing,
                 pairs=scoring, ranks=lambda size: clustering(size, BATCH, SMALL, 8))
    found = calls[kind](size)
    if world == 1 or distributed.get_rank() == 0:
        print(json.dumps(dict(kind=kind, size=size, ranks=world, start_mb=start, **found)))
    if world > 1:
        distributed.barrier()
        distributed.destroy_process_group()


def run(kind, size, ranks):
    """One row, in processes of its own."""
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        port = str(s.getsockname()[1])
    processes = []
    for rank in range(ranks):
        env = dict(os.environ, OMP_NUM_THREADS='1', RANK=str(rank), WORLD_SIZE=str(ranks),
                   LOCAL_RANK=str(rank), MASTER_ADDR='127.0.0.1', MASTER_PORT=port)
        processes.append(subprocess.Popen(
            [sys.executable, '-W', 'ignore', __file__, '--work', kind, str(size)], env=env,
            stdout=subprocess.PIPE, text=True))
    said = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f'{kind} {size} on {ranks} ranks failed.')
    return json.loads(said[0].strip().splitlines()[-1])


def exponents(records):
    """Prints the growth of time of each kind and part, over all and over the last step."""
    with open(records, encoding='utf-8') as file:
        rows = [json.loads(line) for line in file]
    print('| by | from – to | part | over all | last step |\n|---|---|---|---|---|')
    for kind in KINDS:
        shown = [row for row in rows if row['kind'] == kind]
        if len(shown) < 2:
            continue
        x = [row['ranks'] if kind == 'ranks' else row['size'] for row in shown]
        for part in ('whole', *shown[0].get('parts', {})):
            y = [row['seconds'] if part == 'whole' else row['parts'][part] for row in shown]
            slopes = [log(y[-1] / y[i]) / log(x[-1] / x[i]) for i in (0, -2)]
            print(f'| {kind} | {x[0]:,} – {x[-1]:,} | {part} | {slopes[0]:.2f} '
                  f'| {slopes[1]:.2f} |')


def plot(records, picture):
    """Draws seconds and memory by size, in logarithms, beside a line of exponent one."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    with open(records, encoding='utf-8') as file:
        rows = [json.loads(line) for line in file]
    figure = Figure(figsize=(12, 2.6), dpi=80, layout='constrained')
    FigureCanvasAgg(figure)
    for axes, kind in zip(figure.subplots(1, len(KINDS)), KINDS):
        shown = [row for row in rows if row['kind'] == kind]
        x = [row['ranks'] if kind == 'ranks' else row['size'] for row in shown]
        y = [1e3 * row['seconds'] for row in shown]
        axes.loglog([x[0], x[-1]], [y[-1] * x[0] / x[-1], y[-1]], color='#999999', linewidth=1)
        axes.loglog(x, y, 'o', color='#0072b2')
        other = axes.twinx()
        other.loglog(x, [row['mb'] - row['start_mb'] for row in shown], 's', color='#d55e00',
                     fillstyle='none')
        axes.set_xlabel(kind)
    figure.supylabel('CPU ms (dots), MB (squares)', fontsize=9)
    figure.savefig(picture)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--out', help='file for the records')
    parser.add_argument('--only', choices=KINDS)
    parser.add_argument('--most', type=int, default=10**7, help='leave larger sizes out')
    parser.add_argument('--exponents', metavar='RECORDS', help='print the growth of records')
    parser.add_argument('--plot', nargs=2, metavar=('RECORDS', 'PNG'), help='draw records')
    parser.add_argument('--work', nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(args.work[0], int(args.work[1]))
        return
    if args.plot:
        plot(*args.plot)
        return
    if args.exponents:
        exponents(args.exponents)
        return
    cases = [*(('primitives', size, 1) for size in PRIMITIVES),
             *(('batch', size, 1) for size in BATCHES),
             *(('rows', size, 1) for size in ROWS),
             *(('pairs', size, 1) for size in PAIRS),
             *(('ranks', 2000, ranks) for ranks in RANKS)]
    for kind, size, ranks in cases:
        if args.only in (None, kind) and size <= args.most:
            line = json.dumps(run(kind, size, ranks))
            print(line, flush=True)
            if args.out:
                with open(args.out, 'a', encoding='utf-8') as file:
                    file.write(line + '\n')


if __name__ == '__main__':
    main()
