"""configs/README.md and README.md: tables are those of the records, commands exist."""
import re
import shlex
from pathlib import Path

import pytest

from mmcluspro.analysis import Store, load_tables
from mmcluspro.analysis.readme import fill_page, page_blocks

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / 'configs' / 'README.md'
TABLES = load_tables(ROOT / 'tools' / 'analysis_tools' / 'paper_tables.yml')


@pytest.mark.parametrize('page, table, name', [
    *((PAGE, key, key) for key in TABLES), (ROOT / 'README.md', 'table1', 'results')])
def test_a_table_is_that_of_the_records(page, table, name):
    store = Store(ROOT / 'docs' / 'results' / 'runs')
    expected = page_blocks([TABLES[table]], store, ROOT / 'configs')[name]
    block = re.search(rf'<!-- {name} -->\n(.*?)\n<!-- /{name} -->', page.read_text(), re.DOTALL)
    assert block and block[1] == expected, (
        'run tools/analysis_tools/reproduce.py table1 --collect-only --out docs/results --readme '
        'README.md configs/README.md')


def test_files_in_the_first_table_exist():
    text = PAGE.read_text().split('## Fields')[0]
    names = [name for name in re.findall(r'`([^`]+\.py)`', text) if '<' not in name]
    assert len(names) > 10
    for name in names:
        options = [part.split(',') for part in re.findall(r'{(.*?)}', name)]
        files = [re.sub(r'{.*?}', '{}', name)]
        for choices in options:
            files = [file.replace('{}', choice, 1) for file in files for choice in choices]
        for file in files:
            if '…' not in file and 'tools/' not in file:
                assert list((ROOT / 'configs').glob(file.removeprefix('configs/'))), file


def test_tools_in_the_commands_exist():
    blocks = re.findall(r'```bash\n(.*?)```', PAGE.read_text(), re.DOTALL)
    commands = [shlex.split(line) for block in blocks
                for line in block.replace('\\\n', ' ').splitlines()]
    assert len(commands) >= 6
    for words in commands:
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
