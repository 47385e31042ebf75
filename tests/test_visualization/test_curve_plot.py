import json

import numpy as np
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from mmcluspro.evaluation import Curve, czsl_curve
from mmcluspro.visualization import curve_plot as curve_module
from mmcluspro.visualization import (
    draw_curves,
    leave_curves,
    plot_curve,
    read_curves,
    show_picture,
    write_curves,
)


def make_curve(seed, num=200):
    generator = np.random.default_rng(seed)
    margin = generator.normal(size=num)
    margin[generator.random(num) < 0.3] = np.inf
    return czsl_curve(margin, generator.random(num) < 0.5)


@pytest.mark.parametrize('num_runs', [1, 3, 8])
def test_draws_every_run_in_every_panel(num_runs):
    curves = {f'run {i}': make_curve(i) for i in range(num_runs)}

    figure = draw_curves({'Closed world': curves, 'Open world': curves})

    assert [axes.get_title() for axes in figure.axes] == ['Closed world', 'Open world']
    assert figure.axes[0].get_ylabel() == 'Seen accuracy (%)'
    looks = []
    for axes in figure.axes:
        assert axes.get_xlabel() == 'Unseen accuracy (%)'
        assert [text.get_text() for text in axes.get_legend().get_texts()] == list(curves)
        assert len(axes.lines) == 2 * num_runs
        for curve, line, mark in zip(curves.values(), axes.lines[::2], axes.lines[1::2]):
            np.testing.assert_array_equal(line.get_xdata(), curve.unseen)
            np.testing.assert_array_equal(line.get_ydata(), curve.seen)
            best = curve.hm.argmax()
            assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (
                curve.unseen[best], curve.seen[best])
        looks.append([(to_hex(line.get_color()), line.get_linestyle()) for line in axes.lines[::2]])
    assert looks[0] == looks[1] and len(set(looks[0])) == num_runs


def test_the_picture_names_the_run_and_the_exact_area(tmp_path, monkeypatch):
    curve, figures = make_curve(0), []
    monkeypatch.setattr(curve_module, 'draw_curves',
                        lambda panels: figures.append(draw_curves(panels)) or figures[-1])

    path = plot_curve({'ours': curve}, tmp_path / 'new' / 'curve.png', 'closed world')

    axes, = figures[0].axes
    assert axes.get_title() == 'closed world'
    label, = (text.get_text() for text in axes.get_legend().get_texts())
    assert label == f'ours: exact AUC {curve.auc:.1f}, HM {curve.hm.max():.1f}'
    with Image.open(path) as image:
        assert path.parent.name == 'new' and min(image.size) > 500
        assert len(image.convert('RGB').getcolors(10**6)) > 10


def test_a_curve_of_one_point(tmp_path):
    point = Curve(*np.array([[0.0], [40.0], [0.0]]))

    assert plot_curve({'only seen': point}, tmp_path / 'one.png').stat().st_size > 0


@pytest.mark.parametrize('draw', [lambda: plot_curve({}, 'none.png'), lambda: draw_curves({}),
                                  lambda: draw_curves({'Closed world': {}})])
def test_no_curve_is_an_error(draw):
    with pytest.raises(ValueError, match='at least one curve'):
        draw()


def test_the_file_gives_back_the_curve_and_is_strict_json(tmp_path):
    curves = {'closed': make_curve(1), 'open': make_curve(2)}
    assert not np.isfinite(curves['closed'].bias).all()  # both infinite biases belong to it

    path = write_curves(curves, tmp_path / 'c.json', {'closed': {'auc': 41.5, 'hm': 54.25}})

    json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f'{word} is no JSON'))
    stored = read_curves(path)
    assert list(stored) == ['closed', 'open']
    for world, curve in curves.items():
        for got, expected in zip(stored[world].curve, curve):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)
    assert (stored['closed'].auc, stored['closed'].hm) == (41.5, 54.25)
    assert stored['open'].auc == pytest.approx(curves['open'].auc, abs=0.01)
    assert stored['open'].hm == pytest.approx(curves['open'].hm.max(), abs=0.01)


@pytest.mark.parametrize('content', [
    '', '[]', '{}', '{"closed": 3}', '{"closed": {"bias": [0]}}',
    '{"closed": {"bias": [0], "seen": [1, 2], "unseen": [3]}}',
    '{"closed": {"bias": [], "seen": [], "unseen": []}}',
    '{"closed": {"bias": [0], "seen": ["nan"], "unseen": [3]}}'])
def test_another_file_is_refused_by_its_name(tmp_path, content):
    path = tmp_path / 'other.json'
    path.write_text(content)

    with pytest.raises(ValueError, match=r'other\.json'):
        read_curves(path)


class Backend:
    """Stands for TensorBoard."""

    def __init__(self):
        self.images = []

    def add_image(self, name, image, step=0):
        self.images.append((name, image, step))


def test_a_run_leaves_picture_and_points_and_shows_the_picture(tmp_path):
    curve = make_curve(3)

    path = leave_curves({'closed': curve}, tmp_path, 'val', {'closed': {'auc': 7.0}})
    backend = Backend()
    show_picture(type('Visualizer', (), {'_vis_backends': {'any': backend}})(), 'c', path, 12)

    assert path == tmp_path / 'val_curve.png'
    assert read_curves(tmp_path / 'val_curve.json')['closed'].auc == 7.0
    (name, image, step), = backend.images
    assert (name, step) == ('c', 12)
    with Image.open(path) as expected:
        np.testing.assert_array_equal(image, np.asarray(expected.convert('RGB')))


class Closed:
    """Stands for Weights & Biases after the training."""

    def add_image(self, name, image, step=0):
        raise RuntimeError('call init first')


def test_a_backend_that_fails_costs_a_warning_not_the_run(tmp_path):
    path = leave_curves({'closed': make_curve(3)}, tmp_path, 'test')
    backend = Backend()
    backends = {'first': Closed(), 'second': backend}

    show_picture(type('Visualizer', (), {'_vis_backends': backends})(), 'c', path, 0)

    assert len(backend.images) == 1
