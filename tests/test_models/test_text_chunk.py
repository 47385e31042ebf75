"""The number of prompts that run together follows the free memory."""
import pytest
import torch

from mmcluspro.engine.hooks.memory import LiveBytes
from mmcluspro.models.text import CLIPText
from mmcluspro.models.text.clip_text import LARGEST, prompt_bytes
from mmcluspro.utils.device import free_bytes

ATTRIBUTES, OBJECTS = [f'red {i}' for i in range(30)], [f'box {i}' for i in range(40)]
PAIRS = torch.cartesian_prod(torch.arange(30), torch.arange(40))


def make(**options):
    torch.manual_seed(0)
    return CLIPText(ATTRIBUTES, OBJECTS, arch='tiny_clip', pretrained='tiny_clip', **options)


def peak(learns, **options):
    """Most bytes alive while all pairs are encoded."""
    text = make(with_cp=True, **options).train(learns)
    text.prepare(PAIRS)
    with LiveBytes([*text.parameters(), *text.buffers()]) as live, torch.set_grad_enabled(learns):
        features = text.encode_pairs(PAIRS)
        if learns:
            features.sum().backward()
    return live.peak


@pytest.mark.parametrize('learns', [True, False])
@pytest.mark.parametrize('tree', [True, False])
def test_the_bytes_of_a_prompt_are_those_that_a_chunk_adds(learns, tree):
    small, large = (peak(learns, chunk_size=size, prefix_tree=tree) for size in (300, 600))
    text = make()
    tokens = 2 if tree else text.tower.context_length  # an object and the end, or all
    expected = prompt_bytes(tokens, 64, 3, learns)
    assert 0.9 < expected / ((large - small) / 300) < 1.5


@pytest.mark.parametrize('free, expected', [
    (10**12, LARGEST), (4 * 24576 * 200, 128), (4 * 24576 * 128, 128), (10, 1)])
def test_short_memory_makes_small_chunks(monkeypatch, free, expected):
    """A prompt of the tiny tower takes 24,576 bytes in training, and a quarter may be used."""
    assert prompt_bytes(2, 64, 3, True) == 24576
    monkeypatch.setattr('mmcluspro.models.text.clip_text.free_bytes', lambda device: free)
    text = make()
    assert text.chunk() == expected
    with torch.no_grad():
        assert text.chunk() == min(LARGEST, 1 << (max(free // 4 // 8192, 1).bit_length() - 1))
    monkeypatch.setattr('mmcluspro.models.text.clip_text.free_bytes', lambda device: 10**12)
    assert text.chunk() == expected  # chosen once
    text.eval()
    assert text.chunk() == LARGEST


def test_the_result_does_not_depend_on_it(monkeypatch):
    features = []
    for free in (10**12, 10**6):
        monkeypatch.setattr('mmcluspro.models.text.clip_text.free_bytes', lambda _, free=free: free)
        features.append(make().encode_pairs(PAIRS).detach())
    torch.testing.assert_close(features[1], features[0], atol=1e-6, rtol=0)


def test_free_memory_is_that_of_the_machine(monkeypatch):
    import os
    total = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    assert 0 < free_bytes(torch.device('cpu')) <= total
    with monkeypatch.context() as patch:
        patch.setattr('builtins.open', lambda *_, **__: (_ for _ in ()).throw(OSError()))
        assert free_bytes(torch.device('cpu')) == total


def test_a_chunk_below_one_is_refused():
    with pytest.raises(ValueError, match='text.chunk_size must be at least 1, or None, got 0'):
        make(chunk_size=0)
