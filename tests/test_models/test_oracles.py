"""Models give the numbers that the published code gave: see docs/oracles.md.

A case is a function from a recording to what our model makes of it. The table of docs/oracles.md
says for each recording where ours is equal, where it is not and by how much, and which row of
docs/baselines.md discloses it.
"""
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
import pytest
import torch
from mmpretrain.structures import DataSample
from torch import Tensor, nn

from mmcluspro.datasets import CompositionSpace
from mmcluspro.evaluation import calculate
from mmcluspro.models.structures import Features
from mmcluspro.models.zoo.cvgae import edge_loss
from mmcluspro.registry import MODELS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / 'tests' / 'data' / 'oracles'
EQUAL = dict(loss=1e-6, gradient=1e-4, score=1e-5)  # relative to the largest entry


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

    def model(self, head, neck=None, frozen=(), shipped=(), **parts):
        """Neck and head with the recorded weights, or those of tiny_clip, in training mode."""
        seen, unseen = self['seen'].tolist(), self['unseen'].tolist()
        names = [[f'{kind}{i}' for i in range(1 + self['seen'][:, place].max())]
                 for place, kind in enumerate('ao')]
        space = CompositionSpace(*names, seen + unseen, [True] * len(seen) + [False] * len(unseen))
        model = nn.ModuleDict(parts)
        if neck is not None:
            model['neck'] = MODELS.build(neck)
        model['head'] = MODELS.build(dict(head, space=space.to_dict()))
        learning = dict(model.named_parameters())
        for name, parameter in learning.items():
            if name.startswith(tuple(frozen)):
                parameter.requires_grad_(False)
        weights = self.part('weight') | {
            name: drawn(name, learning[name].shape, *rule.tolist())
            for name, rule in self.part('draw').items()}
        assert not model.load_state_dict(weights, strict=False).unexpected_keys
        assert {name for name, p in learning.items() if p.requires_grad} - set(weights) == set(
            shipped)
        return model.train()

    def samples(self):
        samples = [DataSample() for _ in self['pair']]
        for i, sample in enumerate(samples):
            for name in ('attr', 'obj', 'pair'):
                sample.set_field(int(self[name][i]), f'{name}_label')
        return samples

    def score(self, head, features):
        """Scores of the seen pairs, then the unseen ones, in the recorded order."""
        asked = torch.cat([self['seen'], self['unseen']]).tolist()
        known = head.known_candidates.pairs.tolist()
        with torch.no_grad():
            return head.score(features, head.known_candidates).pair[:, [
                known.index(pair) for pair in asked]]

    def compare(self, model, features, terms, scores, losses=None):
        """What ours makes of the recording.

        Args:
            model (nn.ModuleDict): With 'head'.
            features (Features): What the head reads.
            terms (dict): Our losses of each recorded term, without their ending.
            scores (Callable): From recorded scores to what the head returns.
            losses (dict, optional): Of the head, where they are not simply those of the batch.
        """
        if losses is None:
            losses = model['head'].loss(features, self.samples())
        assert set(losses) == {f'{name}_loss' for names in terms.values() for name in names}
        total = sum(losses.values())
        total.backward()
        found = {term: sum(losses[f'{name}_loss'] for name in names)
                 for term, names in terms.items()}
        recorded = self.part('loss')
        return Compared(
            {term: difference(value, recorded[term])
             for term, value in dict(found, total=total).items()},
            self.gradients(model),
            dict(pair=difference(self.score(model['head'], features), scores(self['scores']))))

    def gradients(self, model):
        """Differences of the gradients by name, relative to the largest entry of each."""
        found = {name: p.grad for name, p in model.named_parameters()}
        kinds = {kind: self.part(kind) for kind in ('grad', 'rows', 'columns')}
        largest = max(float(value.abs().max()) for part in kinds.values()
                      for value in part.values())
        assert {name for part in kinds.values() for name in part} == {
            name for name, p in model.named_parameters() if p.requires_grad}
        # The noise of float32 is that of the largest gradient of the model.
        return {name: difference(probed(found[name], kind), expected, 1e-2 * largest)
                for kind, part in kinds.items() for name, expected in part.items()}


class Compared(NamedTuple):
    """Relative differences by term, tensor, and kind of score."""

    loss: dict[str, float]
    gradient: dict[str, float]
    score: dict[str, float]


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


