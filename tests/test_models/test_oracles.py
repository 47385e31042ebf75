"""Models give the numbers that the published code gave: see docs/oracles.md."""
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
import torch
from mmpretrain.structures import DataSample
from torch import nn

from mmcluspro.datasets import CompositionSpace
from mmcluspro.models.structures import Features
from mmcluspro.registry import MODELS

FOLDER = Path(__file__).parents[1] / 'data' / 'oracles'


class Oracle(dict):
    """Arrays of one recording as tensors, and a model with its weights.

    Weights and gradients are there as such ('weight', 'grad'), or large ones as the scale and
    offset of normal numbers ('draw'), and as products with a vector on each side ('rows',
    'columns').
    """

    def __init__(self, name):
        with np.load(FOLDER / f'{name}.npz') as file:
            arrays = {key: file[key] for key in file.files}
        self.revision = str(arrays.pop('revision'))
        super().__init__({key: torch.from_numpy(value) for key, value in arrays.items()})

    def part(self, kind):
        """Arrays of 'weight', 'grad' and so on, by what stands behind the slash."""
        return {key.partition('/')[2]: value for key, value in self.items()
                if key.startswith(f'{kind}/')}

    def model(self, head, neck=None, **parts):
        """Neck and head with the recorded weights, in training mode."""
        seen, unseen = self['seen'].tolist(), self['unseen'].tolist()
        names = [[f'{kind}{i}' for i in range(1 + self['seen'][:, place].max())]
                 for place, kind in enumerate('ao')]
        space = CompositionSpace(*names, seen + unseen, [True] * len(seen) + [False] * len(unseen))
        model = nn.ModuleDict(parts)
        if neck is not None:
            model['neck'] = MODELS.build(neck)
        model['head'] = MODELS.build(dict(head, space=space.to_dict()))
        learning = dict(model.named_parameters())
        weights = self.part('weight') | {
            name: drawn(name, learning[name].shape, *rule.tolist())
            for name, rule in self.part('draw').items()}
        assert not model.load_state_dict(weights, strict=False).unexpected_keys
        assert not {name for name, p in learning.items() if p.requires_grad} - set(weights)
        return model.train()

    def samples(self):
        samples = [DataSample() for _ in self['pair']]
        for i, sample in enumerate(samples):
            for name in ('attr', 'obj', 'pair'):
                sample.set_field(int(self[name][i]), f'{name}_label')
        return samples

    def check_loss(self, losses, groups):
        """Losses by term to 1e-6, and the gradient of their sum to 1e-4."""
        recorded = self.part('loss')
        for term, names in groups.items():
            close(sum(losses[name] for name in names), recorded[term], 1e-6)
        assert not set(losses) - {name for names in groups.values() for name in names}
        close(sum(losses.values()), recorded['total'], 1e-6)

    def score(self, head, features):
        """Scores of the seen pairs, then the unseen ones, in the recorded order."""
        asked = torch.cat([self['seen'], self['unseen']]).tolist()
        known = head.known_candidates.pairs.tolist()
        with torch.no_grad():
            return head.score(features, head.known_candidates).pair[:, [
                known.index(pair) for pair in asked]]

    def check_gradients(self, model):
        found = {name: p.grad for name, p in model.named_parameters()}
        kinds = {kind: self.part(kind) for kind in ('grad', 'rows', 'columns')}
        largest = max(float(value.abs().max()) for part in kinds.values()
                      for value in part.values())
        assert {name for part in kinds.values() for name in part} == {
            name for name, p in model.named_parameters() if p.requires_grad}
        for kind, part in kinds.items():
            for name, expected in part.items():
                # The noise of float32 is that of the largest gradient of the model.
                close(probed(found[name], kind), expected, 1e-4, 1e-6 * largest, name)


def drawn(name, shape, scale, offset):
    """Normal numbers, equal in all versions of numpy."""
    numbers = np.random.RandomState(crc32(name.encode())).standard_normal(tuple(shape))
    return torch.from_numpy((offset + scale * numbers).astype(np.float32))


def probed(gradient, kind):
    """A gradient, or its products with a random vector on the right or on the left."""
    if kind == 'grad':
        return gradient
    matrix, random = gradient.flatten(1).double(), np.random.RandomState(0)
    right, left = (torch.from_numpy(random.standard_normal(size)) for size in matrix.shape[::-1])
    return matrix @ right if kind == 'rows' else left @ matrix


def close(got, expected, relative, absolute=0.0, name=''):
    """Largest difference, relative to the largest entry."""
    assert got.shape == expected.shape, name
    difference = float((got - expected).detach().abs().max())
    bound = relative * float(expected.abs().max()) + absolute
    assert difference <= bound, f'{name}: {difference:.3g}, at most {bound:.3g}'


def test_the_files_are_small_and_listed():
    files = sorted(FOLDER.glob('*.npz'))
    page = (FOLDER.parents[2] / 'docs' / 'oracles.md').read_text()
    assert files and sum(file.stat().st_size for file in files) <= 3e6
    for file in files:
        revision = Oracle(file.stem).revision
        assert f'| `{file.stem}` |' in page and f'`{revision}`' in page


