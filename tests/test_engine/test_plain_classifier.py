"""mmpretrain's own classifier on our data, measured by our metric."""
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner

from mmcluspro.datasets import ShapesCZSL
from mmcluspro.engine.hooks import EvaluationHook
from mmcluspro.evaluation import calculate


def config(work_dir, num_classes, **fields):
    def loader(phase, shuffle):
        return dict(
            batch_size=64, num_workers=0, collate_fn=dict(type='default_collate'),
            sampler=dict(type='DefaultSampler', shuffle=shuffle),
            dataset=dict(type='mmcluspro.ShapesCZSL', phase=phase, indices=list(range(0, 860, 4)),
                         pipeline=[dict(type='PackInputs',
                                        algorithm_keys=['attr_label', 'obj_label'])]))

    return Config(dict(
        default_scope='mmpretrain', work_dir=str(work_dir), log_level='WARNING',
        model=dict(
            type='ImageClassifier',
            data_preprocessor=dict(mean=[127.5] * 3, std=[127.5] * 3),
            backbone=dict(type='mmcluspro.CLIPVision', arch='tiny_clip', pretrained='tiny_clip'),
            head=dict(type='LinearClsHead', num_classes=num_classes, in_channels=64)),
        train_dataloader=loader('train', True), val_dataloader=loader('val', False),
        train_cfg=dict(by_epoch=True, max_epochs=4), val_cfg=dict(),
        optim_wrapper=dict(optimizer=dict(type='Adam', lr=0.05)),
        val_evaluator=[dict(type='mmcluspro.CZSLMetric'), dict(type='Accuracy')],
        randomness=dict(seed=0), **fields))


def test_one_numbering_in_all_phases():
    phases = {phase: ShapesCZSL(phase=phase) for phase in ('train', 'val', 'test')}
    classes, = {data.metainfo['classes'] for data in phases.values()}
    assert len(classes) == len(set(classes)) == 144
    for data in phases.values():
        for i in range(0, len(data), 50):
            info = data.get_data_info(i)
            assert classes[info['gt_label']] == (
                f'{data.space.attributes[info["attr_label"]]} '
                f'{data.space.objects[info["obj_label"]]}')


@pytest.mark.parametrize('hook', [None, EvaluationHook()], ids=['alone', 'with the hook'])
def test_a_plain_classifier_gets_the_numbers_of_its_scores(tmp_path, hook):
    runner = Runner.from_cfg(config(tmp_path, 144))
    if hook:
        runner.register_hook(hook)
    runner.train()
    scores, labels = [], []
    with torch.no_grad():
        for batch in runner.val_dataloader:
            samples = runner.model.val_step(batch)
            scores += [sample.pred_score.numpy() for sample in samples]
            labels += [int(sample.gt_label) for sample in samples]
    data = runner.val_dataloader.dataset
    rows = data.known.lookup(*data.space.pairs.T).numpy()
    want = calculate(np.stack(scores)[:, rows],
                     [rows.tolist().index(label) for label in labels],
                     data.space.seen, data.space.pairs, bias_on='log')
    history = {name: runner.message_hub.get_scalar(f'val/czsl/{name}').current() for name in want}
    assert history == want
    # Seen pairs are learnt, and no unseen one was ever a target.
    assert want['seen'] > 10 > want['unseen']
    assert runner.message_hub.get_scalar('val/accuracy/top1').current() > 5


def test_another_number_of_classes_is_refused(tmp_path):
    runner = Runner.from_cfg(config(tmp_path, 115))
    with pytest.raises(ValueError, match='pred_score has 115 numbers, but there are 144 pairs in '
                       'all phases: set head.num_classes'):
        runner.val()
