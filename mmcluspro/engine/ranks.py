"""What one process of several knows of the others."""
import os
import re

from mmengine.dist import get_rank, get_world_size

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
    """Says what to do if an error means that another process is gone.

    Returns:
        str | None: None for other errors.
    """
    if get_world_size() == 1 or not LOST.search(str(error)):
        return None
    reason = (str(error).splitlines() or [''])[0][:200]
    return (f'Rank {get_rank()} lost another process of the job ({reason}). The first error of the '
            'other ranks says why it ended or fell silent (env_cfg.dist_cfg.timeout); --resume '
            'goes on from the last checkpoint.')
