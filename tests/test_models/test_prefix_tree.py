import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from open_clip.transformer import QuickGELU, TextTransformer
from torch.nn.functional import scaled_dot_product_attention

from mmcluspro.models.text.prefix_tree import Ancestor, Keys, attend, grow, read_last
from mmcluspro.models.text.prompts import plan_names, plan_pairs


@settings(max_examples=40, deadline=None)
@given(num=st.integers(1, 5), shared=st.integers(0, 4), private=st.integers(0, 3),
       own=st.integers(1, 4), skip=st.integers(0, 3), seed=st.integers(0, 1000))
def test_attention_over_parts_is_attention_over_the_joint_keys(num, shared, private, own, skip,
                                                              seed):
    torch.manual_seed(seed)
    heads, dim = 2, 3
    make = lambda n, length: Keys(torch.randn(heads, n, length, dim),
                                  torch.randn(heads, n, length, dim))
    segments = [make(1, shared), make(num, private), make(num, own)]
    num_query = max(own - skip, 1)
    query = torch.randn(heads, num, num_query, dim)

    got = attend(query, segments)

    key, value = (torch.cat([part.expand(-1, num, -1, -1) for part in parts], dim=2)
                  for parts in zip(*segments))
    total = key.shape[2]
    seen = torch.ones(num_query, total, dtype=torch.bool).tril(total - num_query)
    wanted = scaled_dot_product_attention(query, key, value, attn_mask=seen)
    torch.testing.assert_close(got, wanted.permute(1, 2, 0, 3).flatten(2), atol=1e-5, rtol=1e-5)


@pytest.fixture(scope='module')
def tower():
    torch.manual_seed(0)
    tower = TextTransformer(context_length=12, vocab_size=8, width=32, heads=4, layers=3,
                            ls_init_value=0.7, act_layer=QuickGELU).eval().requires_grad_(False)
    for parameter in tower.parameters():
        parameter += 0.1 * torch.randn_like(parameter)
    return tower


@pytest.mark.parametrize('lengths', [[1, 1], [4, 1, 2], [1, 3, 2], [2, 1, 3, 1]])
def test_any_depth_of_tree_equals_whole_sequences(tower, lengths):
    """Level i has 2 i + 1 segments; each descends from some segment of the level before."""
    torch.manual_seed(1)
    levels = [torch.randn(2 * i + 1, length, 32, requires_grad=True)
              for i, length in enumerate(lengths)]
    parents = [torch.randint(2 * i - 1, (2 * i + 1, )) for i in range(1, len(lengths))]
    blocks = tower.transformer.resblocks

    # For each level, the rows of all levels before that its segments descend from.
    ancestors, layers = [], []
    for i, tokens in enumerate(levels):
        if i:
            ancestors = [rows[parents[i - 1]] for rows in ancestors] + [parents[i - 1]]
        before = [Ancestor(keys, rows) for keys, rows in zip(layers, ancestors)]
        if i + 1 < len(levels):
            layers.append(grow(blocks, tokens, before))
    got = read_last(blocks, levels[-1], before)

    sequences = torch.cat([level[rows] for level, rows in zip(levels, ancestors)]
                          + [levels[-1]], dim=1)
    total = sequences.shape[1]
    wanted = tower.transformer(sequences, attn_mask=tower.attn_mask[:total, :total])[:, -1]
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)
    weight = torch.randn_like(got)
    for mine, theirs in zip(torch.autograd.grad((got * weight).sum(), levels),
                            torch.autograd.grad((wanted * weight).sum(), levels)):
        torch.testing.assert_close(mine, theirs, atol=1e-5 * float(theirs.abs().max()), rtol=1e-5)


def prompts_of(plan):
    """What a plan encodes, as (attribute rows, object rows) in the asked order."""
    encoded = []
    for group in plan.groups:
        for leaves in group.leaves:
            for i, tokens in enumerate(leaves.tokens.tolist()):
                node = [] if group.nodes is None else group.nodes[leaves.parent[i]].tolist()
                encoded.append((node, tokens))
    return [encoded[i] for i in plan.order.tolist()]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_plan_holds_each_prompt_once_and_each_attribute_once(data):
    sizes = st.lists(st.integers(1, 3), min_size=1, max_size=6)
    attr_lengths, obj_lengths = data.draw(sizes), data.draw(sizes)
    pairs = data.draw(st.lists(
        st.tuples(st.integers(0, len(attr_lengths) - 1), st.integers(0, len(obj_lengths) - 1)),
        min_size=1, max_size=20))
    rows = lambda lengths, name: list(range(sum(lengths[:name]), sum(lengths[:name + 1])))

    plan = plan_pairs(torch.tensor(pairs), attr_lengths, obj_lengths)

    assert prompts_of(plan) == [(rows(attr_lengths, a), rows(obj_lengths, o)) for a, o in pairs]
    nodes = [tuple(node) for group in plan.groups for node in group.nodes.tolist()]
    assert sorted(nodes) == sorted({tuple(rows(attr_lengths, a)) for a, _ in pairs})


@pytest.mark.parametrize('lengths', [[1], [1, 1, 1], [2, 1, 3, 1]])
def test_a_plan_of_names_holds_each_name(lengths):
    plan = plan_names(lengths, torch.device('cpu'))

    ends = torch.tensor(lengths).cumsum(0).tolist()
    assert prompts_of(plan) == [([], list(range(end - n, end))) for end, n in zip(ends, lengths)]