def difference(got, expected, floor=0.0):
    """Largest difference, relative to the largest entry, or to a floor."""
    assert got.shape == expected.shape
    most = max(float(expected.abs().max()), floor)
    return float((got - expected).detach().abs().max()) / most


CASES: dict[str, Callable[[Oracle, str], Compared]] = {}


def case(*names):
    """Registers the function that computes these recordings again."""
    def register(function):
        CASES.update(dict.fromkeys(names, function))
        return function
    return register


def probabilities(scale=1.0):
    return lambda scores: (scale * scores).softmax(dim=1)


def same(scores: Tensor) -> Tensor:
    return scores


def single(*names):
    return {name: [name] for name in names}


def tiny(**fields):
    return dict(type='mmcluspro.CLIPText', arch='tiny_clip', pretrained='tiny_clip', **fields)


@case('scen')
def scen(oracle, name):
    text = dict(type='mmcluspro.SCENText', path=None, width=8, learn_vectors=True,
                temperature=1 / 20)
    # Published: 51 times the sum over ten negatives, divided by the batch of 8.
    model = oracle.model(
        dict(type='mmcluspro.SCENHead', text=text, margin=1.0, contrast_weight=51 * 10 / 8,
             same_pair=True),
        dict(type='mmcluspro.SCENNeck', in_channels=10, out_channels=8, hidden=11,
             branch_hidden=13, dropout=0.0))
    return oracle.compare(model, model['neck'](oracle['images']), dict(
        pair=['pair'], names=['attr', 'obj'], contrast=['attr_contrast', 'obj_contrast']),
        probabilities(20))


@case('cge', 'cge_released')
def cge(oracle, name):
    text = dict(type='mmcluspro.GraphText', path=None, width=6, out_dim=5, hidden_dims=[7],
                dropout=0.0, pair_loops=name == 'cge')
    model = oracle.model(
        dict(type='mmcluspro.CGEHead', text=text),
        dict(type='mmcluspro.PathEmbedder', in_channels=10, out_channels=5, last_act=True))
    return oracle.compare(model, model['neck'](oracle['images']), single('pair'), same)


@case('co_cge', 'co_cge_open')
def co_cge(oracle, name):
    text = dict(type='mmcluspro.GraphText', path=None, width=6, out_dim=5, hidden_dims=[7],
                dropout=0.0, temperature=1 / 20)
    world = 'open' if name == 'co_cge_open' else 'closed'
    model = oracle.model(dict(type='mmcluspro.CoCGEHead', text=text, world=world, margin=0.4))
    model['head'].end_epoch(5)
    return oracle.compare(model, Features(oracle['images']), single('pair'), probabilities(20))


@case('compcos', 'compcos_open')
def compcos(oracle, name):
    text = dict(type='mmcluspro.LinearPairText', path=None, width=8, out_dim=8,
                learn_vectors=True, temperature=1 / 20)
    margin = 0.4 if name == 'compcos_open' else None
    model = oracle.model(
        dict(type='mmcluspro.CompCosHead', text=text, margin=margin),
        dict(type='mmcluspro.PathEmbedder', in_channels=10, out_channels=8, hidden=[11],
             norm=True))
    model['head'].begin_epoch(6)
    found = oracle.compare(model, model['neck'](oracle['images']), single('pair'),
                           probabilities(20))
    if margin:  # zero for seen pairs there
        unseen = oracle['feasibility'] != 0
        found.score['feasibility'] = difference(
            model['head'].feasible_share()[unseen], oracle['feasibility'][unseen])
    return found


@case('oadis', 'oadis_conditioned')
def oadis(oracle, name):
    text = dict(type='mmcluspro.OADisText', path=None, width=6, out_dim=5,
                composer='linear' if name == 'oadis' else 'conditioned',
                dropout=0.0, learn_vectors=True, temperature=0.05)
    model = oracle.model(
        dict(type='mmcluspro.OADisHead', in_channels=9, dim=5, text=text,
             weights=dict(obj=0.3, seen=0.07)),
        dict(type='mmcluspro.OADisNeck', in_channels=12, hidden=9, out_channels=5, dropout=0.0))
    places = oracle['places']
    inputs = Features(places[:, 0], tokens=torch.cat([places[:, :1], places], dim=1))
    return oracle.compare(model, model['neck'](inputs), single(
        'pair', 'attr', 'obj', 'both', 'seen', 'unseen'), probabilities(20))


