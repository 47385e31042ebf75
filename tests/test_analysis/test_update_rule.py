"""docs/clustering.md: the table of the update rules is that of the records."""
from pathlib import Path

from experiments.run_store import read_lines

DOCS = Path(__file__).resolve().parents[2] / 'docs'


def validation(path, *options):
    """Validation AUC by seed of the runs with these options."""
    return {record['seed']: record['val_auc'][-1] for record in read_lines(path)
            if record['options'] == list(options)}


def test_the_page_shows_the_records():
    default = validation(DOCS / 'results' / 'runs' / 'cluspro_shapes.jsonl')
    page = (DOCS / 'clustering.md').read_text(encoding='utf-8')
    rows = {f'{name} (`{field}=False`)': validation(
        DOCS / 'results' / 'update_rule.jsonl', f'model.head.bank.{field}=False')
        for name, field in (('all', 'correct_only'), ('mean as it is', 'normalize_mean'))}
    rows['correctly classified ones, unit mean (Algorithm 1, default)'] = default
    for name, found in rows.items():
        values = [found[seed] for seed in range(5)]
        cells = [f'{value:.2f}' for value in (*values, sum(values) / len(values))]
        assert f'| {name} | {" | ".join(cells)} |' in page
