from types import SimpleNamespace

import pytest

from experiments.summary import Summary, summarise
from experiments.table_report import epoch_rule
from experiments.tables import Row, Table


@pytest.mark.parametrize('validations, text', [
    ([[50.0], [51.0]], ' The last epoch is tested.'),
    ([[49.0, 50.0], [51.0, 50.0]], ' The epoch that is best on validation is tested.'),
    ([[49.0, 50.0], [51.0]],
     ' Some runs are tested after their last epoch, others after the best on validation.'),
    ([[]], ''),
])
def test_a_caption_says_which_epoch_was_tested(validations, text):
    summaries = [Summary(Row('one'), records={seed: dict(val_auc=values)})
                 for seed, values in enumerate(validations)]
    assert epoch_rule(summaries) == text


@pytest.mark.parametrize('world, seeds', [('closed', [0, 1]), ('open', [1])])
def test_a_table_counts_the_runs_that_measured_its_world(world, seeds):
    runs = [SimpleNamespace(seed=seed, learns=True) for seed in (0, 1)]
    records = {0: {'metrics': {'czsl/auc': 5.0}},
               1: {'metrics': {'czsl/auc': 6.0, 'czsl_open/auc': 3.0}}}
    store = SimpleNamespace(find=lambda run: records[run.seed], changes=lambda run: [])
    row = Row('one', config='one.py')
    table = Table('table2', 'A table', world, ('shapes', ), (row, ), 'one')
    summary, = summarise(table, {'one': runs}, store)
    assert list(summary.records) == seeds
