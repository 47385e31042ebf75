"""CVGAE: the encoder by its definition, and the four losses in loops."""
import math

import pytest
import torch
from torch.nn import functional as F

from mmcluspro.models import Candidates
from mmcluspro.models.structures import Features
from mmcluspro.models.zoo.cvgae import Latent, edge_loss, kl_loss

TEXT = dict(out_dim=8, node_dim=4, hidden_dim=10, pair_dim=9, dropout=0.0, temperature=0.1)


def sage(layer, states, neighbours):
    """GraphSAGE with the mean over lists of neighbours."""
    rows = []
    for node, others in enumerate(neighbours):
        heard = torch.stack([states[other] for other in others]).mean(0) if others else (
            torch.zeros_like(states[0]))
        rows.append(layer.own.weight @ states[node] + layer.heard.weight @ heard
                    + layer.heard.bias)
    return torch.stack(rows)


def neighbour_lists(pairs, attributes, objects):
    found = [[] for _ in range(attributes + objects)]
    for attr, obj in pairs.tolist():
        found[attr].append(attributes + obj)
        found[attributes + obj].append(attr)
    return found


def test_the_encoder_is_graph_sage_over_the_seen_pairs(word_head, word_space):
    space, _ = word_space
    text = word_head('CVGAEHead', 'VariationalGraphText', TEXT).text.eval()
    lists = neighbour_lists(space.train_pairs, 4, 5)
    with torch.no_grad():
        words = torch.cat([text.attr_table(), text.obj_table()])
        mean, log_sigma = (
            sage(encoder.last, sage(encoder.hidden, words, lists).relu(), lists)
            for encoder in (text.mean, text.log_sigma))

        got = text.latent()

        torch.testing.assert_close(got.mean, mean)
        torch.testing.assert_close(got.log_sigma, log_sigma)
        assert got.draw is got.mean
        pairs = torch.stack([torch.cat([mean[a], mean[4 + o]]) for a, o in space.pairs.tolist()])
        torch.testing.assert_close(
            text.encode_pairs(space.pairs),
            F.layer_norm(text.composer(pairs), (8, ), eps=0.0) / 8**0.5)


def test_draws_have_the_mean_and_the_deviation(word_head):
    text = word_head('CVGAEHead', 'VariationalGraphText', TEXT).text.train()
    torch.manual_seed(0)
    draws = torch.stack([text.latent().draw.detach() for _ in range(2000)])
    latent = text.latent()
    sigma = latent.log_sigma.exp()
    assert ((draws.mean(0) - latent.mean) / sigma).abs().max() < 0.15
    assert (draws.std(0) / sigma - 1).abs().max() < 0.1


def test_the_losses(word_head, word_batch):
    head = word_head('CVGAEHead', 'VariationalGraphText', TEXT, pair_weight=3.0,
                     image_weight=2.0, recon_weight=0.5)
    feats, samples = word_batch(6)
    samples[3] = samples[0]  # two images of one pair
    rows = [sample.pair_label for sample in samples]
    step = head.step(Features(feats), head.labels(samples))
    got = head.terms(step)

    logits = step.logits.composition.tolist()
    forward = backward = 0.0
    for i, row in enumerate(rows):
        forward -= logits[i][row] - math.log(sum(map(math.exp, logits[i])))
        backward -= logits[i][row] - math.log(sum(math.exp(logit[row]) for logit in logits))
    assert got['pair_loss'].item() == pytest.approx(3 * forward / 6, rel=1e-4)
    assert got['image_loss'].item() == pytest.approx(2 * backward / 6 / 9**2, rel=1e-4)
    latent = head.text.eval().latent()  # no draw
    head.text.train()
    assert head.eval().terms(step)['kl_loss'].item() == pytest.approx(
        0.5 * kl_loss(latent).item() / 9**2, rel=1e-4)
    assert got.keys() == {'pair_loss', 'image_loss', 'edge_loss', 'kl_loss'}


def test_edges_and_divergence_in_loops():
    generator = torch.Generator().manual_seed(0)
    draw = torch.randn(5, 3, generator=generator)
    edges = torch.tensor([[1.0, 0, 0], [1, 1, 0]])
    there, missing = [], []
    for a in range(2):
        for o in range(3):
            chance = 1 / (1 + math.exp(-float(draw[a] @ draw[2 + o])))
            (there if edges[a, o] else missing).append(
                -math.log(chance if edges[a, o] else 1 - chance))
    expected = sum(there) / 3 + sum(missing) / 3
    assert edge_loss(draw, edges).item() == pytest.approx(expected, rel=1e-5)

    mean, log_sigma = draw, draw.flip(0) / 2
    normal = torch.distributions.Normal
    expected = torch.distributions.kl_divergence(
        normal(mean, log_sigma.exp()), normal(0.0, 1.0)).sum(1).mean()
    torch.testing.assert_close(kl_loss(Latent(mean, log_sigma, draw)), expected)


def test_gradients_reach_everything_that_learns(word_head, word_batch):
    head = word_head('CVGAEHead', 'VariationalGraphText', dict(TEXT, learn_vectors=True))
    feats, samples = word_batch()
    feats.requires_grad_()
    sum(head.loss((feats, ), samples).values()).backward()
    assert not [name for name, p in head.named_parameters()
                if p.requires_grad and (p.grad is None or not p.grad.any())]
    assert feats.grad.abs().sum(dim=1).all()


def test_a_new_name_changes_no_other(word_head, word_space):
    space, _ = word_space
    text = word_head('CVGAEHead', 'VariationalGraphText', TEXT).text.eval()
    with torch.no_grad():
        before = text.encode_pairs(space.pairs)
        asked = Candidates.from_names(text, space, [('teal', 'cap'), ('red', 'sock')])
        assert text.encode_pairs(asked.text_pairs).isfinite().all()
        torch.testing.assert_close(text.encode_pairs(space.pairs), before)
        text.restore()


@pytest.mark.parametrize('text, fields, message', [
    ('VariationalGraphText', dict(recon_weight=-1.0), 'head.recon_weight'),
    ('CAPEText', dict(), 'needs the text side mmcluspro.VariationalGraphText')])
def test_wrong_fields_are_named(word_head, text, fields, message):
    with pytest.raises(ValueError, match=message):
        word_head('CVGAEHead', text, dict(out_dim=8), **fields)
