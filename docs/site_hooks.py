"""Hooks of ``mkdocs build``: pages from elsewhere, all registered classes, links, formulas."""
import html
import re
from collections import defaultdict
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
# Source file in the repository → page of the site.
BORROWED = {
    'README.md': 'readme.md',
    'CHANGELOG.md': 'changelog.md',
    'CONTRIBUTING.md': 'contributing.md',
    'SECURITY.md': 'security.md',
    'configs/README.md': 'configs.md',
}
CLASSES = 'api_classes.md'  # is made here
LINK = re.compile(r'(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)')
FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</(?:span|div)>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that live elsewhere in the repository."""
    for source, page in BORROWED.items():
        files.append(File.generated(
            config, page, content=(ROOT / source).read_text(encoding='utf-8')))
    files.append(File.generated(config, CLASSES, content=registered_classes()))
    return files


def registered_classes() -> str:
    """A page with the docstrings of all registered classes that the page API does not show."""
    from mmcluspro import registry
    shown = set(re.findall(r'\w+', (ROOT / 'docs' / 'api.md').read_text(encoding='utf-8')))
    rooms: dict[str, list[str]] = defaultdict(list)
    for each in vars(registry).values():
        if not isinstance(each, registry.HelpfulRegistry):
            continue
        each.import_from_location()
        for part in each.module_dict.values():
            if part.__module__.startswith('mmcluspro.') and part.__name__ not in shown:
                room = '.'.join(part.__module__.split('.')[:3])
                rooms[room].append(f'::: {part.__module__}.{part.__name__}')
    parts = [f'## {room}\n\n' + '\n'.join(sorted(set(entries)))
             for room, entries in sorted(rooms.items())]
    return ('# All registered classes\n\nThe classes that configs can name and [API](api.md) does '
            'not show, by module. The arguments of a class are the fields of its config; write '
            "`type='mmcluspro.Name'`.\n\n" + '\n\n'.join(parts) + '\n')


def on_page_markdown(markdown: str, page: Page, files: Files, **_: object) -> str:
    """Rewrites links between files of the repository to links between pages."""
    sources = {target: source for source, target in BORROWED.items()}
    path = page.file.src_uri
    markdown = relink(markdown, sources.get(path, join('docs', path)))
    for found in LINK.finditer(markdown):  # mkdocs only mentions these
        target = files.get_file_from_path(normpath(join(path.rpartition('/')[0], found[3])))
        if target is not None and target.inclusion.is_excluded():
            raise PluginError(f'{path} links to {found[3]}, which is not part of the site.')
    return markdown


def on_page_content(content: str, **_: object) -> str:
    """Replaces TeX by MathML, which browsers show without any script."""
    return FORMULA.sub(
        lambda found: convert(html.unescape(found[3]).strip(),
                              display='inline' if found[2] == '(' else 'block'), content)


def relink(markdown: str, source: str) -> str:
    """Links of a Markdown file as the site needs them.

    Args:
        markdown (str): Text of the file.
        source (str): Its path in the repository.

    Returns:
        str: The text; links to pages lead to pages, links to other files of the repository,
        which are not on the site, become their text.
    """
    here = dirname(BORROWED.get(source, source.removeprefix('docs/'))) or '.'

    def change(found: re.Match) -> str:
        image, text, target, anchor = found.groups()
        if '://' in target:
            return found[0]
        path = normpath(join(source.rpartition('/')[0], target))
        if path in BORROWED:
            path = BORROWED[path]
        elif path.startswith('docs/'):
            path = path.removeprefix('docs/')
        elif (ROOT / path).exists():
            return text
        return f'{image}[{text}]({relpath(path, here)}{anchor or ""})'

    return LINK.sub(change, markdown)
