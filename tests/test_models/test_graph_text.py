"""The graph composer against a dense adjacency, and its rule for pairs outside of the graph."""
import pytest
import torch
from torch.nn import functional as F

from mmcluspro.models import Candidates
from mmcluspro.models.text.words import embed_names
from mmcluspro.models.zoo.cge import name_rows

GRAPH = dict(out_dim=8, hidden_dims=[7], dropout=0.0)


def dense_adjacency(pairs, weights, attributes, objects, loops=True):
    """All nodes, entry by entry, as the published code builds it: rows receive."""
    size = attributes + objects
    adjacency = torch.zeros(size + len(pairs), size + len(pairs))
    for node in range(len(adjacency)):
        adjacency[node, node] = 1
    for place, (attr, obj) in enumerate(pairs.tolist()):
        pair, other = size + place, attributes + obj
        adjacency[attr, other] = adjacency[other, attr] = weights[place]
        adjacency[attr, pair] = adjacency[other, pair] = weights[place]
        adjacency[pair, attr] = adjacency[pair, other] = 1
        adjacency[pair, pair] = float(loops)
    return adjacency / adjacency.sum(dim=1, keepdim=True)


def dense_states(text, pairs, weights):
    words = torch.cat([text.attr_table(), text.obj_table()])
    attributes, objects = len(text.attributes), len(text.objects)
    nodes = torch.cat([words, (words[pairs[:, 0]] + words[attributes + pairs[:, 1]]) / 2])
    adjacency = dense_adjacency(pairs, weights, attributes, objects, text.pair_loops)
    for place, layer in enumerate(text.layers):
        nodes = adjacency @ nodes @ layer.linear.weight.T + layer.linear.bias
        nodes = nodes.relu() if place < len(text.layers) - 1 else nodes
    return nodes.split([attributes, objects, len(pairs)])


@pytest.mark.parametrize('layers', [[], [7], [7, 5]])
@pytest.mark.parametrize('weighted, loops', [(False, True), (True, True), (False, False)])
def test_it_is_a_dense_graph_convolution(word_head, layers, weighted, loops):
    head = word_head('CGEHead', 'GraphText', {**GRAPH, 'hidden_dims': layers,
                                              'pair_loops': loops})
    text, pairs = head.text, head.known_candidates.pairs
    weights = torch.rand(len(pairs), generator=torch.Generator().manual_seed(3))
    if weighted:
        text.connect(pairs, torch.zeros(len(pairs)))
        text.reweigh(weights)
    else:
        weights = torch.ones(len(pairs))

    got = text(pairs)

    for feature, state in zip(got, dense_states(text, pairs, weights)):
        torch.testing.assert_close(feature, F.normalize(state, dim=1))


def test_rows_of_names_are_those_of_the_dense_matrix():
    pairs = torch.tensor([[0, 0], [0, 2], [1, 1], [2, 2]])
    weights = torch.tensor([1.0, 0.5, 0.0, 0.2])

    got = name_rows(pairs, weights, 4, 3)  # the last attribute has no pair

    assert got.is_sparse
    torch.testing.assert_close(got.to_dense(), dense_adjacency(pairs, weights, 4, 3)[:7])


def test_a_pair_outside_hears_and_is_not_heard(word_head, word_space):
    space, _ = word_space
    text = word_head('CGEHead', 'GraphText', GRAPH).text.eval()
    pairs, new = space.pairs, torch.tensor([[3, 3], [0, 1]])
    asked = torch.cat([new[:1], pairs[4:6], new[1:]])
    whole = torch.cat([pairs, new])
    # Rows of the new pairs in the graph that has them; names hear the old pairs alone.
    words = torch.cat([text.attr_table(), text.obj_table()])
    nodes = torch.cat([words, (words[whole[:, 0]] + words[4 + whole[:, 1]]) / 2])
    adjacency = torch.zeros(len(nodes), len(nodes))
    adjacency[:-2, :-2] = dense_adjacency(pairs, torch.ones(len(pairs)), 4, 5)
    for row, (attr, obj) in zip((-2, -1), new.tolist()):
        adjacency[row, [attr, 4 + obj, len(nodes) + row]] = 1 / 3
    for place, layer in enumerate(text.layers):
        nodes = adjacency @ nodes @ layer.linear.weight.T + layer.linear.bias
        nodes = nodes if place else nodes.relu()

    with torch.no_grad():
        got = text.encode_pairs(asked)
        text.chunk_size = 1
        text.forget()
        small = text.encode_pairs(asked)

    rows = [9 + len(pairs), 9 + 4, 9 + 5, 10 + len(pairs)]
    torch.testing.assert_close(got, F.normalize(nodes[rows], dim=1))
    torch.testing.assert_close(small, got)


def test_a_new_name_changes_no_other_feature(word_head, word_space):
    space, _ = word_space
    text = word_head('CGEHead', 'GraphText', GRAPH).text.eval()
    with torch.no_grad():
        before = text(space.pairs)
        candidates = Candidates.from_names(text, space, [('teal', 'cap'), ('red', 'sock'),
                                                         ('red', 'cap')])
        new = text.encode_pairs(candidates.text_pairs)
        after = text(space.pairs)
        own = text.encode_attributes()[-1]
        text.restore()

    assert new.isfinite().all() and len(after[0]) == 5
    torch.testing.assert_close(after[0][:4], before[0])
    torch.testing.assert_close(after[1][:5], before[1])
    torch.testing.assert_close(after[2], before[2])
    # It hears only itself.
    state = F.normalize(embed_names(['teal'], text.path), dim=1)[0]
    for place, layer in enumerate(text.layers):
        state = layer.linear(state)
        state = state if place else state.relu()
    torch.testing.assert_close(own, F.normalize(state, dim=0))


def test_a_checkpoint_brings_the_weights_of_the_edges(word_head, word_space):
    space, _ = word_space
    fields = dict(world='open')
    first, second = (word_head('CoCGEHead', 'GraphText', GRAPH, **fields) for _ in range(2))
    first.begin_epoch(1)
    before = second.text.eval()(space.pairs)[2].detach()

    second.load_state_dict(first.state_dict())

    got = second.text(space.pairs)[2]
    torch.testing.assert_close(got, first.text.eval()(space.pairs)[2])
    assert (got - before).abs().max() > 1e-4


def test_dropout_is_drawn_for_every_step(word_head, word_space):
    space, _ = word_space
    text = word_head('CGEHead', 'GraphText', dict(out_dim=8, hidden_dims=[64])).text
    one, two = (text.encode_pairs(space.pairs) for _ in range(2))
    assert (one - two).abs().max() > 0.01
    text.eval()
    torch.testing.assert_close(text.encode_pairs(space.pairs), text.encode_pairs(space.pairs))
