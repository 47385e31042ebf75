"""Troika: what it is made of, what it equals, and what it keeps in memory."""
import weakref
from collections import Counter
from pathlib import Path

import pytest
import torch
from mmengine.registry import init_default_scope
from mmpretrain.structures import DataSample
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from mmcluspro.datasets import CompositionSpace
from mmcluspro.engine.launch import read_config
from mmcluspro.models import Candidates
from mmcluspro.models.heads import ThreePathHead, TroikaHead
from mmcluspro.registry import MODELS

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
DIM = 64
TEXT = dict(type='mmcluspro.CLIPText', arch='tiny_clip')


def make_space(attributes=3, objects=4, step=2):
    pairs = [[a, o] for a in range(attributes) for o in range(objects)]
    seen = [i % step == 0 for i in range(len(pairs))]
    return CompositionSpace([f'attribute {i}' for i in range(attributes)],
                            [f'object {i}' for i in range(objects)], pairs, seen)


def make_head(space, kind=TroikaHead, **kwargs):
    torch.manual_seed(0)
    if kind is TroikaHead:
        kwargs['in_channels'] = DIM
    head = kind(space, TEXT, fusion='logits', **kwargs)
    for parameter in head.text.prompt.parameters():  # names of one word are alike
        parameter.data.add_(torch.randn(parameter.shape, generator=torch.manual_seed(1)))
    return head


def make_batch(space, size=5):
    generator = torch.manual_seed(2)
    tokens = torch.randn(size, 10, DIM, generator=generator)
    feats = [torch.randn(size, DIM, generator=generator) for _ in range(3)]
    samples = []
    for label in torch.randint(len(space.train_pairs), (size, ), generator=generator).tolist():
        samples.append(DataSample())
        for key, value in zip(('attr', 'obj'), space.train_pairs[label].tolist()):
            samples[-1].set_field(value, f'{key}_label')
        samples[-1].set_field(label, 'pair_label')
    return (tokens, *feats), samples


def test_without_scale_it_is_the_three_path_head():
    space = make_space()
    troika = make_head(space, traction=dict(scale=0.0), loss_weights=dict(attr=0.5))
    plain = make_head(space, ThreePathHead, loss_weights=dict(attr=0.5))
    feats, samples = make_batch(space)

    torch.testing.assert_close(troika.score(feats, troika.known_candidates),
                               plain.score(feats, plain.known_candidates))
    got, expected = troika.loss(feats, samples), plain.loss(feats, samples)
    assert got.keys() == expected.keys() == {'attr_loss', 'obj_loss', 'pair_loss'}
    for key in expected:
        torch.testing.assert_close(got[key], expected[key])


def test_each_image_is_compared_with_its_own_texts():
    space = make_space()
    head = make_head(space)
    feats, _ = make_batch(space, 3)

    got = head.logits(feats, head.known_candidates)

    memory = head.traction.remember(feats[0])
    for logits, f, texts in zip(got, feats[1:], head.text(space.pairs)):
        assert logits.shape == (3, len(texts))
        for i, drawn in enumerate(head.traction(texts, memory)):
            expected = head.text.logit_scale.exp() * torch.cosine_similarity(drawn, f[i:i + 1])
            torch.testing.assert_close(logits[i], expected)
    # Other patches, other texts, other scores.
    other = head.logits((feats[0].flip(0), *feats[1:]), head.known_candidates)
    assert all((a[0] - b[0]).abs().max() > 0.01 for a, b in zip(got, other))


