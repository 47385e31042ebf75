import matplotlib
import pytest
from PIL import Image

from mmcluspro.visualization.style import (
    DPI,
    TEXT,
    fitting,
    new_figure,
    place,
    print_style,
    save,
    text_width,
    write,
)


def make_figure():
    figure = new_figure(2.0, 1.0)
    write(figure, 0.5, 0.25, 'words')
    place(figure, 0.5, 0.5, 1.0, 0.25)
    return figure


def test_a_figure_that_cannot_be_drawn_leaves_the_earlier_file(tmp_path, monkeypatch):
    save(make_figure(), tmp_path / 'a')
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def half(path, **options):
        path.write_bytes(b'half')
        raise OSError('no room')

    figure = make_figure()
    monkeypatch.setattr(figure, 'savefig', half)
    with pytest.raises(OSError, match='no room'):
        save(figure, tmp_path / 'a')
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize('name', ['new/a', 'new/a.png', 'new/a.svg', 'new/a.v2'])
def test_writes_png_and_svg_of_the_asked_size(tmp_path, name):
    png, svg = save(make_figure(), tmp_path / name)

    stem = 'a.v2' if name.endswith('v2') else 'a'
    assert (png.name, svg.name) == (f'{stem}.png', f'{stem}.svg')
    with Image.open(png) as image:
        assert image.size == (2 * DPI, DPI)
    assert 'width="144pt"' in svg.read_text()


def test_the_same_picture_gives_the_same_files(tmp_path):
    first, second = (save(make_figure(), tmp_path / name) for name in 'ab')

    for one, two in zip(first, second):
        assert one.read_bytes() == two.read_bytes()


def test_places_are_inches_from_the_upper_left_corner():
    figure = make_figure()

    box = figure.axes[0].get_position()
    assert (box.x0, box.y0, box.width, box.height) == pytest.approx((0.25, 0.25, 0.5, 0.25))
    assert figure.texts[0].get_position() == pytest.approx((0.25, 0.75))


def test_the_style_ends_with_its_block():
    before = dict(matplotlib.rcParams)
    with print_style():
        assert matplotlib.rcParams['font.size'] == TEXT
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize('text', ['', 'a', 'Faux.Leather Shoes.Flats'])
@pytest.mark.parametrize('width', [0.3, 0.6, 3.0])
def test_a_shortened_text_fits_and_is_as_long_as_can_be(text, width):
    short = fitting(text, width)

    assert text_width(short) <= width
    if short != text:
        kept = short.removesuffix('…')
        assert text.startswith(kept) and short.endswith('…')
        assert text_width(f'{text[:len(kept) + 1]}…') > width
