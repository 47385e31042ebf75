"""ADE: attention, agreement, partners, scores and losses against the formulas."""
import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch.nn import functional as F

from mmcluspro.models.structures import PATHS, Features
from mmcluspro.models.zoo.ade import CrossAttention, agreement, partners, transport


def ade(zoo, **fields):
    return zoo.head('ADEHead', dict(type='LinearPairText', out_dim=6, learn_vectors=True,
                                    temperature=0.1),
                    **dict(dict(in_channels=4, out_channels=6, num_heads=2, hidden=[5],
                                dropout=0.0, num_tokens=3), **fields))


def attended(block, q, k):
    """One image, token by token and head by head."""
    normal = lambda layer, x: F.layer_norm(x, x.shape[-1:], layer.weight, layer.bias)
    queries = [block.q.weight @ normal(block.norm1, t) for t in q]
    keys, values = zip(*[(block.kv.weight @ normal(block.norm1, t)).chunk(2) for t in k])
    heads, width = block.num_heads, len(q[0]) // block.num_heads
    maps, tokens = torch.zeros(heads, len(q), len(k)), []
    for i, token in enumerate(q):
        read = []
        for h in range(heads):
            part = slice(h * width, (h + 1) * width)
            logits = torch.stack([queries[i][part] @ key[part] / math.sqrt(width) for key in keys])
            maps[h, i] = logits.softmax(0)
            read.append(sum(w * value[part] for w, value in zip(maps[h, i], values)))
        y = token + block.proj.weight @ torch.cat(read) + block.proj.bias
        hidden = block.mlp(normal(block.norm2, y))
        tokens.append(normal(block.norm_last, y + hidden))
    return torch.stack(tokens), maps


