"""Builds CLIP by its open_clip name and fills it with weights, or says why it cannot."""
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import open_clip
import torch
from open_clip import pretrained as open_clip_pretrained
from open_clip.factory import load_checkpoint
from torch import nn
from torch.overrides import TorchFunctionMode

from mmcluspro.errors import DownloadError, reason_of
from mmcluspro.utils.download import hub_address, hub_offline, one_process, reachable
from mmcluspro.utils.paths import weights_file

from .clip_weights import fill_weights, read_weights

CONFIGS = Path(__file__).parent / 'configs'
QUICKGELU = '-quickgelu'


def load_clip(arch: str, pretrained: str | None = None, img_size: int | None = None,
              quickgelu: bool | None = None) -> Any:
    """Builds an open_clip model: float32, frozen, in eval mode.

    The activation is part of the weights but cannot be seen in the tensors. It is taken from
    whatever states it: the tag, OpenAI's marks in the file, a ``-quickgelu`` at the end of
    ``arch``, or ``quickgelu``. Two that disagree are an error, and so is a local file of an
    architecture with both kinds of weights when nothing states it.

    Args:
        arch (str): An open_clip architecture (``'ViT-L-14'``) or ``'tiny_clip'``.
        pretrained (str | None): None for random weights, a tag of open_clip (``'openai'``), a
            local file, or ``'tiny_clip'`` for the shipped one. Defaults to None.
        img_size (int | None): Image side; the positional embedding is resampled when it is not
            the one of the weights. Defaults to None, the architecture's own.
        quickgelu (bool | None): Whether the weights were trained with QuickGELU (OpenAI,
            MetaCLIP, DFN: yes; LAION, DataComp: no). Defaults to None, found out.

    Returns:
        nn.Module: open_clip's ``CLIP`` or ``CustomTextCLIP``; :class:`TextHalf` for an architecture
        without an image tower of open_clip's (``'fashion_clip'``).
    """
    config = arch_config(arch)
    tag = _find_tag(arch, pretrained)
    path = _find_file(arch, pretrained) if not tag else None
    weights, from_openai = read_weights(path) if path is not None else (None, False)
    states = bool(tag.get('quick_gelu')) if tag else (from_openai or None)
    activation = _activation(arch, config, pretrained, states, quickgelu)
    if tag:  # only now: a contradiction should not cost a download
        path = _download(arch, pretrained, tag)
        weights = read_weights(path)[0] if path.suffix not in ('.npz', '.npy') else None
    model = _build(arch, config, activation, img_size, skip_init=weights is not None)
    if weights is not None:
        if model.visual is None:  # the projection of images is read by ProjectedBackbone
            weights = {key: value for key, value in weights.items()
                       if not key.startswith('visual.')}
        fill_weights(model, weights, arch, pretrained, resample=img_size is not None)
    elif path is not None:  # big_vision's arrays: only open_clip knows their layout
        load_checkpoint(model, str(path))
    if img_size is not None and _is_timm(config):
        model.visual.set_input_size(img_size)
    return model.float().eval().requires_grad_(False)


@cache
def get_tokenizer(arch: str) -> Any:
    """The tokenizer of an architecture: texts -> LongTensor (N, context_length).

    Models of one process share it: it has no state, and takes 50 ms to read its vocabulary.
    """
    arch_config(arch)
    return open_clip.get_tokenizer(arch)


def arch_config(arch: str) -> dict:
    """open_clip's config of an architecture; an error names those that are close."""
    if open_clip.get_model_config(arch) is None:
        open_clip.add_model_config(CONFIGS)
    config = open_clip.get_model_config(arch)
    if config is None:
        close = get_close_matches(arch, open_clip.list_models(), n=5)
        raise ValueError(
            f'arch={arch!r} is not an architecture of open_clip. '
            f'{"Did you mean " + ", ".join(close) + "? " if close else ""}'
            'open_clip.list_models() lists them all.')
    return config


def _is_timm(config: dict) -> bool:
    return 'timm_model_name' in config['vision_cfg']


def _find_tag(arch: str, pretrained: str | None) -> dict:
    """open_clip's record of a tag, {} when ``pretrained`` is none."""
    if pretrained is None:
        return {}
    family = arch.removesuffix(QUICKGELU)  # its tags contain those of both activations
    return (open_clip_pretrained.get_pretrained_cfg(arch, pretrained)
            or open_clip_pretrained.get_pretrained_cfg(family, pretrained))


def _find_file(arch: str, pretrained: str | None) -> Path | None:
    if pretrained is None:
        return None
    path = weights_file(pretrained)
    if not path.is_file():
        tags = open_clip.list_pretrained_tags_by_model(arch.removesuffix(QUICKGELU))
        raise FileNotFoundError(
            f'pretrained={pretrained!r} is neither a file (looked at {path.absolute()}) nor a tag '
            f'of {arch}. Its tags: {", ".join(tags) or "none"}.')
    return path