def test_scen():
    oracle = Oracle('scen')
    text = dict(type='mmcluspro.SCENText', path=None, width=8, learn_vectors=True,
                temperature=1 / 20)
    # Published: 51 times the sum over ten negatives, divided by the batch of 8.
    model = oracle.model(
        dict(type='mmcluspro.SCENHead', text=text, margin=1.0, contrast_weight=51 * 10 / 8,
             same_pair=True),
        dict(type='mmcluspro.SCENNeck', in_channels=10, out_channels=8, hidden=11,
             branch_hidden=13, dropout=0.0))
    features = model['neck'](oracle['images'])
    losses = model['head'].loss(features, oracle.samples())
    sum(losses.values()).backward()
    oracle.check_loss(losses, dict(
        pair=['pair_loss'], names=['attr_loss', 'obj_loss'],
        contrast=['attr_contrast_loss', 'obj_contrast_loss']))
    oracle.check_gradients(model)
    close(oracle.score(model['head'], features), (20 * oracle['scores']).softmax(dim=1), 1e-5)


@pytest.mark.parametrize('name, loops', [('cge', True), ('cge_released', False)])
def test_cge(name, loops):
    oracle = Oracle(name)
    text = dict(type='mmcluspro.GraphText', path=None, width=6, out_dim=5, hidden_dims=[7],
                dropout=0.0, pair_loops=loops)
    model = oracle.model(
        dict(type='mmcluspro.CGEHead', text=text),
        dict(type='mmcluspro.PathEmbedder', in_channels=10, out_channels=5, last_act=True))
    features = model['neck'](oracle['images'])
    losses = model['head'].loss(features, oracle.samples())
    sum(losses.values()).backward()
    oracle.check_loss(losses, dict(pair=['pair_loss']))
    oracle.check_gradients(model)
    close(oracle.score(model['head'], features), oracle['scores'], 1e-5)


@pytest.mark.parametrize('world', ['closed', 'open'])
def test_co_cge(world):
    oracle = Oracle('co_cge' if world == 'closed' else f'co_cge_{world}')
    text = dict(type='mmcluspro.GraphText', path=None, width=6, out_dim=5, hidden_dims=[7],
                dropout=0.0, temperature=1 / 20)
    head = oracle.model(dict(type='mmcluspro.CoCGEHead', text=text, world=world, margin=0.4))[
        'head']
    head.end_epoch(5)
    features = Features(oracle['images'])
    losses = head.loss(features, oracle.samples())
    sum(losses.values()).backward()
    oracle.check_loss(losses, dict(pair=['pair_loss']))
    oracle.check_gradients(nn.ModuleDict(dict(head=head)))
    close(oracle.score(head, features), (20 * oracle['scores']).softmax(dim=1), 1e-5)


@pytest.mark.parametrize('world', ['closed', 'open'])
def test_compcos(world):
    oracle = Oracle('compcos' if world == 'closed' else f'compcos_{world}')
    text = dict(type='mmcluspro.LinearPairText', path=None, width=8, out_dim=8,
                learn_vectors=True, temperature=1 / 20)
    model = oracle.model(
        dict(type='mmcluspro.CompCosHead', text=text, margin=0.4 if world == 'open' else None),
        dict(type='mmcluspro.PathEmbedder', in_channels=10, out_channels=8, hidden=[11],
             norm=True))
    model['head'].begin_epoch(6)
    features = model['neck'](oracle['images'])
    losses = model['head'].loss(features, oracle.samples())
    sum(losses.values()).backward()
    oracle.check_loss(losses, dict(pair=['pair_loss']))
    oracle.check_gradients(model)
    close(oracle.score(model['head'], features), (20 * oracle['scores']).softmax(dim=1), 1e-5)
    if world == 'open':  # zero for seen pairs there
        got = model['head'].feasible_share()
        unseen = oracle['feasibility'] != 0
        close(got[unseen], oracle['feasibility'][unseen], 1e-6)


def test_csp():
    oracle = Oracle('csp')
    text = dict(type='mmcluspro.CLIPText', arch='tiny_clip', pretrained='tiny_clip',
                prompt=dict(learn=('vocabulary', )))
    model = oracle.model(dict(type='mmcluspro.ThreePathHead', text=text, fusion='composition',
                              loss_weights=dict(attr=0, obj=0)))
    features = Features(oracle['images'])
    losses = model['head'].loss(features, oracle.samples())
    sum(losses.values()).backward()
    oracle.check_loss(losses, dict(pair=['pair_loss']))
    oracle.check_gradients(model)
    close(oracle.score(model['head'], features), oracle['scores'].softmax(dim=1), 1e-5)


