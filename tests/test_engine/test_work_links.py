"""A work folder from elsewhere: links in it are not written through."""
import os

import numpy as np
import pytest

from mmcluspro.evaluation import czsl_curve
from mmcluspro.utils.locks import work_lock
from mmcluspro.visualization.curve_plot import read_curves, write_curves

NAME = '.training.lock'
pytestmark = pytest.mark.skipif(os.name != 'posix', reason='links and pipes of POSIX')


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / 'victim.txt'
    path.write_text('mine')
    return path


def test_the_lock_empties_no_other_file(victim, tmp_path):
    (tmp_path / 'run').mkdir()
    (tmp_path / 'run' / NAME).symlink_to(victim)
    with pytest.raises(ValueError, match=r'run cannot be used \(.*training\.lock\)'), \
            work_lock(tmp_path / 'run'):
        pass
    assert victim.read_text() == 'mine'


def test_a_pipe_in_the_place_of_the_lock_is_refused(tmp_path):
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(ValueError, match='not a plain file'), work_lock(tmp_path):
        pass


def test_a_lock_of_before_is_taken_and_removed(tmp_path):
    (tmp_path / NAME).write_text('{"pid": 1}')
    with work_lock(tmp_path):
        assert f'"pid": {os.getpid()}' in (tmp_path / NAME).read_text()
    assert not (tmp_path / NAME).exists()


def test_a_curve_replaces_a_link(victim, tmp_path):
    path = tmp_path / 'test_curve.json'
    path.symlink_to(victim)
    generator = np.random.default_rng(0)
    write_curves(dict(closed=czsl_curve(generator.normal(size=20), generator.random(20) < 0.5)),
                 path)
    assert victim.read_text() == 'mine' and not path.is_symlink() and read_curves(path)