def test_cross_attention():
    torch.manual_seed(0)
    block, q, k = CrossAttention(4, 2), torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    tokens, attention = block(q, k)
    for i in range(2):
        expected = attended(block, q[i], k[i])
        torch.testing.assert_close(tokens[i], expected[0], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(attention[i], expected[1], atol=1e-5, rtol=1e-4)


def linear_program(cost, rows, columns):
    """The exact plan of mass n, by scipy."""
    n = len(rows)
    equal = np.concatenate([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    shares = [(part / part.sum() + 1e-5) / (1 + n * 1e-5) for part in (rows, columns)]
    return linprog(cost.ravel(), A_eq=equal[:-1],
                   b_eq=n * np.concatenate(shares)[:-1]).x.reshape(n, n)


def test_transport_meets_its_marginals_and_nears_the_linear_program():
    rng = np.random.default_rng(0)
    cost, rows, columns = rng.random((4, 4)), rng.random(4), rng.random(4)
    plan = transport(*(torch.from_numpy(x)[None] for x in (cost, rows, columns)), 0.01, 2000)[0]
    torch.testing.assert_close(plan.sum(0), torch.from_numpy(4 * columns / columns.sum()),
                               atol=1e-3, rtol=0)
    best = (linear_program(cost, rows, columns) * cost).sum()
    assert float((plan.numpy() * cost).sum()) == pytest.approx(best, abs=0.02)


def test_the_gradient_of_the_agreement_is_that_of_the_exact_transport():
    """Attention of random tokens, whose entries differ by thousandths, through their block."""
    torch.manual_seed(0)
    block, x, y = CrossAttention(24, 12), torch.randn(4, 37, 24), torch.randn(4, 37, 24)

    def gradient(value):
        block.zero_grad()
        value.backward()
        return torch.cat([block.q.weight.grad.flatten(), block.kv.weight.grad[:24].flatten()])

    def maps():
        return block(x, y)[1].sum(1), block(y, x)[1].sum(1)

    forth, back = maps()
    similarity = (forth[:, 1:, 1:] + back[:, 1:, 1:].transpose(1, 2)) / 2
    plans = [linear_program(*(part.detach().double().numpy() for part in image))
             for image in zip(1 - similarity, back[:, 0, 1:], forth[:, 0, 1:])]
    exact = gradient((torch.tensor(np.array(plans)) * similarity).sum() / 4)
    ours = gradient(agreement(*maps(), 0.02))
    assert torch.cosine_similarity(ours, exact, dim=0) > 0.95
    assert ours.norm() == pytest.approx(exact.norm().item(), rel=0.1)


def test_agreement_is_the_similarity_that_the_plan_moves():
    torch.manual_seed(0)
    forth, back = (torch.rand(2, 4, 4).requires_grad_() for _ in range(2))
    got = agreement(forth, back, 0.02)
    expected = []
    for i in range(2):
        similarity = (forth[i, 1:, 1:] + back[i, 1:, 1:].T) / 2
        plan = transport((1 - similarity.detach())[None], back[i:i + 1, 0, 1:].detach(),
                         forth[i:i + 1, 0, 1:].detach(), 0.02)[0]
        expected.append((plan * similarity).sum())
    torch.testing.assert_close(got, sum(expected) / 2)
    got.backward()
    assert forth.grad[:, 1:, 1:].abs().sum() > 0 and forth.grad[:, 0].abs().sum() == 0
    assert agreement(forth[:, :1, :1], back[:, :1, :1], 0.02) == 0


def test_many_patches_are_averaged_over_two_by_two():
    torch.manual_seed(0)
    forth = torch.rand(1, 145, 145)
    ones = torch.ones_like(forth)
    # The plan has mass 36, and every similarity of the pooled maps is one.
    assert agreement(ones, ones, 0.02).item() == pytest.approx(36, rel=1e-4)
    assert 0 < agreement(forth, forth, 0.02).item() < 36


def test_partners_share_a_label_and_differ_in_the_other_where_possible():
    torch.manual_seed(0)
    labels, others = torch.tensor([0, 0, 0, 1, 2, 2]), torch.tensor([0, 0, 1, 0, 3, 3])
    for _ in range(20):
        rows = partners(labels, others)
        assert labels[rows].equal(labels)
        assert rows[0] == 2 and rows[1] == 2 and rows[2] in (0, 1)
        assert rows[3] == 3  # alone
        assert rows[4] == 5 and rows[5] == 4  # of the same pair


def test_scores(zoo):
    head = ade(zoo, product_weight=0.5).eval()
    features, _ = zoo.batch(12)
    got = head.score(features, head.known_candidates).pair
    texts = dict(zip(PATHS, head.text(zoo.space.pairs)))
    for i, x in enumerate(features.composition):
        tokens = x.view(3, 4)
        cos = {path: texts[path] @ F.normalize(
            head.embed[path](attended(head.attention[path], tokens, tokens)[0][0]), dim=0)
            for path in PATHS}
        for j, (attr, obj) in enumerate(zoo.space.pairs.tolist()):
            expected = cos['composition'][j] + 0.5 * cos['attribute'][attr] * cos['object'][obj]
            assert got[i, j].item() == pytest.approx(expected.item(), abs=1e-4)


def test_losses(zoo):
    head = ade(zoo, emd_weight=2.0)
    features, samples = zoo.batch(12)
    torch.manual_seed(5)
    got = head.loss(features, samples)
    torch.manual_seed(5)
    labels = {name: torch.tensor([sample.get(f'{name}_label') for sample in samples])
              for name in ('attr', 'obj', 'pair')}
    rows = dict(attribute=partners(labels['attr'], labels['obj']),
                object=partners(labels['obj'], labels['attr']))
    tokens = features.composition.view(7, 3, 4)
    maps, losses = {}, {name: [] for name in ('attr', 'obj', 'pair', 'attr_bar', 'obj_bar')}
    texts = dict(zip(PATHS, head.text(zoo.space.train_pairs)))

    def ce(path, token, label):
        logits = 10 * texts[path] @ F.normalize(head.embed[path](token), dim=0)
        return logits.logsumexp(0) - logits[label]

    for i in range(7):
        for path, name in (('attribute', 'attr'), ('object', 'obj')):
            for shared in rows:
                j = rows[shared][i]
                forth = attended(head.attention[path], tokens[i], tokens[j])
                back = attended(head.attention[path], tokens[j], tokens[i])
                maps.setdefault((path, shared), []).append((forth[1].sum(0), back[1].sum(0)))
                if path == shared:
                    losses[name].append(ce(path, forth[0][0], labels[name][i]))
                    losses[f'{name}_bar'].append(ce(path, back[0][0], labels[name][i]))
        own = attended(head.attention['composition'], tokens[i], tokens[i])[0][0]
        losses['pair'].append(ce('composition', own, labels['pair'][i]))
    for name, each in losses.items():
        assert got[f'{name}_loss'].item() == pytest.approx(sum(each).item() / 7, rel=1e-3), name
    emd = sum((1 if path != shared else -1)
              * agreement(*(torch.stack(part) for part in zip(*each)), 0.02)
              for (path, shared), each in maps.items())
    assert got['emd_loss'].item() == pytest.approx(2 * emd.item(), abs=1e-4)


def test_tokens_of_the_backbone_are_taken_where_there_are_some(zoo):
    head = ade(zoo).eval()
    features, _ = zoo.batch(12)
    tokens = Features(torch.zeros(7, 9), tokens=features.composition.view(7, 3, 4))
    torch.testing.assert_close(head.score(tokens, head.known_candidates).pair,
                               head.score(features, head.known_candidates).pair)


@pytest.mark.parametrize('dim', [None, 8])
def test_gradients_reach_everything_that_learns(zoo, dim):
    head = ade(zoo, dim=dim)
    sum(head.loss(*zoo.batch(12, 20)).values()).backward()
    for name, parameter in head.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None), name


def test_parameters_are_those_of_the_published_code(zoo):
    """Three blocks of width 768 and MLPs 768 → 768 → 300, 1024 for objects, as on DINO ViT-B."""
    head = ade(zoo, in_channels=768, num_heads=12, hidden=[768], object_hidden=[1024],
               out_channels=300)
    block = 3 * 2 * 768 + 3 * 768 * 768 + 768 * 769 + 8 * 768 * 768 + 5 * 768
    assert sum(p.numel() for p in head.attention.parameters()) == 3 * block
    layers = [768 * n + n + 2 * n + n * 300 + 300 for n in (768, 1024, 768)]
    assert sum(p.numel() for p in head.embed.parameters()) == sum(layers)


def test_export_and_heads_that_do_not_divide_are_refused(zoo):
    with pytest.raises(ValueError, match='ADEHead cannot be exported'):
        ade(zoo).portable()
    with pytest.raises(ValueError, match=r'head\.num_heads=3 must divide'):
        ade(zoo, num_heads=3)
    with pytest.raises(ValueError, match=r'head\.epsilon must be in \(0, 1\], got 0'):
        ade(zoo, epsilon=0)
