"""The page in a real, headless Chromium."""
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mmcluspro.demo.demo_command import NO_PROTOTYPES, parse_args, prepare
from mmcluspro.demo.server import serve

pytest.importorskip('gradio')
playwright = pytest.importorskip('playwright.sync_api')
PATIENCE = 60_000  # milliseconds: a machine with two busy cores is slow


@pytest.fixture(scope='module')
def address(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp('page'))
    app, endpoint = prepare(parse_args(['--device', 'cpu']), folder)
    yield serve(app, endpoint, folder, '127.0.0.1', None)
    app.close(verbose=False)


@pytest.fixture(scope='module')
def browser():
    with playwright.sync_playwright() as play:
        own = play.chromium.executable_path
        names = ('chromium', 'chromium-browser', 'google-chrome', 'chrome')
        path = next(filter(None, map(shutil.which, names)), own if Path(own).exists() else None)
        if path is None:
            pytest.skip('no Chromium on this machine: apt-get install chromium')
        browser = play.chromium.launch(executable_path=path, args=['--no-sandbox'])
        yield browser
        browser.close()


@pytest.fixture
def page(browser, address):
    page = browser.new_page(viewport=dict(width=1100, height=900))
    page.set_default_timeout(PATIENCE)
    playwright.expect.set_options(timeout=PATIENCE)
    page.asked, page.faults = [], []
    page.on('request', lambda request: page.asked.append(request.url))
    page.on('pageerror', lambda error: page.faults.append(str(error)))
    page.goto(address)
    page.wait_for_selector('.mm-best')
    yield page
    assert page.faults == []
    page.close()


def overflow(page):
    return page.evaluate('document.documentElement.scrollWidth - innerWidth')


def pick_by(page, act):
    """Picks another example and waits for its numbers."""
    bars = 'document.querySelector("#answer ol")?.innerHTML'
    before = page.evaluate(bars)
    act()
    page.wait_for_function(f'old => {bars} && {bars} !== old', arg=before)


def wait_for_best(page, words):
    playwright.expect(page.locator('.mm-best strong')).to_have_text(re.compile(words))


def test_the_page_classifies_its_first_example_and_asks_nobody_else(page, address):
    text = page.inner_text('#answer')
    assert 'best of 144 pairs' in text and 'unseen' in text
    assert page.locator('#answer li').count() == 8
    assert page.locator('#details li').count() == 10
    assert NO_PROTOTYPES[:30] in page.inner_text('#details')
    assert [url for url in page.asked if not url.startswith((address, 'data:', 'blob:'))] == []


def test_an_example_is_classified_and_a_changed_list_changes_the_answer(page):
    pick_by(page, page.locator('#examples button').nth(1).click)
    page.click('#lists > button')
    page.fill('#pairs textarea', 'purple teapot')
    page.click('#classify')
    wait_for_best(page, '^purple teapot$')
    assert '100.0 % · best of 1 pair' in page.inner_text('#answer')
    assert 'Not in the training data' in page.inner_text('#answer')
    page.fill('#pairs textarea', 'purple')
    page.click('#classify')
    playwright.expect(page.locator('#list-error [role=alert]')).to_contain_text('Line 1')
    assert 'below the list' in page.inner_text('#answer')


def test_attributes_and_objects_can_be_crossed(page):
    page.click('#lists > button')
    page.get_by_label('All pairs of these').check()
    page.fill('#attributes textarea', 'red, blue')
    page.fill('#objects textarea', 'star\nmoon\nfish')
    page.click('#classify')
    playwright.expect(page.locator('.mm-best')).to_contain_text('best of 6 pairs')


def test_the_slider_moves_between_seen_and_unseen(page):
    for value, tag in (('6', 'unseen'), ('-6', 'seen')):
        page.fill('#bias input[type=number]', value)
        page.press('#bias input[type=number]', 'Enter')
        playwright.expect(page.locator('#answer li').first.locator('.mm-tag')).to_have_text(tag)


def test_a_bad_picture_and_a_bad_list_are_both_said_where_they_are(page, tmp_path):
    note = tmp_path / 'note.png'
    note.write_text('These are words, not pixels.')
    page.click('#picture button[aria-label="Remove Image"]')
    playwright.expect(page.locator('#answer')).to_contain_text('Upload a picture')
    page.click('#lists > button')
    playwright.expect(page.locator('#classify')).to_be_disabled()
    page.fill('#pairs textarea', 'red')
    page.locator('#pairs textarea').blur()
    page.wait_for_timeout(1000)  # the page sends the list a moment after it was typed
    page.set_input_files('#picture input[type=file]', note)
    playwright.expect(page.locator('#picture-error [role=alert]')).to_contain_text(
        'cannot be read as a picture')
    playwright.expect(page.locator('#list-error [role=alert]')).to_contain_text("got 'red'")
    assert 'below the picture and below the list' in page.inner_text('#answer')
    assert page.inner_text('#details').strip() == ''
    page.fill('#pairs textarea', 'red star')
    page.click('#picture button[aria-label="Remove Image"]')
    page.set_input_files('#picture input[type=file]', note.rename(tmp_path / 'note.txt'))
    playwright.expect(page.get_by_text('note.txt').first).to_be_visible()
    page.locator('#examples button').first.click()
    page.wait_for_selector('.mm-best')
    playwright.expect(page.locator('[role=alert]')).to_have_count(0)


