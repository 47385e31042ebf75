"""Runs as copies of this process, which has imported everything: no run starts Python anew."""
import gc
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from typing import IO

import torch


def warm_up() -> None:
    """Imports what runs need, and settles once what mmengine works out at each start.

    A start takes some ten seconds of a core without this: imports, a look at the compilers of the
    machine, and the config, which is laid out by yapf several times. Runs that are forked from
    here write it unformatted.
    """
    import matplotlib.pyplot  # noqa: F401
    from mmengine.config import config
    from mmengine.runner import runner
    from mmpretrain.utils import register_all_modules

    import mmcluspro.cli.test
    import mmcluspro.cli.train
    import mmcluspro.datasets
    import mmcluspro.engine
    import mmcluspro.evaluation
    import mmcluspro.models  # noqa: F401

    register_all_modules(init_default_scope=False)
    environment = runner.collect_env()
    runner.collect_env = lambda: environment
    config.FormatCode = lambda text, **_: (text, False)
    gc.collect()
    gc.freeze()


class Forked:
    """A forked run with the part of :class:`subprocess.Popen` that is needed. CPU only.

    Args:
        words (Sequence[str]): Python, a script, and its arguments.
        log (IO): Takes its output.
        env (Mapping[str, str]): Its environment.
    """

    def __init__(self, words: Sequence[str], log: IO[str], env: Mapping[str, str]) -> None:
        self.words = list(words)
        self.process = get_context('fork').Process(target=self._run, args=(log, env))
        self.process.start()

    def _run(self, log: IO[str], env: Mapping[str, str]) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)
        sys.stdout = sys.stderr = open(1, 'a', buffering=1, closefd=False)  # noqa: SIM115
        os.environ.update(env)
        torch.set_num_threads(int(env['OMP_NUM_THREADS']))
        sys.argv = self.words[1:]
        runpy.run_path(sys.argv[0], run_name='__main__')

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired(self.words, timeout or 0)
        return self.process.exitcode

    def terminate(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        self.process.kill()
