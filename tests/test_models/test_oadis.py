"""OADis: locations compared in loops, and the terms for batches whose partners are known."""
import pytest
import torch
from mmpretrain.structures import DataSample
from torch.nn import functional as F

from mmcluspro.models.structures import Features
from mmcluspro.models.zoo.oadis import OADisNeck, compare_places

TEXT = dict(out_dim=8, hidden_dim=9, temperature=0.1)
FIELDS = dict(in_channels=5, dim=8)


def softmax(values):
    return torch.tensor(values).softmax(0)


def literal(first, second, sharpness):
    """One pair of images (L, C), location by location."""
    count = len(first)
    cosine = [[float(torch.cosine_similarity(first[i], second[j], dim=0)) * sharpness
               for j in range(count)] for i in range(count)]
    alike_first, alike, unlike = torch.zeros(3, count)
    for i in range(count):
        alike += softmax(cosine[i])
        unlike += softmax([-value for value in cosine[i]])
    for j in range(count):
        alike_first += softmax([cosine[i][j] for i in range(count)])
    return [sum(weight[k] / weight.sum() * image[k] for k in range(count))
            for weight, image in ((alike_first, first), (alike, second), (unlike, second))]


@pytest.mark.parametrize('places', [1, 4])
def test_places_are_weighed(places):
    first, second = torch.randn(2, 3, places, 5, generator=torch.Generator().manual_seed(0))
    got = compare_places(first, second, 10.0)
    for i in range(3):
        for part, expected in zip(got, literal(first[i], second[i], 10.0)):
            torch.testing.assert_close(part[i], expected)


def samples_of(space, names):
    found = []
    for attr, obj in names:
        row = [tuple(pair) for pair in space.train_pairs.tolist()].index((attr, obj))
        found.append(DataSample())
        for name, value in (('attr', attr), ('obj', obj), ('pair', row)):
            found[-1].set_field(value, f'{name}_label')
    return found


# The image, one that shares its attribute, one that shares its object; the two make a new pair.
@pytest.mark.parametrize('names, new', [
    ([(2, 0), (2, 3), (0, 0)], 'seen'),    # (0, 3)
    ([(0, 0), (0, 4), (2, 0)], 'unseen'),  # (2, 4)
    ([(1, 2), (1, 1), (3, 2)], 'unseen'),  # (3, 1)
    ([(3, 2), (3, 4), (1, 2)], None),      # (1, 4) is no pair of the data
])
def test_terms_of_three_images(word_head, word_space, names, new):
    space, _ = word_space
    head = word_head('OADisHead', 'WordVectorText', TEXT, **FIELDS)
    generator = torch.Generator().manual_seed(2)
    tokens, f_c = torch.randn(3, 4, 5, generator=generator), torch.randn(3, 8, generator=generator)
    seen = [tuple(pair) for pair in space.train_pairs.tolist()]
    got = head.loss(Features(f_c, tokens=tokens), samples_of(space, names))

    # Only the first image has both partners: the others share one name with it alone.
    (attr, obj), (_, other_obj), (other_attr, _) = names
    t_a, t_o, t_c = head.text(space.train_pairs)

    def cross_entropy(feature, texts, label):
        return -(torch.cosine_similarity(feature[None], texts, dim=1) / 0.1).log_softmax(0)[label]

    one_a, two_a, new_o = literal(tokens[0], tokens[1], 10.0)
    one_o, two_o, new_a = literal(tokens[0], tokens[2], 10.0)
    g_a, g_o, h = head.attr_embed, head.obj_embed, head.pair_embed
    expected = dict(
        attr=0.125 * (cross_entropy(g_a(one_a), t_a, attr)
                      + cross_entropy(g_a(two_a), t_a, attr)),
        obj=0.125 * (cross_entropy(g_o(one_o), t_o, obj) + cross_entropy(g_o(two_o), t_o, obj)),
        both=0.1 * cross_entropy(h(torch.cat([g_a(two_a), g_o(two_o)])), t_c,
                                 seen.index((attr, obj))))
    for name, value in expected.items():
        torch.testing.assert_close(got[f'{name}_loss'], value)
    joined = h(torch.cat([g_a(new_a), g_o(new_o)]))
    unseen = [tuple(pair) for pair in space.pairs[~space.seen].tolist()]
    for name, pairs in (('seen', seen), ('unseen', unseen)):
        expected = torch.zeros(())
        if name == new:
            texts = head.text.encode_pairs(torch.tensor(pairs))
            expected = 0.05 * cross_entropy(joined, texts, pairs.index((other_attr, other_obj)))
        torch.testing.assert_close(got[f'{name}_loss'], expected)


def test_gradients_reach_everything_that_learns(word_head, word_batch):
    head = word_head('OADisHead', 'WordVectorText', dict(TEXT, learn_vectors=True), **FIELDS)
    neck = OADisNeck(10, 5, 8, dropout=0.0)
    feats, samples = word_batch(40, 10)
    torch.manual_seed(0)
    losses = head.loss(neck(feats), samples)
    assert losses['seen_loss'] > 0 and losses['unseen_loss'] > 0
    sum(losses.values()).backward()
    for part in (head, neck):
        assert not [name for name, p in part.named_parameters()
                    if p.requires_grad and (p.grad is None or not p.grad.any())]


def test_a_batch_without_partners_has_zero_terms_with_gradients(word_head, word_batch):
    head = word_head('OADisHead', 'WordVectorText', TEXT, **FIELDS)
    neck = OADisNeck(10, 5, 8)
    feats, samples = word_batch(2, 10)
    losses = head.loss(neck(feats), [samples[0]] * 2)
    assert all(losses[f'{name}_loss'] == 0 for name in ('attr', 'obj', 'both', 'seen', 'unseen'))
    sum(losses.values()).backward()
    assert all(p.grad is not None for p in head.attr_embed.parameters())


def test_the_neck_takes_tokens_or_the_pooled_feature():
    neck = OADisNeck(10, 5, 8).eval()
    tokens = torch.randn(3, 7, 10)
    got = neck(Features(torch.randn(3, 2), tokens=tokens))
    states = F.batch_norm(neck.embed(tokens[:, 1:]).flatten(0, 1), neck.norm.running_mean,
                          neck.norm.running_var).relu().view(3, 6, 5)
    torch.testing.assert_close(got.tokens, states)
    torch.testing.assert_close(got.composition, neck.final(states.mean(dim=1)))
    assert neck(tokens[:, 0]).tokens.shape == (3, 1, 5)
    with pytest.raises(ValueError, match='a batch of one image'):
        neck.train()(tokens[:1, 0])


def test_wrong_fields_are_named(word_head, word_batch):
    with pytest.raises(ValueError, match='head.weights has the keys'):
        word_head('OADisHead', 'WordVectorText', TEXT, weights=dict(pair=1), **FIELDS)
    feats, samples = word_batch()
    with pytest.raises(ValueError, match='mmcluspro.OADisNeck'):
        word_head('OADisHead', 'WordVectorText', TEXT, **FIELDS).loss((feats, ), samples)