def test_noise_gets_a_remark_and_an_example_does_not(page, tmp_path):
    remark = page.locator('#answer').get_by_text('looks unlike those')
    assert remark.count() == 0
    noise = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / 'noise.png')
    page.click('#picture button[aria-label="Remove Image"]')
    page.set_input_files('#picture input[type=file]', tmp_path / 'noise.png')
    playwright.expect(remark).to_be_visible()


def test_attributes_are_explained_where_they_differ_from_the_pair(page):
    names = page.locator('#examples button').count()
    for number in range(names):
        if number:
            pick_by(page, page.locator('#examples button').nth(number).click)
        best = page.inner_text('.mm-best strong').split()
        alone = [page.locator('#details ol').nth(side).locator('.mm-name').first.inner_text()
                 for side in (0, 1)]
        words = page.inner_text('#details')
        assert ('That is why' in words) == (best != alone), (best, alone)


def test_the_page_does_not_jump_between_its_tabs(page):
    left = page.locator('h1').bounding_box()
    page.get_by_role('tab', name='Many files').click()
    page.wait_for_selector('#classify-many')
    assert page.locator('h1').bounding_box() == left


def test_nothing_is_wider_than_a_phone(page):
    page.set_viewport_size(dict(width=390, height=844))
    assert overflow(page) <= 0
    page.click('#lists > button')
    page.fill('#pairs textarea', 'counterrevolutionary misunderstandings')
    page.click('#classify')
    wait_for_best(page, '^counter')
    assert overflow(page) <= 0
    picture, answer, examples = (page.locator(name).bounding_box()
                                 for name in ('#picture', '#answer', '#examples'))
    assert picture['y'] + picture['height'] <= answer['y'] < 600
    assert examples['y'] > answer['y'] + answer['height'] and examples['height'] < 150
    page.fill('#pairs textarea', 'x' * 300)
    page.click('#classify')
    page.wait_for_selector('#list-error [role=alert]')
    assert overflow(page) <= 0


def test_the_main_flow_works_by_keyboard(page):
    def tab_to(selector):
        for _ in range(30):
            page.keyboard.press('Tab')
            if page.evaluate('name => document.activeElement.matches(name)', selector):
                return
        raise AssertionError(f'{selector} is not reached by Tab')

    tab_to('#examples button:nth-child(2)')
    pick_by(page, lambda: page.keyboard.press('Enter'))
    tab_to('#lists > button')
    page.keyboard.press('Enter')
    page.wait_for_selector('#pairs textarea')
    tab_to('#pairs textarea')
    page.keyboard.press('Control+a')
    page.keyboard.type('dotted tree')
    tab_to('#classify')
    page.keyboard.press('Enter')
    wait_for_best(page, '^dotted tree$')
    tab_to('#bias input[type=range]')


def test_what_stands_side_by_side_is_aligned(page):
    def edges(selector):
        box = page.locator(selector).first.bounding_box()
        return box['x'], box['x'] + box['width'], box['y']

    answer, details, slider = map(edges, ('#answer .mm-answer', '#details .mm-answer', '#bias'))
    for part in (answer, details):
        assert part[:2] == pytest.approx(slider[:2], abs=1.5)
    assert answer[2] == pytest.approx(edges('#picture')[2], abs=1.5)


def test_many_files_give_a_table_and_a_file(page, tmp_path):
    for name in ('a.png', 'b.png'):
        Image.new('RGB', (60, 60), 'red').save(tmp_path / name)
    page.get_by_role('tab', name='Many files').click()
    playwright.expect(page.locator('#classify-many')).to_be_disabled()
    page.set_input_files('#files input[type=file]', [tmp_path / 'a.png', tmp_path / 'b.png'])
    playwright.expect(page.locator('#files')).to_contain_text(re.compile(r'b\s*\.png'))
    page.click('#classify-many')
    playwright.expect(page.locator('#many tbody tr')).to_have_count(2)
    with page.expect_download() as download:
        page.click('#csv')
    lines = Path(download.value.path()).read_text().splitlines()
    assert [line.split(',')[0].strip('"') for line in lines] == ['image', 'a.png', 'b.png']
    page.set_viewport_size(dict(width=390, height=844))
    assert overflow(page) <= 0
