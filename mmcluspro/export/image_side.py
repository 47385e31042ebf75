"""The image side as an ONNX graph: pixels → unit-norm f_a, f_o, f_c (Eq. 1); smaller forms."""
import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.models.backbones import DINOv2
from mmcluspro.models.peft import merge, unmerge
from mmcluspro.models.peft.lora import FusedAttention, LoRALayer, adaptable_attention
from mmcluspro.models.structures import Features, as_features
from mmcluspro.requirements import extra_command

OPSET = 17  # the first with LayerNormalization
MOST_BYTES = 1 << 31  # of one file in the format of ONNX
FEATURES = dict(attribute='f_a', object='f_o', composition='f_c')


def require_onnx() -> None:
    """Raises an ImportError that names the extra if a package is missing."""
    for name in ('onnx', 'onnxruntime'):
        try:
            import_module(name)
        except ModuleNotFoundError:
            raise ImportError(
                f'Export needs {name}, which is not installed: {extra_command("export")}'
            ) from None


class ImageSide(nn.Module):
    """The image side of a model: normalisation, backbone, neck and unit norm of the features.

    Args:
        model (nn.Module): A ``CompositionalClassifier`` in eval mode, whose head says in
            ``portable`` how features are scored outside torch.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.paths = model.head.portable().paths
        self.names = tuple(FEATURES[path] for path in self.paths)
        self.pixels, self.backbone, self.neck = model.data_preprocessor, model.backbone, model.neck

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Pictures, RGB, uint8 (B, H, W, 3) → one feature per path, unit norm, (B, D) each."""
        found = self.features(image).paths
        return tuple(F.normalize(found[path].float(), dim=1) for path in self.paths)

    def features(self, image: Tensor) -> Features:
        """Pictures, RGB, uint8 (B, H, W, 3) → what the head gets."""
        if not self.pixels.to_rgb:
            image = image.flip(3)
        x = image.permute(0, 3, 1, 2).float()
        if self.pixels._enable_normalize:
            x = (x - self.pixels.mean) / self.pixels.std
        outputs = self.backbone(x)
        return as_features(outputs if self.neck is None else self.neck(outputs))


def write_onnx(side: ImageSide, path: str | Path, size: int, metadata: dict[str, str]) -> None:
    """Writes the graph, with LoRA merged and a free batch size.

    Args:
        side (ImageSide): On the CPU. It is not changed.
        path (str | Path): The file.
        size (int): Side of the images, H = W.
        metadata (dict[str, str]): Stored in the file.

    Raises:
        ValueError: The weights do not fit into one file.
    """
    import onnx
    weights = sum(part.numel() * part.element_size() for part in side.state_dict().values())
    if weights >= MOST_BYTES:
        raise ValueError(f'The image side has {weights / 1e9:.1f} GB of weights, and an ONNX file '
                         f'holds less than {MOST_BYTES / 1e9:.1f} GB. Export a model with a '
                         'smaller backbone.')
    options: dict[str, Any] = dict(
        input_names=['image'], output_names=list(side.names), opset_version=OPSET,
        dynamic_axes={name: {0: 'batch'} for name in ('image', *side.names)},
        dynamo=False)  # the exporter that needs no further package
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter('ignore')  # the old exporter says that it is old; shapes are fixed
        stack.enter_context(torch.no_grad())
        stack.enter_context(merged(side))
        stack.enter_context(open_attention(side))
        stack.enter_context(fixed_positions(side, size))
        torch.onnx.export(
            side, (torch.zeros(2, size, size, 3, dtype=torch.uint8), ), str(path), **options)
    exported = onnx.load(str(path))
    _constants_to_weights(exported.graph)
    onnx.helper.set_model_props(exported, metadata)
    onnx.checker.check_model(exported)
    onnx.save(exported, str(path))


def _constants_to_weights(graph: Any) -> None:
    """Turns constant nodes of the exporter into weights, which quantisation tools look for."""
    constants = [node for node in graph.node if node.op_type == 'Constant'
                 and [attribute.name for attribute in node.attribute] == ['value']]
    for node in constants:
        tensor = node.attribute[0].t
        tensor.name = node.output[0]
        graph.initializer.append(tensor)
        graph.node.remove(node)


@contextmanager
def merged(module: nn.Module) -> Iterator[None]:
    """Merges LoRA into the weights inside the block."""
    before = any(layer.merged for layer in module.modules() if isinstance(layer, LoRALayer))
    merge(module)
    try:
        yield
    finally:
        if not before:
            unmerge(module)


@contextmanager
def open_attention(module: nn.Module) -> Iterator[None]:
    """Computes attention in single steps inside: ONNX has no operator for torch's fused kernel."""
    layers = [layer for layer in module.modules() if adaptable_attention(layer)]
    for layer in layers:
        layer.forward = FusedAttention(layer).eval().forward  # type: ignore
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


@contextmanager
def fixed_positions(module: nn.Module, size: int) -> Iterator[None]:
    """Makes DINOv2's positions constant inside: ONNX lacks some of torch's resampling modes."""
    layers = [layer for layer in module.modules() if isinstance(layer, DINOv2)]
    for layer in layers:
        grid = size // layer.patch_size, size // layer.patch_size
        constant = layer.positions(grid).detach()
        layer.positions = lambda _, constant=constant: constant  # type: ignore
    try:
        yield
    finally:
        for layer in layers:
            del layer.positions


# Sums of squares overflow sixteen bits, and norms need their digits.
FULL_PRECISION = ['LayerNormalization', 'ReduceL2', 'Clip']


def write_half(source: str | Path, target: str | Path) -> None:
    """Writes weights and most operations in half precision; input and outputs do not change.

    Args:
        source (str | Path): A file of ``write_onnx``.
        target (str | Path): The new file.
    """
    import onnx
    from onnxruntime.transformers.float16 import (
        DEFAULT_OP_BLOCK_LIST,
        convert_float_to_float16,
    )
    from onnxruntime.transformers.onnx_model import OnnxModel
    smaller = convert_float_to_float16(
        onnx.load(str(source)), keep_io_types=True,
        op_block_list=[*DEFAULT_OP_BLOCK_LIST, *FULL_PRECISION])
    OnnxModel(smaller).topological_sort()  # it appends its casts at the end
    onnx.checker.check_model(smaller)
    onnx.save(smaller, str(target))


def write_int8(source: str | Path, target: str | Path) -> None:
    """Writes matrices in eight bits with a scale per column; activations are quantised dynamically.

    Args:
        source (str | Path): A file of ``write_onnx``.
        target (str | Path): The new file.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # it advises a step that fixes the batch size
    try:
        # The convolution of the patches stays: its eight-bit form is slower, and it is small.
        # reduce_range: processors without VNNI add two products in sixteen bits, which is enough
        # for seven bits of a weight and saturates with eight.
        quantize_dynamic(str(source), str(target), op_types_to_quantize=['MatMul', 'Gemm'],
                         per_channel=True, reduce_range=True, weight_type=QuantType.QInt8)
    finally:
        logger.setLevel(level)
