import numpy as np
import pytest
from PIL import Image

from mmcluspro.evaluation import Curve, czsl_curve
from mmcluspro.visualization import curve as curve_module
from mmcluspro.visualization import plot_curve


def make_curve(seed, num=200):
    generator = np.random.default_rng(seed)
    margin = generator.normal(size=num)
    margin[generator.random(num) < 0.3] = np.inf
    return czsl_curve(margin, generator.random(num) < 0.5)


@pytest.mark.parametrize('num_runs', [1, 3])
def test_draws_a_picture_with_every_run(tmp_path, monkeypatch, num_runs):
    figures = []
    real = curve_module.Figure
    monkeypatch.setattr(curve_module, 'Figure',
                        lambda **kwargs: figures.append(real(**kwargs)) or figures[-1])
    curves = {f'run {i}': make_curve(i) for i in range(num_runs)}

    path = plot_curve(curves, tmp_path / 'new' / 'curve.png', 'closed world')

    assert path == tmp_path / 'new' / 'curve.png'
    with Image.open(path) as image:
        assert min(image.size) > 500
        assert len(image.convert('RGB').getcolors(10**6)) > 10
    axes, = figures[0].axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert len(labels) == num_runs
    for label, (name, curve) in zip(labels, curves.items()):
        assert label.startswith(f'{name}: exact AUC {curve.auc:.1f}, ')
    line, mark = axes.lines[:2]
    np.testing.assert_array_equal(line.get_xdata(), curves['run 0'].unseen)
    best = curves['run 0'].hm.argmax()
    assert mark.get_ydata() == [curves['run 0'].seen[best]]


def test_a_curve_of_one_point(tmp_path):
    point = Curve(*np.array([[0.0], [40.0], [0.0]]))

    assert plot_curve({'only seen': point}, tmp_path / 'one.png').stat().st_size > 0


def test_no_curve_is_an_error(tmp_path):
    with pytest.raises(ValueError, match='at least one curve'):
        plot_curve({}, tmp_path / 'none.png')
