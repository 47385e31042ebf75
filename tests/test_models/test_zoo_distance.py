"""LE+ and AttrAsOp: scores and losses against the formulas, image by image."""
import pytest
import torch
from torch.nn import functional as F

from mmcluspro.models.zoo.common import other_rows


def le_plus(zoo, **fields):
    return zoo.head('LEPlusHead', dict(type='LEPlusText', hidden=[5], out_dim=4,
                                       learn_vectors=True), **fields)


def aop(zoo, **fields):
    return zoo.head('AoPHead', dict(type='AoPText', learn_vectors=True), **fields)


def embed_le_plus(head, attr, obj):
    first, _, _, second, _ = head.text.composer
    words = torch.cat([head.text.attr_table.vectors[attr], head.text.obj_table.vectors[obj]])
    return (second.weight @ (first.weight @ words + first.bias).clamp(min=0)
            + second.bias).clamp(min=0)


def embed_aop(head, attr, obj):
    return (head.text.operators[attr] @ head.text.obj_table.vectors[obj]).clamp(min=0)


@pytest.mark.parametrize('make, embed, width', [(le_plus, embed_le_plus, 4), (aop, embed_aop, 6)])
def test_scores_are_negative_squared_distances(zoo, make, embed, width):
    head = make(zoo)
    features, _ = zoo.batch(width)
    got = head.score(features, head.known_candidates).pair
    for i, image in enumerate(features.composition):
        for j, (attr, obj) in enumerate(zoo.space.pairs.tolist()):
            expected = -sum((image - embed(head, attr, obj)) ** 2)
            assert got[i, j].item() == pytest.approx(expected.item(), abs=1e-4)


@pytest.mark.parametrize('make, embed, width', [(le_plus, embed_le_plus, 4), (aop, embed_aop, 6)])
def test_the_triplet_loss_is_that_of_the_drawn_negatives(zoo, make, embed, width):
    head = make(zoo, margin=0.7)
    features, samples = zoo.batch(width)
    torch.manual_seed(5)
    got = head.loss(features, samples)['triplet_loss']
    torch.manual_seed(5)
    rows = torch.tensor([sample.pair_label for sample in samples])
    negative = other_rows(rows, len(zoo.space.train_pairs))
    assert not (negative == rows).any()
    expected = []
    for image, yes, no in zip(features.composition, rows, negative):
        near, far = (torch.linalg.norm(image - embed(head, *zoo.space.train_pairs[row].tolist()))
                     for row in (yes, no))
        expected.append(max(0.0, float(near - far + 0.7)))
    assert got.item() == pytest.approx(sum(expected) / len(expected), abs=1e-4)


def test_negatives_are_drawn_evenly_from_the_other_rows():
    torch.manual_seed(0)
    drawn = other_rows(torch.full((6000, ), 2), 4)
    shares = torch.bincount(drawn, minlength=4) / 6000
    assert shares[2] == 0
    torch.testing.assert_close(shares[[0, 1, 3]], torch.full((3, ), 1 / 3), atol=0.03, rtol=0)
    assert other_rows(torch.tensor([0, 1]), 4, (600, )).shape == (2, 600)


def test_aop_adds_commuting_inverse_and_auxiliary_losses(zoo):
    head = aop(zoo, margin=0.7, aux_weight=2.0, comm_weight=3.0, inv_weight=0.5)
    features, samples = zoo.batch(6)
    torch.manual_seed(5)
    got = head.loss(features, samples)
    torch.manual_seed(5)
    attr, obj, rows = (torch.tensor([sample.get(f'{name}_label') for sample in samples])
                       for name in ('attr', 'obj', 'pair'))
    other_rows(rows, len(zoo.space.train_pairs))  # draws as the triplet loss does
    others = head.other_attributes(attr, obj)
    comm, inverse, aux = [], [], []
    relu = lambda x: x.clamp(min=0)
    for image, a, b, o in zip(features.composition, attr, others, obj):
        ours, other = head.text.operators[a], head.text.operators[b]
        word = head.text.obj_table.vectors[o]
        positive, changed = relu(ours @ word), relu(other @ word)
        comm.append(sum((relu(ours @ changed) - relu(other @ positive)) ** 2))
        anchor = relu(other @ relu(torch.linalg.solve(ours, image)))
        inverse.append(F.triplet_margin_loss(anchor[None], changed[None], positive[None],
                                             margin=0.7))
        classifiers = head.losses['aux']
        for layer, label in ((classifiers.attr, a), (classifiers.obj, o)):
            scores = layer.weight @ positive + layer.bias
            aux.append(scores.logsumexp(0) - scores[label])
    assert got['comm_loss'].item() == pytest.approx(3 * sum(comm).item() / 7, rel=1e-4)
    assert got['inv_loss'].item() == pytest.approx(0.5 * sum(inverse).item() / 7, rel=1e-3)
    assert got['aux_loss'].item() == pytest.approx(2 * sum(aux).item() / 7, rel=1e-4)


def test_another_attribute_is_one_that_training_has_with_the_object(zoo):
    head = aop(zoo)
    seen = set(map(tuple, zoo.space.train_pairs.tolist()))
    for attr, obj in seen:
        drawn = head.other_attributes(torch.tensor([attr] * 20), torch.tensor([obj] * 20)).tolist()
        others = {a for a, o in seen if o == obj and a != attr}
        assert set(drawn) <= (others or {attr})


@pytest.mark.parametrize('make, width, fields', [
    (le_plus, 4, {}), (aop, 6, dict(aux_weight=1.0, comm_weight=1.0))])
def test_gradients_reach_everything_that_learns(zoo, make, width, fields):
    head = make(zoo, margin=50.0, **fields)
    sum(head.loss(*zoo.batch(width, 40)).values()).backward()
    for name, parameter in head.named_parameters():
        if parameter.requires_grad and name != 'text.attr_table.vectors':
            assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
    # Of an attribute, AttrAsOp uses the matrix alone.
    assert (head.text.attr_table.vectors.grad is None) == (make is aop)


def test_parameters_are_those_of_the_published_code(zoo):
    """czsl on UT-Zappos, for 3 attributes and 4 objects: T of LE+, operators and aux of AoP."""
    head = zoo.head('LEPlusHead', dict(type='LEPlusText', hidden=[12], out_dim=6))
    assert sum(p.numel() for p in head.text.composer.parameters()) == (12 * 12 + 12) + (12 * 6 + 6)
    head = aop(zoo, aux_weight=1.0)
    assert head.text.operators.numel() == 3 * 6 * 6
    assert sum(p.numel() for p in head.losses['aux'].parameters()) == (6 + 1) * (3 + 4)


def test_aop_takes_new_objects_and_refuses_new_attributes(zoo):
    head = aop(zoo)
    before = head.text.encode_pairs(torch.tensor([[0, 1]]))
    head.text.extend(objects=['fox'])
    assert head.text.encode_pairs(torch.tensor([[0, 4], [0, 1]]))[1].equal(before[0])
    with pytest.raises(ValueError, match="AttrAsOp learns a matrix .* none for 'new'"):
        head.text.extend(attributes=['new'])


def test_fields_are_checked(zoo):
    with pytest.raises(ValueError, match=r'head\.margin must not be negative, got -1'):
        le_plus(zoo, margin=-1)