def _download(arch: str, pretrained: str | None, tag: dict) -> Path:
    servers = [hub_address()] if tag.get('hf_hub') else [tag.get('url', '')]
    try:
        with (one_process(f'open_clip-{arch}-{pretrained}'),
              nullcontext() if reachable(servers) else hub_offline()):
            return Path(open_clip_pretrained.download_pretrained(tag))
    except Exception as error:
        source = tag.get('url') or f'{hub_address()}/{tag.get("hf_hub", "").rstrip("/")}'
        name = Path(tag['url']).name if tag.get('url') else 'FILE'
        hint = f', quickgelu={bool(tag.get("quick_gelu"))}'
        raise DownloadError(
            f'pretrained={pretrained!r} of arch={arch!r} could not be downloaded '
            f'({reason_of(error, 80)}).\nWithout a network, fetch the file on another machine:\n'
            f'  {source}\nand give it to both towers at once:\n'
            f'  mmcluspro train photos/ --weights {name}\nor in a config:\n'
            f"  clip = dict(arch={arch!r}, pretrained='{name}'{hint})\n"
            'docs/real_photos.md lists smaller downloads.') from error


def _activation(arch: str, config: dict, pretrained: str | None, weights_say: bool | None,
                quickgelu: bool | None) -> bool:
    """Whether to use QuickGELU, agreed on by all that state it."""
    family = arch.removesuffix(QUICKGELU)
    models = open_clip.list_models()
    # Names that exist in both forms leave it open when they come without the suffix.
    both = family in models and family + QUICKGELU in models
    arch_says = config.get('quick_gelu', False)
    if both and arch == family:
        arch_says = None
    elif not both and not weights_say:  # open_clip lists no activation for such a name's tags
        weights_say = None
    said = {f'arch={arch!r}': arch_says, f'pretrained={pretrained!r}': weights_say,
            f'quickgelu={quickgelu}': quickgelu}
    said = {source: value for source, value in said.items() if value is not None}
    if len(set(said.values())) > 1:
        facts = ', '.join(f'{source} means {"QuickGELU" if value else "GELU"}'
                          for source, value in said.items())
        raise ValueError(
            f'Two activations for one set of weights: {facts}. The wrong one costs accuracy '
            f'silently; use the one the weights were trained with.')
    if said:
        return next(iter(said.values()))
    if pretrained is not None:
        raise ValueError(
            f'pretrained={pretrained!r} does not tell its activation and arch={arch!r} has weights '
            f'of both kinds. Set quickgelu=True (or arch={family + QUICKGELU!r}) for weights by '
            'OpenAI, MetaCLIP or DFN, quickgelu=False for LAION, DataComp or CommonPool.')
    return False


def _build(arch: str, config: dict, quickgelu: bool, img_size: int | None, skip_init: bool) -> Any:
    if not config['vision_cfg']:
        with _SkipInit() if skip_init else nullcontext():
            return TextHalf(config['embed_dim'], config['text_cfg'])
    # A timm tower is resized after its weights are in, by timm itself.
    size = None if _is_timm(config) else img_size
    device = torch.empty(0).device  # the default device, so that 'meta' works
    with _no_random_weights_warning(), _SkipInit() if skip_init else nullcontext():
        return open_clip.create_model(
            arch, force_image_size=size, device=device, pretrained_text=False,
            quick_gelu=quickgelu)


class TextHalf(nn.Module):
    """A text tower of open_clip whose image tower is not one of open_clip's.

    Args:
        embed_dim (int): Width of the joint space.
        text_cfg (dict): ``context_length``, ``vocab_size``, ``width``, ``heads``, ``layers``.
    """

    visual = None

    def __init__(self, embed_dim: int, text_cfg: dict) -> None:
        super().__init__()
        self.text = open_clip.transformer.TextTransformer(output_dim=embed_dim, **text_cfg)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def encode_text(self, ids: torch.Tensor) -> torch.Tensor:
        """Token ids (N, L) → features (N, embed_dim), not normalised."""
        return self.text(ids)


class _SkipInit(TorchFunctionMode):
    """Skips the random initialisation, which is slow: all parameters are overwritten."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, '__module__', None) == 'torch.nn.init':
            return args[0] if args else kwargs['tensor']
        return (torch.empty if func is torch.randn else func)(*args, **kwargs)


@contextmanager
def _no_random_weights_warning() -> Iterator[None]:
    # open_clip warns that the model is random; we fill it a moment later.
    def keep(record: logging.LogRecord) -> bool:
        return 'No pretrained weights loaded' not in record.getMessage()

    logger = logging.getLogger()
    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)