@case('le_plus')
def le_plus(oracle, name):
    text = dict(type='mmcluspro.LEPlusText', path=None, width=8, hidden=[16], out_dim=8)
    model = oracle.model(
        dict(type='mmcluspro.LEPlusHead', text=text),
        dict(type='mmcluspro.PathEmbedder', in_channels=10, out_channels=8, last_act=True))
    torch.manual_seed(7)  # the other pair is drawn
    return oracle.compare(model, model['neck'](oracle['images']), single('triplet'), same)


@case('aop')
def aop(oracle, name):
    model = oracle.model(
        dict(type='mmcluspro.AoPHead', text=dict(type='mmcluspro.AoPText', path=None, width=8),
             aux_weight=2.0, comm_weight=1.0, inv_weight=0.7),
        dict(type='mmcluspro.PathEmbedder', in_channels=10, out_channels=8, last_act=True))
    torch.manual_seed(7)  # the other pair, then the other attribute
    return oracle.compare(model, model['neck'](oracle['images']), single(
        'triplet', 'aux', 'comm', 'inv'), same)


@case('symnet', 'symnet_repaired')
def symnet(oracle, name):
    weights = dict(attr=1.0, obj=0.8, sym=0.3, axiom=0.2, triplet=0.5)
    text = dict(type='mmcluspro.WordTableText', path=None, width=8)
    model = oracle.model(
        dict(type='mmcluspro.SymNetHead', in_channels=8, dropout=0.0, draw='pair', text=text,
             loss_weights=weights),
        dict(type='mmcluspro.PathEmbedder', in_channels=10, out_channels=8))
    torch.manual_seed(7)  # the other pair
    return oracle.compare(model, model['neck'](oracle['images']), single(*weights), same)


@case('tmn', 'tmn_seen')
def tmn(oracle, name):
    text = dict(type='mmcluspro.WordTableText', path=None, width=300)
    model = oracle.model(dict(
        type='mmcluspro.TMNHead', in_channels=10, num_modules=3, width=5, gate_width=7,
        num_negatives=4, text=text))
    torch.manual_seed(7)  # the other pairs
    return oracle.compare(model, Features(oracle['images']), single('pair'), same)


@case('kg_sp')
def kg_sp(oracle, name):
    text = dict(type='mmcluspro.WordTableText', path=None, width=4)
    model = oracle.model(
        dict(type='mmcluspro.KGSPHead', in_channels=1024, text=text),
        dict(type='mmcluspro.PathEmbedder', in_channels=10, out_channels=1024, hidden=[768],
             paths=['attribute', 'object'], norm=True, last_act=True))
    return oracle.compare(model, model['neck'](oracle['images']), single('attr', 'obj'), same)


@case('ade', 'ade_transport')
def ade(oracle, name):
    text = dict(type='mmcluspro.LinearPairText', path=None, width=6, out_dim=6,
                learn_vectors=True, temperature=1 / 20)
    model = oracle.model(dict(
        type='mmcluspro.ADEHead', in_channels=8, out_channels=6, num_heads=2, hidden=[8],
        object_hidden=[7], dropout=0.0, product_weight=0.3, text=text,
        emd_weight=float(name == 'ade_transport')))
    tokens = oracle['tokens']
    features = Features(tokens[:, 0], tokens=tokens)
    losses = model['head'].loss(features, oracle.samples())
    if name == 'ade':
        del losses['emd_loss']
        return oracle.compare(model, features, single(
            'pair', 'attr', 'obj', 'attr_bar', 'obj_bar'), same, losses)
    for parameter in model.parameters():  # nothing else has a gradient
        parameter.requires_grad_(False)
    for path in ('attribute', 'object'):
        for part in ('norm1', 'q', 'kv'):
            getattr(model['head'].attention[path], part).requires_grad_(True)
    losses = dict(emd_loss=model['head'].loss(features, oracle.samples())['emd_loss'])
    return oracle.compare(model, features, single('emd'), same, losses)


@case('canet')
def canet(oracle, name):
    text = dict(type='mmcluspro.WordVectorText', path=None, width=6, out_dim=6, hidden_dim=12,
                learn_vectors=True, temperature=0.05, norm=True, last_act=True)
    model = oracle.model(
        dict(type='mmcluspro.CANetHead', in_channels=10, dim=6, alpha=0.4, dropout=0.0, text=text),
        dict(type='mmcluspro.CANetNeck', in_channels=10, out_channels=6, dropout=0.0),
        frozen=['head.text.attr_proj', 'head.text.obj_proj'])
    return oracle.compare(model, model['neck'](oracle['images']), single(
        'pair', 'attr', 'obj'), same)


