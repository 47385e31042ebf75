import copy
import functools
import json

import open_clip
import pytest
import torch
from torch.nn.functional import normalize

from mmcluspro.models import compact_state_hooks, get_tokenizer
from mmcluspro.models.text import CLIPText, clip_text
from mmcluspro.registry import MODELS

VISION = dict(image_size=32, patch_size=16, width=16, head_width=8, layers=1)
TEXT = dict(context_length=16, vocab_size=49408, width=32, heads=4, layers=3)
SOS, EOS = 49406, 49407
TREE = {
    'text_plain': {},
    'text_quick': dict(quick_gelu=True),
    'text_separate': dict(custom_text=True),
    'text_bias': dict(text_cfg=dict(proj_bias=True)),
    'text_none': dict(text_cfg=dict(proj_type='none'), embed_dim=32),
    'text_scale': dict(text_cfg=dict(ls_init_value=0.5)),
    'text_eos': dict(text_cfg=dict(pool_type='eos', eos_id=EOS)),
}
WHOLE = {
    'text_both_ways': dict(custom_text=True, text_cfg=dict(no_causal_mask=True)),
    'text_first': dict(text_cfg=dict(pool_type='first')),
    'text_last': dict(text_cfg=dict(pool_type='last')),
    'text_other_eos': dict(text_cfg=dict(pool_type='eos', eos_id=2)),
    'text_class': dict(custom_text=True, text_cfg=dict(embed_cls=True, output_tokens=True)),
    'text_norm': dict(text_cfg=dict(qk_norm=True)),
    'text_sigmoid': dict(custom_text=True, text_cfg=dict(
        no_causal_mask=True, pool_type='last', proj_bias=True)),
}
ATTRIBUTES = ['Faux.Fur', 'old', 'red', 'unpainted']
OBJECTS = ['Boots.Mid-Calf', 'cat', 'dog', 'sofa', 'wardrobe']
PAIRS = torch.tensor([[1, 1], [0, 0], [3, 4], [1, 0], [0, 3], [3, 2], [1, 4]])
HARD = dict(learn=(), names='tokens')


@pytest.fixture(scope='module', autouse=True)
def weights(tmp_path_factory):
    """Small text towers under open_clip names, and a file of weights for each."""
    folder = tmp_path_factory.mktemp('towers')
    for name, change in (TREE | WHOLE).items():
        config = dict(embed_dim=24, vision_cfg=VISION) | change
        config['text_cfg'] = TEXT | change.get('text_cfg', {})
        (folder / f'{name}.json').write_text(json.dumps(config))
    open_clip.add_model_config(folder)
    return folder


@pytest.fixture(scope='module')
def models(weights):
    @functools.lru_cache
    def model_of(arch):
        torch.manual_seed(0)
        model = open_clip.create_model(arch).eval()
        for parameter in model.parameters():  # biases and norms start at 0 and 1
            parameter.data += 0.1 * torch.randn_like(parameter)
        torch.save(model.state_dict(), weights / f'{arch}.pt')
        return model

    return model_of


@pytest.fixture
def build(weights, models):
    """CLIPText and the whole open_clip model with the same weights."""
    def _build(arch='text_plain', attributes=ATTRIBUTES, objects=OBJECTS, **kwargs):
        model = models(arch)
        text = CLIPText(attributes, objects, arch=arch, pretrained=str(weights / f'{arch}.pt'),
                        **kwargs)
        return text, model

    return _build


def encode_one(model, content):
    """The tower's own forward on one prompt, its content replaced by vectors (L, width)."""
    holder = model.text if hasattr(model, 'text') else model
    ids = torch.zeros(1, TEXT['context_length'], dtype=torch.long)
    ids[0, :len(content) + 2] = torch.tensor([SOS, *[320] * len(content), EOS])

    def replace(_, __, output):
        return torch.cat([output[:, :1], content[None], output[:, len(content) + 1:]], dim=1)

    handle = holder.token_embedding.register_forward_hook(replace)
    features = model.encode_text(ids)
    handle.remove()
    return normalize(features[0] if isinstance(features, tuple) else features, dim=-1)[0]


