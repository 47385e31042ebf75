"""CompCos: cosines, and margins by feasibility, against the formulas."""
import pytest
import torch


def compcos(zoo, **fields):
    return zoo.head('CompCosHead', dict(type='LinearPairText', out_dim=5, learn_vectors=True,
                                        temperature=0.1), **fields)


def cosine(x, y):
    return (x @ y / (torch.linalg.norm(x) * torch.linalg.norm(y))).item()


def pair_cosines(head, zoo, image):
    """Cosine to all attributes x objects, by name of the pair."""
    layer = head.text.composer
    words = head.text.attr_table.vectors, head.text.obj_table.vectors
    return {(a, o): cosine(image, layer.weight @ torch.cat([words[0][a], words[1][o]])
                           + layer.bias) for a in range(3) for o in range(4)}


def feasibility(head, zoo, attr, obj):
    """Eq. 14, literally."""
    seen = set(map(tuple, zoo.space.train_pairs.tolist()))
    words = head.text.attr_table.vectors, head.text.obj_table.vectors
    by_object = [cosine(words[1][obj], words[1][o]) for o in range(4)
                 if o != obj and (attr, o) in seen]
    by_attribute = [cosine(words[0][attr], words[0][a]) for a in range(3)
                    if a != attr and (a, obj) in seen]
    return (max(by_object, default=-1) + max(by_attribute, default=-1)) / 2


def test_scores_rank_as_cosines_do(zoo):
    head = compcos(zoo).eval()
    features, _ = zoo.batch(5)
    got = head.score(features, head.known_candidates).pair.log()
    for image, row in zip(features.composition, got):
        found = pair_cosines(head, zoo, image)
        expected = torch.tensor([found[tuple(p)] for p in zoo.space.pairs.tolist()])
        torch.testing.assert_close(row - row[0], 10 * (expected - expected[0]), atol=1e-3, rtol=0)


@pytest.mark.parametrize('margin, epoch', [(None, 3), (0.4, 0), (0.4, 2), (0.4, 9)])
def test_the_loss_of_an_epoch(zoo, margin, epoch):
    """Closed: over the seen pairs. Open: over all, unseen ones with a share of their margin."""
    head = compcos(zoo, margin=margin, margin_epochs=5)
    features, samples = zoo.batch(5)
    head.begin_epoch(epoch)
    got = head.loss(features, samples)['pair_loss'].item()
    seen = set(map(tuple, zoo.space.train_pairs.tolist()))
    losses = []
    for image, sample in zip(features.composition, samples):
        logits = {}
        for (attr, obj), value in pair_cosines(head, zoo, image).items():
            if (attr, obj) in seen:
                logits[attr, obj] = 10 * value
            elif margin and epoch:
                lowered = margin * min(1, epoch / 5) * feasibility(head, zoo, attr, obj)
                logits[attr, obj] = 10 * (value - lowered)
        values = torch.tensor(list(logits.values()))
        losses.append(float(values.logsumexp(0)) - logits[sample.attr_label, sample.obj_label])
    assert got == pytest.approx(sum(losses) / 7, rel=1e-4)


@pytest.mark.parametrize('margin', [None, 0.4])
def test_gradients_reach_everything_that_learns(zoo, margin):
    head = compcos(zoo, margin=margin)
    head.begin_epoch(1)
    sum(head.loss(*zoo.batch(5, 30)).values()).backward()
    for name, parameter in head.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None), name


def test_it_exports_and_takes_new_names(zoo):
    head = compcos(zoo)
    assert head.portable().paths == ('composition', )
    head.text.extend(attributes=['new'], objects=['fox'])
    assert head.text.encode_pairs(torch.tensor([[3, 4]])).shape == (1, 5)


def test_fields_are_checked(zoo):
    with pytest.raises(ValueError, match=r'head\.margin_epochs must be at least 1, got 0'):
        compcos(zoo, margin_epochs=0)
