"""Time and memory per rank as primitives, pairs and ranks grow, over gloo, on small tensors.

    python tools/benchmarks/scale.py --out docs/results/scale.jsonl
    python tools/benchmarks/scale.py --plot docs/results/scale.jsonl docs/images/scale.png

primitives  A step of both prototype banks (assignment, losses, update).
pairs       Composing and scoring the pairs of a world with the metric's reduction.
ranks       The same step with the features of all ranks gathered.

Each row is one process group; CPU seconds and memory are those of the first rank.
"""
import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import time

import torch
from torch import distributed
from torch.nn.functional import normalize

DIM, BATCH, QUEUE = 32, 16, 8
PRIMITIVES = (1000, 2000, 5000, 10_000)
PAIRS = (100_000, 250_000, 500_000, 1_000_000)
RANKS = (1, 2, 4, 8)


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


def clustering(primitives):
    """A step of two banks with ``primitives`` in all, on the features of all ranks."""
    from mmcluspro.models.gather import RowGatherer
    from mmcluspro.models.losses import HSICLoss, PCLLoss
    from mmcluspro.models.prototypes import PrototypeBank, assign_together, update_together
    torch.manual_seed(0)
    size = primitives // 2
    banks = []
    for _ in range(2):
        bank = PrototypeBank(size, DIM, 5, queue_size=QUEUE)
        bank.initialise(torch.randn(2 * size, DIM), torch.arange(2 * size) % size)
        banks.append(bank)
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    generator = torch.Generator().manual_seed(rank)
    own = normalize(torch.randn(2, BATCH, DIM, generator=generator), dim=2).requires_grad_()
    labels = torch.randint(size, (2, BATCH, 1), generator=generator)
    gather_rows, gather_labels = RowGatherer(), RowGatherer()

    def step():
        features = list(gather_rows(own))
        label = list(gather_labels(labels.float())[..., 0].long())
        rows = assign_together(banks, features, label)
        tables = [bank.prototypes for bank in banks]
        (PCLLoss()(features, rows, tables) + HSICLoss()(features, rows, tables)).backward()
        update_together(banks, features, label, rows)

    before = memory()
    step()
    return dict(seconds=best(step), mb=memory(), before_mb=before)


def scoring(pairs):
    """Reduces the scores of a batch over ``pairs`` that are composed of two tables."""
    from mmcluspro.evaluation.margins import reduce_scores
    torch.manual_seed(0)
    side = int(pairs**0.5)
    index = torch.cartesian_prod(torch.arange(side), torch.arange(pairs // side))
    tables = normalize(torch.randn(2, max(side, pairs // side), DIM), dim=2)
    texts = normalize(tables[0][index[:, 0]] + tables[1][index[:, 1]], dim=1)
    seen = torch.rand(len(index)) < 0.1
    features, target = normalize(torch.randn(BATCH, DIM), dim=1), torch.arange(BATCH)
    return dict(seconds=best(lambda: reduce_scores(features @ texts.T, target, seen)), mb=memory())


def work(kind, size):
    """One row, in this process."""
    torch.set_num_threads(1)
    world = int(os.environ.get('WORLD_SIZE', '1'))
    if world > 1:
        distributed.init_process_group('gloo')
    import mmcluspro.models  # noqa: F401
    start = memory()
    found = (scoring if kind == 'pairs' else clustering)(size)
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


def plot(records, picture):
    """Draws seconds and memory by size, and lines through the first and the last point."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    with open(records, encoding='utf-8') as file:
        rows = [json.loads(line) for line in file]
    figure = Figure(figsize=(9, 2.6), dpi=80, layout='constrained')
    FigureCanvasAgg(figure)
    for axes, kind in zip(figure.subplots(1, 3), ('primitives', 'pairs', 'ranks')):
        shown = [row for row in rows if row['kind'] == kind]
        x = [row['ranks'] if kind == 'ranks' else row['size'] for row in shown]
        y = [1e3 * row['seconds'] for row in shown]
        axes.plot([x[0], x[-1]], [y[0], y[-1]], color='#999999', linewidth=1)
        axes.plot(x, y, 'o', color='#0072b2')
        other = axes.twinx()
        other.plot(x, [row['mb'] - row['start_mb'] for row in shown], 's', color='#d55e00',
                   fillstyle='none')
        axes.set_xlabel(kind)
        axes.set_ylabel('CPU ms (dots)')
        other.set_ylabel('MB (squares)')
        axes.set_ylim(0)
        other.set_ylim(0)
    figure.savefig(picture)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--out', help='file for the records')
    parser.add_argument('--only', choices=('primitives', 'pairs', 'ranks'))
    parser.add_argument('--plot', nargs=2, metavar=('RECORDS', 'PNG'), help='draw records')
    parser.add_argument('--work', nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(args.work[0], int(args.work[1]))
        return
    if args.plot:
        plot(*args.plot)
        return
    cases = [*(('primitives', size, 1) for size in PRIMITIVES),
             *(('pairs', size, 1) for size in PAIRS),
             *(('ranks', 2000, ranks) for ranks in RANKS)]
    for kind, size, ranks in cases:
        if args.only in (None, kind):
            line = json.dumps(run(kind, size, ranks))
            print(line, flush=True)
            if args.out:
                with open(args.out, 'a', encoding='utf-8') as file:
                    file.write(line + '\n')


if __name__ == '__main__':
    main()
