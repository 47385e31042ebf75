import copy
import re

import pytest
import torch
from torch import nn

from mmcluspro.models.clip import load_clip
from mmcluspro.models.peft import AdaptedBlock, Adapter, Bottleneck, inject, merge


@pytest.fixture(params=['small_gelu', 'small_norm'])
def tower(request):
    torch.manual_seed(0)
    return load_clip(request.param).visual


@pytest.fixture
def images():
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def randomise(tower):
    for adapter in tower.modules():
        if isinstance(adapter, Adapter):
            nn.init.normal_(adapter.up.weight)
            nn.init.normal_(adapter.up.bias)


def test_the_tower_is_the_same_at_the_start_and_keeps_its_names(tower, images):
    adapted = copy.deepcopy(tower)

    injected = inject(adapted, dict(type='mmcluspro.Bottleneck', width=4))

    assert injected == [f'transformer.resblocks.{i}.{branch}'
                        for i in range(2) for branch in ('attn', 'mlp')]
    torch.testing.assert_close(adapted(images), tower(images), atol=1e-6, rtol=1e-5)
    names = {name for name, p in adapted.named_parameters() if not p.requires_grad}
    assert names == {name for name, _ in tower.named_parameters()}
    adapted.load_state_dict(tower.state_dict(), strict=False)


def test_a_block_adds_the_adapter_of_its_input_to_each_branch():
    torch.manual_seed(0)
    tower = load_clip('small_gelu').visual
    block = copy.deepcopy(tower.transformer.resblocks[0])
    inject(tower, Bottleneck(width=4, scale=0.3, dropout=0.0))
    randomise(tower)
    adapted = tower.transformer.resblocks[0]
    x = torch.randn(2, 5, 48)

    def adapter(branch, x):
        layer = adapted.adapters[branch]
        hidden = (x @ layer.down.weight.T + layer.down.bias).clamp(min=0)
        return 0.3 * (hidden @ layer.up.weight.T + layer.up.bias)

    y = block.ln_1(x)
    middle = x + block.attn(y, y, y, need_weights=False)[0] + adapter('attn', x)
    expected = middle + block.mlp(block.ln_2(middle)) + adapter('mlp', middle)

    torch.testing.assert_close(adapted(x), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize('checkpointing', [False, True])
def test_training_reaches_every_adapter_and_no_frozen_weight(images, checkpointing):
    torch.manual_seed(0)
    tower = load_clip('small_gelu').visual
    inject(tower, Bottleneck(width=4))
    tower.set_grad_checkpointing(checkpointing)
    before = copy.deepcopy(tower.state_dict())
    optimiser = torch.optim.AdamW([p for p in tower.parameters() if p.requires_grad], lr=0.1)

    for _ in range(3):
        optimiser.zero_grad()
        tower(images).square().mean().backward()
        optimiser.step()

    for name, parameter in tower.named_parameters():
        assert torch.equal(parameter, before[name]) != ('.adapters.' in name), name


@pytest.mark.parametrize('targets, branches', [
    (['mlp'], {'mlp'}), (['resblocks.1.*'], {'attn', 'mlp'}), (('attn', ), {'attn'})])
def test_targets_choose_branches(tower, images, targets, branches):
    inject(tower, Bottleneck(width=4, targets=targets))

    blocks = [m for m in tower.modules() if isinstance(m, AdaptedBlock)]
    assert {branch for block in blocks for branch in block.adapters} == branches
    assert len(blocks) == (1 if len(branches) == 2 else 2)
    assert tower(images).shape == (3, 24)
    assert merge(tower) == 0  # adapters are not linear: there is nothing to merge


def test_width_scale_and_dropout(tower, images):
    inject(tower, Bottleneck(width=5, scale=0.0, dropout=0.9))
    randomise(tower)
    adapters = [m for m in tower.modules() if isinstance(m, Adapter)]

    assert {m.down.weight.shape for m in adapters} == {(5, 48)}
    for adapter in adapters:
        adapter.scale = 0.5
    assert torch.equal(tower(images), tower(images))
    tower.train()
    assert not torch.equal(tower(images), tower(images))


@pytest.mark.parametrize('arch', ['small_rn', 'convnext_base', 'MobileCLIP2-S0'])
def test_a_tower_without_blocks_is_refused_and_what_the_message_names_works(arch):
    with torch.device('meta'):
        visual = load_clip(arch).visual
    with pytest.raises(ValueError, match=f'{type(visual).__name__} has none. Use peft=') as error:
        inject(visual, Bottleneck())
    instead = re.search(r'Use peft=(.*)\.$', str(error.value))[1]
    assert inject(visual, eval(instead, dict(dict=dict)))


def test_where_nothing_can_be_adapted_the_message_says_so():
    with pytest.raises(ValueError, match=r'Sequential has none. Use peft=None\.'):
        inject(nn.Sequential(nn.Conv2d(3, 4, 3)), Bottleneck())


@pytest.mark.parametrize('options, message', [
    (dict(width=0), r'peft\.width .* got 0'), (dict(dropout=-0.1), r'peft\.dropout .* got -0\.1')])
def test_wrong_options_name_the_field(options, message):
    with pytest.raises(ValueError, match=message):
        Bottleneck(**options)


def test_something_else_than_peft_is_refused(tower):
    with pytest.raises(ValueError, match=r"peft must be of type 'mmcluspro\.LoRA'"):
        inject(tower, dict(type='mmcluspro.PrimitiveAdapter', in_channels=4))
