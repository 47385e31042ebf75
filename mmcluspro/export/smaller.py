"""Smaller ONNX files: half precision, and weights of eight bits."""
import logging
from pathlib import Path

# Sums of squares overflow sixteen bits, and norms need their digits.
FULL_PRECISION = ['LayerNormalization', 'ReduceL2', 'Clip']


def write_half(source: str | Path, target: str | Path) -> None:
    """Weights and most operations in half precision; input and outputs stay as they are.

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
    """Matrices in eight bits with a scale for each column, activations quantised on the way.

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
