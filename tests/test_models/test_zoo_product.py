"""KG-SP and SymNet: scores and losses against the formulas, image by image."""
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from mmcluspro.models import Candidates
from mmcluspro.models.zoo.common import other_rows

TABLE = dict(type='WordTableText')


def kg_sp(zoo, **fields):
    return zoo.head('KGSPHead', dict(TABLE), in_channels=5, **fields)


def symnet(zoo, **fields):
    return zoo.head('SymNetHead', dict(TABLE), in_channels=5, hidden=4, coupling_hidden=3,
                    dropout=0.0, **fields)


def run(layers, x):
    """A two-layer MLP, by hand."""
    first, last = layers[0], layers[-1]
    return last.weight @ (first.weight @ x + first.bias).clamp(min=0) + last.bias


def coupled(part, f, w):
    scaled = f * (1 + 1 / (1 + torch.exp(-run(part.attention, w))))
    return run(part.embed, torch.cat([scaled, w]))


def test_kg_sp_scores_and_loss(zoo):
    head = kg_sp(zoo)
    features, samples = zoo.batch(5, paths=('attribute', 'object'))
    got = head.score(features, head.known_candidates)
    losses = head.loss(features, samples)
    expected = dict(attr=[], obj=[])
    for i, sample in enumerate(samples):
        logits = dict(
            attr=head.attr_classifier.weight @ features.attribute[i] + head.attr_classifier.bias,
            obj=head.obj_classifier.weight @ features.object[i] + head.obj_classifier.bias)
        p = {name: torch.exp(part) / torch.exp(part).sum() for name, part in logits.items()}
        for j, (attr, obj) in enumerate(zoo.space.pairs.tolist()):
            assert got.pair[i, j].exp().item() == pytest.approx(
                (p['attr'][attr] * p['obj'][obj]).item(), rel=1e-4)
        for name in expected:
            expected[name].append(-torch.log(p[name][sample.get(f'{name}_label')]))
        torch.testing.assert_close(got.attribute[i], p['attr'])
    for name, each in expected.items():
        assert losses[f'{name}_loss'].item() == pytest.approx(sum(each).item() / 7, rel=1e-4)


def test_kg_sp_needs_both_features(zoo):
    head = kg_sp(zoo)
    with pytest.raises(ValueError, match=r"set model\.neck, .*paths=\['attribute', 'object'\]"):
        head.score(zoo.batch(5)[0], head.known_candidates)


@pytest.mark.parametrize('make, paths', [(kg_sp, ('attribute', 'object')), (symnet, ())])
def test_candidates_of_some_names_and_new_names(zoo, make, paths):
    head = make(zoo).eval()
    features, _ = zoo.batch(5, paths=paths)
    some = Candidates.from_names(head.text, zoo.space, [('wet', 'cat'), ('red', 'hat')])
    everything = head.score(features, head.known_candidates).attribute
    got = head.score(features, some)
    assert got.pair.shape == (7, 2)
    places = [zoo.space.attributes.index(name) for name in ('red', 'wet')]
    asked = everything[:, places]
    torch.testing.assert_close(got.attribute, asked / asked.sum(1, keepdim=True))
    with pytest.warns(UserWarning, match='Not in the training data: object'):
        new = Candidates.from_names(head.text, zoo.space, [('wet', 'fox')])
    with pytest.raises(ValueError, match="classifier of the 4 objects .* cannot answer 'fox'"):
        head.score(features, new)


def test_relatedness_is_the_cosine_of_attribute_and_object(zoo):
    from mmcluspro.evaluation import head_feasibility
    head = kg_sp(zoo)
    rho = head_feasibility(head, zoo.space)
    attr, obj = head.text.pretrained(['old']), head.text.pretrained(['cup'])
    place = zoo.space.attributes.index('old'), zoo.space.objects.index('cup')
    assert rho[place].item() == pytest.approx(float((attr * obj).sum()), abs=1e-5)


def test_symnet_scores(zoo):
    head = symnet(zoo).eval()
    features, _ = zoo.batch(5)
    got = head.score(features, head.known_candidates).pair
    words = F.normalize(head.text.attr_table.vectors, dim=1)
    for i, f in enumerate(features.composition):
        moved = torch.stack([torch.linalg.norm(coupled(head.remove, f, w) - f)
                             - torch.linalg.norm(coupled(head.add, f, w) - f) for w in words])
        p_attr, p_obj = moved.softmax(0), run(head.obj_classifier, f).softmax(0)
        for j, (attr, obj) in enumerate(zoo.space.pairs.tolist()):
            assert got[i, j].exp().item() == pytest.approx(
                (p_attr[attr] * p_obj[obj]).item(), rel=1e-3)


