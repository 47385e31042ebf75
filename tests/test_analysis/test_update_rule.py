"""docs/clustering.md: the table of the update rules is that of the records."""
from pathlib import Path

from experiments.run_store import read_lines

DOCS = Path(__file__).resolve().parents[2] / 'docs'


def validation(path):
    return {record['seed']: (record['options'], record['val_auc'][-1])
            for record in read_lines(path) if record['options'] in (
                [], ['model.head.bank.correct_only=False'])}


def test_the_page_shows_the_records():
    every = validation(DOCS / 'results' / 'update_rule.jsonl')
    default = validation(DOCS / 'results' / 'runs' / 'cluspro_shapes.jsonl')
    page = (DOCS / 'clustering.md').read_text(encoding='utf-8')
    for name, found in (('correctly classified ones (Algorithm 1, default)', default),
                        ('all (`correct_only=False`)', every)):
        values = [found[seed][1] for seed in every]
        cells = [f'{value:.2f}' for value in (*values, sum(values) / len(values))]
        assert f'| {name} | {" | ".join(cells)} |' in page
    assert all(options for options, _ in every.values())
    assert not any(options for options, _ in default.values())
