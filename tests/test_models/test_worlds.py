"""Several worlds in one pass: the scores of each are those of its own pass, to the bit."""
import pytest
import torch
from mmengine.registry import DefaultScope

from mmcluspro.engine.launch import read_config
from mmcluspro.evaluation import Evaluation
from mmcluspro.registry import MODELS


@pytest.mark.parametrize('name', ['cluspro', 'cluspro_plus', 'csp', 'troika', 'compcos'])
def test_worlds_scored_together_equal_those_scored_alone(name):
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = MODELS.build(read_config(f'{name}_shapes.py').model).eval()
    head = model.head
    evaluation = Evaluation.of(head, head.space, ['open'], known=True)
    with torch.no_grad():
        feats = model.extract_feat(torch.rand(5, 3, 48, 48))
        together = head.score_worlds(feats, evaluation.worlds)
        alone = {world: head.score(feats, pairs) for world, pairs in evaluation.worlds.items()}
    assert list(together) == ['closed', 'open', 'known']
    for world, scores in alone.items():
        for one, other in zip(scores, together[world]):
            assert (one is None and other is None) or one.equal(other), world


def test_the_primitives_are_compared_once(monkeypatch):
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = MODELS.build(read_config('cluspro_shapes.py').model).eval()
    head, asked = model.head, []
    compare = head.logits
    monkeypatch.setattr(head, 'logits', lambda feats, pairs, primitives=True: asked.append(
        primitives) or compare(feats, pairs, primitives))
    with torch.no_grad():
        worlds = Evaluation.of(head, head.space, ['open'], known=True).worlds
        head.score_worlds(model.extract_feat(torch.rand(2, 3, 48, 48)), worlds)
    assert asked == [True, False, False]
