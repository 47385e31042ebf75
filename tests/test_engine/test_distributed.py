"""Two processes over gloo equal one with the joined batch."""
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow
WORKER = Path(__file__).with_name('dist_worker.py')
ROOT = Path(__file__).resolve().parents[2]


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def launch(work_dir, name, batch_size, processes, **options):
    work_dir.mkdir()
    command = [sys.executable, str(WORKER)]
    if processes > 1:
        command = [sys.executable, '-m', 'torch.distributed.run', '--master_addr=127.0.0.1',
                   f'--master_port={free_port()}', f'--nproc_per_node={processes}', str(WORKER)]
    launcher = 'pytorch' if processes > 1 else 'none'
    done = subprocess.run(
        [*command, name, str(work_dir), str(batch_size), launcher, json.dumps(options)],
        capture_output=True, text=True, check=False, env={**os.environ, 'OMP_NUM_THREADS': '1'})
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(work_dir / f'rank{rank}.pt') for rank in range(processes)]


@pytest.mark.parametrize('name', ['baseline_shapes.py', 'cluspro_plus_shapes.py'])
def test_two_processes_equal_one_with_the_joined_batch(tmp_path, name):
    options = {'train_dataloader.dataset.indices': 320}  # five steps
    (one, ) = launch(tmp_path / 'one', name, 64, 1, **options)
    first, second = launch(tmp_path / 'two', name, 32, 2, **options)

    joined = [(a + b) / 2 for a, b in zip(first['loss'], second['loss'])]
    assert len(joined) == 5 and joined == pytest.approx(one['loss'], abs=1e-5)
    for key, value in one['state'].items():
        got = first['state'][key]
        assert got.equal(second['state'][key]), f'{key} differs between ranks'
        torch.testing.assert_close(got, value, atol=2e-3, rtol=0,
                                   msg=lambda m, key=key: f'{key}: {m}')
    if name.startswith('cluspro'):
        for branch in ('attr', 'obj'):
            key = f'head.banks.{branch}.prototypes'
            torch.testing.assert_close(first['state'][key], one['state'][key], atol=1e-4, rtol=0)
        assert one['state']['head.pairs.sums'].any(dim=2).sum() == 64


def test_two_nodes_with_homes_of_their_own_train_as_two_processes(tmp_path):
    """Two launchers, each with its own home and cache, as on two machines."""
    port, options = free_port(), json.dumps({'default_hooks.prototypes.check_interval': 1})
    folder = tmp_path / 'nodes'
    folder.mkdir()
    nodes = []
    for node in range(2):
        home = tmp_path / f'home{node}'
        home.mkdir()
        command = [sys.executable, '-m', 'torch.distributed.run', '--nnodes=2',
                   f'--node_rank={node}', '--master_addr=127.0.0.1', f'--master_port={port}',
                   '--nproc_per_node=1', str(WORKER), 'cluspro_shapes.py', str(folder), '32',
                   'pytorch', options]
        nodes.append(subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, 'OMP_NUM_THREADS': '1', 'HOME': str(home),
                 'TORCH_HOME': str(home / 'torch'), 'XDG_CACHE_HOME': str(home / 'cache')}))
    for node in nodes:
        said = node.communicate(timeout=600)[1]
        assert node.returncode == 0, said[-3000:]
    first, second = (torch.load(folder / f'rank{rank}.pt')['state'] for rank in range(2))
    assert all(value.equal(second[key]) for key, value in first.items())


DRIFT = """
import torch
from torch import distributed
from mmcluspro.engine.ranks import require_same
distributed.init_process_group('gloo')
table = torch.arange(6.0)
require_same({'The attr prototypes': table, 'The obj prototypes': table})
moved = table.clone()
if distributed.get_rank():
    moved[4] = torch.nextafter(moved[4], torch.tensor(9.0))
try:
    require_same({'The attr prototypes': table, 'The obj prototypes': moved})
except RuntimeError as error:
    assert str(error).startswith('The obj prototypes of rank 1 differ from those of rank 0'), error
else:
    raise AssertionError('no error')
"""


SHARED = """
import torch
from torch import distributed
from mmcluspro.models.text import CLIPText, encoder
distributed.init_process_group('gloo')
torch.manual_seed(0)
encoder.SHARED_FROM = 50
text = CLIPText([f'red {i}' for i in range(7)], [f'box {i}' for i in range(9)],
                arch='tiny_clip', pretrained='tiny_clip').eval()
pairs = torch.cartesian_prod(torch.arange(7), torch.arange(9))
counts, embed = [], text.embed
def counted(path, parts, pairs):
    counts.append(len(pairs))
    return embed(path, parts, pairs)
text.embed = counted
with torch.no_grad():
    alone = text.encode_pairs(pairs)
    text.forget()
    text.share(pairs)
    shared = text.encode_pairs(pairs)
    text.share(pairs[:20])
assert counts == [63, 32 - distributed.get_rank()], counts
torch.testing.assert_close(shared, alone, atol=1e-6, rtol=0)
gathered = [torch.empty_like(shared) for _ in range(2)]
distributed.all_gather(gathered, shared)
assert gathered[0].equal(gathered[1])
"""


# A rank that leaves while gloo's threads still run may abort, as may one that waits for it.
LEAVE = """
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""

GATHER = """
import torch, torch.distributed as dist
from mmcluspro.models.gather import RowGatherer
dist.init_process_group('gloo')
rank = dist.get_rank()
gather = RowGatherer()
gather.least = 4  # the batches that will come; this run starts with the last ones of an epoch
for size in (2 - (rank == 2), 4, 3):
    rows = torch.full((1, size, 2), float(rank), requires_grad=True)
    found = gather(rows)
    assert found.shape == (1, 12, 2), found.shape
    for other in range(3):
        mine = found[0, other::3, 0]
        held = 2 - (other == 2) if size < 3 else size
        assert (mine[:held] == other).all() and mine[held:].isnan().all()
    assert gather.local(found[0], size).equal(rows[0])
    found[0, rank::3].nansum().backward()
    assert (rows.grad == 1).all()
