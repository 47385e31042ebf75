"""GIPCOL: the graph against a dense matrix, what learns, and names that are not in it."""
import pytest
import torch

from mmcluspro.models.zoo.common import GraphConvolutions, LabelGraph

from .conftest import untouched

GRAPH = dict(type='mmcluspro.GraphPrompt', share_context=True, hidden=16, graph_dropout=0.0)


def dense(pairs, num_attributes, num_objects):
    """The published adjacency: loops, attribute–object, pair–attribute, pair–object; row means."""
    size = num_attributes + num_objects + len(pairs)
    matrix = torch.eye(size)
    for number, (attr, obj) in enumerate(pairs.tolist()):
        node, other = num_attributes + num_objects + number, num_attributes + obj
        for one, two in ((attr, other), (node, attr), (node, other)):
            matrix[one, two] = matrix[two, one] = 1
    return matrix / matrix.sum(dim=1, keepdim=True)


def test_the_graph_is_that_of_the_published_matrix():
    pairs = torch.tensor([[0, 0], [0, 2], [1, 1], [2, 0]])
    graph, layers = LabelGraph(pairs, 3, 3), GraphConvolutions(5, 7, 0.0)
    x, matrix = torch.randn(10, 5), dense(pairs, 3, 3)

    torch.testing.assert_close(graph(x), matrix @ x)
    hidden = torch.relu(matrix @ (x @ layers.first.weight.T) + layers.first.bias)
    torch.testing.assert_close(
        layers(x, graph), matrix @ (hidden @ layers.last.weight.T) + layers.last.bias)


@pytest.mark.parametrize('residual', [False, True])
def test_names_of_the_prompt_are_nodes_of_the_graph(clip_head, word_space, residual):
    space, _ = word_space
    head = clip_head('GIPCOLHead', dict(prompt=dict(GRAPH, residual=residual)))
    prompt = head.text.prompt
    parts = prompt()

    attr, obj = prompt.attributes.vectors, prompt.objects.vectors
    middle = torch.stack([(attr[a] + obj[o]) / 2 for a, o in space.pairs.tolist()])
    nodes, matrix = torch.cat([attr, obj, middle]), dense(space.pairs, len(attr), len(obj))
    first, last = prompt.convolutions.first, prompt.convolutions.last
    hidden = torch.relu(matrix @ nodes @ first.weight.T + first.bias)
    expected = matrix @ hidden @ last.weight.T + last.bias + residual * nodes
    torch.testing.assert_close(parts.attributes, expected[:len(attr)])
    torch.testing.assert_close(parts.objects, expected[len(attr):len(attr) + len(obj)])


def test_context_and_convolutions_learn_and_nothing_else(clip_head, word_batch):
    head = clip_head('GIPCOLHead', dict(prompt=GRAPH))
    feature, samples = word_batch(width=64)

    losses = head.loss((feature, ), samples)
    losses['pair_loss'].backward()

    assert set(losses) == {'pair_loss'} and not untouched(head)
    learns = {name.removeprefix('text.prompt.'): p for name, p in head.named_parameters()
              if p.requires_grad}
    assert set(learns) == {'contexts.shared', *(
        f'convolutions.{layer}.{part}' for layer in ('first', 'last')
        for part in ('weight', 'bias'))}


def test_the_published_graph_has_6_3_million_parameters():
    layers = GraphConvolutions(768, 4096, 0.5)
    assert sum(p.numel() for p in layers.parameters()) == 2 * 768 * 4096 + 4096 + 768


def test_a_new_name_has_no_neighbours_and_moves_no_other(clip_head):
    head = clip_head('GIPCOLHead', dict(prompt=GRAPH)).eval()
    before = head.text.prompt()
    head.text.extend(attributes=['teal'], objects=['sock'])
    after = head.text.prompt()

    torch.testing.assert_close(after.attributes[:-1], before.attributes)
    torch.testing.assert_close(after.objects[:-1], before.objects)
    alone = head.text.tower.embed(['sock'])[0].mean(0)
    layers = head.text.prompt.convolutions
    torch.testing.assert_close(after.objects[-1], layers.last(layers.first(alone).relu()))


def test_what_does_not_fit_is_refused(clip_head):
    with pytest.raises(ValueError, match=r"GIPCOLHead needs head\.text\.prompt\.type"):
        clip_head('GIPCOLHead')
    with pytest.raises(ValueError, match=r"prompt\.learn of GraphPrompt takes 'context' alone"):
        clip_head('GIPCOLHead', dict(prompt=dict(GRAPH, learn=('vocabulary', ))))
    with pytest.raises(ValueError, match='GraphPrompt has no graph'):
        clip_head('PCVLHead', dict(prompt=GRAPH)).text.prompt()
