"""TMN: wiring, scores and loss against the formulas, image by image."""
import pytest
import torch
from torch.nn import functional as F

from mmcluspro.models.zoo.common import other_rows

M, D = 3, 2


def tmn(zoo, **fields):
    return zoo.head('TMNHead', dict(type='WordTableText'), **dict(
        dict(in_channels=5, num_layers=3, num_modules=M, width=D, gate_width=4, num_negatives=6),
        **fields))


def norm(layer, x):
    """BatchNorm in evaluation."""
    return ((x - layer.running_mean) / (layer.running_var + layer.eps).sqrt() * layer.weight
            + layer.bias)


def gates(head, attr, obj):
    """Lists of weights: for each later layer M x M, then M for the score."""
    linear, batch, _, last = head.gater
    words = torch.cat([head.text.attr_table.vectors[attr], head.text.obj_table.vectors[obj]])
    words = words / torch.linalg.norm(words)
    logits = last.weight @ norm(batch, linear.weight @ words).clamp(min=0)
    rows = [row.softmax(0) for row in logits.split(M)]
    return [torch.stack(rows[:M]), torch.stack(rows[M:2 * M]), rows[2 * M]]


def run(head, x, attr, obj):
    linear, batch, _ = head.first
    outputs = list(norm(batch, linear.weight @ x + linear.bias).clamp(min=0).split(D))
    *wiring, last = gates(head, attr, obj)
    for layer, weights in zip(head.layers, wiring):
        mixed = [sum(weights[j, i] * outputs[i] for i in range(M)) for j in range(M)]
        mixed = norm(layer.before, torch.cat(mixed)).split(D)
        found = [layer.weight[j] @ mixed[j] + layer.bias[j] for j in range(M)]
        outputs = list(norm(layer.after, torch.cat(found)).clamp(min=0).split(D))
    batch, linear = head.last
    mixed = sum(last[i] * outputs[i] for i in range(M))
    return linear.weight[0] @ norm(batch, mixed) + linear.bias[0]


@pytest.fixture
def head(zoo):
    """With statistics of a few batches."""
    head = tmn(zoo)
    for _ in range(3):
        head.loss(*zoo.batch(5))
    return head.eval()


@pytest.mark.parametrize('chunk_size', [1, 20, 10000])
def test_scores(zoo, head, chunk_size):
    head.chunk_size = chunk_size
    features, _ = zoo.batch(5)
    got = head.score(features, head.known_candidates).pair
    for x, row in zip(features.composition, got):
        expected = torch.stack([run(head, x, *pair) for pair in zoo.space.pairs.tolist()])
        torch.testing.assert_close(row, expected, atol=1e-4, rtol=1e-4)


def test_the_loss_compares_with_drawn_pairs(zoo, head):
    """In evaluation, where batches do not couple the images."""
    features, samples = zoo.batch(5)
    torch.manual_seed(5)
    got = head.loss(features, samples)['pair_loss']
    torch.manual_seed(5)
    rows = torch.tensor([sample.pair_label for sample in samples])
    drawn = other_rows(rows, len(zoo.space.train_pairs), (6, ))
    losses = []
    for x, own, others in zip(features.composition, rows, drawn):
        scores = torch.stack([run(head, x, *zoo.space.train_pairs[row].tolist())
                              for row in (own, *others)])
        losses.append(F.cross_entropy(scores[None], torch.tensor([0])))
    assert got.item() == pytest.approx(sum(losses).item() / 7, rel=1e-4)


def test_all_modules_count_alike_at_the_start(zoo):
    head = tmn(zoo)
    torch.nn.init.zeros_(head.gater[-1].weight)
    torch.testing.assert_close(head.gates(head.known_candidates), torch.full((12, 7, M), 1 / M))


def test_gradients_reach_everything_that_learns(zoo):
    head = tmn(zoo)
    head.loss(*zoo.batch(5, 20))['pair_loss'].backward()
    for name, parameter in head.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None), name


def test_parameters_are_those_of_the_published_code(zoo):
    """24 modules of width 16 in 3 layers on 512 numbers, gates of width 64 (MIT-States)."""
    head = tmn(zoo, in_channels=512, num_modules=24, width=16, gate_width=64)
    count = lambda *parts: sum(p.numel() for part in parts for p in part.parameters())
    module, later = 512 * 16 + 16 + 2 * 16, 2 * 16 + 16 * 16 + 16 + 2 * 16
    assert count(head.first, head.layers) == 24 * module + 2 * 24 * later
    assert count(head.last) == 2 * 16 + 16 + 1
    # The published gates also have a weight for the only input of layer 1, which is always 1.
    assert count(head.gater) == 12 * 64 + 2 * 64 + 64 * (2 * 24 * 24 + 24)


@pytest.mark.parametrize('field', ['num_layers', 'num_modules', 'num_negatives', 'chunk_size'])
def test_fields_are_checked(zoo, field):
    with pytest.raises(ValueError, match=rf'head\.{field} must be at least 1, got 0'):
        tmn(zoo, **{field: 0})