@pytest.mark.parametrize('batch', [1, 5])
@pytest.mark.parametrize('chunk_size, with_cp', [(1, False), (7, False), (1, True), (16, True)])
def test_chunks_change_neither_values_nor_gradients(batch, chunk_size, with_cp):
    space = make_space()
    feats, samples = make_batch(space, batch)
    runs = []
    for options in (dict(chunk_size=10**6), dict(chunk_size=chunk_size, with_cp=with_cp)):
        head = make_head(space, **options)
        inputs = tuple(f.clone().requires_grad_() for f in feats)
        losses = head.loss(inputs, samples)
        sum(losses.values()).backward()
        scores = head.score(inputs, head.known_candidates)
        runs.append((losses, scores, [f.grad for f in inputs],
                     {n: p.grad for n, p in head.named_parameters() if p.requires_grad}))

    torch.testing.assert_close(runs[1], runs[0], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize('with_cp', [False, True])
def test_gradient_reaches_everything_that_learns(with_cp):
    space = make_space()
    head = make_head(space, chunk_size=16, with_cp=with_cp)
    feats, samples = make_batch(space)
    feats = tuple(f.requires_grad_() for f in feats)

    sum(head.loss(feats, samples).values()).backward()

    learns = {name: p for name, p in head.named_parameters() if p.requires_grad}
    assert {name.split('.')[0] for name in learns} == {'text', 'traction'}
    assert not [name for name, p in learns.items() if p.grad is None or not p.grad.any()]
    assert all(f.grad.abs().sum(dim=-1).all() for f in feats)


@pytest.mark.parametrize('with_cp', [False, True])
def test_autocast_gives_full_precision_logits_and_the_same_losses(with_cp):
    space = make_space()
    head = make_head(space, chunk_size=16, with_cp=with_cp)
    feats, samples = make_batch(space)
    expected = head.loss(feats, samples)

    with torch.autocast('cpu', dtype=torch.bfloat16):
        losses = head.loss(tuple(f.bfloat16() for f in feats), samples)
        logits = head.logits(tuple(f.bfloat16() for f in feats), head.known_candidates)
    sum(losses.values()).backward()

    assert {logit.dtype for logit in logits} == {torch.float32}
    for key, value in losses.items():
        assert value.item() == pytest.approx(expected[key].item(), rel=0.05, abs=0.05)
    assert all(p.grad.isfinite().all() for p in head.traction.parameters())


def test_a_single_path_needs_no_neck():
    space = make_space()
    head = make_head(space, loss_weights=dict(attr=0, obj=0))
    head.fusion = 'composition'
    feats, samples = make_batch(space)

    assert set(head.loss((feats[0], feats[-1]), samples)) == {'pair_loss'}
    torch.testing.assert_close(head.score((feats[0], feats[-1]), head.known_candidates).pair,
                               head.logits(feats, head.known_candidates)[2].softmax(dim=1))


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of the tensors that are alive, from what operations return."""

    def __init__(self):
        super().__init__()
        self.users, self.live, self.peak = Counter(), 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        given = {x.untyped_storage()._cdata for x in tree_flatten((args, kwargs))[0]
                 if isinstance(x, torch.Tensor)}
        for tensor in tree_flatten(result)[0]:
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata in self.users or storage._cdata not in given:
                    self._add(tensor, storage._cdata, storage.nbytes())
        self.peak = max(self.peak, self.live)
        return result

    def _add(self, tensor, key, size):
        self.live += 0 if self.users[key] else size
        self.users[key] += 1
        weakref.finalize(tensor, self._drop, key, size)

    def _drop(self, key, size):
        self.users[key] -= 1
        if not self.users[key]:
            self.live -= size
            del self.users[key]


def peak_bytes(head, feats, pairs):
    """Peak of an evaluation over ``pairs`` whose text features are there already."""
    candidates = Candidates.from_space(pairs)
    with torch.no_grad():
        head.score(feats, candidates)
        with LiveBytes() as memory:
            head.score(feats, candidates)
    return memory.peak


def test_memory_beyond_the_scores_does_not_grow_with_the_pairs():
    images, chunk_size = 4, 64
    spare = []
    for side in (12, 24, 48):
        space = make_space(side, side)
        head = make_head(space, chunk_size=chunk_size).eval()
        feats, _ = make_batch(space, images)
        scores = 4 * images * len(space.pairs)
        peak = peak_bytes(head, feats, space)
        # The composition logits and the scores that are made of them; nothing else grows.
        spare.append(peak - 2 * scores)
    assert spare[2] <= 1.05 * spare[0]
    assert spare[0] < 100 * DIM * chunk_size
    assert peak < scores * DIM / 4, 'the texts of all images must not be there at once'


def test_memory_grows_with_the_chunk():
    space = make_space(24, 24)
    feats, _ = make_batch(space, 4)
    small, large = (peak_bytes(make_head(space, chunk_size=size).eval(), feats, space)
                    for size in (128, 1024))
    assert large > 3 * small


def saved_bytes(head, feats, samples):
    """What a loss keeps for its backward."""
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: sizes.append(tensor.nbytes) or tensor, lambda tensor: tensor):
        head.loss(feats, samples)
    return sum(sizes)


def test_checkpointed_training_keeps_one_chunk():
    space = make_space(12, 12, step=1)
    feats, samples = make_batch(space, 8)
    saved = {}
    for with_cp in (False, True):
        head = make_head(space, chunk_size=128, with_cp=with_cp)
        head.text.requires_grad_(False)  # what the tower saves is not the matter here
        saved[with_cp] = saved_bytes(head, feats, samples)
    texts = 4 * DIM * len(feats[0]) * (len(space.pairs) + 12 + 12)
    assert saved[True] < texts < saved[False] / 24


def test_features_without_tokens_say_what_to_set():
    space = make_space()
    feats, _ = make_batch(space)
    with pytest.raises(ValueError, match=r'backbone\.out_tokens=True'):
        make_head(space).score(feats[1:], Candidates.from_space(space))


@pytest.mark.parametrize('options, message', [
    (dict(chunk_size=0), r'head\.chunk_size must be at least 1, got 0'),
    (dict(traction=dict(num_layers=0)), r'head\.traction\.num_layers'),
])
def test_wrong_fields_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        make_head(make_space(), **options)


def test_it_learns_21_7_million_numbers_on_ut_zappos():
    """The number of the paper's Table 10, part by part."""
    cfg = read_config(CONFIGS / 'troika_utzappos.py').model.to_dict()
    init_default_scope('mmpretrain')
    cfg['space'] = make_space(16, 12)
    cfg['backbone']['pretrained'] = cfg['head']['text']['pretrained'] = None
    with torch.device('meta'):
        model = MODELS.build(cfg)

    count = lambda module: sum(p.numel() for p in module.parameters() if p.requires_grad)
    assert count(model.backbone) == 6_343_680  # 48 adapters of width 64
    assert count(model.neck) == 1_184_256  # two 768 → 768 stages with BatchNorm
    assert count(model.head.text) == 21_504 + 6_912  # vocabulary and contexts
    assert count(model.head.traction.layers) == 14_168_064  # two layers, q, k and v without bias
    assert count(model.head.traction) == 14_168_064 + 1_536 + 768  # norm of the patches and λ
    assert count(model) == 21_726_720
