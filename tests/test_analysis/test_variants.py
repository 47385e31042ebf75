"""The variants of docs/variants.md, each against a literal re-computation."""
from pathlib import Path

import pytest
import torch
from mmpretrain.structures import DataSample
from torch import nn
from torch.nn import functional as F

from mmcluspro.datasets import CompositionSpace
from mmcluspro.models import Candidates
from mmcluspro.models.structures import Features, Logits, Texts, TrainStep
from mmcluspro.registry import MODELS
from try_variants import table
from variants import (
    AdversarialProbe,
    ConditionalAlignment,
    OwnPCLLoss,
    PrototypeLogitsHead,
    RecombinationHead,
    TextContrast,
    TransferHead,
)
from variants.classifier import soft_cosine
from variants.conditional import aligned

DOCS = Path(__file__).parents[2] / 'docs'


def unit(*shape):
    return F.normalize(torch.randn(*shape), dim=-1)


def step(batch=6, dim=8):
    features = [torch.randn(batch, dim, requires_grad=True) for _ in range(2)]
    labels = dict(attr=torch.tensor([0, 1, 2, 0, 1, 0])[:batch],
                  obj=torch.tensor([3, 3, 1, 0, 1, 3])[:batch])
    texts = Texts(unit(3, dim), unit(4, dim), unit(5, dim))
    return TrainStep(Features(features[0], features[0], features[1]), texts, Logits(
        None, None, torch.zeros(batch, 5)), labels, None), features


@pytest.mark.parametrize('temperature', [0.02, 0.1, 2.0])
def test_soft_cosine_is_a_log_mean_exp_over_own_prototypes(temperature):
    features, prototypes = unit(4, 8), unit(6, 8)
    owner = torch.tensor([0, 0, 0, 1, 2, 2])
    ours = soft_cosine(features, prototypes, owner, 3, temperature)
    for n in range(4):
        for c in range(3):
            cosines = features[n].double() @ prototypes[owner == c].double().T
            literal = temperature * torch.log(torch.exp(cosines / temperature).mean())
            assert ours[n, c].item() == pytest.approx(literal.item(), abs=1e-4)


def test_own_positives_sum_over_the_own_primitive():
    features, tables = [unit(5, 8), unit(5, 8)], [unit(4, 8), unit(6, 8)]
    rows = [torch.tensor([0, 3, -1, 2, 1]), torch.tensor([5, 0, 1, 4, -1])]
    ours = OwnPCLLoss(num_prototypes=2, temperature=0.1, loss_weight=0.7)(features, rows, tables)
    table, losses = torch.cat(tables), []
    for branch, first in ((0, 0), (1, 4)):
        for feature, row in zip(features[branch], rows[branch].tolist()):
            if row >= 0:
                exps = torch.exp(feature @ table.T / 0.1)
                own = first + row // 2 * 2
                losses.append(-torch.log(exps[own:own + 2].sum() / exps.sum()))
    assert ours.item() == pytest.approx(0.7 * torch.stack(losses).mean().item(), rel=1e-4)


def test_text_contrast_is_a_cross_entropy_over_both_tables():
    given, features = step()
    table, losses = torch.cat(given.texts[:2]), []
    for branch, first in (('attr', 0), ('obj', 3)):
        for feature, label in zip(given.features.primitives[branch], given.labels[branch]):
            exps = torch.exp(F.normalize(feature, dim=0) @ table.T / 0.1)
            losses.append(-torch.log(exps[first + label] / exps.sum()))
    literal = torch.stack(losses).mean().item()
    assert TextContrast()(given).item() == pytest.approx(literal, rel=1e-4)


def test_alignment_is_a_correlation_over_the_memory_that_exists():
    features, memory = unit(3, 8), unit(3, 5, 8)
    partners, stored = torch.tensor([0, 1, 1]), torch.randint(2, (3, 5))
    exists = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]]).bool()
    distances = [[(features[b] - memory[b, q]).square().sum() for q in range(5) if exists[b, q]]
                 for b in range(3)]
    width = torch.stack(sum(distances, [])).median()
    kernels, equal = [], []
    for b in range(2):  # the third has no memory
        k = torch.exp(-torch.stack(distances[b]) / (2 * width))
        s = torch.stack([(partners[b] == stored[b, q]).float() for q in range(5) if exists[b, q]])
        kernels.append(k - k.mean())
        equal.append(s - s.mean())
    k, s = torch.cat(kernels), torch.cat(equal)
    literal = (k * s).sum() / (k.norm() * s.norm())
    assert aligned(features, partners, memory, stored, exists).item() == pytest.approx(
        literal.item(), abs=1e-5)


