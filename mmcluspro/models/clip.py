"""CLIP by its open_clip name: builds it, reads its weights without running code, fills it.

OpenAI's files are TorchScript archives. They are read as tensors, without the interpreter:

``torch.jit.load`` runs methods of the archive (``__setstate__``). Here the zip is read as data:
``data.pkl`` with an unpickler that knows tensors, lists and modules without any behaviour, and the
records that hold the numbers. The folder ``code/`` is never opened.
"""
from __future__ import annotations

import io
import logging
import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import open_clip
import torch
from open_clip import pretrained as open_clip_pretrained
from open_clip.convert import convert_state_dict
from open_clip.factory import load_checkpoint
from open_clip.model import convert_to_custom_text_state_dict, resize_pos_embed
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mmcluspro.errors import DownloadError, FileError, reason_of
from mmcluspro.requirements import extra_command
from mmcluspro.utils.download import hub_address, hub_offline, one_process, reachable
from mmcluspro.utils.files import weights_file
from mmcluspro.utils.safe_load import check_archive, load_pickle

CONVERT = ('Save its state dict with torch.save, or download the file again if it should be one '
           'of the published weights.')
DTYPES = {f'{name}Storage': dtype for name, dtype in (
    ('Half', torch.float16), ('BFloat16', torch.bfloat16), ('Float', torch.float32),
    ('Double', torch.float64), ('Byte', torch.uint8), ('Char', torch.int8),
    ('Short', torch.int16), ('Int', torch.int32), ('Long', torch.int64), ('Bool', torch.bool))}
LISTS = ('build_intlist', 'build_doublelist', 'build_boollist', 'build_tensorlist')
LARGEST_PICKLE = 1 << 26
DEEPEST = 100


class ScriptObject:
    """A module of the archive: what it holds, and nothing that it does."""

    def __setstate__(self, state: Any) -> None:
        self.state = state


def is_torchscript(path: Path) -> bool:
    """Whether the file is a zip with TorchScript sources (``torch.save`` writes none)."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any('/code/' in name for name in archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False


def read_torchscript(path: Path) -> dict[str, Tensor]:
    """Tensors by their dotted name, as ``torch.jit.load(path).state_dict()`` has them.

    Args:
        path (Path): The archive. Tensors that are attributes, not parameters or buffers, come too.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            reader = _ArchiveReader(archive, path)
            return dict(reader.tensors())
    except FileError:
        raise
    except Exception as error:  # bytes that are not an archive raise almost anything
        raise FileError(path, f'the TorchScript archive cannot be read ({reason_of(error)})',
                        CONVERT) from error


