"""CAILA: adapters and their mixture by hand, where they run, and what learns."""
import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mmcluspro.models.zoo.caila import MIXTURE, CAILAVision, ConceptAdapters, running

from .conftest import untouched

TEXT = dict(type='mmcluspro.CAILAText', prompt=dict(learn=(), names='tokens'))


def stir(module):
    generator = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return module


def gelu(x):
    return x * torch.sigmoid(1.702 * x)


def test_mixture_averages_hidden_states_and_outputs():
    part = stir(ConceptAdapters(torch.nn.Identity(), 8, 2, ('attribute', 'object', MIXTURE),
                                torch.zeros(1)))
    h = torch.randn(3, 4, 8)
    assert part(h).equal(h)
    down, up = ({name: getattr(adapter, which) for name, adapter in part.adapters.items()}
                for which in ('down', 'up'))
    with running([part], 'object'):
        torch.testing.assert_close(part(h), h + up['object'](gelu(down['object'](h))))
    z = {name: gelu(layer(h)) for name, layer in down.items()}
    mean = (z['attribute'] + z['object'] + z[MIXTURE]) / 3
    outputs = up[MIXTURE](mean), up['attribute'](z['attribute']), up['object'](z['object'])
    with running([part], MIXTURE):
        torch.testing.assert_close(part(h), h + sum(outputs) / 3)
    assert part.running is None


