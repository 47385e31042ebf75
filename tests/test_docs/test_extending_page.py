"""The classes that docs/extending.md shows in full: what they compute, not only that they run."""
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import normalize

from mmcluspro.datasets import CompositionSpace
from mmcluspro.models import Candidates
from mmcluspro.models.structures import Features
from mmcluspro.registry import DATASETS, MODELS

PAGE = Path(__file__).resolve().parents[2] / 'docs' / 'extending.md'
TEXT = dict(type='mmcluspro.CLIPText', arch='tiny_clip', pretrained='tiny_clip')


@pytest.fixture(scope='module')
def page():
    """The names of all complete Python blocks; their classes are registered meanwhile."""
    registered = re.findall(r'register_module\(\)\nclass (\w+)', PAGE.read_text())

    def forget():  # also those of other tests that run the page
        for registry in (MODELS, DATASETS):
            for name in registered:
                registry.module_dict.pop(name, None)

    forget()
    names: dict = {}
    text = re.sub(r'<!-- runs in.*?-->\n```python.*?```', '', PAGE.read_text(), flags=re.DOTALL)
    for block in re.findall(r'^```python\n(.*?)^```', text, flags=re.DOTALL | re.MULTILINE):
        exec(compile(block, str(PAGE), 'exec'), names)
    yield names
    forget()


@pytest.fixture(scope='module')
def space():
    return CompositionSpace.from_pairs(
        ['red', 'blue'], ['star', 'key', 'moon'],
        [('red', 'star'), ('red', 'key'), ('blue', 'star'), ('blue', 'moon')],
        [True, True, True, False])


@pytest.fixture(scope='module')
def feats():
    made = torch.Generator().manual_seed(0)
    return Features(*(torch.randn(5, 64, generator=made) for _ in range(3)))


def test_a_further_loss_of_the_page(page, feats):
    loss = page['CentreLoss'](loss_weight=0.5)(
        page['TrainStep'](feats, None, None, {}, None))
    unit = feats.composition / feats.composition.norm(dim=1, keepdim=True)
    assert float(loss) == pytest.approx(0.5 * float((unit.sum(0) / 5).pow(2).sum()))


def test_other_texts_join_the_prompt_of_each_pair(page, space):
    head = page['DescriptionHead'](space=space, text=TEXT).eval()
    candidates = Candidates.from_space(space)
    with torch.no_grad():
        found = head.texts(candidates)
        plain = super(type(head), head).texts(candidates)
        said = head.text.encode_sentences(
            ['a blurry photo of a red key', 'a drawing of one red key'])
    row = [space.index('red', 'key')]
    expected = normalize(plain.composition[row] + said.mean(0, keepdim=True), dim=1)
    torch.testing.assert_close(found.composition[row], expected)
    assert not torch.allclose(found.composition, plain.composition)
    torch.testing.assert_close(found.attribute, plain.attribute)


def test_other_scores_are_sums_of_logarithms(page, space, feats):
    head = page['ProductHead'](space=space, text=TEXT).eval()
    candidates = Candidates.from_space(space)
    with torch.no_grad():
        scores, logits = head.score(feats, candidates), head.logits(feats, candidates)
    chance = [part.softmax(1) for part in (logits.attribute, logits.object, logits.composition)]
    for place, (attr, obj) in enumerate(space.pairs.tolist()):
        product = chance[0][:, attr] * chance[1][:, obj] * chance[2][:, place]
        torch.testing.assert_close(scores.pair[:, place].exp(), product)
    assert head.link == 'identity'


def test_portable_of_the_page_agrees_with_its_score(page, space, feats):
    head = page['InvertedHead'](space=space, text=TEXT).eval()
    candidates = Candidates.from_space(space)
    with torch.no_grad():
        inside, texts = head.score(feats, candidates).pair, head.texts(candidates)
    paths, info, score, *_ = head.portable()
    outside = score({path: normalize(getattr(feats, path), dim=1).numpy() for path in paths},
                    dict(text_a=texts.attribute.numpy(), text_o=texts.object.numpy(),
                         text_c=texts.composition.numpy(), pairs=space.pairs.numpy()))
    np.testing.assert_allclose(outside, inside.numpy(), rtol=1e-4)
    assert info['fusion'] == 'inverted'


def test_a_dataset_of_the_page_is_built_by_name(page, tmp_path):
    rows = [dict(image=f'{i}.png', attr=attr, obj=obj, phase=phase) for i, (attr, obj, phase) in
            enumerate([('wet', 'cat', 'train'), ('dry', 'dog', 'train'), ('wet', 'dog', 'test'),
                       ('dry', 'cat', 'val'), ('wet', 'cat', 'test')])]
    (tmp_path / 'data.json').write_text(json.dumps(rows))
    for row in rows:
        Image.new('RGB', (8, 8)).save(tmp_path / row['image'])
    data = DATASETS.build(dict(type='mmcluspro.JsonCZSL', data_root=str(tmp_path), phase='test'))
    assert [Path(data.get_data_info(i)['img_path']).name for i in range(len(data))] == [
        '2.png', '4.png']
    pairs = data.space.pairs[[data.get_data_info(i)['pair_label'] for i in range(2)]]
    assert [(data.space.attributes[a], data.space.objects[o]) for a, o in pairs.tolist()] == [
        ('wet', 'dog'), ('wet', 'cat')]
    assert not bool(data.space.seen[data.get_data_info(0)['pair_label']])
    assert len(data.metainfo['known_pairs']) == 4
