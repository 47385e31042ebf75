"""configs/README.md and README.md: tables are those of the records, commands exist."""
import fnmatch
import re
import shlex
from pathlib import Path

import pytest

from experiments import Run, Store, load_tables
from experiments.readme import fill_page, page_blocks, printed_counts
from mmcluspro.cli import COMMANDS
from mmcluspro.engine.configs import config_names

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / 'configs' / 'README.md'
STORE = Store(ROOT / 'docs' / 'results' / 'runs')
TABLES = load_tables(ROOT / 'tools' / 'analysis_tools' / 'paper_tables.yml')


@pytest.mark.parametrize('page, table, name', [
    *((PAGE, key, key) for key in TABLES), (ROOT / 'README.md', 'table1', 'results'),
    (ROOT / 'docs' / 'effect.md', 'table3', 'table3_shapes')])
def test_a_table_is_that_of_the_records(page, table, name):
    """Each number is computed from as many records as it says; newer records may wait."""
    block = re.search(rf'<!-- {name} -->\n(.*?)\n<!-- /{name} -->', page.read_text(), re.DOTALL)
    expected = page_blocks([TABLES[table]], STORE, ROOT / 'configs', printed_counts(block[1]))
    assert block[1] == expected[name], (
        'run tools/analysis_tools/reproduce.py table1 --collect-only --out docs/results --readme '
        'README.md configs/README.md')


@pytest.mark.parametrize('name', ['table1', 'results'])
def test_a_new_record_leaves_the_page_as_true_as_it_was(name):
    configs = ROOT / 'configs'
    store, more = Store(ROOT / 'no' / 'records'), Store(ROOT / 'no' / 'records')
    run = Run.make(configs / 'cluspro_shapes.py')
    store.records = {run.with_seed(seed).key: dict(seed=seed, metrics={
        f'{world}/{metric}': 40.0 + seed for world in ('czsl', 'czsl_open')
        for metric in ('seen', 'unseen', 'hm', 'auc')}) for seed in range(3)}
    block = page_blocks([TABLES['table1']], store, configs)[name]
    known = store.find(run.with_seed(0))
    more.records = dict(store.records)
    more.records[run.with_seed(99).key] = dict(known, seed=99, metrics={
        key: value + 1 for key, value in known['metrics'].items()})
    assert page_blocks([TABLES['table1']], more, configs)[name] != block
    counts = printed_counts(block)
    assert counts['ClusPro'] >= 3
    assert page_blocks([TABLES['table1']], more, configs, counts)[name] == block


def test_files_in_the_first_table_exist():
    text = PAGE.read_text().split('## Important fields')[0]
    names = [name.split()[-1] for name in re.findall(r'`([^`]+\.py)`', text) if '<' not in name]
    assert len(names) > 10
    for name in names:
        options = [part.split(',') for part in re.findall(r'{(.*?)}', name)]
        files = [re.sub(r'{.*?}', '{}', name)]
        for choices in options:
            files = [file.replace('{}', choice, 1) for file in files for choice in choices]
        for file in files:
            if '…' not in file and 'tools/' not in file:
                assert fnmatch.filter(config_names(), file.removeprefix('configs/')) or list(
                    (ROOT / 'configs').glob(file)), file


def test_tools_in_the_commands_exist():
    blocks = re.findall(r'```bash\n(.*?)```', PAGE.read_text(), re.DOTALL)
    commands = [shlex.split(line) for block in blocks
                for line in block.replace('\\\n', ' ').splitlines()]
    assert len(commands) >= 6
    for words in commands:
        if words[0] == 'mmcluspro':
            assert words[1] in COMMANDS and words[2] in config_names(), words
            continue
        assert (ROOT / words[1]).is_file(), words
        for word in words[2:]:
            if word.startswith('configs/') and 'CONFIG' not in word:
                assert (ROOT / word).is_file(), word


def test_a_page_is_filled_between_its_marks(tmp_path):
    page = tmp_path / 'page.md'
    page.write_text('a\n<!-- t1 -->\nold\n<!-- /t1 -->\nb\n<!-- t2 -->\n<!-- /t2 -->\n')
    assert fill_page(page, dict(t1='new \\1', t2='two', t3='no')) == ['t1', 't2']
    assert page.read_text() == (
        'a\n<!-- t1 -->\nnew \\1\n<!-- /t1 -->\nb\n<!-- t2 -->\ntwo\n<!-- /t2 -->\n')
