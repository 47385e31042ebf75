import pytest
import torch

from mmcluspro.models.text import SoftPrompt
from mmcluspro.models.text.tower import TokenFrame

WIDTH = 768
WORDS = {word: torch.full((1, WIDTH), float(i))
         for i, word in enumerate(['a', 'photo', 'of', 'old', 'red', 'cat'])}


def embed(texts):
    """A tower whose sub-words are words."""
    return [torch.cat([torch.empty(0, WIDTH), *(WORDS[word] for word in text.split())])
            for text in texts]


def trained(prompt):
    return {name: parameter.numel() for name, parameter in prompt.named_parameters()
            if parameter.requires_grad}


def test_starts_from_the_words_and_the_mean_of_sub_words():
    prompt = SoftPrompt(['old', 'old red'], ['cat'], embed, context='a photo of')

    contexts, attributes, objects = prompt()

    assert attributes[:, 0].tolist() == [3.0, 3.5]
    assert objects[:, 0].tolist() == [5.0]
    for path in ('composition', 'attribute', 'object'):
        assert contexts[path][:, 0].tolist() == [0.0, 1.0, 2.0]
    assert len({id(context) for context in contexts.values()}) == 3


@pytest.mark.parametrize('learn, wanted', [
    ((), 0), (('context', ), 3 * 3 * WIDTH), (('vocabulary', ), 28 * WIDTH),
    (('context', 'vocabulary'), 3 * 3 * WIDTH + 28 * WIDTH)],
    ids=['zero-shot', 'CoOp', 'CSP', 'Troika'])
def test_what_learns_is_config(learn, wanted):
    prompt = SoftPrompt(['old'] * 16, ['cat'] * 12, embed, learn=learn)

    assert sum(trained(prompt).values()) == wanted


def test_one_context_for_all():
    prompt = SoftPrompt(['old'], ['cat'], embed, learn=['context'], share_context=True)

    assert sum(trained(prompt).values()) == 3 * WIDTH
    assert len({id(context) for context in prompt().contexts.values()}) == 1


def test_hard_names_keep_their_sub_words():
    prompt = SoftPrompt(['old red', 'red'], ['red cat'], embed, learn=(), names='tokens')

    assert prompt().attributes[:, 0].tolist() == [3.0, 4.0, 4.0]
    assert prompt.attributes.lengths == (2, 1)
    assert prompt.objects.lengths == (2, )


def test_dropout_only_in_training_and_only_on_names():
    torch.manual_seed(0)
    prompt = SoftPrompt(['red'] * 20, ['cat'] * 20, embed, attr_dropout=0.25)

    contexts, attributes, objects = prompt.train()()

    for dropped, value in ((attributes, 4), (objects, 5)):
        assert dropped.unique().tolist() == pytest.approx([0.0, value / 0.75])
        assert (dropped == 0).float().mean() == pytest.approx(0.25, abs=0.02)
    assert torch.equal(contexts['object'], embed(['a photo of'])[0])
    assert prompt.eval()().attributes.unique().tolist() == [4.0]


def test_added_names_do_not_learn_and_are_not_saved():
    prompt = SoftPrompt(['old'], ['cat'], embed)
    before = trained(prompt), prompt.state_dict().keys()

    prompt.extend(['old red'], [], embed)

    assert prompt().attributes[:, 0].tolist() == [3.0, 3.5]
    assert (trained(prompt), prompt.state_dict().keys()) == before
    prompt.restore()
    assert prompt().attributes[:, 0].tolist() == [3.0]


@pytest.mark.parametrize('change, message', [
    (dict(learn=('names', )), r"prompt\.learn is a tuple .* got \('names',\)"),
    (dict(learn='context'), "got 'context'"),
    (dict(names='first'), r"prompt\.names must be 'mean' or 'tokens', got 'first'"),
    (dict(names='tokens'), "set names='mean'"),
    (dict(attr_dropout=1.0), r'prompt\.attr_dropout must lie in \[0, 1\), got 1\.0'),
    (dict(attributes=['old', ' ', '']), r"no tokens: \[' ', ''\].*readable"),
    (dict(max_tokens=4), 'room for 4 tokens, but prompt.context has 3 and the longest names'),
])
def test_wrong_settings_name_the_field_and_the_value(change, message):
    settings = dict(attributes=['old'], objects=['cat'], embed=embed) | change
    with pytest.raises(ValueError, match=message):
        SoftPrompt(**settings)


