import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mmcluspro.models.clip import load_clip
from mmcluspro.models.peft import (
    LoRA,
    LoRAAttention,
    LoRALinear,
    LowRank,
    inject,
    match_targets,
    merge,
    unmerge,
)
from mmcluspro.models.peft.lora import FastDropout

PARTS = ('q', 'k', 'v', 'out_proj')
ALL = [f'attn.{part}' for part in PARTS] + ['mlp.c_fc', 'mlp.c_proj']


class Holder(nn.Module):
    """Something to inject into: attention under a name."""

    def __init__(self, dim=24, heads=3, **kwargs):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, **kwargs)
        with torch.no_grad():
            for parameter in self.attn.parameters():
                parameter.copy_(torch.randn_like(parameter) * dim**-0.5)
        self.requires_grad_(False)


def randomise(module):
    for update in module.modules():
        if isinstance(update, LowRank):
            nn.init.normal_(update.b, std=0.3)


def reference(attention, lora, query, key, value, mask):
    """torch's attention with the packed matrix changed: what LoRA has to equal."""
    weight, out = attention.in_proj_weight.clone(), attention.out_proj.weight
    dim = weight.shape[1]
    for i, part in enumerate('qkv'):
        if part in lora.lora:
            update = lora.lora[part]
            weight[i * dim:(i + 1) * dim] += update.scale * update.b @ update.a
    if isinstance(lora.out_proj, LoRALinear):
        out = out + lora.out_proj.lora.scale * lora.out_proj.lora.b @ lora.out_proj.lora.a
    if attention.batch_first:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    y, _ = F.multi_head_attention_forward(
        query, key, value, dim, attention.num_heads, weight, attention.in_proj_bias, None, None,
        False, 0.0, out, attention.out_proj.bias, training=False, need_weights=False,
        attn_mask=mask)
    return y.transpose(0, 1) if attention.batch_first else y


def masks(kind, batch, heads, length):
    causal = torch.ones(length, length, dtype=torch.bool).triu(1)
    if kind == 'bool':
        return causal
    if kind == 'float':
        return torch.zeros(length, length).masked_fill(causal, -torch.inf)
    if kind == 'per head':
        return torch.randn(batch * heads, length, length)
    return None


@pytest.mark.parametrize('batch_first', [True, False])
@pytest.mark.parametrize('bias', [True, False])
@pytest.mark.parametrize('mask', [None, 'bool', 'float', 'per head'])
@pytest.mark.parametrize('batch, length', [(1, 1), (2, 5)])
def test_attention_equals_torch_at_the_start(batch_first, bias, mask, batch, length):
    torch.manual_seed(0)
    holder = Holder(batch_first=batch_first, bias=bias)
    adapted = copy.deepcopy(holder)
    inject(adapted, LoRA(rank=2, targets=['attn.*']))
    x = torch.randn(batch, length, 24) if batch_first else torch.randn(length, batch, 24)
    kwargs = dict(need_weights=False, attn_mask=masks(mask, batch, 3, length))

    expected = holder.attn(x, x, x, **kwargs)[0]
    got, weights = adapted.attn(x, x, x, **kwargs)

    torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-6)
    assert weights is None


subsets = [list(parts) for n in (1, 2, 4) for parts in itertools.combinations(PARTS, n)]


@pytest.mark.parametrize('parts', subsets, ids=','.join)
@pytest.mark.parametrize('cross', [False, True])
def test_attention_equals_torch_with_the_update_in_its_matrix(parts, cross):
    torch.manual_seed(0)
    holder = Holder(batch_first=True)
    adapted = copy.deepcopy(holder)
    injected = inject(adapted, LoRA(rank=3, alpha=6, targets=[f'attn.{part}' for part in parts]))
    randomise(adapted)
    query = torch.randn(2, 5, 24)
    key, value = (torch.randn(2, 5, 24), torch.randn(2, 5, 24)) if cross else (query, query)

    got = adapted.attn(query, key, value)[0]

    expected = reference(holder.attn, adapted.attn, query, key, value, None)
    assert injected == [f'attn.{part}' for part in parts]
    torch.testing.assert_close(got, expected, atol=2e-6, rtol=1e-5)
    assert not torch.allclose(got, holder.attn(query, key, value)[0], atol=1e-2)
    # Only the asked-for slices have matrices, each (rank, dim) and (dim, rank).
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert trained == len(parts) * 2 * 3 * 24


