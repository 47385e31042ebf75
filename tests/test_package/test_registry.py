"""A name that is not found says what to write instead."""
import pytest
from mmengine.registry import HOOKS as ROOT_HOOKS
from mmengine.registry import MODELS as ROOT_MODELS
from mmengine.registry import DefaultScope

from mmcluspro.registry import DATASETS, MODELS, explain


def test_our_names_resolve_from_the_root_by_scope():
    assert ROOT_MODELS.get('mmcluspro.ThreePathHead').__name__ == 'ThreePathHead'
    assert ROOT_HOOKS.get('mmcluspro.LabelsHook').__name__ == 'LabelsHook'
    assert ROOT_HOOKS.get('mmcluspro.CurveHook').__name__ == 'CurveHook'


def test_a_full_path_still_resolves():
    path = 'mmcluspro.models.heads.three_path.ThreePathHead'
    assert ROOT_MODELS.get(path) is MODELS.get('ThreePathHead')


@pytest.mark.parametrize('registry, key, fix', [
    (MODELS, 'ThreePathHaed', "Did you mean 'mmcluspro.ThreePathHead'"),
    (MODELS, 'ImageClassifier', "type='mmpretrain.ImageClassifier'"),
    (MODELS, 'UTZappos', "'mmcluspro.UTZappos' is a dataset, not a model"),
    (DATASETS, 'Qqqqqqqq', 'custom_imports'),
])
def test_a_wrong_name_gets_a_hint(registry, key, fix):
    with pytest.raises(KeyError, match=f'mmcluspro has no {registry.name} named') as caught:
        registry.build(dict(type=f'mmcluspro.{key}'))
    assert fix in str(caught.value)


def test_a_forgotten_scope_is_explained():
    from mmpretrain.registry import MODELS as MMPRETRAIN_MODELS
    with DefaultScope.overwrite_default_scope('mmpretrain'), pytest.raises(KeyError) as caught:
        MMPRETRAIN_MODELS.build(dict(type='ThreePathHead'))
    assert "Write type='mmcluspro.ThreePathHead' in the config." in explain(caught.value)


def test_other_errors_are_left_alone():
    assert explain(KeyError('a')) is None


def test_a_wrong_field_lists_the_fields_there_are():
    with pytest.raises(TypeError) as caught:
        MODELS.build(dict(type='mmcluspro.PCLLoss', temprature=0.1))
    text = explain(caught.value)
    assert "sets 'temprature', a field that PCLLoss does not have" in text
    assert "Did you mean 'temperature'?" in text and 'loss_weight' in text