@case('cape')
def cape(oracle, name):
    text = dict(type='mmcluspro.CAPEText', path=None, width=6, out_dim=10, num_heads=3,
                dropout=0.0, hidden_dropout=0.0, temperature=1 / 20)
    model = oracle.model(
        dict(type='mmcluspro.ThreePathHead', fusion='composition',
             loss_weights=dict(attr=0, obj=0), text=text),
        dict(type='mmcluspro.PathEmbedder', in_channels=10, out_channels=10, hidden=[10],
             norm=True, last_act=True))
    return oracle.compare(model, model['neck'](oracle['images']), single('pair'),
                          probabilities(20))


@case('cvgae', 'cvgae_norms')
def cvgae(oracle, name):
    text = dict(type='mmcluspro.VariationalGraphText', path=None, width=6, out_dim=12, node_dim=5,
                hidden_dim=14, pair_dim=13, dropout=0.0, temperature=1 / 12)
    model = oracle.model(
        dict(type='mmcluspro.CVGAEHead', text=text),
        dict(type='mmcluspro.CVGAENeck', in_channels=10, out_channels=12, hidden=[9, 11],
             norm=True))
    features = model['neck'](oracle['images'])
    torch.manual_seed(7)  # of the names' distributions
    losses = model['head'].loss(features, oracle.samples())
    del losses['edge_loss']
    found = oracle.compare(model, features, single('pair', 'image', 'kl'),
                           probabilities(), losses)
    found.loss['edges'] = difference(
        edge_loss(oracle['names'], model['head'].text.edges()), oracle['edges'])
    return found


@case('csp', 'coop')
def csp(oracle, name):
    learn = dict(csp='vocabulary', coop='context')[name]
    text = tiny(prompt=dict(learn=(learn, ), share_context=name == 'coop'))
    model = oracle.model(dict(type='mmcluspro.ThreePathHead', text=text, fusion='composition',
                              loss_weights=dict(attr=0, obj=0)))
    return oracle.compare(model, Features(oracle['images']), single('pair'), probabilities())


@case('pcvl')
def pcvl(oracle, name):
    text = tiny(prompt=dict(share_context=True))
    model = oracle.model(dict(type='mmcluspro.PCVLHead', text=text))
    return oracle.compare(model, Features(oracle['images']), single('pair'), probabilities())


@case('gipcol')
def gipcol(oracle, name):
    prompt = dict(type='mmcluspro.GraphPrompt', hidden=20, graph_dropout=0.0, share_context=True)
    model = oracle.model(dict(type='mmcluspro.GIPCOLHead', text=tiny(prompt=prompt)))
    return oracle.compare(model, Features(oracle['images']), single('pair'), probabilities())


@case('tomcat')
def tomcat(oracle, name):
    model = oracle.model(dict(
        type='mmcluspro.TOMCATHead', text=tiny(prompt=dict(share_context=True)), capacity=2,
        alpha=1.25, beta=7.5, theta=1.5, test_lr=1e-2, test_decay=1e-2, align_weight=2.5))
    found = oracle.compare(model, Features(oracle['images']), single('pair'), probabilities())
    stream = Features(oracle['stream'])
    head = model['head'].eval()
    head.adapt(stream)
    found.score['stream'] = difference(
        oracle.score(head, stream), oracle['stream_scores'].softmax(dim=1))
    return found


@case('cluspro_released')
def cluspro(oracle, name):
    model = oracle.model(
        dict(type='mmcluspro.ThreePathHead', text=tiny(), fusion='logits',
             loss_weights=dict(attr=0.5, obj=0.25)),
        dict(type='mmcluspro.PrimitiveAdapter', in_channels=64, stages=2, norm='BN', dropout=0.0,
             residual=False))
    found = oracle.compare(model, model['neck'](oracle['images']), single('pair', 'attr', 'obj'),
                           same)
    parts = [[oracle[f'contrast_{branch}{part}'] for branch in ('attr', 'obj')]
             for part in ('', '_rows', '_prototypes', '_grad')]
    features = [part.requires_grad_(True) for part in parts[0]]
    contrast = MODELS.build(dict(type='mmcluspro.PCLLoss', temperature=0.07, loss_weight=0.2))(
        features, parts[1], [table.flatten(0, 1) for table in parts[2]])
    contrast.backward()
    found.loss['contrast'] = difference(contrast, oracle['contrast'])
    found.gradient['contrast'] = max(
        difference(feature.grad, recorded) for feature, recorded in zip(features, parts[3]))
    return found