class Tokenizer:
    """Letters to ids 10…, between ``start`` and ``end``, filled up with ``pad``."""

    def __init__(self, start, end, pad, unknown=None):
        self.start, self.end, self.pad = start, end, pad
        self.tokenizer = type('Inner', (), dict(unk_token_id=unknown))

    def __call__(self, texts, context_length):
        rows = [self.start + [ord(c) - 87 for c in text] + self.end for text in texts]
        return torch.tensor([row + [self.pad] * (context_length - len(row)) for row in rows])


@pytest.mark.parametrize('start, end, pad', [
    ([3], [4], 0), ([], [1], 1), ([2], [], 0), ([3, 5], [4], 4)],
    ids=['CLIP', 'SigLIP', 'no end', 'language token'])
def test_frame_finds_what_stands_around_a_text(start, end, pad):
    frame = TokenFrame(Tokenizer(start, end, pad), context_length=8, vocab_size=40)

    assert frame.start == start
    assert (frame.end + [pad])[:2] == (end + [pad, pad])[:2]
    assert frame.ids(['ab', '', 'c']) == [[10, 11], [], [12]]
    assert frame.ids([]) == []


def test_frame_does_not_cut_long_texts():
    frame = TokenFrame(Tokenizer([3], [4], 0), context_length=8, vocab_size=40)

    assert len(frame.ids(['a' * 20])[0]) == 20


def test_frame_names_what_the_tower_does_not_know():
    frame = TokenFrame(Tokenizer([3], [4], 0, unknown=12), context_length=8, vocab_size=14)
    with pytest.raises(ValueError, match=r"14 ids\) does not know \['ae', 'c'\].*readable"):
        frame.ids(['ab', 'ae', 'c'])


def test_new_names_that_cannot_be_told_apart_are_named():
    prompt = SoftPrompt(['old'], ['cat'], embed)
    with pytest.warns(UserWarning, match="these attributes apart.*'old red' and 'red old'"):
        prompt.extend(['old red', 'red old', 'red'], [], embed)


def test_names_that_differ_after_the_last_token_are_named():
    class Tokenizer:
        """Byte by byte; cuts off in silence."""

        def __call__(self, texts, context_length):
            rows = [[257, *text.encode()][:context_length - 1] + [258] for text in texts]
            return torch.tensor([row + [0] * (context_length - len(row)) for row in rows])

    frame = TokenFrame(Tokenizer(), context_length=77, vocab_size=300)
    table = torch.randn(300, 8)

    def cut(texts):
        return [table[ids] for ids in frame.ids(texts)]

    prompt = SoftPrompt(['old'], ['cat'], cut)
    long = 'x' * 8 * 77
    with pytest.warns(UserWarning, match='these objects apart.* cut off'):
        prompt.extend([], [f'{long}a', f'{long}b'], cut)


def test_names_longer_than_the_tower_reads_are_named():
    prompt = SoftPrompt(['old'], ['cat'], embed, max_tokens=6)
    long = ' '.join(['red'] * 6)
    with pytest.warns(UserWarning, match='more tokens than the 6 .*: .*cat'):
        prompt.extend([], [f'{long} cat', f'{long} old', 'red cat'], embed)
    assert prompt().objects[1:, 0].tolist() == pytest.approx([29 / 7, 27 / 7, 4.5])


@pytest.mark.parametrize('start, end, pad', [
    ([3], [4], 0), ([], [1], 1), ([2], [], 0), ([3, 5], [4], 4)])
def test_many_names_are_tokenized_in_parts(start, end, pad, monkeypatch):
    monkeypatch.setattr('mmcluspro.models.text.tower.CHUNK', 3)
    frame = TokenFrame(Tokenizer(start, end, pad), context_length=8, vocab_size=40)
    names = ['', 'a', 'abc', 'a' * 60, 'b', '', 'c' * 20, 'ab']
    assert frame.ids(names) == [[ord(c) - 87 for c in name] for name in names]
