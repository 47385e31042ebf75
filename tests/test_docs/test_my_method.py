"""The example of docs/extending.md: installed as a package of its own, trained by config only."""
import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / 'docs' / 'examples' / 'my_method'
PAGE = (ROOT / 'docs' / 'extending.md').read_text()


@pytest.fixture(scope='module')
def installed(tmp_path_factory):
    """A folder with the package, built and installed as pip does it."""
    folder = tmp_path_factory.mktemp('my_method')
    shutil.copytree(EXAMPLE, folder / 'source')  # building leaves files behind
    subprocess.run(
        [sys.executable, '-m', 'pip', 'install', '--quiet', '--no-deps', '--no-build-isolation',
         '--no-index', '--target', str(folder / 'target'), str(folder / 'source')],
        check=True, capture_output=True)
    return folder / 'target'


@pytest.fixture
def parts(installed, monkeypatch):
    """The classes, registered as long as the test runs."""
    from mmcluspro.registry import MODELS
    monkeypatch.syspath_prepend(str(installed))
    module = __import__('my_method')
    assert Path(module.__file__).is_relative_to(installed)
    yield module
    for name in module.__all__:
        MODELS.module_dict.pop(name, None)
    for name in [name for name in sys.modules if name.split('.')[0] == 'my_method']:
        del sys.modules[name]


@pytest.mark.slow
def test_a_run_by_config_only(installed, tmp_path):
    """Three iterations of ``mmcluspro train``, in a folder that is not the repository's."""
    environment = dict(os.environ, PYTHONPATH=str(installed), OMP_NUM_THREADS='1')
    done = subprocess.run(
        [sys.executable, '-c', 'from mmcluspro.cli import main; raise SystemExit(main())', 'train',
         str(EXAMPLE / 'configs' / 'my_method_shapes.py'), '--no-test', '--no-validate',
         '--cfg-options', 'train_cfg.max_epochs=1', 'train_dataloader.dataset.indices=192',
         'default_hooks.logger.interval=1', 'default_hooks.checkpoint.save_best=None'],
        cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    losses = [float(value) for value in re.findall(r'pcl_loss: ([\d.]+)', done.stdout)]
    assert len(losses) == 3 and all(0 < loss < 5 for loss in losses)
    assert "type='mmcluspro.CrowdAssigner'" in done.stdout
    assert (tmp_path / 'work_dirs' / 'my_method_shapes' / 'epoch_1.pth').exists()


@pytest.mark.parametrize('sizes', [[4, 4], [1, 5, 2]])
def test_the_assigner_without_a_price_is_the_nearest_prototype(parts, sizes):
    from mmcluspro.models.clustering import nearest_prototype
    generator = torch.Generator().manual_seed(0)
    offsets = torch.tensor([0, *sizes]).cumsum(0)
    labels = torch.randint(len(sizes), (50, ), generator=generator)
    features = normalize(torch.randn(50, 8, generator=generator), dim=1)
    prototypes = normalize(torch.randn(int(offsets[-1]), 8, generator=generator), dim=1)

    got = parts.CrowdAssigner(price=0.0)(features, labels, prototypes, offsets)
    dear = parts.CrowdAssigner(price=2.0, rounds=20)(features, labels, prototypes, offsets)

    assert got.equal(nearest_prototype(features, labels, prototypes, offsets))
    # A price spreads the features, inside their own primitive.
    assert ((dear >= offsets[labels]) & (dear < offsets[labels + 1])).all()
    assert torch.bincount(dear).max() <= torch.bincount(got).max()


def test_the_loss_is_zero_where_the_margin_holds(parts):
    prototypes = torch.eye(3)
    features = torch.eye(3, requires_grad=True)
    loss = parts.MarginLoss(margin=0.5, loss_weight=2.0)
    right, wrong = torch.tensor([0, 1, 2]), torch.tensor([1, 1, -1])
    assert float(loss([features, features], [right, None], [prototypes, None]).detach()) == 0
    # One feature of two, with the own cosine 0 and another of 1: 2 * (0.5 + 1 - 0) / 2.
    value = loss([features, features], [wrong, None], [prototypes, None])
    assert float(value.detach()) == pytest.approx(1.5)
    value.backward()
    assert features.grad.isfinite().all()


@pytest.mark.parametrize('build, message', [
    (lambda parts: parts.CrowdAssigner(price=-1), 'assigner.price must be at least 0, got -1'),
    (lambda parts: parts.MarginLoss(margin=3), r'loss_pcl.margin must lie in \[0, 2\], got 3'),
])
def test_a_wrong_value_names_the_field(parts, build, message):
    with pytest.raises(ValueError, match=message):
        build(parts)


def test_the_page_shows_what_the_package_has():
    config = (EXAMPLE / 'configs' / 'my_method_shapes.py').read_text()
    assert config.split('"""', 2)[2].strip() in PAGE
    for name, file in (('CrowdAssigner', 'assigner.py'), ('MarginLoss', 'loss.py')):
        tree = ast.parse((EXAMPLE / 'my_method' / file).read_text())
        owner = next(node for node in tree.body
                     if isinstance(node, ast.ClassDef) and node.name == name)
        start = next(node for node in owner.body if getattr(node, 'name', '') == '__init__')
        assert f'def __init__({ast.unparse(start.args)})'.replace('=', ' = ') in PAGE
    for line in re.findall(r'^    (\S+\.(?:py|toml)) ', PAGE, flags=re.MULTILINE):
        assert (EXAMPLE / line).exists(), line


@pytest.mark.slow
def test_a_table_of_the_example_is_planned_and_costed(installed, tmp_path):
    """What the page says on comparing, up to the trainings themselves."""
    table = EXAMPLE / 'configs' / 'my_tables.yml'
    block = re.search(r'```yaml\n(mine:.*?)```', PAGE, re.DOTALL)
    assert block[1] == table.read_text().split('\n', 1)[1]
    environment = dict(os.environ, PYTHONPATH=str(installed), OMP_NUM_THREADS='1')
    environment.pop('MMCLUSPRO_CONFIGS', None)
    tools = ROOT / 'tools' / 'analysis_tools'
    done = subprocess.run(
        [sys.executable, str(tools / 'reproduce.py'), 'mine', '--tables', str(table), '--seeds',
         '3', '--dry-run'], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert '12 runs: 0 finished, 12 to do.' in done.stdout
    assert f'{EXAMPLE}/configs/my_method_shapes.py --resume' in done.stdout
    assert 'randomness.seed=2 model.head.bank.assigner.price=1.0' in done.stdout

    done = subprocess.run(
        [sys.executable, str(tools / 'efficiency.py'), str(EXAMPLE / 'configs/my_method_shapes.py'),
         '--repeats', '1', '--steps', '1', '--images', '1', '--cfg-options',
         'train_dataloader.dataset.indices=128'], cwd=tmp_path, env=environment,
        capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