def test_a_gradient_step_lowers_the_conditional_alignment():
    loss = ConditionalAlignment(3, 4, dim=8, size=4, loss_weight=1.0)
    given, _ = step()
    assert loss(given).item() == pytest.approx(0.0, abs=1e-5)  # no memory yet
    given, features = step()
    before = loss(given)
    before.backward()
    assert all(f.grad.abs().sum() > 0 for f in features)


def test_the_probe_learns_and_the_features_unlearn():
    probe = AdversarialProbe(3, 4, dim=8, loss_weight=1.0)
    given, features = step()
    probe(given).backward()
    # The same step without the reversal: equal for the probe, opposite for the features.
    grads = [f.grad.clone() for f in features]
    other, total = [f.detach().clone().requires_grad_() for f in features], 0.0
    for branch, partner, f in (('attr', 'obj', other[0]), ('obj', 'attr', other[1])):
        mean = getattr(probe, f'{branch}_mean')[given.labels[branch]]
        logits = 10 * probe.probes[branch](F.normalize(f, dim=1) - mean)
        total = total + F.cross_entropy(logits, given.labels[partner])
    total.backward()
    for ours, literal in zip(grads, other):
        torch.testing.assert_close(ours, -literal.grad)


@MODELS.register_module(force=True)
class EightWideText(nn.Module):
    """Text features of 8 dimensions that do not learn."""

    def __init__(self, attributes, objects):
        super().__init__()
        self.tables = unit(len(attributes), 8), unit(len(objects), 8), unit(
            len(attributes), len(objects), 8)
        self.logit_scale = nn.Parameter(torch.tensor(2.0), requires_grad=False)

    def encode_pairs(self, pairs):
        return self.tables[2][pairs[:, 0], pairs[:, 1]]

    def forward(self, pairs):
        return self.tables[0], self.tables[1], self.encode_pairs(pairs)


def make_head(cls, **kwargs):
    """A head with prototypes, and a batch over its seen pairs: (2, 3) is unseen."""
    pairs = [[a, o] for a in range(3) for o in range(4)]
    space = CompositionSpace(list('abc'), list('wxyz'), pairs, [True] * 11 + [False])
    torch.manual_seed(0)
    head = cls(space, dict(type='mmcluspro.EightWideText'), in_channels=8,
               bank=dict(num_prototypes=2), **kwargs)
    features = Features(*(torch.randn(22, 8) for _ in range(3)))
    samples = []
    for attr, obj in pairs[:11] * 2:
        sample = DataSample()
        for name, value in (('attr', attr), ('obj', obj), ('pair', attr * 4 + obj)):
            sample.set_field(value, f'{name}_label')
        samples.append(sample)
    labels = head.labels(samples)
    for branch, bank in head.clustered.items():
        bank.initialise(features.primitives[branch], labels[branch])
    return head.train(), features, samples, Candidates.from_space(space)


def test_prototypes_in_the_classifier_add_a_share_of_the_soft_cosine():
    head, features, _, candidates = make_head(PrototypeLogitsHead, share=0.3, temperature=0.5)
    with_share = head.logits(features, candidates)
    soft = {}
    for branch, feature in features.primitives.items():
        table = head.bank(branch).prototypes.view(-1, 2, 8)
        cosines = torch.einsum('nd,ckd->nck', F.normalize(feature, dim=1), table)
        soft[branch] = 0.5 * torch.log(torch.exp(cosines / 0.5).mean(dim=2))
    with torch.no_grad():
        head.share.zero_()
    plain, scale = head.logits(features, candidates), 0.3 * torch.tensor(2.0).exp()
    torch.testing.assert_close(with_share.attribute, plain.attribute + scale * soft['attr'])
    torch.testing.assert_close(with_share.object, plain.object + scale * soft['obj'])
    both = soft['attr'][:, :, None] + soft['obj'][:, None]
    torch.testing.assert_close(with_share.composition, plain.composition + scale * both.flatten(1))


