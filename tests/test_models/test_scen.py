"""SCEN: the contrasts triplet by triplet, and the sum of the losses."""
import pytest
import torch
from torch.nn import functional as F

from mmcluspro.models.text.words import embed_names
from mmcluspro.models.zoo.common import draw, pair_rows, sharing
from mmcluspro.models.zoo.scen import SCENNeck, contrast

TEXT = dict(out_dim=8, hidden_dim=9, temperature=0.1)


def test_triplets_one_by_one():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(6, 4, generator=generator)
    unit = F.normalize(features, dim=1)
    # One positive each, so that nothing is left to chance; image 5 has none, image 4 no negative.
    positive = torch.zeros(6, 6, dtype=torch.bool)
    for image, other in ((0, 1), (1, 0), (2, 3), (3, 2), (4, 0)):
        positive[image, other] = True
    negative = torch.zeros(6, 6, dtype=torch.bool)
    for image, other in ((0, 2), (0, 3), (1, 5), (2, 4), (3, 0), (5, 1)):
        negative[image, other] = True
    losses = []
    for i, n in negative.nonzero().tolist():
        if positive[i].any():
            p = int(positive[i].nonzero()[0, 0])
            losses.append(F.triplet_margin_loss(
                unit[i:i + 1], unit[p:p + 1], unit[n:n + 1], margin=0.5, eps=0.0))

    got = contrast(features, positive, negative, 0.5)

    assert len(losses) == 5
    torch.testing.assert_close(got, torch.stack(losses).mean())
    assert contrast(features, positive, negative & False, 0.5) == 0


def test_partners_share_one_name_and_differ_in_the_other():
    attr = torch.tensor([0, 0, 0, 1, 1, 2])
    obj = torch.tensor([0, 1, 0, 0, 1, 5])
    torch.manual_seed(0)
    drawn = {i: set() for i in range(6)}
    for _ in range(50):
        partner, valid = draw(sharing(attr, obj))
        for i in range(6):
            if valid[i]:
                drawn[i].add(int(partner[i]))
    assert drawn == {0: {1}, 1: {0, 2}, 2: {1}, 3: {4}, 4: {3}, 5: set()}


def test_rows_of_pairs():
    known = torch.tensor([[0, 1], [0, 3], [2, 0]])
    asked = torch.tensor([[2, 0], [0, 0], [0, 3], [3, 3]])
    assert pair_rows(known, asked, 4).tolist() == [2, -1, 1, -1]
    assert pair_rows(known[:0], asked, 4).tolist() == [-1] * 4


def test_losses_and_scores(word_head, word_batch):
    head = word_head('SCENHead', 'WordVectorText', TEXT, aux_weight=0.5, contrast_weight=3.0)
    feats, samples = word_batch(12)
    f_a, f_o = feats.flip(0), feats.roll(3, 0)
    torch.manual_seed(1)
    got = head.loss((f_a, f_o, feats), samples)

    t_a, t_o, t_c = head.text(head.space.train_pairs)
    for name, f, texts, weight in (('attr', f_a, t_a, 0.2), ('obj', f_o, t_o, 0.3),
                                   ('pair', feats, t_c, 1.0)):
        cosines = torch.cosine_similarity(f[:, None], texts[None], dim=2)
        labels = torch.tensor([sample.get(f'{name}_label') for sample in samples])
        expected = -(cosines / 0.1).log_softmax(1)[range(12), labels].mean()
        torch.testing.assert_close(got[f'{name}_loss'], weight * expected)
    # Attributes: alike those of the same attribute, unlike those of the same object alone.
    attr, obj = (torch.tensor([sample.get(f'{name}_label') for sample in samples])
                 for name in ('attr', 'obj'))
    torch.manual_seed(1)
    alike = (attr[:, None] == attr) & ~torch.eye(12, dtype=torch.bool)
    unlike = (obj[:, None] == obj) & (attr[:, None] != attr)
    torch.testing.assert_close(got['attr_contrast_loss'], 3 * contrast(f_a, alike, unlike, 1.0))
    assert got['obj_contrast_loss'] > 0

    scores = head.score((f_a, f_o, feats), head.known_candidates).pair
    cosines = torch.cosine_similarity(
        feats[:, None], head.text.encode_pairs(head.known_candidates.pairs)[None], dim=2)
    torch.testing.assert_close(scores, (cosines / 0.1).softmax(dim=1))


def test_gradients_reach_everything_that_learns(word_head, word_batch):
    head = word_head('SCENHead', 'WordVectorText', dict(TEXT, learn_vectors=True))
    neck = SCENNeck(10, 8, hidden=6, dropout=0.0)
    feats, samples = word_batch(12, 10)
    sum(head.loss(neck(feats), samples).values()).backward()
    for part in (head, neck):
        assert not [name for name, p in part.named_parameters()
                    if p.requires_grad and (p.grad is None or not p.grad.any())]


def test_the_neck_composes_object_and_attribute():
    neck = SCENNeck(10, 8, hidden=6).eval()
    feats = torch.randn(3, 10)
    got = neck(feats)
    embedded = neck.embed(feats)
    torch.testing.assert_close(got.attribute, neck.attribute(embedded))
    torch.testing.assert_close(got.object, neck.object(embedded))
    torch.testing.assert_close(
        got.composition, neck.compose(torch.cat([got.object, got.attribute], dim=1)))
    assert got.composition.shape == (3, 8) and (got.attribute >= 0).all()
    with pytest.raises(RuntimeError):
        neck(torch.randn(3, 9))


@pytest.mark.parametrize('same_pair', [False, True])
def test_negatives_of_the_same_pair(word_head, word_batch, same_pair):
    """Two images of one pair: only the released code sets them against each other."""
    head = word_head('SCENHead', 'WordVectorText', TEXT, same_pair=same_pair)
    feats, samples = word_batch(2)
    losses = head.loss((feats, feats, feats), samples[:1] * 2)
    assert bool(losses['attr_contrast_loss'] > 0) == same_pair


def test_released_text(word_head):
    """Names keep the length that the file has, through new names and back."""
    head = word_head('SCENHead', 'SCENText', dict(unit_vectors=False))
    table = embed_names((*head.space.attributes, *head.space.objects), head.text.path)
    names = torch.cat([head.text.encode_attributes(), head.text.encode_objects()])
    torch.testing.assert_close(names, table)
    head.text.extend(['teal'], ['sock'])
    torch.testing.assert_close(head.text.encode_attributes()[-1],
                               embed_names(['teal'], head.text.path)[0])
    pairs = head.text.encode_pairs(torch.tensor([[0, 1], [4, 5]]))
    torch.testing.assert_close(pairs.norm(dim=1), torch.ones(2))
    composed = head.text.composer(torch.cat([table[0], table[4 + 1]]))
    torch.testing.assert_close(pairs[0], F.normalize(composed, dim=0))
    torch.testing.assert_close(head.text.pretrained(['teal']).norm(), torch.tensor(1.0))
