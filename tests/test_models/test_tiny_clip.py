import math
import os
import subprocess
import sys
from pathlib import Path

import open_clip
import pytest
import torch
from shapes_captions import STUDIO, pretraining_pairs
from torch.nn.functional import normalize

from mmcluspro.datasets.shapes import ATTRIBUTES, IMAGE_SIZE, OBJECTS, draw_image
from mmcluspro.models import get_tokenizer
from mmcluspro.models.clip import load_clip
from mmcluspro.utils.files import WEIGHTS

FILE = WEIGHTS / 'tiny_clip.pt'


@pytest.fixture(scope='module')
def model():
    return load_clip('tiny_clip', 'tiny_clip')


def encode(model, pairs, seed):
    mean, std = open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD
    images = torch.stack([torch.from_numpy(draw_image(*pair, ('test', seed, i), STUDIO)[0])
                          for i, pair in enumerate(pairs)])
    images = (images.float() / 255 - torch.tensor(mean)) / torch.tensor(std)
    with torch.no_grad():
        return normalize(model.encode_image(images.permute(0, 3, 1, 2)), dim=1)


def test_file_is_small_half_precision_and_complete():
    state = torch.load(FILE, weights_only=True)

    assert FILE.stat().st_size <= 8e6
    assert {value.dtype for value in state.values() if value.is_floating_point()} == {torch.half}
    fresh = load_clip('tiny_clip')
    fresh.load_state_dict({name: value.float() for name, value in state.items()}, strict=True)


def test_image_tower_has_a_few_hundred_thousand_parameters(model):
    assert 1e5 < sum(p.numel() for p in model.visual.parameters()) < 1e6
    assert model.visual.image_size == (IMAGE_SIZE, IMAGE_SIZE)
    assert 0 < float(model.logit_scale.detach()) <= math.log(100) + 1e-3


def test_names_fit_the_context_and_the_ordinary_tokenizer(model):
    texts = [f'a photo of {a} {o}' for a, o in zip(ATTRIBUTES, OBJECTS)]
    ours, ordinary = get_tokenizer('tiny_clip')(texts), open_clip.get_tokenizer('ViT-B-32')(texts)

    width = ours.shape[1]
    assert torch.equal(ours, ordinary[:, :width]) and not ordinary[:, width:].any()
    assert (ours == 49407).any(dim=1).all()


@pytest.mark.parametrize('part', [0, 1])
def test_it_recognises_primitives_far_above_chance_without_training(model, part):
    names = sorted((ATTRIBUTES, OBJECTS)[part])
    pairs = pretraining_pairs()[::4]
    template = ('a photo of {} object', 'a photo of {}')[part]
    tokens = get_tokenizer('tiny_clip')([template.format(name) for name in names])
    with torch.no_grad():
        texts = normalize(model.encode_text(tokens), dim=1)

    guesses = (encode(model, pairs, seed=1) @ texts.T).argmax(dim=1).tolist()

    right = sum(names[guess] == pair[part] for guess, pair in zip(guesses, pairs)) / len(pairs)
    assert right > 5 / len(names)


@pytest.mark.slow
def test_the_script_goes_on_from_weights_and_resumes(tmp_path):
    tool = Path(__file__).resolve().parents[2] / 'tools' / 'pretrain_tiny_clip.py'

    def pretrain(steps):
        done = subprocess.run(
            [sys.executable, str(tool), '--init', str(FILE), '--work-dir', str(tmp_path),
             '--pictures', '1', '--batch-size', '4', '--steps', str(steps), '--lr', '1e-4'],
            capture_output=True, text=True, env={**os.environ, 'OMP_NUM_THREADS': '1'})
        assert done.returncode == 0, done.stderr
        return done.stdout, torch.load(tmp_path / 'tiny_clip.pt', weights_only=True)

    first = torch.load(FILE, weights_only=True)
    said, second = pretrain(1)
    assert '825 pairs' in said and 'Wrote' in said
    moved = {name for name in first if not torch.equal(first[name], second[name])}
    assert 'visual.conv1.weight' in moved and 'token_embedding.weight' in moved
    # One step at the smallest rate of the warm-up moves nothing far: it started from the file.
    assert max(float((first[n].float() - second[n].float()).abs().max()) for n in moved) < 1e-2
    assert 'Resumed at step 1' in pretrain(2)[0]