def test_prototypes_move_to_test_images_and_are_forgotten():
    head, features, _, candidates = make_head(PrototypeLogitsHead, share=0.3)
    head.eval()
    before = head.score(features, candidates).pair
    head.adapt(features)
    torch.testing.assert_close(head.score(features, candidates).pair, before)  # step 0
    head.step_size, table = 0.1, head.bank('attr').prototypes
    head.adapt(features)
    literal = table.clone()
    for feature in F.normalize(features.attribute, dim=1):
        row = int((table @ feature).argmax())
        literal[row] += 0.1 * (feature - table[row])
    torch.testing.assert_close(head.moved['attr'], F.normalize(literal, dim=1))
    assert not torch.equal(head.score(features, candidates).pair, before)
    head.forget_adaptation()
    torch.testing.assert_close(head.score(features, candidates).pair, before)


@pytest.mark.parametrize('source', ['prototypes', 'texts'])
def test_recombination_classifies_prototypes_of_the_unseen_pair(source):
    head, features, samples, _ = make_head(RecombinationHead, virtual=5, virtual_weight=0.5,
                                           source=source)
    assert head.unseen.tolist() == [[2, 3]]
    torch.nn.init.normal_(head.composer.weight)
    state = head.generator.get_state()
    losses = head.loss(features, samples)
    head.generator.set_state(state)
    torch.randperm(1, generator=head.generator)
    places = [int(2 * torch.rand(1, generator=head.generator)) for _ in range(2)]
    attr = head.bank('attr').prototypes[2 * 2 + places[0]]
    obj = head.bank('obj').prototypes[2 * 3 + places[1]]
    if source == 'texts':
        attr, obj = head.text.tables[0][2], head.text.tables[1][3]
    virtual = F.normalize(attr + obj + head.composer.weight @ torch.cat([attr, obj]), dim=0)
    logits = torch.tensor(2.0).exp() * head.text.tables[2].flatten(0, 1) @ virtual  # (2, 3) last
    assert losses['virtual_loss'].item() == pytest.approx(
        -0.5 * logits.log_softmax(dim=0)[11].item(), rel=1e-4)
    assert {'real_loss', 'pcl_loss', 'pair_loss'} <= losses.keys()


@pytest.mark.parametrize('donor', ['other', 'own'])
def test_transfer_classifies_features_with_the_looks_of_a_donor(donor):
    head, features, samples, _ = make_head(TransferHead, donor=donor, transfer_weight=0.5)
    state, labels = head.generator.get_state(), head.labels(samples)
    losses = head.loss(features, samples)
    head.generator.set_state(state)
    for branch, size, texts in (('attr', 3, 0), ('obj', 4, 1)):
        own = labels[branch]
        donors = own if donor == 'own' else torch.randint(
            size, own.shape, generator=head.generator)
        chosen = torch.randint(2, own.shape, generator=head.generator)
        literal = []
        for feature, label, giver, look in zip(features.primitives[branch], own, donors, chosen):
            unit = feature / feature.norm()
            looks = head.bank(branch).prototypes[2 * giver:2 * giver + 2]
            virtual = unit + looks[look] - looks[(looks @ unit).argmax()]
            logits = torch.tensor(2.0).exp() * head.text.tables[texts] @ virtual / virtual.norm()
            literal.append(-logits.log_softmax(dim=0)[label])
        assert losses[f'{branch}_transfer_loss'].item() == pytest.approx(
            0.5 * torch.stack(literal).mean().item(), rel=1e-4)


@pytest.mark.parametrize('dataset', ['fashion', 'shapes'])
def test_the_page_has_the_table_of_the_records(dataset, capsys):
    table(dataset, DOCS / 'results' / 'variants.jsonl', 'val')
    rows = capsys.readouterr().out
    assert rows.count('\n') > 3
    assert rows in (DOCS / 'variants.md').read_text(encoding='utf-8')
