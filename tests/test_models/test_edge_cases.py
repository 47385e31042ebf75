"""Models where something is empty, single, or not there."""
import pytest
import torch
from open_clip.model import CLIP, CustomTextCLIP
from torch.nn import functional as F

from mmcluspro.models import clip
from mmcluspro.models.backbones import ProjectedBackbone
from mmcluspro.models.clip import fill_weights
from mmcluspro.models.necks import mlp
from mmcluspro.models.prototypes import PrototypeBank, problems
from mmcluspro.models.prototypes.assign import local_aware_assign
from mmcluspro.models.prototypes.bank import (
    assign_together,
    update_together,
    usage_balance,
)
from mmcluspro.models.prototypes.exact import armijo
from mmcluspro.models.prototypes.start import spherical_kmeans
from mmcluspro.models.structures import Features
from mmcluspro.models.text import WordVectorText
from mmcluspro.models.zoo.caila import CAILAVision


def bank_of(classes=2, dim=4, **fields):
    torch.manual_seed(0)
    bank = PrototypeBank(classes, dim, **fields)
    labels = torch.arange(classes).repeat(6)
    bank.initialise(F.normalize(torch.randn(len(labels), dim), dim=1), labels)
    return bank


def test_an_empty_batch_changes_nothing():
    bank = bank_of(num_prototypes=2)
    before = {name: value.clone() for name, value in bank.state_dict().items()}
    none, labels = torch.zeros(0, 4), torch.zeros(0, dtype=torch.long)
    rows, = assign_together([bank], [none], [labels])
    assert rows.shape == (0, )
    update_together([bank], [none], [labels], [rows])
    assert all(value.equal(before[name]) for name, value in bank.state_dict().items())


def test_one_prototype_each_is_in_balance():
    assert float(usage_balance(torch.tensor([1.0, 1.0]), torch.tensor([0, 1, 2]))) == 1
    two = usage_balance(torch.tensor([1.0, 1.0, 0.0]), torch.tensor([0, 1, 3]))
    assert float(two) == 0


def test_health_of_a_bank_that_did_not_move_and_has_no_transport():
    bank = bank_of(num_prototypes=2, queue_size=0, assigner=dict(type='mmcluspro.CosineAssigner'))
    found = bank.health()
    assert found['drift'] == found['lag'] == found['transport'] == 0
    vectors = torch.zeros(4, 4)
    bank.last_move = (vectors, vectors, vectors, torch.zeros(4, dtype=torch.bool), slice(None))
    assert bank.health()['drift'] == 0


def test_transport_that_never_ran_has_nothing_to_warn_of(recwarn):
    assigner = PrototypeBank(2, 4, num_prototypes=2).assigner
    assert assigner.report is None
    assigner.warn_if_unconverged()
    assert not recwarn.list


def test_a_context_without_counts_is_full():
    torch.manual_seed(0)
    features, labels = torch.randn(6, 4), torch.tensor([0, 1, 0, 1, 0, 1])
    prototypes, context = torch.randn(4, 4), torch.randn(2, 5, 4)
    given = local_aware_assign(features, labels, prototypes, 2, context=context,
                               context_count=torch.tensor([5, 5]))
    got = local_aware_assign(features, labels, prototypes, 2, context=context)
    assert got.rows.equal(given.rows) and got.plan.equal(given.plan)


def test_a_large_table_gives_the_same_cosines(monkeypatch):
    torch.manual_seed(0)
    features, prototypes = F.normalize(torch.randn(5, 3), dim=1), torch.randn(6, 3)
    labels, offsets = torch.tensor([0, 1, 2, 1, 0]), torch.tensor([0, 1, 3, 6])
    small = problems.own_cosines(features, labels, prototypes, offsets)
    monkeypatch.setattr(problems, 'SMALL_TABLE', 0)
    large = problems.own_cosines(features, labels, prototypes, offsets)
    torch.testing.assert_close(large, small)


def test_a_line_search_gives_up_after_its_trials():
    value, active = torch.zeros(2), torch.tensor([True, True])
    # The first class falls at once, the second one rises at any step.
    step = armijo(lambda t: torch.stack([-t[0, 0, 0], t[1, 0, 0]]), value,
                  torch.tensor([-1.0, -1.0]), active, max_trials=3)
    assert step.flatten().tolist() == [1.0, 0.0]


def test_clusters_after_no_step_are_the_drawn_features():
    torch.manual_seed(0)
    features = F.normalize(torch.randn(8, 3), dim=1)
    centres = spherical_kmeans(features, 2, torch.Generator().manual_seed(0), steps=0)
    torch.testing.assert_close((centres @ features.T).max(dim=1).values, torch.ones(2))


@pytest.mark.parametrize('widths, norm, last, kinds', [
    ((4, 2), True, False, 'Linear'), ((4, 2), False, True, 'Linear ReLU'),
    ((4, 3, 2), False, False, 'Linear ReLU Dropout Linear'),
    ((4, 3, 2), True, True, 'Linear LayerNorm ReLU Dropout Linear ReLU')])
def test_layers_of_an_mlp(widths, norm, last, kinds):
    layers = mlp(widths, norm, 0.5, last)
    assert [type(layer).__name__ for layer in layers] == kinds.split()
    assert layers(torch.ones(1, 4)).shape == (1, 2)


def word_text(word_space, path, **fields):
    space, file = word_space
    return WordVectorText(space.attributes, space.objects, file if path else None, width=6,
                          out_dim=4, hidden_dim=5, **fields)


