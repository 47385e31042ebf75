"""DFSP: fusion recomputed image by image, its limits, and what learns."""
import pytest
import torch
from torch.nn import functional as F

from mmcluspro.models import Candidates
from mmcluspro.models.structures import Features
from mmcluspro.models.zoo.common import AttentionBlock

from .conftest import untouched

PROMPT = dict(prompt=dict(share_context=True))
DIRECTIONS = ('t2i', 'i2t', 'BiF')


def make(clip_head, direction='t2i', **fields):
    return clip_head('DFSPHead', PROMPT, in_channels=64, direction=direction,
                     **dict(dict(dropout=0.0), **fields))


def images(word_batch, size=5):
    feature, samples = word_batch(size, 64)
    tokens = torch.cat([feature[:, None], torch.randn(size, 6, 64)], dim=1)
    return Features(feature, tokens=tokens), samples


def attend(block, x, y):
    """Attention and MLP of one block with one head, written out."""
    q, read = block.norm_x(x), block.norm_y(y) if block.norm_y is not None else block.norm_x(x)
    weight, bias = block.attn.in_proj_weight.chunk(3), block.attn.in_proj_bias.chunk(3)
    q, k, v = (z @ w.T + b for z, w, b in zip((q, read, read), weight, bias))
    found = torch.softmax(q @ k.T / 8, dim=1) @ v  # heads are 64 wide
    x = x + block.attn.out_proj(found)
    hidden = block.mlp[0](block.norm(x))
    return x + block.mlp[3](hidden * torch.sigmoid(1.702 * hidden))


def by_hand(head, features, candidates):
    """Fused logits of each image and pair, with loops."""
    seen = head.text.encode_pairs(head.train_candidates.text_pairs)
    texts = head.text.encode_pairs(candidates.text_pairs)
    names = []
    for column, count in enumerate((len(head.space.attributes), len(head.space.objects))):
        for i in range(count):
            names.append(torch.stack([t for t, pair in zip(seen, head.train_candidates.pairs)
                                      if int(pair[column]) == i]).mean(0))
    names, w = torch.stack(names), head.weight
    unit = lambda x: x / x.norm()
    rows = []
    for f, x in zip(features.composition, features.tokens):
        y = attend(head.cross_image, x, names @ head.to_image.weight.T + head.to_image.bias) \
            if head.direction != 'i2t' else x
        image = unit(w * unit(f) + (1 - w) * unit(attend(head.self_image, y, y)[0]))
        if head.direction != 't2i':
            other = x @ head.to_text.weight.T + head.to_text.bias
            z = attend(head.cross_text, 8 * names, other)  # the root of 64
            z = [attend(head.self_text, row[None], row[None])[0] for row in z]
        row = []
        for t, (a, o) in zip(texts, candidates.pairs.tolist()):
            if head.direction == 't2i':
                drawn = attend(head.self_text, t[None], t[None])[0]
            else:
                drawn = head.compose(z[a] * z[len(head.space.attributes) + o])
            row.append(head.text.logit_scale.exp() * torch.dot(
                image, unit(w * t + (1 - w) * unit(drawn))))
        rows.append(torch.stack(row))
    return torch.stack(rows)