def test_the_update_is_scaled_by_alpha_over_rank():
    linear = nn.Linear(4, 3)
    adapted = LoRALinear(linear, rank=2, scale=8 / 2, drop_rate=0.0)
    nn.init.normal_(adapted.lora.b)
    x = torch.randn(5, 4)

    expected = linear(x) + 4 * x @ adapted.lora.a.T @ adapted.lora.b.T

    torch.testing.assert_close(adapted(x), expected)
    holder = nn.Sequential(linear)
    inject(holder, LoRA(rank=2, alpha=8, targets=['0']))
    assert holder[0].lora.scale == 4


@pytest.fixture
def tower():
    torch.manual_seed(0)
    return load_clip('small_gelu').visual


@pytest.fixture
def images():
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_the_tower_is_the_same_at_the_start_and_keeps_its_names(tower, images):
    adapted = copy.deepcopy(tower)

    injected = inject(adapted, dict(type='mmcluspro.LoRA', rank=2))

    assert len(injected) == 2 * 6
    torch.testing.assert_close(adapted(images), tower(images), atol=1e-6, rtol=1e-5)
    names = {name for name, _ in adapted.named_parameters()}
    lora = {name for name in names if '.lora.' in name}
    assert names - lora == {name for name, _ in tower.named_parameters()}
    assert lora == {name for name, p in adapted.named_parameters() if p.requires_grad}
    adapted.load_state_dict(tower.state_dict(), strict=False)


@pytest.mark.parametrize('checkpointing', [False, True])
def test_training_reaches_every_update_and_no_frozen_weight(tower, images, checkpointing):
    inject(tower, LoRA(rank=2, targets=ALL))
    tower.set_grad_checkpointing(checkpointing)
    before = copy.deepcopy(tower.state_dict())
    optimiser = torch.optim.AdamW(
        [p for p in tower.parameters() if p.requires_grad], lr=0.1, weight_decay=0.1)

    for _ in range(3):
        optimiser.zero_grad()
        tower(images).square().mean().backward()
        optimiser.step()

    for name, parameter in tower.named_parameters():
        if '.lora.' in name:
            assert parameter.grad.abs().max() > 0, name
            assert not torch.equal(parameter, before[name]), name
        else:
            assert parameter.grad is None, name
            assert torch.equal(parameter, before[name]), name