def test_words_of_a_checkpoint_stand_in_for_those_of_the_file(word_space):
    text, other = word_text(word_space, True), word_text(word_space, False)
    other.load_state_dict(text.state_dict())
    names = ['red', 'boot', 'cap']
    torch.testing.assert_close(other.pretrained(names), text.pretrained(names))
    with pytest.raises(ValueError, match="The model has no vectors for 'red', 'teal': they come "
                       'from the file of word vectors .* Give it with --weights words=FILE'):
        other.pretrained(['red', 'teal'])
    with pytest.raises(ValueError, match="no vectors for 'teal'"):
        other.extend(attributes=['teal'])


def test_no_pairs_are_in_any_range(word_space):
    text = word_text(word_space, True)
    text._check_range(torch.zeros(0, 2, dtype=torch.long))
    with pytest.raises(ValueError, match='pairs must index 4 attributes and 5 objects'):
        text._check_range(torch.tensor([[4, 0]]))


@pytest.mark.parametrize('comm, inverse, extra', [
    (0.0, 0.0, set()), (1.0, 0.0, {'comm_loss'}), (0.0, 1.0, {'inv_loss'}),
    (1.0, 1.0, {'comm_loss', 'inv_loss'})])
def test_losses_of_attributes_as_operators(comm, inverse, extra, zoo):
    head = zoo.head('AoPHead', dict(type='AoPText', out_dim=6), comm_weight=comm,
                    inv_weight=inverse)
    plain = set(zoo.head('AoPHead', dict(type='AoPText', out_dim=6)).loss(*zoo.batch(6)))
    assert set(head.loss(*zoo.batch(6))) == plain | extra


def test_canet_without_texts_of_names_compares_pairs_only(word_head, word_batch):
    head = word_head('CANetHead', 'WordVectorText', dict(out_dim=8, hidden_dim=9), in_channels=10,
                     dim=8, dropout=0.0)
    feature, _ = word_batch(3, 8)
    candidates = head.known_candidates
    texts = head.texts(candidates)._replace(attribute=None, object=None)
    with torch.no_grad():
        got = head.compare(Features(feature), texts, candidates)
        pairs = F.normalize(feature, dim=1) @ texts.composition.T
    assert got.attribute is None and got.object is None
    torch.testing.assert_close(got.composition, head.text.logit_scale.exp() * pairs)


def test_names_have_no_descriptions(clip_head):
    text = clip_head('PLIDHead', dict(type='mmcluspro.PLIDText', num_texts=3, attn_dropout=0.0,
                                      prompt=dict(share_context=True))).text
    with torch.no_grad():
        parts = text.parts()
        got = text.embed('attribute', parts, None)
        assert got.equal(super(type(text), text).embed('attribute', parts, None))
    assert got.shape == (4, 64)


@torch.no_grad()
def test_towers_with_the_batch_second_give_the_same_features():
    backbone = CAILAVision('tiny_clip', mixture_from=1).eval()
    image = torch.randn(2, 3, 48, 48)
    expected = backbone(image)
    for block in backbone.visual.transformer.resblocks:
        block.attn.batch_first = False
    backbone.visual.transformer.batch_first = False
    for got, want in zip(backbone(image).paths.values(), expected.paths.values()):
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


def test_norms_of_the_text_tower_learn_on_request(clip_head):
    def learned(norms):
        text = dict(type='mmcluspro.CAILAText', norms=norms, prompt=dict(learn=(), names='tokens'))
        tower = clip_head('CAILAHead', text).text.tower
        return {name for name, p in tower.named_parameters() if p.requires_grad}

    kept, norms = learned(False), learned(True)
    assert not any('text_projection' in name or 'ln_final' in name for name in kept)
    assert any('text_projection' in name for name in norms) and kept < norms


@pytest.mark.parametrize('frozen', [True, False])
def test_a_projection_from_a_file_is_frozen_with_its_backbone(frozen, tmp_path):
    path = tmp_path / 'clip.pt'
    weights = {'visual.proj.weight': torch.randn(5, 84), 'visual.proj.bias': torch.randn(5)}
    torch.save(weights, path)
    tower = ProjectedBackbone(dict(type='mmpretrain.LeNet5'), 84, 5, pool=None, frozen=frozen,
                              pretrained=str(path))
    assert tower.proj.weight.equal(weights['visual.proj.weight'])
    assert {p.requires_grad for p in tower.parameters()} == {not frozen}


def test_weights_of_one_layout_fill_the_other(small_configs):
    fields = dict(embed_dim=24, vision_cfg=dict(image_size=32, patch_size=8, width=48,
                                                head_width=12, layers=1),
                  text_cfg=dict(context_length=16, vocab_size=64, width=32, heads=2, layers=1))
    plain, custom = CLIP(**fields), CustomTextCLIP(**fields)
    fill_weights(custom, plain.state_dict(), 'small', 'own.pt', resample=False)
    assert custom.text.positional_embedding.equal(plain.positional_embedding)
    assert custom.text.token_embedding.weight.equal(plain.token_embedding.weight)
    assert custom.visual.proj.equal(plain.visual.proj)


@pytest.mark.parametrize('suffix, reader', [('.npz', 'arrays'), ('.pt', 'tensors')])
def test_arrays_of_big_vision_are_read_by_open_clip(suffix, reader, monkeypatch, tmp_path):
    read = []
    state = clip.load_clip('small_gelu').state_dict()
    monkeypatch.setattr(clip, 'find_tag', lambda *args: dict(hf_hub='x'))
    monkeypatch.setattr(clip, '_download', lambda *args: tmp_path / f'x{suffix}')
    monkeypatch.setattr(clip, 'load_checkpoint', lambda model, path: read.append('arrays'))
    monkeypatch.setattr(clip, 'read_weights',
                        lambda path: read.append('tensors') or (state, False))
    clip.load_clip('small_gelu', 'ours')
    assert read == [reader]
