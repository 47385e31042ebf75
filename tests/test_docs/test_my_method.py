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
         '--log', 'full',
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
    from mmcluspro.models.prototypes import nearest_prototype
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
    listed = re.findall(r'^    (\S+\.(?:py|toml)) ', PAGE, flags=re.MULTILINE)
    assert {path.relative_to(EXAMPLE).as_posix() for path in EXAMPLE.rglob('*.py')} <= {*listed}
    for line in listed:
        assert (EXAMPLE / line).exists(), line
    further = (EXAMPLE / 'configs' / 'my_heads_shapes.py').read_text()
    assert "dict(type='mmcluspro.PairMarginLoss', name='margin', loss_weight=0.1)]" in further
    assert "dict(type='mmcluspro.PairMarginLoss', name='margin', loss_weight=0.1)]" in PAGE
    head = (EXAMPLE / 'my_method' / 'late_interaction.py').read_text()
    for line in re.findall(r'^        (?:patches|states, mask) = .*$', PAGE, flags=re.MULTILINE):
        assert line in head


def run_of(config, folder, **options):
    """A runner of a config of the package, cut down to seconds."""
    from mmcluspro.engine.launch import build_runner, read_config
    cfg = read_config(config)
    cfg.merge_from_dict({
        'train_cfg.max_epochs': 1, 'train_dataloader.dataset.indices': 128,
        'val_dataloader.dataset.indices': list(range(0, 510, 16)), 'log_level': 'WARNING',
        'default_hooks.logger.interval': 1, 'work_dir': str(folder), 'launcher': 'none',
        **options})
    for phase in ('train', 'val', 'test'):
        cfg[f'{phase}_dataloader'].collate_fn = dict(type='default_collate')
    return build_runner(cfg)


HEADS = {
    'words and patches': ('my_heads_shapes.py', {}),
    'pair indices': ('my_heads_shapes.py', {
        'model.head': dict(
            type='mmcluspro.PairPriorHead', _delete_=True, text=None,
            losses=[dict(type='mmcluspro.PairMarginLoss', name='margin')])}),
    'test time': ('my_method_shapes.py', {
        'model.head.type': 'mmcluspro.AdaptiveHead', 'model.head.step': 0.2,
        'model.head.losses': [dict(type='mmcluspro.PairMarginLoss', name='margin')]}),
}


def head_run(kind, folder, **options):
    name, changes = HEADS[kind]
    changes = {**changes, **options}
    if kind == 'pair indices':
        from mmcluspro.engine.launch import read_config
        text = read_config(EXAMPLE / 'configs' / name).model.head.text
        changes['model.head'] = dict(changes['model.head'], text=text.to_dict())
    return run_of(EXAMPLE / 'configs' / name, folder, **changes)


@pytest.mark.slow
@pytest.mark.parametrize('kind', HEADS)
def test_each_place_to_plug_in_from_outside(parts, kind, tmp_path):
    """Trains and validates by config; the checkpoint predicts what validation saw."""
    from mmcluspro import load
    runner = head_run(kind, tmp_path)
    runner.train()
    losses = runner.message_hub.get_scalar('train/margin_loss').data[0]
    assert len(losses) == 2 and all(0 < loss < 50 for loss in losses)

    model = runner.model.eval()
    dataset = runner.val_dataloader.dataset
    pictures = [dataset.get_data_info(i)['img'] for i in range(6)]
    inferencer = load(tmp_path / 'epoch_1.pth', device='cpu', imports=['my_method'])
    assert type(inferencer.network.head).__name__ == type(model.head).__name__
    got = [answer.pairs[0] for answer in inferencer.predict(pictures, batch_size=6)]
    with torch.no_grad():
        inputs = [dataset[i]['inputs'] for i in range(6)]
        feats = model.extract_feat(model.data_preprocessor(dict(inputs=inputs))['inputs'])
        model.head.forget_adaptation()
        model.head.adapt(feats)
        candidates = inferencer.candidates()
        scores = model.head.score(feats, candidates).pair
    from mmcluspro.evaluation import probabilities
    chance = probabilities(scores, candidates.seen, inferencer.calibration(), model.head.link)
    assert [pair.probability for pair in got] == pytest.approx(
        chance.amax(1).tolist(), rel=1e-3)
    listed, = inferencer.predict(pictures[0], pairs=[('red', 'star'), ('shiny', 'teapot')])
    assert len(listed.pairs) == 2


@pytest.mark.slow
def test_test_time_state_moves_and_starts_anew_with_each_evaluation(parts, tmp_path):
    runner = head_run('test time', tmp_path, **{'train_dataloader.dataset.indices': 64})
    runner.train()
    first, second = runner.val(), runner.val()
    assert first == second
    moved = runner.model.head.moved
    assert moved is not None and not moved.equal(runner.model.head.bank('attr').prototypes)
    runner.model.head.step_size = 0.0
    still = runner.val()
    assert any(still[key] != first[key] for key in still)


def test_a_further_loss_sees_logits_texts_and_labels(parts):
    from mmcluspro.models.structures import Features, Logits, Texts, TrainStep
    logits = torch.tensor([[3.0, 1.0, 0.0], [0.0, 1.0, 4.0]])
    texts = normalize(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), dim=1)
    step = TrainStep(Features(torch.ones(2, 2)), Texts(None, None, texts),
                     Logits(None, None, logits), dict(pair=torch.tensor([0, 1])), None)
    loss = parts.PairMarginLoss(margin=1.0, spread=0.9, loss_weight=2.0)(step)
    # The second image: 1 + 4 - 1; the cosines of different texts: 0.6, 0 and 0.8, twice each.
    assert float(loss) == pytest.approx(2 * (4 / 2 + 0.9 * 2 * (0.36 + 0.64) / 9))


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
