import pytest

from experiments.summary import Summary
from experiments.table_report import epoch_rule
from experiments.tables import Row


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
