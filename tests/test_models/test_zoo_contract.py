"""What every method of the zoo owes: new names, the open world, export or a refusal, log scores."""
from pathlib import Path

import pytest
import torch
from mmengine.registry import DefaultScope
from torch.nn import functional as F

from mmcluspro.datasets import ShapesCZSL
from mmcluspro.engine.launch import read_config
from mmcluspro.evaluation import head_feasibility
from mmcluspro.evaluation.tensors import log_scores
from mmcluspro.models import Candidates
from mmcluspro.registry import MODELS

# Those on word vectors.
CONFIGS = Path(__file__).resolve().parents[2] / 'configs' / 'methods'
FILES = sorted(f'{path.stem}_shapes' for path in CONFIGS.glob('*.py')
               if "'_words.py'" in path.read_text() or path.stem == 'cluspro_words')
FILES += ['compcos_open_shapes']
WITHOUT_NEW_NAMES = {'aop', 'kg_sp', 'symnet'}  # learn something for each name
REFUSED = {'ade', 'aop', 'canet', 'cge', 'kg_sp', 'le_plus', 'symnet', 'tmn'}


@pytest.fixture(scope='module', params=FILES)
def case(request):
    """A model with random weights in eval mode, its space, and features of three images."""
    cfg = read_config(f'{request.param}.py')
    space = ShapesCZSL.make_space('all')
    cfg.model.space = space.to_dict()
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = MODELS.build(cfg.model).eval()
    with torch.no_grad():
        features = model.extract_feat(torch.randn(3, 3, 48, 48))
    return request.param.removesuffix('_shapes'), model.head, space, features


@torch.no_grad()
def test_new_names_are_scored_and_forgotten(case):
    name, head, space, features = case
    known = head.score(features, head.known_candidates).pair
    names = [('spotted', space.objects[0]), (space.attributes[0], 'hexagon'),
             (space.attributes[1], space.objects[1])]
    try:
        if name in WITHOUT_NEW_NAMES:
            with pytest.raises(ValueError, match='leave these (attributes|objects) out'):
                head.score(features, Candidates.from_names(head.text, space, names))
            return
        with pytest.warns(UserWarning, match='Not in the training data'):
            asked = Candidates.from_names(head.text, space, names)
        scores = head.score(features, asked).pair
    finally:
        head.text.restore()
    assert scores.shape == (3, 3) and scores.isfinite().all()
    torch.testing.assert_close(head.score(features, head.known_candidates).pair, known)


@torch.no_grad()
def test_the_open_world_is_finite_and_its_log_scores_are(case):
    _, head, space, features = case
    world = Candidates.from_space(space.open_world())
    scores = head.score(features, world).pair
    assert scores.shape == (3, len(space.attributes) * len(space.objects))
    assert scores.isfinite().all() and log_scores(scores, head.link).isfinite().all()
    assert head.link == 'identity' or (scores >= 0).all()
    rho = head_feasibility(head, space)
    assert rho.shape == (len(space.attributes), len(space.objects)) and rho.isfinite().all()


@torch.no_grad()
def test_it_scores_outside_torch_or_says_that_it_cannot(case):
    name, head, _, features = case
    if name in REFUSED:
        with pytest.raises(ValueError, match=f'{type(head).__name__} cannot be exported'):
            head.portable()
        return
    portable, candidates = head.portable(), head.known_candidates
    texts = head.texts(candidates)
    table = dict(zip(('text_a', 'text_o', 'text_c'), (text.numpy() for text in texts)),
                 pairs=candidates.pairs.numpy(), **portable.arrays(candidates))
    vectors = {path: F.normalize(features.paths[path], dim=1).numpy() for path in portable.paths}
    got = torch.from_numpy(portable.score(vectors, table))
    torch.testing.assert_close(got, head.score(features, candidates).pair, atol=1e-5, rtol=1e-4)