@pytest.mark.parametrize('tokens', (1, 7))
@pytest.mark.parametrize('direction', DIRECTIONS)
@torch.no_grad()
def test_scores_are_those_of_the_formula(clip_head, word_batch, direction, tokens):
    head = make(clip_head, direction).eval()
    for parameter in head.parameters():  # blocks start as the identity
        parameter.add_(torch.randn_like(parameter), alpha=0.05 if parameter.requires_grad else 0)
    features, _ = images(word_batch)
    features = Features(features.composition, tokens=features.tokens[:, :tokens])
    torch.testing.assert_close(head.score(features, head.known_candidates).pair, by_hand(
        head, features, head.known_candidates).softmax(1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('dropout', (0.0, 0.5))
@pytest.mark.parametrize('memory', (1, 4))
def test_attention_is_that_of_torch(memory, dropout):
    """Also for sequences that all images share, and with dropout of the weights."""
    torch.manual_seed(0)
    block = AttentionBlock(128, cross=True, attn_drop=dropout)
    torch.nn.init.normal_(block.attn.out_proj.weight)
    x, y = torch.randn(3, 5, 128), torch.randn(3, memory, 128)
    for query, read in ((x, y), (x[:1], y), (x, y[:1])):
        torch.manual_seed(1)
        got = block(query, read)  # its MLP starts with zeros
        normed = block.norm_x(query), block.norm_y(read)
        whole = [z.expand(3, -1, -1).contiguous() for z in normed]
        torch.manual_seed(1)
        want = query + block.attn(whole[0], whole[1], whole[1], need_weights=False)[0]
        torch.testing.assert_close(got.expand_as(want), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('direction', DIRECTIONS)
def test_the_losses_are_those_of_the_paper(clip_head, word_batch, direction):
    head = make(clip_head, direction)
    features, samples = images(word_batch)
    losses = head.loss(features, samples)

    labels = head.labels(samples)
    fused = by_hand(head, features, head.train_candidates)
    texts = head.text.encode_pairs(head.train_candidates.text_pairs)
    plain = head.text.logit_scale.exp() * F.normalize(features.composition, dim=1) @ texts.T
    torch.testing.assert_close(losses['pair_loss'], F.cross_entropy(fused, labels['pair']),
                               rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(losses['prompt_loss'],
                               0.1 * F.cross_entropy(plain, labels['pair']))
    for column, name in enumerate(('attr', 'obj')):
        owner = head.train_candidates.pairs[:, column]
        logits = torch.stack([plain[:, owner == i].mean(1) for i in range(int(owner.max()) + 1)], 1)
        torch.testing.assert_close(losses[f'{name}_loss'],
                                   0.01 * F.cross_entropy(logits, labels[name]))
    sum(losses.values()).backward()
    assert not untouched(head)


@pytest.mark.parametrize('direction', DIRECTIONS)
def test_without_fusion_it_is_a_soft_prompt(clip_head, word_batch, direction):
    head = make(clip_head, direction, weight=1.0).eval()
    plain = clip_head('ThreePathHead', PROMPT, fusion='composition',
                      loss_weights=dict(attr=0, obj=0)).eval()
    plain.text = head.text
    features, _ = images(word_batch)
    torch.testing.assert_close(head(features), plain(features), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize('direction', DIRECTIONS)
@torch.no_grad()
def test_one_token_chunks_and_listed_pairs(clip_head, word_batch, word_space, direction):
    """A score depends neither on the chunks nor on the other pairs of a list."""
    head = make(clip_head, direction).eval()
    features = Features(images(word_batch)[0].composition)
    logits = head.logits(features, head.known_candidates, False).composition
    head.chunk_size = 7
    torch.testing.assert_close(
        head.logits(features, head.known_candidates, False).composition, logits)
    names = [(word_space[0].attributes[a], word_space[0].objects[o])
             for a, o in word_space[0].pairs[[2, 5]].tolist()]
    listed = Candidates.from_names(head.text, head.space, names)
    torch.testing.assert_close(head.logits(features, listed, False).composition, logits[:, [2, 5]])


def test_new_words_are_scored_and_export_is_refused(clip_head, word_batch):
    head = make(clip_head, 'BiF').eval()
    with pytest.warns(UserWarning, match='Not in the training data'):
        listed = Candidates.from_names(head.text, head.space, [('teal', 'sock'), ('red', 'bag')])
    assert head.score(images(word_batch)[0], listed).pair.isfinite().all()
    with pytest.raises(ValueError, match='DFSPHead cannot be exported'):
        head.portable()


def test_wrong_fields_are_named(clip_head):
    with pytest.raises(ValueError, match=r"head\.direction must be one of .*'both'"):
        make(clip_head, 'both')
    with pytest.raises(ValueError, match=r'head\.weight must lie in'):
        make(clip_head, weight=2)


@pytest.mark.parametrize('direction', ('i2t', 'BiF'))
def test_autocast_reaches_the_fusion_and_not_the_cosines(clip_head, word_batch, direction):
    """Under bfloat16 the blocks compute in it; logits stay float32 and close."""
    torch.manual_seed(0)
    head = make(clip_head, direction)
    for block in head.modules():
        if isinstance(block, AttentionBlock):
            torch.nn.init.normal_(block.mlp[-1].weight, std=0.1)
    features, _ = images(word_batch)
    kinds = []
    head.cross_text.mlp[0].register_forward_hook(lambda *args: kinds.append(args[2].dtype))
    plain = head.logits(features, head.train_candidates).composition
    with torch.autocast('cpu', torch.bfloat16):
        mixed = head.logits(features, head.train_candidates).composition
    assert kinds == [torch.float32, torch.bfloat16] and mixed.dtype == torch.float32
    scale = head.text.logit_scale.exp()
    assert 0 < (plain - mixed).abs().max() < 0.01 * scale