@torch.no_grad()
def test_image_features_block_by_block():
    backbone = stir(CAILAVision('tiny_clip', mixture_from=1)).eval()
    visual, image = backbone.visual, torch.randn(2, 3, 48, 48)
    got = backbone(image)

    def block(layer, x, concept):
        """One block, its adapters written out."""
        for norm, branch, name in ((layer.ln_1, 'attn', 'ls_1'), (layer.ln_2, 'mlp', 'ls_2')):
            y = norm(x)
            h = layer.attn(y, y, y)[0] if branch == 'attn' else layer.mlp(y)
            with running([getattr(layer, name)], concept):
                x = x + getattr(layer, name)(h)
        return x

    start = visual._embeds(image)
    runs, length = {}, start.shape[1]
    for concept in ('attribute', 'object'):
        states = [start]
        for layer in visual.transformer.resblocks:
            states.append(block(layer, states[-1], concept))
        runs[concept] = states
        expected = visual.ln_post(states[-1][:, 0]) @ visual.proj
        torch.testing.assert_close(getattr(got, concept), expected, rtol=1e-4, atol=1e-4)
    mixed = torch.cat([runs['attribute'][1], runs['object'][1]], dim=1)
    for layer in visual.transformer.resblocks[1:]:
        mixed = block(layer, mixed, MIXTURE)
    pooled = (mixed[:, 0] + mixed[:, length]) / 2
    torch.testing.assert_close(got.composition, visual.ln_post(pooled) @ visual.proj,
                               rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_before_training_the_primitives_are_clips_own():
    backbone = CAILAVision('tiny_clip', 'tiny_clip').eval()
    image = torch.randn(2, 3, 48, 48)
    plain = backbone.visual(image)[0]
    found = backbone(image)
    for feature in (found.attribute, found.object):
        torch.testing.assert_close(feature, plain, rtol=1e-4, atol=1e-5)
    # The mixture attends to all tokens twice, which changes no mean of values.
    torch.testing.assert_close(found.composition, plain, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize('with_cp', [False, True])
def test_image_gradients_reach_adapters_norms_and_projection(with_cp):
    backbone = stir(CAILAVision('tiny_clip', mixture_from=2, with_cp=with_cp)).train()
    found = backbone(torch.randn(2, 3, 48, 48))
    (found.composition.sum() + found.attribute.std() + found.object.std()).backward()
    assert not untouched(backbone)
    frozen = [name for name, p in backbone.named_parameters() if not p.requires_grad]
    assert frozen and not [name for name in frozen if 'adapters' in name or '.ln_' in name]


def test_fused_attention_changes_neither_features_nor_gradients():
    fused = stir(CAILAVision('tiny_clip', mixture_from=1)).train()
    torchs = copy.deepcopy(fused)
    for block in torchs.visual.transformer.resblocks:
        own = nn.MultiheadAttention(block.attn.embed_dim, block.attn.num_heads,
                                    batch_first=block.attn.batch_first)
        own.load_state_dict(block.attn.state_dict())
        block.attn = own.requires_grad_(False)
    image, found = torch.randn(2, 3, 48, 48), []
    for backbone in (fused, torchs):
        features = backbone(image)
        parts = torch.stack([features.attribute, features.object, features.composition])
        parts.pow(3).sum().backward()
        found.append([parts.detach(), *(p.grad for p in backbone.parameters() if p.requires_grad)])
    assert len(found[0]) == len(found[1]) > 1
    for mine, theirs in zip(*found):
        assert (mine - theirs).abs().max() <= 2e-6 * theirs.abs().max()
    assert not [layer for layer in fused.modules() if type(layer) is nn.MultiheadAttention]


def test_each_path_of_the_text_has_its_adapters(clip_head):
    head = clip_head('CAILAHead', TEXT).eval()
    text, pairs = head.text, head.train_candidates.text_pairs
    assert text.prefix_tree
    whole = copy.deepcopy(text)
    whole.prefix_tree = False
    before = text(pairs)
    for mine, theirs in zip(before, whole(pairs)):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)
    with torch.no_grad():
        for part in text.adapters:
            part.adapters['object'].up.bias.add_(torch.randn(64))
    moved = [not torch.allclose(*both, atol=1e-3) for both in zip(before, text(pairs))]
    assert moved == [False, True, False]


@pytest.mark.parametrize('with_cp', [False, True])
def test_losses_gradients_and_the_mean_of_three_texts(clip_head, word_batch, with_cp):
    head = clip_head('CAILAHead', dict(TEXT, with_cp=with_cp), img_dropout=0.0)
    feature, samples = word_batch(6, 64)
    feats = [feature, torch.randn(6, 64), torch.randn(6, 64)]
    losses = head.loss((feats[1], feats[2], feats[0]), samples)

    attr, obj, pair = head.text(head.train_candidates.text_pairs)
    pair = torch.stack([F.normalize((t + attr[a] + obj[o]) / 3, dim=0) for t, (a, o) in
                        zip(pair, head.train_candidates.pairs.tolist())])
    labels, scale = head.labels(samples), head.text.logit_scale.exp()
    for name, f, t in (('attr', feats[1], attr), ('obj', feats[2], obj), ('pair', feats[0], pair)):
        logits = scale * F.normalize(f, dim=1) @ t.T
        torch.testing.assert_close(losses[f'{name}_loss'], F.cross_entropy(logits, labels[name]))
    sum(losses.values()).backward()
    assert not untouched(head)


def test_parameters_on_vit_l14():
    """Two adapters per block and concept: 24 image blocks, of which 12 mix; 12 text blocks."""
    with torch.device('meta'):
        backbone = CAILAVision('ViT-L-14', norms=False)
    adapter = lambda dim: 2 * dim * (dim // 4) + dim // 4 + dim
    assert sum(p.numel() for p in backbone.parameters() if p.requires_grad) == (
        2 * adapter(1024) * (24 * 2 + 12))


def test_refusals():
    with pytest.raises(ValueError, match=r'leave backbone\.out_tokens out'):
        CAILAVision('tiny_clip', out_tokens=True)
    with pytest.raises(ValueError, match=r'backbone\.mixture_from must lie in \[0, 4\)'):
        CAILAVision('tiny_clip', mixture_from=4)
    with pytest.raises(ValueError, match='CAILA needs a tower of the standard blocks'):
        CAILAVision('small_norm')