def reference(model, text, pairs):
    """All prompts one by one."""
    prompt = text.prompt
    runs = [table().split(table.lengths) for table in (prompt.attributes, prompt.objects)]
    context = {path: prompt.contexts['shared' if 'shared' in prompt.contexts else path]
               for path in ('attribute', 'object', 'composition')}
    return (
        torch.stack([encode_one(model, torch.cat([context['attribute'], run]))
                     for run in runs[0]]),
        torch.stack([encode_one(model, torch.cat([context['object'], run]))
                     for run in runs[1]]),
        torch.stack([encode_one(model, torch.cat([context['composition'], runs[0][a], runs[1][o]]))
                     for a, o in pairs.tolist()]))


def gradients(features, parameters):
    generator = torch.Generator().manual_seed(1)
    loss = sum((part * torch.randn(part.shape, generator=generator)).sum() for part in features)
    return torch.autograd.grad(loss, parameters)


def assert_same(text, model, pairs=PAIRS):
    parameters = list(text.prompt.parameters())
    text.prompt.requires_grad_(True)  # also where nothing learns, to see the whole derivative
    got, wanted = text(pairs), reference(model, text, pairs)
    for mine, theirs in zip(got, wanted):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=0)
    for mine, theirs in zip(gradients(got, parameters), gradients(wanted, parameters)):
        scale = float(theirs.abs().max()) if theirs.numel() else 0.0  # an empty context
        torch.testing.assert_close(mine, theirs, atol=1e-5 * scale, rtol=0)


@pytest.mark.parametrize('prompt', [{}, HARD], ids=['mean', 'tokens'])
@pytest.mark.parametrize('arch', TREE)
def test_tree_equals_the_whole_tower_in_values_and_gradients(build, arch, prompt):
    text, model = build(arch, prompt=prompt)

    assert text.prefix_tree
    assert_same(text, model)


@pytest.mark.parametrize('prompt', [{}, HARD], ids=['mean', 'tokens'])
@pytest.mark.parametrize('arch', WHOLE)
def test_other_towers_fall_back_to_whole_sequences(build, arch, prompt):
    text, model = build(arch, prompt=prompt)

    assert not text.prefix_tree
    assert_same(text, model)


class OtherTower(torch.nn.Module):
    """As open_clip wraps towers of other libraries: own embedding, a mask by the padding id."""
    context_length, vocab_size, output_dim = 16, 49408, 5

    def __init__(self):
        super().__init__()
        self.transformer = torch.nn.Module()
        self.transformer.words = torch.nn.Embedding(self.vocab_size, 8)
        self.transformer.get_input_embeddings = lambda: self.transformer.words
        self.proj = torch.nn.Linear(8, self.output_dim)

    def forward(self, ids):
        mask = (ids != 0).float()[..., None]
        return self.proj((self.transformer.words(ids).sin() * mask).sum(1) / mask.sum(1))


def test_towers_of_other_libraries_take_whole_sequences(monkeypatch):
    torch.manual_seed(0)
    model = torch.nn.Module()
    model.text, model.logit_scale = OtherTower(), torch.tensor(1.0)
    monkeypatch.setattr(clip_text, 'load_clip', lambda *_, **__: model)
    text = CLIPText(ATTRIBUTES, OBJECTS, arch='text_plain', prompt=HARD)
    tokens = get_tokenizer('text_plain')(['a photo of old cat'])

    got = text.encode_pairs(torch.tensor([[1, 1]]))

    assert not text.prefix_tree and text.out_dim == 5
    torch.testing.assert_close(got, normalize(model.text(tokens), dim=1))


@pytest.mark.parametrize('context', ['', 'a', 'a photo of', 'a blurry photograph of one'])
@pytest.mark.parametrize('prompt', [{}, HARD, dict(share_context=True)])
def test_any_context(build, context, prompt):
    text, model = build(prompt=dict(context=context, **prompt))

    assert_same(text, model)


@pytest.mark.parametrize('prompt', [{}, HARD], ids=['mean', 'tokens'])
@pytest.mark.parametrize('with_cp', [False, True])
@pytest.mark.parametrize('chunk_size', [1, 3, 100])
@pytest.mark.parametrize('prefix_tree', [True, False])
def test_chunks_and_checkpointing_change_nothing(build, prompt, with_cp, chunk_size, prefix_tree):
    text, model = build(prompt=prompt, with_cp=with_cp, chunk_size=chunk_size,
                        prefix_tree=prefix_tree)

    assert_same(text, model)