"""


@pytest.mark.parametrize('script, processes', [(DRIFT, 2), (SHARED, 2), (GATHER, 3)], ids=[
    'drift is found', 'text is shared', 'a run may start with the small last batch of an epoch'])
def test_ranks(tmp_path, script, processes):
    (tmp_path / 'script.py').write_text(script + LEAVE)
    done = subprocess.run(
        [sys.executable, '-m', 'torch.distributed.run', '--master_addr=127.0.0.1',
         f'--master_port={free_port()}', f'--nproc_per_node={processes}',
         str(tmp_path / 'script.py')],
        capture_output=True, text=True, check=False, env={**os.environ, 'OMP_NUM_THREADS': '1'})
    assert done.returncode == 0, done.stderr[-3000:]


def test_ranks_that_share_their_texts_score_as_one_process_does(tmp_path):
    """The open world of Shapes, through the loops."""
    scores = []
    for processes, shared in ((1, 10**9), (2, 1)):
        command = [] if processes == 1 else [
            '-m', 'torch.distributed.run', '--master_addr=127.0.0.1',
            f'--master_port={free_port()}', '--nproc_per_node=2']
        script, folder = tmp_path / 'test.py', tmp_path / str(processes)
        script.write_text(
            'import sys\nfrom mmcluspro.models.text import encoder\n'
            f'encoder.SHARED_FROM = {shared}\n'
            'from mmcluspro.cli.test import main\nmain(sys.argv[1:])\n')
        done = subprocess.run(
            [sys.executable, *command, str(script), 'csp_shapes.py', '--work-dir',
             str(folder), '--launcher', 'pytorch' if processes > 1 else 'none', '--cfg-options',
             *(f'{phase}_dataloader.dataset.indices={[*range(0, 1020, 16)]}'.replace(' ', '')
               for phase in ('val', 'test'))],
            capture_output=True, text=True, check=False, env={**os.environ, 'OMP_NUM_THREADS': '1'})
        assert done.returncode == 0, done.stderr[-3000:]
        scores.append(json.loads((folder / 'test_metrics.json').read_text()))
    assert scores[1] == pytest.approx(scores[0], abs=1e-3)


def test_ranks_may_have_unequal_last_batches(tmp_path):
    """Without round_up the second rank's last batch has one image less."""
    options = {'train_dataloader.dataset.indices': 127,
               'train_dataloader.sampler.round_up': False}
    (one, ) = launch(tmp_path / 'one', 'cluspro_plus_shapes.py', 64, 1, **options)

    first, second = launch(tmp_path / 'two', 'cluspro_plus_shapes.py', 32, 2, **options)

    for key, value in first['state'].items():
        assert value.equal(second['state'][key]), f'{key} differs between ranks'
    for branch in ('attr', 'obj'):
        key = f'head.banks.{branch}'
        torch.testing.assert_close(first['state'][f'{key}.prototypes'],
                                   one['state'][f'{key}.prototypes'], atol=1e-3, rtol=0)
        assert first['state'][f'{key}.queue.pushed'].equal(one['state'][f'{key}.queue.pushed'])
    torch.testing.assert_close(first['state']['head.pairs.sums'], one['state']['head.pairs.sums'],
                               atol=1e-3, rtol=0)


def test_a_rank_without_a_last_batch_is_named(tmp_path):
    """Three ranks with 43, 42 and 42 images in batches of 21."""
    with pytest.raises(AssertionError, match='The ranks have 3, 2, 2 training batches per epoch'):
        launch(tmp_path / 'three', 'cluspro_shapes.py', 21, 3, **{
            'train_dataloader.dataset.indices': 127, 'train_dataloader.sampler.round_up': False})


def test_the_scripts_train_and_test_on_two_processes(tmp_path):
    """tools/dist_train.sh with validation and the final test, then tools/dist_test.sh."""
    tools, config = ROOT / 'tools', str(ROOT / 'configs' / 'baseline_shapes.py')
    env = {**os.environ, 'OMP_NUM_THREADS': '1',
           'PATH': f'{Path(sys.executable).parent}:{os.environ["PATH"]}'}
    small = ['--cfg-options', 'train_cfg.max_epochs=1', 'train_dataloader.dataset.indices=128',
             f'val_dataloader.dataset.indices={[*range(0, 1038, 2)]}'.replace(' ', ''),
             'train_dataloader.batch_size=32']

    def script(*command):
        done = subprocess.run([*map(str, command), *small], cwd=tmp_path, capture_output=True,
                              text=True, check=False, env={**env, 'PORT': str(free_port())})
        assert done.returncode == 0, done.stderr[-3000:]

    script(tools / 'dist_train.sh', config, 2, '--work-dir', 'run')
    trained = json.loads((tmp_path / 'run' / 'test_metrics.json').read_text())
    best = next((tmp_path / 'run').glob('best_*.pth'))
    script(tools / 'dist_test.sh', config, best, 2, '--work-dir', 'test')
    assert json.loads((tmp_path / 'test' / 'test_metrics.json').read_text()) == trained

    small += ['runner_type=FlexibleRunner', 'strategy.type=DDPStrategy']
    script(tools / 'dist_train.sh', config, 2, '--work-dir', 'flexible')
    assert json.loads((tmp_path / 'flexible' / 'test_metrics.json').read_text()) == trained
