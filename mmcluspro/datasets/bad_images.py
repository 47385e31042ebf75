"""Handles image files that cannot be read."""
import logging
from collections.abc import Mapping
from typing import Any, Literal

import torch
from mmengine.logging import print_log

from mmcluspro.errors import printable

from .image_folder import undecodable

OnBadImage = Literal['error', 'skip']


class BadImages:
    """Raises about unreadable image files, or counts and names them.

    Args:
        action (str): The config field ``on_bad_image``: 'error' or 'skip'.
        replaceable (bool): Whether another sample may take the place, as in training.

    Attributes:
        count (Tensor): Files left out so far, by all dataloader workers, shape (1,).
    """

    def __init__(self, action: OnBadImage, replaceable: bool) -> None:
        if action not in ('error', 'skip'):
            raise ValueError(f"on_bad_image must be 'error' or 'skip', got {action!r}.")
        self.action, self.replaceable = action, replaceable
        # Workers are other processes: they share this number with the first one.
        self.count = torch.zeros(1, dtype=torch.int64)
        if action == 'skip':
            self.count.share_memory_()
        self._named: set[str] = set()

    def handle(self, info: Mapping[str, Any], error: Exception) -> None:
        """Decides about a sample on which the pipeline failed.

        Args:
            info (Mapping): The sample.
            error (Exception): What the pipeline raised; raised again unless the file is at fault.
        """
        path = str(info.get('img_path', '://'))
        local = '://' not in path
        reason = why_unreadable(path) if local else None
        if reason is None:
            raise error
        if self.action == 'error' or not self.replaceable:
            advice = ("Repair or remove it, or set on_bad_image='skip' in "
                      'train_dataloader.dataset to skip such files'
                      if self.replaceable else 'Repair it, or remove it from the data: validation '
                      'and test use every image')
            raise ValueError(f'The image {path} cannot be read ({reason}). {advice}. mmcluspro '
                             'check-data --decode finds all of them.') from None
        if path not in self._named:
            self._named.add(path)
            self.count += 1
            print_log(f'The image {printable(path)} cannot be read ({reason}) and is left out; '
                      f'{int(self.count)} so far.', 'current', logging.WARNING)


def why_unreadable(path: str) -> str | None:
    """Reason why an image file cannot be decoded; None if it can."""
    bad = undecodable([path])
    return bad[0][1].replace(f' {path!r}', '') if bad else None
