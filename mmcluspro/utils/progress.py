"""Shows the progress of a long task and the time left."""
from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable

PAUSE, LIVE_PAUSE = 20.0, 0.5  # seconds between two lines, in a file and on a terminal


class Progress:
    """A line on stderr: redrawn in place on a terminal, otherwise a new one every twenty seconds.

    Tasks that take less than one interval print nothing.

    Args:
        title (str): Name of the task.
        total (int): Number of units.
        unit (str): Their name, in the plural. Defaults to 'images'.
        silent (bool): Print nothing. Defaults to False.
        say (Callable, optional): Gets the lines instead of stderr. Defaults to None.
        clock (Callable): Seconds. Defaults to ``time.monotonic``.
    """

    def __init__(self, title: str, total: int, unit: str = 'images', silent: bool = False,
                 say: Callable[[str], None] | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.title, self.total, self.unit, self.say, self.clock = title, total, unit, say, clock
        self.live = say is None and sys.stderr.isatty()
        self.pause = math.inf if silent else LIVE_PAUSE if self.live else PAUSE
        self.done = self.made = 0
        self.start = self.last = clock()
        self.shown = 0  # characters of the line on a terminal

    def skip(self, count: int) -> None:
        """Counts units that were done before; they do not count for the speed."""
        self.done += count

    def add(self, count: int = 1) -> None:
        """Counts units that were done now."""
        self.done += count
        self.made += count
        now = self.clock()
        if now - self.last >= self.pause:
            self._show(self._line(now))
            self.last = now

    def close(self) -> None:
        """Ends the line on a terminal."""
        if self.shown:
            print('\r' + ' ' * self.shown + '\r', end='', file=sys.stderr, flush=True)
            self.shown = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _line(self, now: float) -> str:
        if not self.made:
            return f'{self.title}: {self.done} of {self.total} {self.unit}'
        speed = self.made / max(now - self.start, 1e-9)
        rate = f'{speed:.0f}' if speed >= 10 else f'{speed:.1f}'
        return (f'{self.title}: {self.done} of {self.total} {self.unit}, {rate} per second, '
                f'{duration((self.total - self.done) / max(speed, 1e-9))} left')

    def _show(self, line: str) -> None:
        if self.say is not None:
            self.say(line)
            return
        text = '\r' + line.ljust(self.shown) if self.live else line + '\n'
        self.shown = len(line) if self.live else 0
        print(text, end='', file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Formats a duration for people.

    Examples:
        >>> duration(42.4), duration(95), duration(3 * 3600 + 240)
        ('42 s', '1 min 35 s', '3 h 4 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f'{whole} s'
    if whole < 600:
        return f'{whole // 60} min {whole % 60} s'
    if whole < 3600:
        return f'{round(whole / 60)} min'
    return f'{whole // 3600} h {whole % 3600 // 60} min'
