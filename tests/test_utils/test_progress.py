"""Lines about the progress of a long step."""
import pytest

from mmcluspro.utils.progress import Progress, duration


@pytest.mark.parametrize(('seconds', 'text'), [
    (0, '0 s'), (59.4, '59 s'), (59.6, '1 min 0 s'), (599, '9 min 59 s'), (1500, '25 min'),
    (3599.9, '1 h 0 min'), (7380, '2 h 3 min')])
def test_durations_for_people(seconds, text):
    assert duration(seconds) == text


def test_speed_and_time_left_count_new_units_only():
    now, lines = [0.0], []
    progress = Progress('features', 100, say=lines.append, clock=lambda: now[0])
    progress.skip(40)
    for now[0] in (8.0, 16.0, 24.0):
        progress.add(10)
    # 30 units in 24 s: 1.25 per second; 30 of 100 are left.
    assert lines == ['features: 70 of 100 images, 1.2 per second, 24 s left']


def test_where_all_was_done_before_there_is_no_speed():
    now, lines = [0.0], []
    progress = Progress('indexing', 100, say=lines.append, clock=lambda: now[0])
    progress.skip(40)
    now[0] = 30.0
    progress.add(0)
    assert lines == ['indexing: 40 of 100 images']


def test_a_short_step_prints_nothing(capsys):
    progress = Progress('decoding', 3)
    progress.add(3)
    progress.close()
    assert capsys.readouterr() == ('', '')


def test_a_terminal_is_redrawn_and_left_clean(monkeypatch, capsys):
    monkeypatch.setattr('sys.stderr.isatty', lambda: True)
    now = [0.0]
    progress = Progress('decoding', 20, clock=lambda: now[0])
    for now[0] in (1.0, 2.0):
        progress.add(10)
    progress.close()
    err = capsys.readouterr().err
    assert err.count('\r') == 4 and '\n' not in err
    assert 'decoding: 10 of 20 images, 10 per second, 1 s left' in err
    assert err.endswith(' \r')