@case('troika')
def troika(oracle, name):
    model = oracle.model(
        dict(type='mmcluspro.TroikaHead', in_channels=64, text=tiny(), fusion='logits',
             traction=dict(repeat_norm=True), loss_weights=dict(attr=0.5, obj=0.25)),
        dict(type='mmcluspro.PrimitiveAdapter', in_channels=64, norm='BN', dropout=0.0,
             residual=False))
    features = model['neck'](Features(oracle['images'], tokens=oracle['tokens']))
    return oracle.compare(model, features, single('pair', 'attr', 'obj'), same)


@case('msci')
def msci(oracle, name):
    model = oracle.model(
        dict(type='mmcluspro.MSCIHead', in_channels=64, text=tiny(), low=2, high=2, dropout=0.0,
             loss_weights=dict(attr=0.5, obj=0.25)),
        dict(type='mmcluspro.PrimitiveAdapter', in_channels=64, norm='BN', dropout=0.0,
             residual=False))
    layers = {f'layer_{i}': layer for i, layer in enumerate(oracle['layers'])}
    features = model['neck'](Features(oracle['images'], extra=layers))
    return oracle.compare(model, features, single('pair', 'attr', 'obj'), same)


@case('vp_cmjl')
def vp_cmjl(oracle, name):
    model = oracle.model(
        dict(type='mmcluspro.VPCMJLHead', in_channels=64, proxy_weight=0.3, text_weight=0.7,
             text=tiny() | dict(type='mmcluspro.VPCMJLText')),
        dict(type='mmcluspro.PrimitiveAdapter', in_channels=64, norm='BN', dropout=0.0,
             residual=False))
    found = oracle.compare(model, model['neck'](oracle['images']), single(
        'pair', 'attr', 'obj', 'proxy_pair', 'proxy_attr', 'proxy_obj', 'joint'), same)
    fresh = MODELS.build(dict(
        type='mmcluspro.VPCMJLHead', in_channels=64, space=model['head'].space.to_dict(),
        text=tiny() | dict(type='mmcluspro.VPCMJLText')))
    for branch, proxies in (('attr', fresh.attr_proxy), ('obj', fresh.obj_proxy)):
        found.score[f'start_{branch}'] = difference(proxies, oracle[f'start_{branch}'])
    return found


@case('caila', 'caila_parts', 'caila_released')
def caila(oracle, name):
    tower = dict(arch='tiny_clip', pretrained='tiny_clip')
    text = dict(type='mmcluspro.CAILAText', **tower,
                prompt=dict(context='a photo of a', learn=(), names='tokens'))
    released = name == 'caila_released'
    if released:
        text.update(released=True, learn_temperature=True)
    model = oracle.model(
        dict(type='mmcluspro.CAILAHead', img_dropout=0.0, text=text),
        shipped=['head.text.tower.text.token_embedding.weight'] if released else (),
        backbone=MODELS.build(dict(type='mmcluspro.CAILAVision', mixture_from=2, **tower)))
    features = model['backbone'](drawn('images', (4, 3, 48, 48), 1, 0))
    return oracle.compare(model, features, single('pair', 'attr', 'obj'), probabilities())


@case('plid')
def plid(oracle, name):
    text = dict(type='mmcluspro.PLIDText', arch='tiny_clip', pretrained='tiny_clip', num_texts=3,
                attn_dropout=0.0, released=True, prompt=dict(share_context=True))
    head = dict(type='mmcluspro.PLIDHead', fusion='composition', text=text, smoothing=0.1,
                loss_weights=dict(attr=0.2, obj=0.1))
    neck = dict(type='mmcluspro.PLIDNeck', in_channels=64, dropout=0.0)
    grouped = oracle.model(head | dict(group_objects=True), neck)
    torch.manual_seed(7)  # the share of primitives is drawn
    by_object = grouped['head'].loss(grouped['neck'](oracle['images']), oracle.samples())
    model = oracle.model(head, neck)
    torch.manual_seed(7)
    found = oracle.compare(model, model['neck'](oracle['images']), single('pair', 'attr', 'obj'),
                           probabilities())
    found.loss['grouped'] = difference(by_object['pair_loss'], oracle['grouped'])
    return found


