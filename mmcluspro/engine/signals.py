"""Signals that ask a training to end: they save first, and the exit code says so."""
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

# EX_TEMPFAIL of sysexits.h: nothing is wrong, run the same command again (with --resume).
RUN_AGAIN = 75
SIGNALS = ('SIGTERM', 'SIGHUP', 'SIGUSR1')


class Stopped(SystemExit):
    """Ends the process with :data:`RUN_AGAIN`.

    Args:
        reason (str): What is said to the user.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(RUN_AGAIN)
        self.reason = reason


class StopSignals:
    """Remembers a signal until training reaches a point where it can be resumed.

    Attributes:
        received (str | None): Name of the first signal that arrived.
        deferred (bool): Whether a signal waits for :class:`~mmcluspro.engine.hooks.StopHook`;
            otherwise it ends the process at once.
        ends_process (bool): Whether the process ends with the training, as that of a command
            does. A signal after the end, while Python clears up, is then ignored: it would turn
            the exit code into that of a killed process.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        self.deferred = self.ends_process = False
        self._owner = 0

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handles the signals inside the block.

        A signal that is ignored stays ignored, as SIGHUP is under nohup. Outside the main thread,
        where Python handles no signals, nothing changes.
        """
        self.received, self.deferred, self._owner = None, False, os.getpid()
        before, done = {}, False
        try:
            for name in SIGNALS:
                number = getattr(signal, name, None)  # Windows lacks two of them
                if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                    before[number] = signal.signal(number, self._handle)
        except ValueError:  # not the main thread
            pass
        try:
            yield
            done = self.ends_process
        except Stopped:
            done = self.ends_process
            raise
        finally:
            self.deferred = False
            for number, handler in before.items():
                signal.signal(number, signal.SIG_IGN if done else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:
            # A forked worker: it belongs to a training that will end it when it is done.
            if number == signal.SIGTERM:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        self.received = self.received or signal.Signals(number).name
        if not self.deferred:
            self.stop()

    def stop(self, saved: str | None = None) -> None:
        """Ends the process.

        Args:
            saved (str, optional): Checkpoint that was written because of the signal. Defaults to
                None.
        """
        where = f'; saved {saved}' if saved else ''
        raise Stopped(f'Stopped by {self.received}{where}. Run the same command with --resume to '
                      f'continue (exit code {RUN_AGAIN}).')


def leave_code(code: str | int | None) -> None:
    """Writes an exit code for ``tools/dist_train.sh``: torchrun replaces it with 1."""
    path = os.environ.get('MMCLUSPRO_EXIT_CODE_FILE')
    if path:
        with suppress(OSError):  # the file is gone with the script that asked for it
            Path(path).write_text(f'{code}\n')


STOP = StopSignals()
