"""The site builds without a warning, and what its pages name exists."""
import ast
import importlib.util
import json
import re
from pathlib import Path

import pytest
import yaml

from mmcluspro.engine.launch import read_config

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / 'docs'
CONCEPTS = (DOCS / 'concepts.md').read_text()


@pytest.fixture(scope='module')
def site(tmp_path_factory):
    """The built site; a warning is an error."""
    build = pytest.importorskip('mkdocs.commands.build')
    from mkdocs.config import load_config
    folder = tmp_path_factory.mktemp('site')
    build.build(load_config(str(ROOT / 'mkdocs.yml'), site_dir=str(folder), strict=True))
    return folder


def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(site):
    pages = {path.name: path.read_text() for path in site.glob('*.html')}
    assert {'index.html', 'concepts.html', 'readme.html', 'configs.html'} <= set(pages)
    for name, text in pages.items():
        assert not re.findall(r'(?:<script|<img)[^>]*src="https?:', text), name
        assert not re.findall(r'<link[^>]*rel="(?:stylesheet|preconnect)"[^>]*https?:', text), name


def test_formulas_become_mathml(site):
    text = (site / 'concepts.html').read_text()
    assert text.count('<math') > 40 and 'arithmatex' not in text and '$' not in re.sub(
        r'<script.*?</script>', '', text, flags=re.DOTALL)


def test_the_api_page_has_the_docstrings(site):
    text = (site / 'api.html').read_text()
    for name in ('datasets.CompositionSpace', 'models.prototypes.PrototypeBank',
                 'evaluation.CZSLMetric', 'models.heads.ClusProHead'):
        assert f'id="mmcluspro.{name}"' in text
    assert 'mu of Eq. 9' in text


def test_every_page_is_in_the_navigation_once():
    text = re.sub(r'!!python\S+|!ENV', '', (ROOT / 'mkdocs.yml').read_text())
    listed = re.findall(r'\b([\w/]+\.md)\b', str(yaml.safe_load(text)['nav']))
    borrowed = {'readme.md', 'changelog.md', 'configs.md', 'contributing.md', 'security.md',
                'api_classes.md', 'results/README.md'}
    assert sorted(listed) == sorted({page.name for page in DOCS.glob('*.md')} | borrowed)


def test_each_file_of_the_map_exists_and_holds_what_it_says():
    rows = [[cell.strip() for cell in line.strip('|').split('|')]
            for line in re.findall(r'^\| .*`mmcluspro/.*\|$', CONCEPTS, flags=re.MULTILINE)]
    assert len(rows) >= 15
    for _, _, names, files in rows:
        modules = [importlib.import_module(file.removesuffix('.py').replace('/', '.'))
                   for file in re.findall(r'`(\S+)`', files)]
        for name in re.findall(r'`(\w+)`', names):
            assert any(getattr(getattr(module, name, None), '__module__', '') == module.__name__
                       for module in modules), (name, files)


@pytest.mark.parametrize('page', ['concepts.md', 'extending.md', 'other_projects.md'])
def test_each_dotted_name_of_a_page_exists(page):
    for name in re.findall(r'`(mmcluspro(?:\.\w+){2,})`', (DOCS / page).read_text()):
        module, _, attribute = name.rpartition('.')
        assert hasattr(importlib.import_module(module), attribute) or importlib.util.find_spec(name)


@pytest.mark.parametrize('page', sorted(DOCS.glob('*.md')), ids=lambda page: page.stem)
def test_each_path_that_a_page_names_exists(page):
    folders = r'`((?:mmcluspro|tools|configs|tests|docs)/[\w./-]+)`'
    for name in re.findall(folders, page.read_text()):
        assert (ROOT / name).exists() or '.mim' in name, f'{page.name}: {name}'


def test_the_settings_are_those_of_the_config():
    model = read_config(ROOT / 'configs' / 'cluspro_utzappos.py')
    rows = re.findall(r'^\| .* \| ([\d.]+) \| `([\w.]+)` \|$', CONCEPTS, flags=re.MULTILINE)
    assert len(rows) == 7
    for value, field in rows:
        found = model
        for part in field.split('.'):
            found = found[part]
        assert float(found) == float(value), field


def test_the_estimates_are_what_the_page_computes():
    page = (DOCS / 'training.md').read_text()
    names: dict = {}
    for code in re.findall(r'```python\n(.*?)```', page, flags=re.DOTALL):
        exec(code, names)
    rows = {}
    for line in re.findall(r'^\| (?:UT-Zappos|MIT-States|C-GQA) .*\|$', page, flags=re.MULTILINE):
        cells = [cell.strip() for cell in line.strip('|').split('|')]
        rows.setdefault(cells[0], []).append([float(cell.split()[0]) for cell in cells[2:]])
    record = json.loads((DOCS / 'results' / 'memory.json').read_text())
    assert {name: found[0] for name, found in rows.items()} == {
        name.split(' | ')[0]: list(cells.values()) for name, cells in record.items()}
    assert all(cells['as shipped'] < 23 for cells in record.values())
    assert {name: found[1] for name, found in rows.items()} == names['TIME']
    for file, name in (('utzappos', 'UT-Zappos'), ('mitstates', 'MIT-States'), ('cgqa', 'C-GQA')):
        batch = read_config(ROOT / 'configs' / f'cluspro_{file}.py').train_dataloader.batch_size
        assert batch == names['RUNS'][name][1]


def messages():
    """All texts in the code, with … for what is filled in."""
    for folder in ('mmcluspro', 'tools'):
        for path in (ROOT / folder).rglob('*.py'):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    yield ''.join(part.value if isinstance(part, ast.Constant) else '…'
                                  for part in node.values)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


# What other packages say: not to be found in our code.
FOREIGN = (
    'Failed building wheel', 'Fail to import', 'operator torchvision', 'No module named',
    'KeyError', 'TypeError', 'is not in the mmpretrain::model registry', 'CUDA out of memory',
    'WeightsUnpickler error')


def test_the_messages_that_the_faq_quotes_are_ours_word_by_word():
    page = (DOCS / 'faq.md').read_text()
    quoted = re.findall(r'^### `([^`]+)`$', page, flags=re.MULTILINE)
    quoted += re.findall(r'`(The PrototypeBank has no [^`]+)`', page)
    ours = [text for text in quoted if not any(words in text for words in FOREIGN)]
    assert len(ours) > 20
    said = list(messages())
    for message in ours:
        pattern = '.*'.join(re.escape(part) for part in message.split('…'))
        assert any(re.search(pattern, text, flags=re.DOTALL) for text in said), message


def test_the_table_of_score_spaces_is_that_of_its_records():
    text = (ROOT / 'docs' / 'evaluation.md').read_text()
    records = [json.loads(line) for line in
               (ROOT / 'docs' / 'results' / 'fusion.jsonl').read_text().splitlines()]
    shown = re.findall(r'\| `(\w+)` \| ([\d.]+) / ([\d.]+) \| ([\d.]+) / ([\d.]+) \|', text)
    names = ('czsl/auc', 'czsl/hm', 'czsl/auc_score', 'czsl/hm_score')
    assert shown == [(record['fusion'], *(f'{record["metrics"][name]:.2f}' for name in names))
                     for record in records]
    for record in records:
        if record['fusion'] == 'logits':
            assert record['metrics']['czsl/auc'] == record['metrics']['czsl/auc_score']