@pytest.mark.parametrize('pairs', [
    [[2, 3]], [[0, 0], [0, 0]], [[a, 1] for a in range(4)], [[0, o] for o in range(5)],
    [[a, o] for o in range(5) for a in range(4)]],
    ids=['one', 'twice', 'one object', 'one attribute', 'open world'])
def test_pair_sets(build, pairs):
    assert_same(*build(prompt=HARD), torch.tensor(pairs))


def test_order_of_pairs(build):
    text, _ = build(prompt=HARD, chunk_size=3)
    order = torch.randperm(len(PAIRS), generator=torch.Generator().manual_seed(0))

    torch.testing.assert_close(text.encode_pairs(PAIRS[order]), text.encode_pairs(PAIRS)[order],
                               atol=1e-6, rtol=0)


@pytest.mark.parametrize('prefix_tree', [True, False])
def test_hard_prompts_are_the_sentences_themselves(build, prefix_tree):
    text, model = build(prompt=HARD, prefix_tree=prefix_tree)
    words = [['faux fur', 'old', 'red', 'unpainted'],
             ['boots mid calf', 'cat', 'dog', 'sofa', 'wardrobe']]
    sentences = [f'a photo of {words[0][a]} {words[1][o]}' for a, o in PAIRS.tolist()]
    tokens = get_tokenizer('text_plain')(sentences)

    got = text.encode_pairs(PAIRS)

    torch.testing.assert_close(got, model.encode_text(tokens, normalize=True), atol=1e-5, rtol=0)


@pytest.mark.parametrize('arch', ['text_plain', 'text_separate', 'text_bias'])
def test_tokens_are_all_states_of_the_tower(build, arch):
    text, model = build(arch, prompt=HARD, chunk_size=3)
    holder = model.text if hasattr(model, 'text') else model
    words = [['faux fur', 'old', 'red', 'unpainted'],
             ['boots mid calf', 'cat', 'dog', 'sofa', 'wardrobe']]
    ids = get_tokenizer(arch)(
        [f'a photo of {words[0][a]} {words[1][o]}' for a, o in PAIRS.tolist()])
    found = []
    handle = holder.ln_final.register_forward_hook(lambda _, __, output: found.append(output))
    pooled = model.encode_text(ids)
    handle.remove()

    states, mask = text.encode_tokens(PAIRS)

    torch.testing.assert_close(states, found[0], atol=1e-5, rtol=0)
    assert mask.equal(ids > 0)  # the start token to the end token
    end = mask.sum(1) - 1
    torch.testing.assert_close(text.project(states[torch.arange(len(PAIRS)), end]), pooled,
                               atol=1e-5, rtol=0)


def test_tokens_learn_and_are_kept_where_nothing_does(build):
    text, _ = build()
    text.encode_tokens(PAIRS).states.square().mean().backward()
    assert all(parameter.grad.abs().sum() > 0 for name, parameter in
               text.prompt.named_parameters() if 'composition' in name or 'vectors' in name)

    with torch.no_grad():
        first = text.eval().encode_tokens(PAIRS).states
        assert text.encode_tokens(PAIRS).states is first
        text.prompt.attributes.vectors.add_(0.1)
        assert not text.encode_tokens(PAIRS).states.equal(first)


def test_a_tower_without_token_states_says_so(build):
    with pytest.raises(ValueError, match='does not tell the states of its tokens'):
        build('text_class')[0].encode_tokens(PAIRS)


@pytest.mark.parametrize('prefix_tree', [True, False])
def test_pretrained_names_are_plain_sentences_whatever_was_learned(build, prefix_tree):
    text, model = build(prefix_tree=prefix_tree)
    for parameter in text.prompt.parameters():
        parameter.data += torch.randn_like(parameter)
    tokens = get_tokenizer('text_plain')(['a photo of boots mid calf', 'a photo of cat'])

    got = text.pretrained(['Boots.Mid-Calf', 'cat'])

    torch.testing.assert_close(got, model.encode_text(tokens), atol=1e-5, rtol=0)
    assert not got.requires_grad