@pytest.mark.parametrize('keep', [True, False])
def test_merging_changes_nothing_but_the_cost(tower, images, keep):
    inject(tower, LoRA(rank=2, targets=ALL))
    randomise(tower)
    before = copy.deepcopy(tower.state_dict())
    expected = tower(images).detach()
    calls = []
    for update in tower.modules():
        if isinstance(update, LowRank):
            update.register_forward_hook(lambda *args: calls.append(args))

    assert merge(tower, keep) == merge(tower, keep) == 2 * 4
    merged = tower(images)
    saved = copy.deepcopy(tower.state_dict())
    assert not calls
    unmerge(tower)
    unmerge(tower)

    torch.testing.assert_close(merged, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(tower(images), expected, atol=0 if keep else 1e-5, rtol=0)
    assert calls
    for name, value in tower.state_dict().items():
        tolerance = 0 if keep else 1e-6
        torch.testing.assert_close(value, before[name], atol=tolerance, rtol=0, msg=name)
        torch.testing.assert_close(saved[name], before[name], atol=tolerance, rtol=0, msg=name)


def test_a_merged_tower_neither_trains_nor_loads(tower):
    inject(tower, LoRA(rank=2))
    with pytest.raises(RuntimeError, match='only be merged in evaluation'):
        merge(tower.train())
    merge(tower.eval())

    with pytest.raises(RuntimeError, match=r'call unmerge\(\) before training'):
        tower.train()
    with pytest.raises(RuntimeError, match=r'call unmerge\(\) before loading'):
        tower.load_state_dict(tower.state_dict())
    assert isinstance(tower.transformer.resblocks[0].attn, LoRAAttention)


def test_dropout_acts_on_the_update_only_in_training(tower, images):
    inject(tower, LoRA(rank=2, drop_rate=0.5))
    randomise(tower)

    assert torch.equal(tower(images), tower(images))
    tower.train()
    assert not torch.equal(tower(images), tower(images))


@pytest.mark.parametrize('pattern, count', [
    ('attn.q', 3), ('b.*.attn.q', 2), ('b.0.*', 3), ('*', 7), ('attn.[qk]', 5), ('b.?.attn.k', 2)])
def test_patterns_match_whole_names_or_their_end(pattern, count):
    names = ['b.0.attn.q', 'b.0.attn.k', 'b.0.mlp', 'b.1.attn.q', 'b.1.attn.k', 'b.1.mlp',
             'attn.q']

    assert len(match_targets(names, [pattern])) == count


@pytest.mark.parametrize('targets', [['attn.q', 'attn.query'], ['ttn.q'], ['attn']])
def test_a_pattern_without_a_match_lists_what_there_is(tower, targets):
    with pytest.raises(ValueError, match=r'matches nothing.*transformer\.resblocks\.\*\.attn\.q'):
        inject(tower, LoRA(targets=targets))


def test_attention_of_another_make_offers_its_linear_layers_only():
    tower = load_clip('small_norm').visual

    with pytest.raises(ValueError, match=r"'attn.q' matches nothing"):
        inject(tower, LoRA(targets=['attn.q']))
    assert len(inject(tower, LoRA(targets=['attn.out_proj', 'mlp.c_fc']))) == 4
    randomise(tower)
    tower(torch.randn(1, 3, 32, 32)).sum().backward()
    assert all(p.grad is not None for p in tower.parameters() if p.requires_grad)


@pytest.mark.parametrize('options, message', [
    (dict(rank=0), r'peft\.rank .* got 0'), (dict(drop_rate=1.0), r'peft\.drop_rate .* got 1\.0')])
def test_wrong_options_name_the_field(options, message):
    with pytest.raises(ValueError, match=message):
        LoRA(**options)


@pytest.mark.parametrize('targets', [[], 'attn.q'])
def test_targets_must_be_a_list(tower, targets):
    with pytest.raises(ValueError, match=r'peft\.targets must be a list'):
        inject(tower, LoRA(targets=targets))


def test_attention_weights_are_not_to_be_had():
    holder = Holder()
    inject(holder, LoRA(rank=1, targets=['attn.q']))
    x = torch.randn(2, 1, 24)

    with pytest.raises(ValueError, match='need_weights'):
        holder.attn(x, x, x, need_weights=True)


def test_half_precision_autocast(tower, images):
    inject(tower, LoRA(rank=2))
    randomise(tower)
    expected = tower(images)

    with torch.autocast('cpu', dtype=torch.bfloat16):
        got = tower(images)
        got.float().mean().backward()

    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), expected, atol=0.2, rtol=0.1)
    assert all(p.grad.dtype == torch.float32 for p in tower.parameters() if p.requires_grad)


@pytest.mark.parametrize('rate', [0.1, 0.5])
def test_dropout_drops_at_its_rate_and_keeps_the_mean(rate):
    torch.manual_seed(0)
    drop, x = FastDropout(rate).train(), torch.ones(1000, 333)

    y = drop(x)

    assert abs(float((y == 0).float().mean()) - rate) < 0.005
    kept = y[y != 0]
    assert kept.min() == kept.max() and abs(float(kept[0]) * (1 - rate) - 1) < 1e-4
    columns = (y == 0).float().mean(0)  # each column alone: no stripes
    assert float((columns - rate).abs().max()) < 0.09 and not drop(x).equal(y)
    assert drop.eval()(x) is x


def test_dropout_keeps_no_mask_and_gives_the_gradients_of_plain_dropout():
    update = LowRank(torch.randn(12, 64), 4, 1.0, 0.3).train()
    randomise(update)
    x = torch.randn(50, 64, requires_grad=True)
    kept = []

    def plain():
        return F.linear(F.linear(update.drop(x), update.a) * update.scale, update.b)

    grads = []
    for forward in (plain, lambda: update(x)):
        torch.manual_seed(3)
        with torch.autograd.graph.saved_tensors_hooks(
                lambda t: kept.append(t.untyped_storage().data_ptr()) or t, lambda t: t):
            y = forward()
        large = set(kept) - {t.data_ptr() for t in (x, update.a, update.b)}
        kept.clear()
        leaves = [x, *update.parameters()]
        grads.append((len(large), *torch.autograd.grad(y.square().sum(), leaves)))
    assert grads[0][0] > grads[1][0] == 1  # the product of rank 4
    for one, other in zip(grads[0][1:], grads[1][1:]):
        assert one.equal(other)
