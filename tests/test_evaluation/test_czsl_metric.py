import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from mmengine.evaluator import Evaluator
from mmengine.structures import BaseDataElement

from mmcluspro.datasets.space import CompositionSpace
from mmcluspro.evaluation import (
    Chosen,
    CZSLMetric,
    Evaluation,
    calculate,
    feasibility_scores,
    log_scores,
    margins,
)
from mmcluspro.evaluation import metric as czsl_metric
from mmcluspro.registry import METRICS


def make_space(num_attrs=5, num_objs=6, num_pairs=18, num_seen=11, seed=0):
    generator = torch.Generator().manual_seed(seed)
    flat = torch.randperm(num_attrs * num_objs, generator=generator)[:num_pairs]
    return CompositionSpace(
        [f'a{i}' for i in range(num_attrs)], [f'o{i}' for i in range(num_objs)],
        torch.stack([flat // num_objs, flat % num_objs], 1), torch.arange(num_pairs) < num_seen)


def make_scores(space, targets_of, num=41, seed=0):
    """Scores over ``space`` and targets among the pairs of ``targets_of``."""
    generator = torch.Generator().manual_seed(seed)
    labels = targets_of.pairs[torch.randint(len(targets_of), (num, ), generator=generator)]
    targets = space.lookup(*labels.T)
    scores = torch.randn(num, len(space), generator=generator)
    scores[torch.arange(num), targets] += 2
    return scores, targets, labels


def run(metric, space, scores, labels, world='closed', batch=8, link='identity', rho=None):
    metric.dataset_meta = dict(space=space.to_dict(), evaluation=Evaluation(link=link, rho=rho))
    for start in range(0, len(scores), batch):
        metric.process(None, [
            {f'{world}_score': row, 'attr_label': attr, 'obj_label': int(obj)}
            for row, (attr, obj) in zip(scores[start:start + batch], labels[start:start + batch])
        ])
    return metric.evaluate(len(scores))


def expect(numbers, prefix='czsl'):
    return {f'{prefix}/{name}': pytest.approx(value) for name, value in numbers.items()}


@pytest.mark.parametrize('topk', [1, (1, 3)])
def test_closed_world_equals_calculate(topk):
    space = make_space()
    scores, targets, labels = make_scores(space, space)
    metric = METRICS.build(dict(type='mmcluspro.CZSLMetric', topk=topk))

    got = run(metric, space, scores, labels)

    assert got == expect(calculate(scores, targets, space.seen, space.pairs, topk))
    assert all(type(value) is float for value in got.values())
    assert metric.chosen == Chosen(bias=got['czsl/best_bias'])
    assert metric.curve.auc == pytest.approx(got['czsl/auc_exact'])
    assert metric.results == []


def softmax_case(num=200, seed=3):
    """Probabilities whose log margins and plain margins order the images differently."""
    space = make_space()
    logits, targets, labels = make_scores(space, space, num, seed)
    sharp = 6 * torch.rand(num, 1, generator=torch.Generator().manual_seed(seed)).double()
    logits = sharp * (logits.double() + space.seen)
    return space, logits, logits.softmax(1), targets, labels


@pytest.mark.parametrize('topk', [1, (1, 3)])
def test_the_bias_is_added_to_log_scores(topk):
    space, logits, scores, targets, labels = softmax_case()
    rest = targets, space.seen, space.pairs, topk

    got = run(CZSLMetric(topk=topk), space, scores, labels, link='log')

    # log p and the logits differ by a constant per image: the published sweep over logits.
    swept_logits, literal = calculate(logits, *rest), calculate(scores, *rest)
    for name, value in swept_logits.items():
        want = literal[name] if '_score' in name else value
        assert got[f'czsl/{name}'] == pytest.approx(want, abs=1e-9), name
    assert abs(got['czsl/auc'] - got['czsl/auc_score']) > 0.5  # the case tells them apart


def test_the_literal_sweep_and_the_identity_link():
    space, logits, scores, targets, labels = softmax_case()
    rest = targets, space.seen, space.pairs

    literal = run(CZSLMetric(bias_on='score'), space, scores, labels, link='log')
    identity = run(CZSLMetric(), space, logits, labels, link='identity')

    assert literal == expect(calculate(scores, *rest))
    assert identity == expect(calculate(logits, *rest))
    for numbers in (literal, identity):
        assert numbers['czsl/auc'] == numbers['czsl/auc_score']
        assert numbers['czsl/hm'] == numbers['czsl/hm_score']


def test_scores_that_underflow_are_cut_off_as_in_calibration():
    """A zero in float32 comes after all positive scores; whole sides of zeros tie by index."""
    space, logits, _, targets, labels = softmax_case(300)
    scores = (logits * 20).float().softmax(1)
    scores[7] = 0
    scores[8, space.seen] = 0
    assert (scores == 0).sum() > 100 and log_scores(scores).isfinite().all()

    got = run(CZSLMetric(topk=(1, 3)), space, scores, labels, link='log')

    rest = targets, space.seen, space.pairs, (1, 3)
    want = calculate(log_scores(scores.double()), *rest)
    literal = calculate(scores, *rest)
    for name, value in want.items():
        value = literal[name] if '_score' in name else value
        assert got[f'czsl/{name}'] == pytest.approx(value, abs=1e-9), name


def test_negative_scores_have_no_logarithm():
    space = make_space()
    scores, _, labels = make_scores(space, space)

    with pytest.raises(ValueError, match=r"sample 0 go down to -.* bias_on='score'"):
        run(CZSLMetric(), space, scores, labels, link='log')
    scores = scores.abs()
    scores[9] = -1  # found by its best pairs
    with pytest.raises(ValueError, match=r'sample 9 go down to -1'):
        run(CZSLMetric(), space, scores, labels, link='log')


def test_search_chooses_in_the_space_of_the_bias():
    numbers = {}
    for bias_on in ('log', 'score'):
        closed = make_space()
        space = closed.open_world()
        logits, targets, labels = make_scores(space, closed, num=200)
        scores = (3 * logits.double()).softmax(1)
        rho = torch.rand(5, 6, generator=torch.Generator().manual_seed(0)).double()
        metric = CZSLMetric(world='open', threshold='search', bias_on=bias_on)
        got = run(metric, closed, scores, labels, 'open', link='log', rho=rho)
        swept = scores.log() if bias_on == 'log' else scores
        every = [calculate(
            swept.masked_fill(~(space.seen | (rho.flatten() > value)), -1e9), targets,
            space.seen)['auc'] for value in np.linspace(
                rho.flatten()[~space.seen].min(), rho.flatten()[~space.seen].max(), 50)]
        assert got['czsl_open/auc'] == pytest.approx(max(every))
        numbers[bias_on] = got
    assert numbers['log']['czsl_open/auc'] != numbers['score']['czsl_open/auc']


@pytest.mark.parametrize('block', [1, 50, 10**6])
@pytest.mark.parametrize('copied', [False, True], ids=['row views', 'separate rows'])
def test_batches_and_memory_layout_do_not_matter(monkeypatch, block, copied):
    space = make_space()
    scores, targets, labels = make_scores(space, space)
    want = expect(calculate(scores, targets, space.seen, space.pairs))

    monkeypatch.setattr(margins, 'BLOCK', block)
    rows = [row.clone() for row in scores] if copied else scores

    assert run(CZSLMetric(), space, rows, labels, batch=7) == want


def test_rows_of_other_layouts():
    space = make_space()
    scores, targets, labels = make_scores(space, space)
    want = expect(calculate(scores, targets, space.seen, space.pairs))

    columns = scores.T.contiguous().T  # rows are strided
    backwards = list(scores)[::-1]  # rows of one tensor, but not neighbours

    assert run(CZSLMetric(), space, columns, labels) == want
    assert run(CZSLMetric(), space, backwards, labels.flip(0)) == want
    assert run(CZSLMetric(), space, list(scores.double()), labels) == want


def test_nothing_of_the_size_of_the_pairs_is_kept():
    space = make_space()
    scores, _, labels = make_scores(space, space)
    metric = CZSLMetric(bias_on='score')
    metric.dataset_meta = dict(space=space.to_dict())

    metric.process(None, [dict(closed_score=row, attr_label=attr, obj_label=obj)
                          for row, (attr, obj) in zip(scores, labels)])

    assert len(metric.results) == len(scores)
    assert {row.shape for row in metric.results} == {(7, )}


def test_through_mmengine_evaluator():
    space = make_space()
    scores, targets, labels = make_scores(space, space)
    evaluator = Evaluator(metrics=[dict(type='mmcluspro.CZSLMetric', bias_on='score')])
    evaluator.dataset_meta = dict(space=space.to_dict())

    for row, (attr, obj) in zip(scores, labels):
        evaluator.process([BaseDataElement(closed_score=row, attr_label=attr, obj_label=obj)])

    assert evaluator.evaluate(len(scores)) == expect(
        calculate(scores, targets, space.seen, space.pairs))


def open_world_run(metric, seed=1):
    closed = make_space()
    space = closed.open_world()
    scores, targets, labels = make_scores(space, closed, num=60)
    generator = torch.Generator().manual_seed(seed)
    rho = feasibility_scores(torch.randn(5, 4, generator=generator),
                             torch.randn(6, 4, generator=generator), space.train_pairs)
    numbers = run(metric, closed, scores, labels, 'open', rho=rho)
    return numbers, rho.flatten().double(), (scores, targets, space.seen, space.pairs)


def test_open_world_without_threshold_takes_all_pairs():
    metric = CZSLMetric(world='open')

    got, _, case = open_world_run(metric)

    assert got == expect(calculate(*case), 'czsl_open')
    assert not metric.wants_feasibility


@pytest.mark.parametrize('threshold', [-2, 0.1])
def test_open_world_with_a_number(threshold):
    metric = CZSLMetric(world='open', threshold=threshold)
    assert metric.wants_feasibility

    got, rho, (scores, targets, seen, pairs) = open_world_run(metric)

    filtered = scores.masked_fill(~(seen | (rho > threshold)), -1e9)
    want = calculate(filtered, targets, seen, pairs)
    assert got == expect(want | dict(threshold=threshold), 'czsl_open')
    assert metric.chosen.threshold == threshold


@pytest.mark.parametrize('topk', [1, (1, 2)])
def test_search_finds_the_best_of_50_evaluations(topk):
    metric = CZSLMetric(world='open', threshold='search', topk=topk)

    got, rho, (scores, targets, seen, pairs) = open_world_run(metric)

    candidates = np.linspace(rho[~seen].min(), rho[~seen].max(), 50)
    every = [calculate(scores.masked_fill(~(seen | (rho > value)), -1e9), targets, seen, pairs,
                       topk) for value in candidates]
    best = int(np.argmax([numbers['auc'] for numbers in every]))
    assert 0 < best < 49  # not trivial
    # hm_exact and auc_exact of a filtered-out true pair: -1e9 can still win at an infinite bias.
    want = {name: value for name, value in every[best].items() if 'exact' not in name}
    want['threshold'] = candidates[best]
    assert {name: got[f'czsl_open/{name}'] for name in want} == {
        name: pytest.approx(value) for name, value in want.items()}
    assert metric.chosen == Chosen(bias=got['czsl_open/best_bias'],
                                   threshold=got['czsl_open/threshold'])

    fixed, *_ = open_world_run(CZSLMetric(world='open', threshold=metric.chosen.threshold,
                                          topk=topk))
    assert fixed == pytest.approx(got)


def test_feasibility_from_word_vectors(tmp_path):
    space = make_space()
    words = torch.randn(11, 3, generator=torch.Generator().manual_seed(0))
    names = [*space.attributes, *space.objects]
    path = tmp_path / 'vectors.txt'
    path.write_text('\n'.join(
        f'{name} {" ".join(map(repr, row.tolist()))}' for name, row in zip(names, words)) + '\n')
    given = CZSLMetric(world='open', threshold=0.1)
    read = CZSLMetric(world='open', threshold=0.1, feasibility=dict(word_vectors=str(path)))
    scores, _, labels = make_scores(space.open_world(), space)
    rho = feasibility_scores(words[:5], words[5:], space.train_pairs)
    zeros = torch.zeros(5, 6)  # the config wins

    assert not read.wants_feasibility
    assert run(read, space, scores, labels, 'open', rho=zeros) == run(
        given, space, scores, labels, 'open', rho=rho)


def test_the_log_has_a_table(monkeypatch):
    messages = []
    monkeypatch.setattr(czsl_metric, 'print_log', lambda text, **_: messages.append(text))
    space = make_space()
    scores, _, labels = make_scores(space, space)
    labels[:] = space.pairs[space.seen][0]

    run(CZSLMetric(topk=(1, 3)), space, scores, labels)

    lines = messages[0].splitlines()
    assert lines[0] == 'closed world: 41 seen, 0 unseen images'
    assert lines[1].split()[:4] == ['seen', 'unseen', 'hm', 'auc']
    assert lines[2].startswith('top-1 ') and lines[3].startswith('top-3 ')
    assert len({len(line) for line in lines[1:]}) == 1
    assert 'no unseen images' in messages[1]


@pytest.mark.parametrize('arguments, message', [
    (dict(world='half'), r"evaluator\.world .*'half'"),
    (dict(threshold=0.3), r'evaluator\.threshold .* closed world, got 0\.3'),
    (dict(world='open', threshold='val'), r"evaluator\.threshold .* got 'val'"),
    (dict(world='open', feasibility=dict(glove=1)), r'evaluator\.feasibility .*glove'),
    (dict(world='open', num_thresholds=0), r'evaluator\.num_thresholds .* got 0'),
    (dict(topk=0), 'topk .* got 0'),
    (dict(bias_on='logit'), r"evaluator\.bias_on must be 'log' or 'score', got 'logit'"),
])
def test_wrong_config_fields_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        CZSLMetric(**arguments)


def test_wrong_data_is_named():
    space = make_space()
    scores, _, labels = make_scores(space, space)

    with pytest.raises(ValueError, match=r"needs dataset_meta\['space'\]"):
        CZSLMetric().process(None, [dict(closed_score=scores[0], attr_label=0, obj_label=0)])
    with pytest.raises(ValueError, match="needs open_score .* got .*closed_score"):
        metric = CZSLMetric(world='open')
        metric.dataset_meta = dict(space=space.to_dict())
        metric.process(None, [dict(closed_score=scores[0], attr_label=0, obj_label=0)])
    with pytest.raises(ValueError, match=r'each of the 18 pairs, got shape \(17,\)'):
        run(CZSLMetric(), space, scores[:, 1:], labels)
    scores[9, 3] = torch.nan
    with pytest.raises(ValueError, match='1 of the 18 pair scores of sample 9 '):
        run(CZSLMetric(), space, scores, labels)
    with pytest.raises(ValueError, match='no samples'):
        CZSLMetric().compute_metrics([])

    every = torch.cartesian_prod(torch.arange(len(space.attributes)),
                                 torch.arange(len(space.objects)))
    absent = every[space.lookup(*every.T) < 0][0]
    pair = rf'\(a{absent[0]}, o{absent[1]}\) of sample x\.jpg'
    with pytest.raises(ValueError, match=f'true pair {pair} is not among the 18 pairs'):
        metric = CZSLMetric()
        metric.dataset_meta = dict(space=space.to_dict())
        metric.process(None, [dict(closed_score=scores[0], attr_label=absent[0],
                                   obj_label=absent[1], img_path='x.jpg')])


@pytest.mark.parametrize('threshold, rho, message', [
    ('stored', torch.zeros(5, 6), r'test_evaluator\.threshold to a number'),
    (0.3, None, r'evaluator\.feasibility=dict\(word_vectors=path\)'),
    ('search', torch.zeros(6, 5), r'shape \(6, 5\) for a space of 5 attributes and 6 objects'),
    ('search', torch.full((5, 6), torch.nan), 'holds NaN or infinity'),
])
def test_missing_feasibility_says_what_to_do(threshold, rho, message):
    space = make_space()
    scores, _, labels = make_scores(space.open_world(), space)
    metric = CZSLMetric(world='open', threshold=threshold)
    with pytest.raises(ValueError, match=message):
        run(metric, space, scores, labels, 'open', rho=rho)
    metric.threshold, metric.results = None, []
    assert run(metric, space, scores, labels, 'open')


RANK_SCRIPT = """
import json, sys, torch, torch.distributed as dist
from mmcluspro.evaluation import CZSLMetric, Evaluation
rank, case = int(sys.argv[1]), torch.load(sys.argv[2], weights_only=True)
dist.init_process_group('gloo', init_method='file://' + sys.argv[3], rank=rank, world_size=2)
num = len(case['scores'])
metric = CZSLMetric(world='open', threshold='search', bias_on='score')
metric.dataset_meta = dict(space=case['space'], evaluation=Evaluation(rho=case['rho']))
mine = [i % num for i in range(rank, num + num % 2, 2)]  # as mmengine's sampler pads
for i in mine:
    metric.process(None, [dict(open_score=case['scores'][i], attr_label=case['labels'][i, 0],
                               obj_label=case['labels'][i, 1])])
print('RESULT', json.dumps([metric.evaluate(num), metric.chosen._asdict()]))
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_ranks_with_a_padded_batch_give_the_same_numbers(tmp_path):
    closed = make_space()
    scores, _, labels = make_scores(closed.open_world(), closed, num=15)
    rho = torch.rand(5, 6, generator=torch.Generator().manual_seed(0))
    torch.save(dict(scores=scores, labels=labels, rho=rho, space=closed.to_dict()),
               tmp_path / 'case.pt')
    metric = CZSLMetric(world='open', threshold='search')
    want = [run(metric, closed, scores, labels, 'open', rho=rho), metric.chosen._asdict()]

    ranks = [subprocess.Popen(
        [sys.executable, '-c', RANK_SCRIPT, str(rank), tmp_path / 'case.pt', tmp_path / 'init'],
        stdout=subprocess.PIPE, text=True) for rank in range(2)]

    for process in ranks:
        output = process.communicate(timeout=180)[0]
        assert process.returncode == 0
        assert json.loads(output.split('RESULT ')[1].splitlines()[0]) == want
