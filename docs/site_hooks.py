"""Hooks of ``mkdocs build``: pages from files outside ``docs/``, links to them, formulas."""
import html
import re
from pathlib import Path
from posixpath import join, normpath

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
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
LINK = re.compile(r'(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)')
FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</(?:span|div)>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that live elsewhere in the repository."""
    for source, page in BORROWED.items():
        files.append(File.generated(
            config, page, content=(ROOT / source).read_text(encoding='utf-8')))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Rewrites links between files of the repository to links between pages."""
    sources = {target: source for source, target in BORROWED.items()}
    path = page.file.src_uri
    return relink(markdown, sources.get(path, join('docs', path)))


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
        return f'{image}[{text}]({path}{anchor or ""})'

    return LINK.sub(change, markdown)