@pytest.mark.parametrize('prefix_tree', [True, False])
def test_sentences_are_those_of_the_tower_and_kept(build, prefix_tree):
    text, model = build(prefix_tree=prefix_tree)
    sentences = ['two cats asleep', 'an old, unpainted wardrobe', 'red']
    got = text.encode_sentences(sentences)

    tokens = get_tokenizer('text_plain')(sentences)
    assert torch.allclose(got, normalize(model.encode_text(tokens), dim=-1), atol=1e-5)
    assert text.encode_sentences(sentences) is got and not got.requires_grad
    for number in range(4):
        text.encode_sentences([f'cat {number}'])
    assert text.encode_sentences(sentences) is not got, 'only the last few lists are kept'
    for bad in ('', 'word ' * 20):
        with pytest.raises(ValueError, match='1 to 14 tokens'):
            text.encode_sentences([bad])


def test_readable_gives_names_other_words(build):
    text, model = build(prompt=HARD, readable={'Boots.Mid-Calf': 'shoe'})
    tokens = get_tokenizer('text_plain')(['a photo of old shoe'])

    got = text.encode_pairs(torch.tensor([[1, 0]]))

    torch.testing.assert_close(got, model.encode_text(tokens, normalize=True), atol=1e-5, rtol=0)


def test_shared_prefixes_run_once_and_only_where_they_occur(build):
    text, _ = build(chunk_size=2)
    rows = []
    text.tower.text.transformer.resblocks[0].mlp.register_forward_hook(
        lambda _, inputs, __: rows.append(inputs[0].shape[:2].numel()))

    text.encode_pairs(PAIRS)

    # SOS and three words of context, three of the four attributes, object and EOS of each pair.
    assert sum(rows) == 4 + 3 + 2 * len(PAIRS)


def test_unit_norm_float32_and_frozen_tower_under_autocast(build):
    text, _ = build(with_cp=True)
    text.train()
    exact = text(PAIRS)

    with torch.autocast('cpu', dtype=torch.bfloat16):
        rough = text(PAIRS)
    sum(part.pow(3).sum() for part in rough).backward()

    for mine, theirs in zip(rough, exact):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine.norm(dim=1), torch.ones(len(mine)))
        assert (mine * theirs).sum(1).min() > 0.99
        assert not torch.equal(mine, theirs)
    for name, parameter in text.named_parameters():
        assert (parameter.grad is not None) == name.startswith('prompt.')
        assert parameter.grad is None or bool(parameter.grad.isfinite().all())
    assert not any(module.training for module in text.tower.modules())


def test_checkpointing_remembers_less(build):
    def remembered(with_cp):
        text, _ = build(with_cp=with_cp)
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(
                lambda tensor: saved.append(tensor.nbytes) or tensor, lambda tensor: tensor):
            text.encode_pairs(torch.cartesian_prod(torch.arange(4), torch.arange(5)))
        return sum(saved)

    assert remembered(True) < 0.5 * remembered(False)


def test_dropout_is_drawn_once_for_the_three_paths(build):
    text, model = build(prompt=dict(attr_dropout=0.5))
    drawn = []
    text.prompt.register_forward_hook(lambda _, __, parts: drawn.append(parts))

    features = text.train()(PAIRS)

    assert len(drawn) == 1
    zeros = (drawn[0].attributes == 0).float().mean()
    assert 0.2 < zeros < 0.8
    text.prompt.attributes.vectors.data = drawn[0].attributes.detach()
    text.prompt.objects.vectors.data = drawn[0].objects.detach()
    for mine, theirs in zip(features, reference(model, text, PAIRS)):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=0)


def test_temperature_comes_from_the_weights(build):
    text, model = build()
    learnt, _ = build(learn_temperature=True)

    assert text.logit_scale.item() == pytest.approx(model.logit_scale.item())
    assert not text.logit_scale.requires_grad
    assert learnt.logit_scale.requires_grad


@pytest.mark.parametrize('prompt', [{}, HARD], ids=['mean', 'tokens'])
def test_added_names_are_those_of_a_model_built_with_them(build, prompt):
    text, _ = build(prompt=prompt)
    other, _ = build(prompt=prompt, attributes=[*ATTRIBUTES, 'Very.Wet'],
                     objects=[*OBJECTS, 'umbrella', 'ice-cream'])
    pairs = torch.tensor([[4, 5], [0, 6], [4, 0], [1, 1]])
    keys = text.state_dict().keys()

    with torch.no_grad():
        before = text.eval()(PAIRS)
        text.extend(['Very.Wet'], ['umbrella', 'ice-cream'])
        after = text(pairs)
        for mine, theirs in zip(after, other.eval()(pairs)):
            torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=0)
        assert text.attributes[-1] == 'Very.Wet'
        assert text.state_dict().keys() == keys
        text.restore()
        assert text.objects == tuple(OBJECTS)
        for mine, theirs in zip(text(PAIRS), before):
            torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=0)


