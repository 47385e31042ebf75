"""Every command and every Python block of the README and of the pages.

A Python block is run (the blocks of a page share their names), and its examples with ``>>>`` give
what the page says. A command is given to the parser of its tool: the tool, its flags and the
configs that it names exist. A comment directly above a block says why it is not run here:

- ``<!-- needs: gpu -->``, or data, network, checkpoint, and several of them with commas;
- ``<!-- runs in: tests/… -->``: another test runs it;
- ``<!-- fragment -->``: part of a config or of a class, which must be Python but for its ``...``.
"""
import argparse
import doctest
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import pytest

from mmcluspro.cli import COMMANDS

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest brings it
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
PAGES = [ROOT / 'README.md', ROOT / 'configs' / 'README.md', *sorted((ROOT / 'docs').glob('*.md'))]
NEEDS = {'gpu', 'data', 'network', 'checkpoint'}
# Commands of others, which have nothing of ours to check.
FOREIGN = {'pytest', 'mkdocs', 'mim', 'git', 'tensorboard', 'cd', 'mv', 'mkdir', 'ls', 'cat',
           'head', 'unzip', 'curl'}
COMMAND = re.compile(
    r'(?:\w+=\S+ )*(?:python (?:-m )?\S|tools/\S+\.sh \S|pip install \S|'
    rf'mmcluspro (?:{"|".join(COMMANDS)}) \S)')


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, its language, the comment above it, its text."""
    page: Path
    line: int
    language: str
    marker: str
    text: str

    def __str__(self) -> str:
        return f'{self.page.relative_to(ROOT)}:{self.line}'


def blocks(page: Path) -> list[Block]:
    found, fence, marker = [], None, ''
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if fence is None and line.startswith('```'):
            fence = (number, line[3:].strip().split(' ')[0], marker, [])
        elif fence is not None and line.startswith('```'):
            found.append(Block(page, fence[0], fence[1], fence[2], '\n'.join(fence[3])))
            fence = None
        elif fence is not None:
            fence[3].append(line)
        comment = re.fullmatch(r'<!-- (.*) -->', line)
        marker = comment[1] if comment else ''
    return found


def commands(page: Path) -> list[str]:
    """Commands in shell blocks, in indented and unnamed blocks, and inside sentences."""
    lines = []
    for block in blocks(page):
        if block.language in ('bash', 'sh', 'console', 'shell'):
            lines += re.sub(r'\\\n\s*', '', block.text).splitlines()
        elif not block.language:
            lines += [line for line in block.text.splitlines() if COMMAND.match(line)]
    prose = re.sub(r'^```.*?^```', '', page.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines += [line.strip() for line in prose.splitlines()
              if line.startswith('    ') and COMMAND.match(line.strip())]
    lines += [re.sub(r'\s+', ' ', code) for code in re.findall(r'(?<!`)`([^`]+)`(?!`)', prose)
              if COMMAND.match(code)]
    return [part for line in lines if line.strip() and not line.lstrip().startswith('#')
            for part in re.split(r'\s(?:&&|\|)\s', line.removeprefix('$ '))]


class Parsed(Exception):
    """The command line was understood."""


def parse(main: Callable, argv: list[str], monkeypatch) -> None:
    """Calls a tool up to the point where its arguments are parsed."""
    whole = argparse.ArgumentParser.parse_args

    def parse_args(self, args=None, namespace=None):
        whole(self, args, namespace)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, 'parse_args', parse_args)
    monkeypatch.setattr(sys, 'argv', argv)
    with pytest.raises(Parsed):
        main()


def load_tool(path: str):
    name = 'docs_' + re.sub(r'\W', '_', path)
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        with pytest.MonkeyPatch.context() as patch:  # as for a script: its folder is on the path
            patch.syspath_prepend(str((ROOT / path).parent))
            spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def unwrap_script(words: list[str], folder: Path) -> list[str]:
    """The python command that a shell script of ours starts, for stand-ins of its launcher."""
    for name in ('torchrun', 'srun'):
        stub = folder / name
        stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        stub.chmod(0o755)
    environment = dict(os.environ, PATH=f'{folder}:{os.environ["PATH"]}')
    said = subprocess.run([str(ROOT / words[0]), *words[1:]], env=environment, cwd=ROOT,
                          capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    argv = said.stdout.splitlines()
    tool = next(i for i, word in enumerate(argv) if word.endswith('.py') and 'tools/' in word)
    return ['python', str(Path(argv[tool]).resolve().relative_to(ROOT)), *argv[tool + 1:]]


def check(command: str, monkeypatch, folder: Path) -> None:
    if re.match(r'\w+=\$\(', command):
        return  # names for later lines
    words = shlex.split(command, comments=True)
    while words and re.match(r'\w+=', words[0]):
        words.pop(0)
    for word in words:
        if re.fullmatch(r'(docs|configs)/[^<>{}…]+\.py', word):
            assert glob(str(ROOT / word)), f'{word} does not exist'
    if words[0].endswith('.sh'):
        words = unwrap_script(words, folder)
    if words[0] == 'pip':
        for package, extras in re.findall(r"(\.|mmcluspro)\[([\w,]+)\]", command):
            unknown = set(extras.split(',')) - set(PROJECT['optional-dependencies'])
            assert not unknown, f'{package} has no extra {unknown}'
    elif words[:2] == ['python', '-c']:
        compile(words[2], command, 'exec')
    elif words[:2] == ['python', '-m']:
        assert importlib.util.find_spec(words[2])
    elif '…' in command:  # something is left out: no line to parse
        assert words[0] != 'python' or (ROOT / words[1]).exists(), words[1]
    elif words[0] == 'python' and words[1].startswith('tools/'):
        parse(load_tool(words[1]).main, words[1:], monkeypatch)
    elif words[0] == 'python':
        assert (ROOT / 'docs' / words[1]).exists() or (ROOT / words[1]).exists(), words[1]
    elif words[0] in PROJECT.get('scripts', {}):
        module, _, name = PROJECT['scripts'][words[0]].partition(':')
        parse(getattr(importlib.import_module(module), name), words, monkeypatch)
    else:
        assert words[0] in FOREIGN, f'what is {words[0]!r}?'


EVERY = [(page, command) for page in PAGES for command in dict.fromkeys(commands(page))]


@pytest.mark.parametrize('page, command', EVERY, ids=[f'{p.stem}: {c[:70]}' for p, c in EVERY])
def test_a_command_is_one_that_its_tool_understands(page, command, monkeypatch, tmp_path):
    check(command, monkeypatch, tmp_path)


@pytest.mark.parametrize('command, reason', [
    ('python tools/train.py configs/none.py', 'does not exist'),
    ('python tools/train.py configs/cluspro_shapes.py --ressume', 'SystemExit'),
    ('tools/dist_train.sh configs/cluspro_shapes.py 2 --nonsense', 'SystemExit'),
    ("pip install -e '.[nothing]'", 'has no extra'),
    ('pythn tools/train.py', "what is 'pythn'"),
])
def test_a_wrong_command_is_found(command, reason, monkeypatch, tmp_path):
    with pytest.raises((AssertionError, SystemExit)) as caught:
        check(command, monkeypatch, tmp_path)
    assert reason in repr(caught.value)


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.stem)
def test_a_comment_above_a_block_is_one_of_the_known(page):
    for block in blocks(page):
        kind, _, value = block.marker.partition(': ')
        assert kind in ('', 'needs', 'runs in', 'fragment'), block
        if kind == 'needs':
            assert set(value.split(', ')) <= NEEDS, block
        elif kind == 'runs in':
            assert (ROOT / value).is_file(), block


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.stem)
def test_the_python_of_a_page_runs(page, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'docs').mkdir()
    (tmp_path / 'docs' / 'images').symlink_to(ROOT / 'docs' / 'images')  # as in a clone
    names: dict = {'__name__': 'page'}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for block in blocks(page):
        if block.language not in ('python', 'py'):
            continue
        if '>>>' in block.text:
            test = doctest.DocTestParser().get_doctest(
                block.text + '\n', names, str(block), str(page), block.line)
            runner.run(test, clear_globs=False)
            names.update(test.globs)
            assert not runner.failures, f'{block}\n{capsys.readouterr().out}'
        else:
            whole = not block.marker.startswith('fragment')
            text = block.text if whole else re.sub(r',\s*\.\.\.\)', ')', block.text)
            code = compile('\n' * block.line + text, str(page), 'exec')
            if whole and not re.match('needs|runs in', block.marker):
                exec(code, names)