class _ArchiveReader:
    """Reads one archive; each storage once."""

    def __init__(self, archive: zipfile.ZipFile, path: Path) -> None:
        self.archive, self.path = archive, path
        found = [name for name in archive.namelist() if name.endswith('/data.pkl')]
        if len(found) != 1 or found[0].count('/') != 1:
            raise FileError(path, f'one data.pkl expected, found {len(found)}', CONVERT)
        self.root = found[0].rpartition('/')[0]
        self.storages: dict[str, Tensor] = {}
        self.bytes_left = 2 * path.stat().st_size
        order = f'{self.root}/byteorder'
        if order in archive.namelist() and archive.read(order) != b'little':
            raise FileError(path, 'its numbers are big-endian', CONVERT)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors below the top module."""
        info = self.archive.getinfo(f'{self.root}/data.pkl')
        if info.file_size > LARGEST_PICKLE:
            raise FileError(self.path, f'data.pkl has {info.file_size:,} bytes', CONVERT)
        top = _Unpickler(io.BytesIO(self.archive.read(info)), self).load()
        found: dict[str, Tensor] = {}
        self._collect(top, '', found, 0)
        return found

    def _collect(self, module: Any, prefix: str, found: dict[str, Tensor], depth: int) -> None:
        state = getattr(module, 'state', None)
        if not isinstance(module, ScriptObject) or not isinstance(state, dict) or depth > DEEPEST:
            return
        for name, value in state.items():
            if isinstance(value, Tensor):
                self.bytes_left -= value.numel() * value.element_size()
                if self.bytes_left < 0:
                    raise FileError(self.path, 'its tensors are larger than the file', CONVERT)
                found[f'{prefix}{name}'] = value
            else:
                self._collect(value, f'{prefix}{name}.', found, depth + 1)

    def storage(self, key: Any, dtype: Any, count: Any) -> Tensor:
        """The numbers of a record, shape (count,)."""
        name = f'{self.root}/data/{key}'
        if name not in self.storages:
            info = self.archive.getinfo(name)
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != count * dtype.itemsize:
                raise FileError(self.path, f'it has {info.file_size} bytes where {count} numbers '
                                f'of {dtype} are expected', CONVERT, f'record {name}')
            data = self.archive.read(info)
            self.storages[name] = torch.frombuffer(bytearray(data), dtype=dtype) if data else (
                torch.empty(0, dtype=dtype))
        return self.storages[name]


class _Unpickler(pickle._Unpickler):
    """Accepts tensors, lists and modules without behaviour; refuses any other name.

    In Python: the one in C makes a table of gigabytes for one wrong number in the file.
    """

    def __init__(self, file: io.BytesIO, reader: _ArchiveReader) -> None:
        super().__init__(file)
        self.reader = reader

    def find_class(self, module: str, name: str) -> Any:
        if module == '__torch__' or module.startswith('__torch__.'):
            return ScriptObject
        if (module, name) == ('torch._utils', '_rebuild_tensor_v2'):
            return _tensor
        if module == 'torch' and name in DTYPES:
            return DTYPES[name]
        if (module, name) == ('collections', 'OrderedDict'):
            return OrderedDict
        if module == 'torch.jit._pickle' and name in LISTS:
            return list
        if (module, name) == ('torch.jit._pickle', 'restore_type_tag'):
            return lambda value, *_: value
        raise pickle.UnpicklingError(f'it asks for {module}.{name}')

    def persistent_load(self, pid: Any) -> Tensor:
        kind, dtype, key, _, count = pid
        if kind != 'storage' or not isinstance(dtype, torch.dtype) or not isinstance(count, int):
            raise pickle.UnpicklingError('a record that is not a storage')
        return self.reader.storage(key, dtype, count)


def _tensor(storage: Tensor, offset: int, size: tuple, stride: tuple, *_: Any) -> Tensor:
    """A view of a storage, inside it and no larger than it."""
    numbers = (offset, *size, *stride)
    if not all(type(value) is int and value >= 0 for value in numbers) or len(size) != len(stride):
        raise pickle.UnpicklingError('a tensor of an impossible shape')
    count, last = 1, offset
    for length, step in zip(size, stride):
        count *= length
        last += (length - 1) * step
    if count and (last >= len(storage) or count > len(storage)):
        raise pickle.UnpicklingError('a tensor that is larger than its storage')
    return storage.as_strided(size, stride, offset)


REMEDY = ('Set pretrained to an open_clip state dict or checkpoint (.pt, .bin, .safetensors) or an '
          'OpenAI archive; if it should be one, download it again.')

# Scalars that OpenAI stored next to its weights; no other CLIP file has them.
OPENAI_KEYS = ('input_resolution', 'context_length', 'vocab_size')
_shared: ContextVar[dict[Path, tuple[dict[str, Tensor], bool]] | None] = ContextVar(
    'shared_weights', default=None)


@contextmanager
def shared_reading() -> Iterator[None]:
    """Inside the block, each file of weights is read once: image and text tower share it."""
    token = _shared.set({})
    try:
        yield
    finally:
        _shared.reset(token)


_built: ContextVar[dict[tuple, Any] | None] = ContextVar('built_clips', default=None)


@contextmanager
def one_clip() -> Iterator[None]:
    """Inside the block, image and text tower are the halves of one model that is built once.

    For prediction: a training draws random numbers for each model that it builds, and its results
    depend on them.
    """
    token = _built.set({})
    try:
        yield
    finally:
        _built.reset(token)


def read_weights(path: str | Path) -> tuple[dict[str, Tensor], bool]:
    """Reads a file of CLIP weights; inside :func:`shared_reading`, once.

    Args:
        path (str | Path): See :func:`_read`.

    Returns:
        tuple[dict[str, Tensor], bool]: The weights in float32 and whether the file bears OpenAI's
        marks (see ``OPENAI_KEYS``).
    """
    known, path = _shared.get(), Path(path)
    if known is None:
        return _read(path)
    if path not in known:
        known[path] = _read(path)
    weights, from_openai = known[path]
    return dict(weights), from_openai


def _read(path: Path) -> tuple[dict[str, Tensor], bool]:
    """Reads open_clip files (``.bin``, ``.pt``, ``.safetensors``) and OpenAI's archives.

    Args:
        path (str | Path): A state dict, a training checkpoint holding one under
            ``state_dict`` (with or without ``module.`` prefixes), a safetensors
            file or a TorchScript archive.
    """
    if path.suffix == '.safetensors':
        found: object = _read_safetensors(path)
    else:
        found = read_torchscript(path) if is_torchscript(path) else _read_pickle(path)
    state = _check(found, path)
    state = {key.removeprefix('module.'): value for key, value in state.items()}
    from_openai = all(key in state for key in OPENAI_KEYS)
    weights = {key: value.float() if value.is_floating_point() else value
               for key, value in state.items() if key not in OPENAI_KEYS}
    return weights, from_openai


def fill_weights(model: nn.Module, weights: dict[str, Tensor], arch: str, pretrained: str | None,
                 resample: bool) -> None:
    """Loads weights strictly, after the conversions between open_clip's own formats.

    Args:
        model (nn.Module): open_clip's model.
        weights (dict[str, Tensor]): From ``read_weights``.
        arch (str): Name of the model, for messages.
        pretrained (str | None): Name of the weights, for messages.
        resample (bool): Resample the positional embedding of images to the size of the model.
    """
    weights = convert_state_dict(model, weights)
    if 'positional_embedding' in weights and not hasattr(model, 'positional_embedding'):
        weights = convert_to_custom_text_state_dict(weights)
    own = model.state_dict()
    for key in ('logit_scale', 'logit_bias'):  # a scalar in some files, one element in others
        if key in weights and key in own:
            weights[key] = weights[key].reshape(own[key].shape)
    if resample:
        resize_pos_embed(weights, model)
    problems = [f'{key} is missing' for key in own if key not in weights]
    problems += [f'{key} is unexpected' for key in weights if key not in own]
    problems += [f'{key} is {tuple(weights[key].shape)} in the file and {tuple(value.shape)} in '
                 f'the model' for key, value in own.items()
                 if key in weights and weights[key].shape != value.shape]
    if problems:
        more = f' and {len(problems) - 5} more' if len(problems) > 5 else ''
        hint = (' Set img_size to resample the positional embedding.'
                if any('visual.positional_embedding is (' in p for p in problems) else '')
        raise ValueError(
            f'pretrained={pretrained!r} does not fit arch={arch!r}: '
            f'{"; ".join(problems[:5])}{more}.{hint}')
    model.load_state_dict(weights)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file
    try:
        return load_file(path)
    except Exception as error:  # its errors have no common base
        raise FileError(path, f'it is not a safetensors file, or damaged ({reason_of(error)})',
                        REMEDY) from error


def _read_pickle(path: Path) -> dict[str, Tensor]:
    check_archive(path, str(path))
    try:
        content = load_pickle(path, str(path))
    except FileError:
        raise
    except Exception as error:
        raise FileError(path, f'it cannot be read as plain weights ({reason_of(error)}); files '
                        'that carry other Python objects are refused', REMEDY) from error
    return content.get('state_dict', content) if isinstance(content, dict) else content


def _check(state: object, path: Path) -> dict[str, Tensor]:
    """Names and tensors, no larger than what holds them, and finite."""
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise FileError(
            path, 'it holds no state dict: expected a dict of tensors, or a dict with one under '
            f'"state_dict", got {type(state).__name__}', REMEDY)
    for key, value in state.items():
        if not isinstance(key, str):
            what = 'a name expected'
        elif value.layout != torch.strided or (
                value.numel() * value.element_size() > value.untyped_storage().nbytes()):
            what = 'it claims more numbers than the file holds'
        elif value.is_floating_point() and not bool(value.isfinite().all()) and (
                not key.endswith('attn_mask')):
            what = 'a value is not finite'
        else:
            continue
        raise FileError(path, what, REMEDY, f'key {key!r}'[:200])
    return state


CONFIGS = Path(__file__).parent / 'configs'
QUICKGELU = '-quickgelu'


def load_clip(arch: str, pretrained: str | None = None, img_size: int | None = None,
              quickgelu: bool | None = None, half: str = '') -> Any:
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
        half (str): Inside :func:`one_clip`, what the caller takes, 'image' or 'text': the text
            half is that of the image tower which was built before. Defaults to '', all.

    Returns:
        nn.Module: open_clip's ``CLIP`` or ``CustomTextCLIP``; :class:`TextHalf` for an architecture
        without an image tower of open_clip's (``'fashion_clip'``).
    """
    known, key = _built.get(), (arch, pretrained, quickgelu)
    if known is None or not half or pretrained is None:
        return _load(arch, pretrained, img_size, quickgelu)
    if half == 'text' and key in known:
        return known.pop(key)
    model = _load(arch, pretrained, img_size, quickgelu)
    if half == 'image':
        known[key] = model
    return model


