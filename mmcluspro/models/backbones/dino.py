"""DINO's vision transformer: mmpretrain's, with the published weights (Table 9)."""
import math
from contextlib import nullcontext
from typing import Any

import torch
from mmpretrain.models.backbones import VisionTransformer

from mmcluspro.errors import DownloadError, reason_of
from mmcluspro.registry import MODELS
from mmcluspro.utils.safe_load import load_checkpoint

from ..state import declare_restorable
from .dino_keys import BRANCHES, check_weights, dino_weights, to_mmpretrain


@MODELS.register_module()
class DINO(VisionTransformer):
    """mmpretrain's VisionTransformer, filled from a DINO checkpoint.

    It comes frozen; :class:`ProjectedBackbone` around it decides with ``frozen`` and ``peft``.
    The published files: ``dino_vitbase16_pretrain.pth`` (``arch='base'``) and
    ``dino_deitsmall16_pretrain.pth`` (``arch='deit-small'``) of facebookresearch/dino.

    Args:
        arch (str | dict): As in mmpretrain. Defaults to 'base', ViT-B.
        pretrained (str | None): File or address of the checkpoint, the network alone or DINO's
            training checkpoint. Defaults to None, random weights.
        branch (str): 'teacher' or 'student', of a training checkpoint. Defaults to 'teacher',
            the network that DINO evaluates.
        **kwargs: ``img_size`` (the positional embedding is resampled), ``patch_size``,
            ``out_type`` and so on, as in mmpretrain.
    """

    #: Page of the weights and the name of a file there, for messages.
    SOURCE = ('github.com/facebookresearch/dino', 'dino_vitbase16_pretrain.pth')
    #: Keys of a file that the network does not need.
    UNUSED_KEYS: tuple[str, ...] = ()
    #: Keys whose shape may differ, because mmpretrain resamples them.
    FREE_KEYS: tuple[str, ...] = ('pos_embed', )

    def __init__(self, arch: str | dict = 'base', pretrained: str | None = None,
                 branch: str = 'teacher', **kwargs: Any) -> None:
        if branch not in BRANCHES:
            raise ValueError(f'backbone.branch must be one of {BRANCHES}, got {branch!r}.')
        # Random numbers for weights that are overwritten would change what is drawn after them,
        # and training from cached features would start elsewhere than training from images.
        with torch.random.fork_rng(devices=[]) if pretrained else nullcontext():
            super().__init__(arch=arch, **kwargs)
            self.add_tokens()
        self.pretrained = pretrained
        if pretrained is not None:
            self._read(pretrained, branch, arch)
        self.requires_grad_(False)
        if pretrained is not None:
            declare_restorable(self)

    def add_tokens(self) -> None:
        """Adds parameters of a variant, before the weights are read."""

    def init_weights(self) -> None:
        """Random weights, unless they were read at construction."""
        if self.pretrained is None:
            super().init_weights()

    def _read(self, pretrained: str, branch: str, arch: Any) -> None:
        name = f'backbone.pretrained={pretrained!r}'
        try:
            content = load_checkpoint(pretrained)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f'{name} does not exist. The page {self.SOURCE[0]} links {self.SOURCE[1]} '
                '("backbone only"); set backbone.pretrained to its path.') from error
        except OSError as error:  # no network
            raise DownloadError(
                f'{name} could not be downloaded ({reason_of(error, 80)}). Fetch the file on '
                'another machine. To predict, give it with --weights backbone=FILE; in a config, '
                'set backbone.pretrained to its path.') from error
        weights = {key: value for key, value in dino_weights(content, branch, name).items()
                   if key not in self.UNUSED_KEYS}
        self._check_positions(weights, name)
        check_weights(weights, self.state_dict(), name, arch, free=self.FREE_KEYS)
        self.load_state_dict(
            {to_mmpretrain(key): value.float() for key, value in weights.items()})

    def _check_positions(self, weights: dict, name: str) -> None:
        """mmpretrain resamples the positional embedding; it must be one of a square."""
        positions = weights.get('pos_embed')
        if positions is None:
            return  # named as missing with the other keys
        patches = positions.shape[1] - self.num_extra_tokens if positions.ndim == 3 else -1
        if patches < 1 or math.isqrt(patches)**2 != patches or (
                positions.shape[2] != self.embed_dims):
            raise ValueError(
                f'{name} does not fit: pos_embed is {tuple(positions.shape)}, expected (1, 1 + '
                f'patches, {self.embed_dims}) with a square number of patches. Check '
                'backbone.arch.')