@case('dfsp_t2i', 'dfsp_i2t', 'dfsp_bif')
def dfsp(oracle, name):
    direction = dict(dfsp_t2i='t2i', dfsp_i2t='i2t', dfsp_bif='BiF')[name]
    weights = dict(arch='tiny_clip', pretrained='tiny_clip')
    model = oracle.model(dict(
        type='mmcluspro.DFSPReleasedHead', direction=direction, dropout=0.0,
        prompt_weight=0.2, loss_weights=dict(attr=0.3, obj=0.3),
        text=dict(type='mmcluspro.DFSPText', **weights, prompt=dict(share_context=True))))
    features = Features(oracle['images'], extra=dict(layer_3=oracle['last']))
    return oracle.compare(model, features, single('pair', 'attr', 'obj', 'prompt'),
                          probabilities())


@case('metric')
def metric(oracle, name):
    pairs = torch.cat([oracle['seen'], oracle['unseen']])
    found = calculate(oracle['scores'], oracle['truth'], torch.arange(len(pairs)) < len(
        oracle['seen']), pairs)
    return Compared({}, {}, {
        key: abs(found[key] / float(value) - 1) for key, value in oracle.part('metric').items()})


def sections(page):
    """First cells of the rows of each section of a page, by the anchor of its heading."""
    found: dict[str, set[str]] = {}
    anchor = ''
    for line in (ROOT / 'docs' / page).read_text().splitlines():
        if line.startswith('#'):
            words = re.sub(r'[^\w\- ]', '', line.lstrip('# ').lower())
            anchor = words.strip().replace(' ', '-')
        elif line.startswith('|'):
            found.setdefault(anchor, set()).add(line.strip('| ').split(' | ')[0])
    return found


def stated():
    """Rows of the table of docs/oracles.md by the name of the recording."""
    rows = {}
    for line in (ROOT / 'docs' / 'oracles.md').read_text().splitlines():
        cells = [cell.strip() for cell in line.strip('|').split(' | ')]
        if line.startswith('| `') and len(cells) == 5:
            rows[cells[0].strip(' `')] = dict(
                zip(('loss', 'gradient', 'score', 'deviations'), cells[1:]))
    return rows


def test_every_recording_is_small_listed_and_computed():
    files = {file.stem: file for file in FOLDER.glob('*.npz')}
    page = (ROOT / 'docs' / 'oracles.md').read_text()
    assert set(files) == set(stated()) == set(CASES)
    assert sum(file.stat().st_size for file in files.values()) <= 3e6
    for name in files:
        assert f'`{Oracle(name).revision}`' in page


@pytest.mark.parametrize('name', sorted(CASES))
def test_recorded_numbers(name):
    row = stated()[name]
    found = CASES[name](Oracle(name), name)
    for kind, differences in found._asdict().items():
        known = dict(re.findall(r'([\w.]+) (\d[\d.e-]*)', row[kind]))
        assert known or row[kind] == ('equal' if differences else '–'), row[kind]
        for key, value in differences.items():
            if not any(part in key or part == 'all' for part in known):
                assert value <= EQUAL[kind], f'{kind} of {key}: {value:.2g}'
        for part, number in known.items():
            largest = max(value for key, value in differences.items()
                          if part in key or part == 'all')
            assert largest == pytest.approx(float(number), rel=0.1), f'{kind} of {part}'
            assert largest > EQUAL[kind], f'{kind} of {part} is equal now: say so'


@pytest.mark.parametrize('name', sorted(stated()))
def test_what_differs_is_a_row_of_the_page_of_baselines(name):
    row = stated()[name]
    disclosed = re.findall(r'\[([^\]]+)\]\(baselines\.md#([\w-]+)\)', row['deviations'])
    differs = any(row[kind] not in ('equal', '–') for kind in ('loss', 'gradient', 'score'))
    known = sections('baselines.md')
    assert disclosed or not differs
    for first, anchor in disclosed:
        assert first in known.get(anchor, ()), f'no row {first!r} in #{anchor}'
