"""mmpretrain's get_model and inferencer with a config and a checkpoint of ours."""
from mmpretrain import ImageClassificationInferencer, get_model

import mmcluspro
from mmcluspro.engine.configs import config_names
from mmcluspro.engine.launch import read_config


def test_the_inferencer_answers_as_ours_without_a_bias(trained, pictures):
    with mmcluspro.safe_loading():
        model = get_model(read_config('baseline_shapes.py'), pretrained=str(trained[0]))
    theirs = ImageClassificationInferencer(model, device='cpu')(pictures[:4])
    ours = mmcluspro.load(trained[0], device='cpu').predict(pictures[:4], seen_bias=0.0)
    assert [answer['pred_class'] for answer in theirs] == [
        f'{answer.best.attribute} {answer.best.object}' for answer in ours]
    assert len({answer['pred_class'] for answer in theirs}) > 1


def test_names_for_read_config_are_listed():
    assert {'cluspro_shapes.py', 'csp_cgqa.py'} <= set(config_names())
