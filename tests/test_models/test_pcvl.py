"""PCVL: what learns, what it equals, and its losses computed by hand."""
import pytest
import torch
from torch.nn import functional as F

from .conftest import untouched

SHARED = dict(prompt=dict(share_context=True))


def test_without_primitive_losses_it_is_a_soft_prompt(clip_head, word_batch):
    feature, samples = word_batch(width=64)
    head = clip_head('PCVLHead', SHARED)
    plain = clip_head('ThreePathHead', SHARED, fusion='composition',
                      loss_weights=dict(attr=0, obj=0))

    assert head.loss((feature, ), samples) == plain.loss((feature, ), samples)
    torch.testing.assert_close(head((feature, )), plain((feature, )))
    learns = {name for name, p in head.named_parameters() if p.requires_grad}
    assert learns == {f'text.prompt.{part}' for part in (
        'contexts.shared', 'attributes.vectors', 'objects.vectors')}


def test_primitives_are_compared_with_the_same_feature(clip_head, word_batch):
    feature, samples = word_batch(width=64)
    head = clip_head('PCVLHead', SHARED, loss_weights=dict(attr=0.5, obj=2.0))

    losses = head.loss((feature, ), samples)

    unit, scale = F.normalize(feature, dim=1), head.text.logit_scale.exp()
    texts = head.text(head.train_candidates.text_pairs)
    for name, text, weight in zip(('attr', 'obj', 'pair'), texts, (0.5, 2.0, 1.0)):
        total = 0.0
        for row, sample in zip(unit, samples):
            logits = [scale * torch.dot(row, other) for other in text]
            own = logits[int(sample.get(f'{name}_label'))]
            total += torch.logsumexp(torch.stack(logits), 0) - own
        torch.testing.assert_close(losses[f'{name}_loss'], weight * total / len(samples))
    sum(losses.values()).backward()
    assert not untouched(head)


def test_parameters_on_vit_l14():
    """Three context vectors and one per name, 768 wide."""
    from mmcluspro.datasets import CompositionSpace
    from mmcluspro.registry import MODELS
    space = CompositionSpace(['a', 'b'], ['c', 'd', 'e'], [[0, 0], [1, 1]], [True, True])
    with torch.device('meta'):
        head = MODELS.build(dict(type='mmcluspro.PCVLHead', space=space, text=dict(
            type='mmcluspro.CLIPText', arch='ViT-L-14', **SHARED)))
    assert sum(p.numel() for p in head.parameters() if p.requires_grad) == (3 + 5) * 768


def test_other_fusions_are_refused(clip_head):
    with pytest.raises(ValueError, match="PCVLHead scores compositions only.*'composition'"):
        clip_head('PCVLHead', fusion='probability')
