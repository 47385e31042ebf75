#!/usr/bin/env python
"""Screenshots of the demo and the report of a run, for the documentation and to look at.

    python tools/visualization/screenshots.py work_dirs/cluspro_shapes              # docs/images
    python tools/visualization/screenshots.py work_dirs/cluspro_shapes --all /tmp/look

It needs ``pip install mmcluspro[docs,demo]`` and a Chromium (``apt-get install chromium``).
"""
from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from mmcluspro.cli import main as command
from mmcluspro.demo.demo_command import parse_args, prepare
from mmcluspro.demo.server import serve

IMAGES = Path(__file__).resolve().parents[2] / 'docs' / 'images'
SIZES = dict(wide=(1280, 900), phone=(390, 844))
NAMES = ('chromium', 'chromium-browser', 'google-chrome', 'chrome')


@contextmanager
def served(checkpoint: Path) -> Iterator[str]:
    """The address of the demo of a checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        app, endpoint = prepare(parse_args([str(checkpoint), '--device', 'cpu']), folder)
        try:
            yield serve(app, endpoint, folder, '127.0.0.1', None)
        finally:
            app.close(verbose=False)


def open_many(page: Page) -> None:
    """Shows the tab for many files."""
    page.get_by_role('tab', name='Many files').click()
    page.wait_for_selector('#classify-many')


def open_lists(page: Page) -> None:
    """Shows the lists, with one that cannot be read."""
    page.click('#lists > button')
    page.fill('#pairs textarea', 'red moon\npurple')
    page.click('#classify')
    page.wait_for_selector('#list-error [role=alert]')


def shoot(browser: Any, address: str, path: Path, size: str, dark: bool, whole: bool = True,
          ready: str = 'h1', act: Callable[[Page], None] = lambda page: None) -> None:
    """One screenshot."""
    width, height = SIZES[size]
    page = browser.new_page(viewport=dict(width=width, height=height),
                            color_scheme='dark' if dark else 'light')
    page.goto(address)
    page.wait_for_selector(ready, timeout=60_000)
    act(page)
    page.wait_for_timeout(1500)  # fonts, fading
    path.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=path, full_page=whole)
    print(path)
    page.close()


def main() -> None:
    """Parses the command line and takes them."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('run', type=Path, help='work folder of a training, with best_*.pth')
    parser.add_argument('--all', type=Path, metavar='FOLDER',
                        help='take all states, wide and narrow, light and dark, into a folder')
    args = parser.parse_args()
    checkpoint = sorted(args.run.glob('best_*.pth'))[-1]
    command(['report', str(args.run)])
    report = (args.run / 'report.html').resolve().as_uri()
    path = next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as play, served(checkpoint) as address:
        browser = play.chromium.launch(executable_path=path, args=['--no-sandbox'])
        answer = partial(shoot, browser, address, ready='.mm-best')
        if args.all is None:
            answer(IMAGES / 'demo.png', 'wide', dark=False)
            answer(IMAGES / 'demo_phone.png', 'phone', dark=False)
            shoot(browser, report, IMAGES / 'report.png', 'wide', dark=False, whole=False)
            return
        for size in SIZES:
            for dark in (False, True):
                name = f'{size}_{"dark" if dark else "light"}.png'
                answer(args.all / f'demo_{name}', size, dark)
                shoot(browser, report, args.all / f'report_{name}', size, dark)
            answer(args.all / f'lists_{size}.png', size, dark=False, act=open_lists)
            answer(args.all / f'many_{size}.png', size, dark=False, act=open_many)
        browser.close()


if __name__ == '__main__':
    main()