def test_bad_names_leave_the_model_as_it_was(build):
    text, _ = build(prompt=HARD)
    with pytest.raises(ValueError, match=r"there already: \['old'\]"):
        text.extend(['new', 'old'])
    with pytest.raises(ValueError, match='room for 14 tokens'):
        text.extend(['new'], ['a b c d e f g h i j k l'])
    with pytest.raises(ValueError, match='no tokens'):
        text.extend(['new'], [' '])
    assert text.attributes == tuple(ATTRIBUTES)
    assert len(text.encode_attributes()) == len(ATTRIBUTES)


def test_no_pairs(build):
    assert build()[0].encode_pairs(PAIRS[:0]).shape == (0, 24)


@pytest.mark.parametrize('pairs, message', [
    (torch.tensor([[0, 5]]), r'4 attributes and 5 objects, got indices from \[0, 5\]'),
    (torch.tensor([[-1, 0]]), r'from \[-1, 0\]'),
    (torch.tensor([0, 1]), r'shape \(P, 2\).*got torch.int64 of shape \(2,\)'),
    (torch.tensor([[0., 1.]]), 'got torch.float32'),
])
def test_wrong_pairs(build, pairs, message):
    text, _ = build()
    with pytest.raises(ValueError, match=message):
        text.encode_pairs(pairs)


def test_wrong_settings(build):
    with pytest.raises(ValueError, match='text.chunk_size must be at least 1, or None, got 0'):
        build(chunk_size=0)
    with pytest.raises(ValueError, match='prompt.context has 15'):
        build(prompt=dict(context='word ' * 15))


def test_copies_and_saved_states_give_the_same_features(build):
    text, _ = build()
    with torch.no_grad():
        text.prompt.contexts['composition'] += 0.1
        wanted = text.eval()(PAIRS)
        twin = copy.deepcopy(text)
        assert not twin.cache.names
        fresh, _ = build()
        fresh.eval().load_state_dict(text.state_dict())
        for mine, his, theirs in zip(twin(PAIRS), fresh(PAIRS), wanted):
            assert torch.equal(mine, theirs)
            assert torch.equal(his, theirs)


def test_trains_after_a_step_in_inference_mode(build):
    text, model = build(prompt=dict(attr_dropout=0.5))
    with torch.inference_mode():
        text.train()(PAIRS)
    text.prompt.dropout.p = 0

    assert_same(text, model)


@pytest.mark.slow
@pytest.mark.parametrize('training', [True, False])
def test_compiled(build, training):
    text, _ = build()
    text.train(training)
    with torch.set_grad_enabled(training):
        compiled = torch.compile(text, backend='eager')
        assert all(map(torch.equal, compiled(PAIRS), text(PAIRS)))
        assert all(map(torch.equal, compiled(PAIRS), text(PAIRS)))


def test_compact_checkpoints_hold_the_prompts_only(build):
    text, _ = build()
    parent = torch.nn.ModuleDict(dict(text=text))
    compact_state_hooks(parent)
    with torch.no_grad():
        text.prompt.objects.vectors += 1
        wanted = text.eval()(PAIRS)

    state = parent.state_dict()

    assert sum(value.numel() for name, value in state.items() if 'tower.text' in name) == 0
    other = torch.nn.ModuleDict(dict(text=build()[0].eval()))
    compact_state_hooks(other)
    other.load_state_dict(state)
    with torch.no_grad():
        assert all(map(torch.equal, other['text'](PAIRS), wanted))


def test_ut_zappos_on_vit_l_14_trains_as_many_parameters_as_the_paper():
    names = dict(attributes=[f'attribute {i}' for i in range(16)],
                 objects=[f'object {i}' for i in range(12)])
    with torch.device('meta'):
        text = MODELS.build(dict(type='mmcluspro.CLIPText', arch='ViT-L-14', **names))

    trained = {name: parameter.numel() for name, parameter in text.named_parameters()
               if parameter.requires_grad}
    assert sum(n for name, n in trained.items() if 'contexts' in name) == 6912
    assert sum(n for name, n in trained.items() if 'vectors' in name) == 21504
    assert sum(trained.values()) == 6912 + 21504