def _load(arch: str, pretrained: str | None, img_size: int | None,
          quickgelu: bool | None) -> Any:
    config = arch_config(arch)
    tag = find_tag(arch, pretrained)
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


def find_tag(arch: str, pretrained: str | None) -> dict:
    """open_clip's record of a tag, {} when ``pretrained`` is none."""
    if pretrained is None:
        return {}
    family = arch.removesuffix(QUICKGELU)  # its tags contain those of both activations
    return (open_clip_pretrained.get_pretrained_cfg(arch, pretrained)
            or open_clip_pretrained.get_pretrained_cfg(family, pretrained))


def tags_of(arch: str) -> list[dict]:
    """open_clip's records of all tags of an architecture, or else of its other activation."""
    for name in (arch, arch.removesuffix(QUICKGELU)):
        if tags := open_clip.list_pretrained_tags_by_model(name):
            return [open_clip_pretrained.get_pretrained_cfg(name, tag) for tag in tags]
    return []


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
    if 'hf_model_name' in config['text_cfg']:
        return _build_hf(arch, config, img_size)
    # A timm tower is resized after its weights are in, by timm itself.
    size = None if _is_timm(config) else img_size
    device = torch.empty(0).device  # the default device, so that 'meta' works
    with _no_random_weights_warning(), _SkipInit() if skip_init else nullcontext():
        return open_clip.create_model(
            arch, force_image_size=size, device=device, pretrained_text=False,
            quick_gelu=quickgelu)


def _build_hf(arch: str, config: dict, img_size: int | None) -> Any:
    """A model whose text tower is one of transformers, whose layout the Hub knows."""
    name = config['text_cfg']['hf_model_name']
    if find_spec('transformers') is None:
        raise ImportError(f'The text tower of arch={arch!r} needs transformers, which is not '
                          f'installed: {extra_command("hf")}')
    try:
        with (_no_random_weights_warning(),
              nullcontext() if reachable([hub_address()]) else hub_offline()):
            return open_clip.create_model(arch, force_image_size=img_size, pretrained_text=False)
    except Exception as error:  # the Hub's errors have no common base
        raise DownloadError(
            f'The layout of the text tower of arch={arch!r} could not be downloaded '
            f'({reason_of(error, 80)}). Fetch {hub_address()}/{name} on a machine with a network '
            'into the cache folder of the Hub (HF_HOME), or take another arch.') from error


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
