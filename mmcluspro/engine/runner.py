"""Runners: safe loading, and training loops that resume with bit-identical results."""
from contextlib import redirect_stdout
from copy import deepcopy
from io import StringIO
from itertools import chain, count
from pathlib import Path
from typing import Any

from mmengine.config import Config, ConfigDict
from mmengine.logging import MessageHub, MMLogger
from mmengine.runner import BaseLoop, Runner
from torch import nn

from mmcluspro.registry import RUNNERS

from .configs import complete, pixel_notes
from .resuming import EpochLoop, IterLoop, safe_loading

# The default hooks that mmengine adds where the config does not set them to None.
MMENGINE_HOOKS = ('runtime_info', 'timer', 'sampler_seed', 'logger', 'param_scheduler',
                  'checkpoint')


@RUNNERS.register_module()
class SafeRunner(Runner):
    """mmengine's runner, which reads all checkpoints through :func:`safe_loading`.

    ``default_hooks=dict(curve=None)`` in a config switches a hook off.
    """

    network: nn.Module | None = None  # what a caller has built already

    @classmethod
    def from_cfg(cls, cfg: Config | ConfigDict, network: nn.Module | None = None) -> Runner:
        """Builds the runner; the config is completed (:func:`complete`).

        Args:
            cfg (Config | ConfigDict): The config.
            network (nn.Module, optional): Built from ``cfg.model``. Defaults to None: it is built
                here.
        """
        cfg = deepcopy(cfg)
        complete(cfg)
        kind = cls if network is None else type(cls.__name__, (cls, ), dict(network=network))
        runner = super(SafeRunner, kind).from_cfg(cfg)  # type: ignore[misc]
        for note in pixel_notes(cfg):
            runner.logger.info(f'Pictures are prepared as the config says: {note}.')
        return runner

    def build_model(self, model: nn.Module | dict[str, Any]) -> nn.Module:
        """Builds the model, unless there is one."""
        return super().build_model(model if self.network is None else self.network)

    def build_logger(self, *args: Any, **kwargs: Any) -> MMLogger:
        """Builds the log; with a ``ConsoleHook`` the console gets its lines and warnings only."""
        # mmengine names a run by config and second: two that start in the same second would share
        # log, numbers and pictures. The log is what it builds first.
        name, taken = self.experiment_name, MessageHub.check_instance_created
        numbered = (f'{name}_{number}' for number in count(2))
        self._experiment_name = next(new for new in chain([name], numbered) if not taken(new))
        logger = super().build_logger(*args, **kwargs)
        hook = (self.cfg.get('default_hooks') or {}).get('console')
        if hook and hook.get('type') == 'mmcluspro.ConsoleHook':
            from .hooks import short_console  # hooks import this package
            short_console(logger)
        return logger

    def dump_config(self) -> None:
        """Writes the config into the work folder, unless that is where it was read from."""
        source = self.cfg.filename
        if source is None or Path(source).resolve().parent != Path(self.work_dir).resolve():
            super().dump_config()
            return
        # The user's file stays as it is, with its comments; the log has all fields.
        self.cfg.dump(str(Path(self.log_dir) / Path(source).name))

    def register_default_hooks(self, hooks: dict[str, Any] | None = None) -> None:
        """Registers ``default_hooks``; None switches off any of them, not only mmengine's own."""
        super().register_default_hooks({
            name: hook for name, hook in (hooks or {}).items()
            if hook is not None or name in MMENGINE_HOOKS})

    def _maybe_compile(self, target: str) -> None:
        """``compile='clustering'`` compiles assignment, losses and update of prototypes alone."""
        if self.cfg.get('compile') != 'clustering':
            super()._maybe_compile(target)
            return
        from mmcluspro.models.heads import ClusProHead

        from .hooks.parts import unwrap  # hooks import this package
        head = unwrap(self.model).head
        if not isinstance(head, ClusProHead):
            raise ValueError(f"compile='clustering' needs a head with prototypes, such as "
                             f'ClusProHead; this one is {type(head).__name__}. Remove compile.')
        head.compile_clustering()
        self.logger.info('Assignment, losses and update of the prototypes are compiled in the '
                         'first iteration, which takes a minute or more.')

    def train(self) -> Any:
        """Trains, after resuming or loading what the config names."""
        with safe_loading():
            return super().train()

    def val(self) -> Any:
        """Validates, after loading what the config names."""
        with safe_loading():
            return super().val()

    def test(self) -> Any:
        """Tests, after loading what the config names."""
        with safe_loading():
            return super().test()

    def load_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        """Loads a checkpoint; :meth:`resume` comes here, too."""
        # mmengine prints which backend reads the file, and logs the file itself.
        with safe_loading(), redirect_stdout(StringIO()):
            return super().load_checkpoint(*args, **kwargs)


@RUNNERS.register_module()
class ResumableRunner(SafeRunner):
    """A :class:`SafeRunner` whose ``train_cfg`` builds :class:`EpochLoop` or :class:`IterLoop`.

    A ``train_cfg`` with a ``type`` is built as it says.
    """

    def build_train_loop(self, loop: BaseLoop | dict[str, Any]) -> BaseLoop:
        """Builds the loop of ``train_cfg``."""
        if isinstance(loop, BaseLoop) or 'type' in loop:
            return super().build_train_loop(loop)
        fields = dict(loop)
        kind = EpochLoop if fields.pop('by_epoch') else IterLoop
        return kind(**fields, runner=self, dataloader=self._train_dataloader)
