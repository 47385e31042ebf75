"""A training step never makes the host wait for the device, and makes few calls.

There is no GPU here, so the calls themselves are watched: those whose result (or shape) the host
has to read back are not allowed.
"""
import copy
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from mmengine.logging import MessageHub
from mmpretrain.structures import DataSample
from torch import nn
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode

from mmcluspro.datasets import CompositionSpace
from mmcluspro.engine.hooks import PrototypeHook
from mmcluspro.models.heads import ClusProPlusHead
from mmcluspro.models.losses import HSICLoss, PCLLoss
from mmcluspro.models.prototypes import PrototypeBank, assign_together, update_together
from mmcluspro.registry import MODELS

WAITS = {
    '_local_scalar_dense', 'item', 'is_nonzero', 'equal', 'nonzero', 'nonzero_numpy', 'argwhere',
    '_unique', '_unique2', 'unique_dim', 'unique_consecutive', 'masked_select', 'bincount',
    'histc', 'linalg_solve', 'linalg_inv', 'linalg_cholesky'
}
VIEWS = {
    'view', '_unsafe_view', 'unsqueeze', 'squeeze', 'expand', 'transpose', 't', 'permute',
    'select', 'slice', 'detach', 'alias', 'unbind', 'split', 'diagonal', 'as_strided'
}
# Attributes, objects, batch: fewer primitives than images, more, and both.
SIZES = dict(few=(16, 12, 128), many=(60, 80, 16), mixed=(12, 60, 32))
DIM = 24


class HostWaits(AssertionError):
    """A call made the host wait."""


class Watch(TorchDispatchMode):
    """Counts ATen calls and raises at the first that makes the host wait."""

    def __init__(self):
        super().__init__()
        self.calls = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.calls[name] += 1
        if name in WAITS or (name == 'repeat_interleave' and not (kwargs or {}).get('output_size')):
            raise HostWaits(name)
        if name in ('index', 'index_put', 'index_put_', '_index_put_impl_') and any(
                index is not None and index.dtype in (torch.bool, torch.uint8)
                for index in args[1]):
            raise HostWaits(f'{name} with a mask')
        if name == '_to_copy' and (kwargs or {}).get('device') not in (None, args[0].device):
            raise HostWaits('copy to another device')
        return func(*args, **(kwargs or {}))

    @property
    def launched(self):
        """int: Calls that are not views."""
        return sum(count for name, count in self.calls.items() if name not in VIEWS)


@pytest.mark.parametrize('call', [
    lambda x: bool((x > 0).any()), lambda x: x.sum().item(), lambda x: x[x > 0],
    lambda x: x.unique(), lambda x: (x > 0).nonzero(), lambda x: x.masked_select(x > 0),
    lambda x: x.index_put_((x > 0, ), torch.zeros(())), lambda x: int(x[0]),
    lambda x: torch.bincount(x.long().abs()), lambda x: x.repeat_interleave(x.long().abs()),
])
def test_the_watch_sees_what_waits(call):
    with pytest.raises(HostWaits), Watch():
        call(torch.tensor([1.0, -2.0, 3.0]))


def make_step(sizes, dim=DIM, **options):
    """Two filled banks, features and labels of a batch."""
    generator = torch.Generator().manual_seed(0)
    num_attrs, num_objs, num = sizes
    banks, features, labels = [], [], []
    for classes in (num_attrs, num_objs):
        bank = PrototypeBank(classes, dim, **options)
        owner = torch.arange(8 * classes) % classes
        centres = torch.randn(classes, dim, generator=generator)
        bank.initialise(centres[owner] + torch.randn(len(owner), dim, generator=generator), owner)
        label = torch.randint(classes, (num, ), generator=generator)
        feature = centres[label] + torch.randn(num, dim, generator=generator)
        banks.append(bank)
        features.append(normalize(feature, dim=1).requires_grad_())
        labels.append(label)
    return banks, features, labels


OPTIONS = dict(
    default={},
    batch=dict(assigner=dict(type='mmcluspro.LocalAwareOT', scope='batch')),
    no_queue=dict(queue_size=0),
    classical=dict(assigner=dict(type='mmcluspro.ClassicalOT')),
    cosine=dict(assigner=dict(type='mmcluspro.CosineAssigner')),
    single=dict(num_prototypes=1),
    share=dict(num_prototypes='share'),
    epoch=dict(momentum_unit='epoch', momentum=0.5),
    equation_9=dict(correct_only=False, normalize_mean=False),
    reseed=dict(reseed=True),
)


