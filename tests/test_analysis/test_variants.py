"""The variants of docs/variants.md, each against a literal re-computation."""
import pytest
import torch
from torch.nn import functional as F

from experiments.fast_runs import PhaseData, evaluate, train
from mmcluspro.models import Candidates, Features, TrainStep
from mmcluspro.models.structures import Logits, Texts
from variants import AdversarialProbe, ConditionalAlignment, OwnPCLLoss, TextContrast
from variants.classifier import soft_cosine
from variants.conditional import aligned


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
    assert TextContrast()(given).item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-4)


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
