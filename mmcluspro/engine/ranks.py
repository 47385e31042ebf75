"""Checks across the processes of a distributed job."""
import os
import re
from collections.abc import Mapping

import torch
from mmengine.dist import all_gather, get_comm_device, get_rank, get_world_size
from torch import Tensor

# How gloo and NCCL say that another process is gone, or silent for too long.
LOST = re.compile(
    r'Connection (closed|reset|refused) by peer|Connection reset|Broken pipe|Socket Timeout'
    r'|[Tt]imed out waiting|Watchdog caught collective|wait timeout|ncclRemoteError'
    r'|remote process exited|NCCL communicator was aborted')


def is_first_process(launcher: str) -> bool:
    """Whether this process is the first of its job, before the process group is there."""
    if launcher == 'none':
        return True
    name = dict(slurm='SLURM_PROCID', mpi='OMPI_COMM_WORLD_RANK').get(launcher, 'RANK')
    return os.environ.get(name, '0') == '0'


def lost_rank(error: BaseException) -> str | None:
    """Explains an error that means that another process is gone.

    Returns:
        str | None: None for other errors.
    """
    if get_world_size() == 1 or not LOST.search(str(error)):
        return None
    reason = (str(error).splitlines() or [''])[0][:200]
    return (f'Rank {get_rank()} lost another process of the job ({reason}). The first error of the '
            'other ranks says why it ended or stopped answering (env_cfg.dist_cfg.timeout); '
            '--resume continues from the last checkpoint.')


def checksum(tensor: Tensor) -> Tensor:
    """A number that changes with any bit of a float32 tensor, or the order of its values."""
    bits = tensor.detach().float().contiguous().view(torch.int32).flatten().long()
    return (bits * (torch.arange(len(bits), device=bits.device) % 65521 + 1)).sum()


def require_same(tensors: Mapping[str, Tensor]) -> None:
    """Compares tensors of all ranks, by a checksum each; every rank has to call it.

    Args:
        tensors (Mapping[str, Tensor]): By the name for the message.

    Raises:
        RuntimeError: On every rank, if one of them holds other bits than the first.
    """
    if get_world_size() == 1 or not tensors:
        return
    sums = torch.stack(all_gather(torch.stack([checksum(x) for x in tensors.values()]))).cpu()
    differs = sums != sums[0]
    if differs.any():
        names = [name for name, wrong in zip(tensors, differs.any(dim=0).tolist()) if wrong]
        ranks = [rank for rank, wrong in enumerate(differs.any(dim=1).tolist()) if wrong]
        raise RuntimeError(
            f'{" and ".join(names)} of rank {", ".join(map(str, ranks))} differ from those of rank '
            '0, though all ranks compute them from the same features. Look for a rank with other '
            'code, other versions or another kind of GPU, and for code of yours that runs on some '
            'ranks only; then --resume from a checkpoint before the drift.')


def require_same_length(batches: int) -> None:
    """Compares the number of batches per epoch of all ranks; every rank has to call it.

    Last batches of different sizes are fine. A rank without a last batch is not: the others would
    wait for it.

    Raises:
        ValueError: On every rank, if the numbers differ.
    """
    if get_world_size() == 1:
        return
    counts = torch.cat(all_gather(torch.tensor([batches], device=get_comm_device()))).tolist()
    if len({*counts}) > 1:
        raise ValueError(
            f'The ranks have {", ".join(map(str, counts))} training batches per epoch, and would '
            'wait for each other. Set train_dataloader.sampler.round_up=True, '
            'train_dataloader.drop_last=True, or another train_dataloader.batch_size.')