@pytest.mark.parametrize('options', OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize('sizes', SIZES.values(), ids=SIZES)
def test_assignment_losses_and_update_never_wait(sizes, options):
    banks, features, labels = make_step(sizes, **options)
    tables = [bank.prototypes for bank in banks]
    features[0].data[3] = torch.nan

    with Watch():
        rows = assign_together(banks, features, labels)
        loss = PCLLoss()(features, rows, tables)
        for estimator in ('biased', 'unbiased'):
            loss = loss + HSICLoss(estimator)(features, rows, tables)
        loss.backward()
        update_together(banks, features, labels, rows)

    assert rows[0][3] == -1 and (rows[1] >= 0).all()
    assert all(bank.prototypes.isfinite().all() for bank in banks)


def test_waiting_primitives_never_make_the_host_wait():
    bank = PrototypeBank(30, DIM)
    bank.initialise(torch.randn(40, DIM), torch.arange(40) % 20)
    features, labels = torch.randn(16, DIM), torch.arange(16) + 10
    with Watch():
        bank.update(features, labels, bank.assign(features, labels))
    assert bank.seeded[:26].all() and not bank.seeded[26:].any()


@MODELS.register_module(force=True)
class FixedText(nn.Module):
    """Text features that are there already."""

    def __init__(self, attributes, objects):
        super().__init__()
        self.tables = torch.randn(len(attributes), DIM), torch.randn(len(objects), DIM)
        self.logit_scale = nn.Parameter(torch.tensor(2.0), requires_grad=False)

    def forward(self, pairs):
        return *self.tables, self.tables[0][pairs[:, 0]] + self.tables[1][pairs[:, 1]]


@pytest.fixture
def training():
    """A head with prototypes, features of a batch with gradient, and their labels."""
    pairs = [[a, o] for a in range(4) for o in range(5)]
    space = CompositionSpace(list('abcd'), list('vwxyz'), pairs, [True] * 20)
    head = ClusProPlusHead(space, dict(type='mmcluspro.FixedText'), in_channels=DIM).train()
    samples = []
    for label in range(40):
        sample = DataSample()
        for name, value in zip(('attr', 'obj', 'pair'), (*pairs[label % 20], label % 20)):
            sample.set_field(value, f'{name}_label')
        samples.append(sample)
    features = tuple(torch.randn(40, DIM).requires_grad_() for _ in range(3))
    for branch, feature in zip(('attr', 'obj'), features):
        head.bank(branch).initialise(feature.detach(), head.labels(samples)[branch])
    return head, features, samples


def runner_of(head, iteration):
    return SimpleNamespace(model=SimpleNamespace(head=head), iter=iteration, optim_wrapper=None,
                           message_hub=MessageHub.get_instance(f'host syncs {id(head)}'))


def test_the_head_and_its_hook_never_wait(training):
    head, features, samples = training
    before = {branch: bank.prototypes.clone() for branch, bank in head.clustered.items()}
    hook = PrototypeHook(interval=50)

    for iteration in range(3):
        runner = runner_of(head, iteration)
        with Watch():
            sum(head.loss(features, samples).values()).backward()
            hook.after_train_iter(runner, iteration)

    assert not head.observed and features[0].grad.norm() > 0
    for branch, bank in head.clustered.items():
        assert not bank.prototypes.equal(before[branch])
    with pytest.raises(HostWaits), Watch():  # only the line in the log reads numbers back
        hook.after_train_iter(runner_of(head, 49), 49)


def test_the_log_says_what_transport_decided_and_how_far_prototypes_lag(training):
    head, features, samples = training
    head.loss(features, samples)
    runner = runner_of(head, 49)

    PrototypeHook(interval=50).after_train_iter(runner, 49)

    logged = {name: log.current() for name, log in runner.message_hub.log_scalars.items()}
    assert logged['train/attr_transport'] == logged['train/obj_transport'] == 1
    for branch in ('attr', 'obj'):
        assert 0 < logged[f'train/{branch}_lag'] < 1


@pytest.mark.parametrize('name, launched, calls', [
    ('few', 300, 400), ('many', 285, 370), ('mixed', 300, 400)])
def test_a_step_makes_few_calls(name, launched, calls):
    """Both branches together; the numbers are in docs/clustering.md."""
    banks, features, labels = make_step(SIZES[name])

    with Watch() as watch:
        rows = assign_together(banks, features, labels)
        update_together(banks, features, labels, rows)

    assert watch.launched <= launched, watch.calls
    assert watch.calls.total() <= calls, watch.calls


def test_the_losses_make_few_calls():
    banks, features, labels = make_step(SIZES['many'])
    rows, tables = assign_together(banks, features, labels), [bank.prototypes for bank in banks]

    with Watch() as watch:
        (PCLLoss()(features, rows, tables) + HSICLoss()(features, rows, tables)).backward()

    assert watch.calls.total() <= 400, watch.calls


@pytest.mark.parametrize('options', [OPTIONS[name] for name in ('default', 'batch', 'single')],
                         ids=['default', 'batch', 'single'])
def test_a_compiled_step_is_one_graph_and_gives_the_same(options):
    sizes = (9, 7, 24)
    (banks, features, labels), (twins, _, _) = (make_step(sizes, **options) for _ in range(2))

    def step(banks, features):
        rows = assign_together(banks, features, labels)
        tables = [bank.prototypes for bank in banks]
        loss = PCLLoss()(features, rows, tables) + HSICLoss()(features, rows, tables)
        update_together(banks, features, labels, rows)
        return loss, *rows

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend='aot_eager')
    with torch._dynamo.config.patch(error_on_recompile=True):
        for i in range(3):
            batch = [(feature + 0.1 * i).detach() for feature in features]
            got, want = compiled(banks, batch), step(twins, batch)
            torch.testing.assert_close(got[0], want[0], atol=1e-5, rtol=0)
            assert got[1].equal(want[1]) and got[2].equal(want[2])
    for bank, twin in zip(banks, twins):
        torch.testing.assert_close(bank.prototypes, twin.prototypes, atol=1e-5, rtol=0)


def test_a_head_with_compiled_clustering_trains_as_before(training):
    head, features, samples = training
    twin = copy.deepcopy(head)
    torch._dynamo.reset()
    head.compile_clustering(backend='aot_eager')

    for _ in range(2):
        got, want = head.loss(features, samples), twin.loss(features, samples)
        for name, value in want.items():
            torch.testing.assert_close(got[name], value, atol=1e-5, rtol=0)
        found, wanted = (torch.autograd.grad(sum(losses.values()), features[0])[0]
                         for losses in (got, want))
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
        head.update_prototypes()
        twin.update_prototypes()
    assert head.state_dict().keys() == twin.state_dict().keys()
    for branch, bank in twin.clustered.items():
        torch.testing.assert_close(head.bank(branch).prototypes, bank.prototypes, atol=1e-5, rtol=0)