def test_symnet_losses(zoo):
    head = symnet(zoo, loss_weights=dict(sym=2.0))
    features, samples = zoo.batch(5)
    torch.manual_seed(5)
    got = head.loss(features, samples)
    torch.manual_seed(5)
    attr, obj = (torch.tensor([sample.get(f'{name}_label') for sample in samples])
                 for name in ('attr', 'obj'))
    words = F.normalize(head.text.attr_table.vectors, dim=1)
    wrong = other_rows(attr, 3)
    parts = {name: [] for name in ('attr', 'obj', 'sym', 'axiom', 'triplet')}
    add, remove = (lambda f, w: coupled(head.add, f, w)), (lambda f, w: coupled(head.remove, f, w))
    ce = lambda logits, label: logits.logsumexp(0) - logits[label]
    mse = lambda x, y: ((x - y) ** 2).mean()
    far = lambda x, y, z: max(torch.zeros(()), torch.linalg.norm(x - y)
                              - torch.linalg.norm(x - z) + 1)
    for f, i, j, o in zip(features.composition, attr, wrong, obj):
        a, b = words[i], words[j]
        gone = run(head.attr_classifier, remove(f, a)).softmax(0)[i]
        moved = torch.stack([torch.linalg.norm(remove(f, w) - f) - torch.linalg.norm(add(f, w) - f)
                             for w in words])
        parts['attr'].append(ce(run(head.attr_classifier, f), i) - torch.log(1 - gone)
                             + ce(moved, i))
        parts['obj'].append(sum(ce(run(head.obj_classifier, x), o)
                                for x in (f, remove(f, a), add(f, b))))
        parts['sym'].append(mse(add(f, a), f) + mse(remove(f, b), f))
        parts['axiom'].append(
            mse(remove(add(f, a), a), remove(f, a)) + mse(add(remove(f, b), b), add(f, b))
            + mse(add(remove(f, a), a), f) + mse(remove(add(f, b), b), f)
            + mse(remove(add(f, a), b), add(remove(f, b), a)))
        parts['triplet'].append(far(f, add(f, a), remove(f, a)) + far(f, remove(f, b), add(f, b)))
    weights = dict(attr=1, obj=1, sym=2, axiom=0.03, triplet=0.5)
    for name, each in parts.items():
        assert got[f'{name}_loss'].item() == pytest.approx(
            weights[name] * sum(each).item() / 7, rel=1e-3), name


@pytest.mark.parametrize('make, paths', [(kg_sp, ('attribute', 'object')), (symnet, ())])
def test_gradients_reach_everything_that_learns(zoo, make, paths):
    head = make(zoo)
    features, samples = zoo.batch(5, 20, paths)
    sum(head.loss(replace(features), samples).values()).backward()
    for name, parameter in head.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None), name
        assert parameter.grad is None or parameter.grad.abs().sum() > 0, name


def test_symnet_draws_the_other_attribute(zoo):
    """Any other one, or as released that of another seen pair, which may be the own one."""
    features, samples = zoo.batch(5, 400)
    torch.manual_seed(0)
    head = symnet(zoo)
    step = head.step(features, head.labels(samples))
    assert (step.labels['attr'] != head.others(step)).all()
    head = symnet(zoo, draw='pair')
    step = head.step(features, head.labels(samples))
    own, seen = step.labels['attr'], step.candidates.pairs[:, 0]
    share = float((own == head.others(step)).float().mean())
    alike = (seen == own[:, None]).sum(dim=1) - 1  # other seen pairs of the attribute
    expected = float(alike.float().mean()) / (len(seen) - 1)
    assert expected > 0.1 and abs(share - expected) < 0.08
    with pytest.raises(ValueError, match=r'head\.draw must be'):
        symnet(zoo, draw='object')


def test_symnet_names_unknown_weights(zoo):
    with pytest.raises(ValueError, match=r"keys \['attr', .*got \['trip'\]"):
        symnet(zoo, loss_weights=dict(trip=1.0))