@pytest.mark.parametrize('composer', ['linear', 'conditioned'])
def test_oadis(composer):
    oracle = Oracle('oadis' if composer == 'linear' else f'oadis_{composer}')
    text = dict(type='mmcluspro.OADisText', path=None, width=6, out_dim=5, composer=composer,
                dropout=0.0, learn_vectors=True, temperature=0.05)
    model = oracle.model(
        dict(type='mmcluspro.OADisHead', in_channels=9, dim=5, text=text,
             weights=dict(obj=0.3, seen=0.07)),
        dict(type='mmcluspro.OADisNeck', in_channels=12, hidden=9, out_channels=5, dropout=0.0))
    places = oracle['places']
    inputs = Features(places[:, 0], tokens=torch.cat([places[:, :1], places], dim=1))
    features = model['neck'](inputs)
    losses = model['head'].loss(features, oracle.samples())
    sum(losses.values()).backward()
    oracle.check_loss(losses, {name: [f'{name}_loss'] for name in (
        'pair', 'attr', 'obj', 'both', 'seen', 'unseen')})
    oracle.check_gradients(model)
    close(oracle.score(model['head'], features), (20 * oracle['scores']).softmax(dim=1), 1e-5)


def test_troika():
    oracle = Oracle('troika')
    text = dict(type='mmcluspro.CLIPText', arch='tiny_clip', pretrained='tiny_clip')
    model = oracle.model(
        dict(type='mmcluspro.TroikaHead', in_channels=64, text=text, fusion='logits',
             traction=dict(repeat_norm=True), loss_weights=dict(attr=0.5, obj=0.25)),
        dict(type='mmcluspro.PrimitiveAdapter', in_channels=64, norm='BN', dropout=0.0,
             residual=False))
    features = model['neck'](Features(oracle['images'], tokens=oracle['tokens']))
    losses = model['head'].loss(features, oracle.samples())
    sum(losses.values()).backward()
    oracle.check_loss(losses, {name: [f'{name}_loss'] for name in ('pair', 'attr', 'obj')})
    oracle.check_gradients(model)
    close(oracle.score(model['head'], features), oracle['scores'], 1e-5)


def test_msci():
    oracle = Oracle('msci')
    text = dict(type='mmcluspro.CLIPText', arch='tiny_clip', pretrained='tiny_clip')
    model = oracle.model(
        dict(type='mmcluspro.MSCIHead', in_channels=64, text=text, low=2, high=2, dropout=0.0,
             loss_weights=dict(attr=0.5, obj=0.25)),
        dict(type='mmcluspro.PrimitiveAdapter', in_channels=64, norm='BN', dropout=0.0,
             residual=False))
    layers = {f'layer_{i}': layer for i, layer in enumerate(oracle['layers'])}
    features = model['neck'](Features(oracle['images'], extra=layers))
    losses = model['head'].loss(features, oracle.samples())
    sum(losses.values()).backward()
    oracle.check_loss(losses, {name: [f'{name}_loss'] for name in ('pair', 'attr', 'obj')})
    oracle.check_gradients(model)
    close(oracle.score(model['head'], features), oracle['scores'], 1e-5)


def test_plid():
    oracle = Oracle('plid')
    text = dict(type='mmcluspro.PLIDText', arch='tiny_clip', pretrained='tiny_clip', num_texts=3,
                attn_dropout=0.0, released=True, prompt=dict(share_context=True))
    head = dict(type='mmcluspro.PLIDHead', fusion='composition', text=text, smoothing=0.1,
                loss_weights=dict(attr=0.2, obj=0.1))
    neck = dict(type='mmcluspro.PLIDNeck', in_channels=64, dropout=0.0)
    model = oracle.model(head, neck)
    features = model['neck'](oracle['images'])
    torch.manual_seed(7)  # the share of primitives is drawn
    losses = model['head'].loss(features, oracle.samples())
    sum(losses.values()).backward()
    oracle.check_loss(losses, dict(pair=['pair_loss'], attr=['attr_loss'], obj=['obj_loss']))
    oracle.check_gradients(model)
    close(oracle.score(model['head'], features), oracle['scores'].softmax(dim=1), 1e-5)

    grouped = oracle.model(head | dict(group_objects=True), neck)
    torch.manual_seed(7)
    losses = grouped['head'].loss(grouped['neck'](oracle['images']), oracle.samples())
    close(losses['pair_loss'], oracle['grouped'], 1e-6)


@pytest.mark.parametrize('direction', ['t2i', 'i2t', 'BiF'])
def test_dfsp(direction):
    oracle = Oracle(f'dfsp_{direction.lower()}')
    weights = dict(arch='tiny_clip', pretrained='tiny_clip')
    model = oracle.model(dict(
        type='mmcluspro.DFSPReleasedHead', direction=direction, dropout=0.0,
        prompt_weight=0.2, loss_weights=dict(attr=0.3, obj=0.3),
        text=dict(type='mmcluspro.DFSPText', **weights, prompt=dict(share_context=True))))
    features = Features(oracle['images'], extra=dict(layer_3=oracle['last']))
    losses = model['head'].loss(features, oracle.samples())
    sum(losses.values()).backward()
    oracle.check_loss(losses, {name: [f'{name}_loss'] for name in (
        'pair', 'attr', 'obj', 'prompt')})
    oracle.check_gradients(model)
    close(oracle.score(model['head'], features), oracle['scores'].softmax(dim=1), 1e-5)
