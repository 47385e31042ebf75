"""Mixed precision that runs anywhere: bfloat16, on the CPU, too."""
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from mmengine.config import ConfigDict
from mmengine.optim import OptimWrapper
from torch import nn

from mmcluspro.registry import OPTIM_WRAPPERS


@OPTIM_WRAPPERS.register_module()
class BFloat16OptimWrapper(OptimWrapper):
    """mmengine's ``OptimWrapper`` with the loss under bfloat16 autocast.

    bfloat16 has the range of float32, so the loss is not scaled. mmengine's ``AmpOptimWrapper``
    refuses to run without a GPU; this one is tested on the CPU.

    Args:
        *args, **kwargs: As in mmengine: ``optimizer``, ``accumulative_counts``, ``clip_grad``.
    """

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """Autocast on the device of the model."""
        kind = next(model.parameters()).device.type
        with super().optim_context(model), torch.autocast(kind, torch.bfloat16):
            yield


def use_mixed_precision(wrapper: ConfigDict) -> None:
    """``--amp``: bfloat16, or float16 with a scaled loss on GPUs that are too old for it.

    Args:
        wrapper (ConfigDict): ``optim_wrapper`` of the config. A mixed one stays as it is.
    """
    if str(wrapper.get('type')).endswith(('AmpOptimWrapper', 'BFloat16OptimWrapper')):
        return
    if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] < 8:
        wrapper.type = 'AmpOptimWrapper'
        wrapper.setdefault('loss_scale', 'dynamic')
    else:
        wrapper.type = 'mmcluspro.BFloat16OptimWrapper'
