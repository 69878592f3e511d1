"""How many bytes an operator of a PyTorch profile has to move at least: its inputs once, as far as they differ, and its result.

Only operators that are one pass over their inputs are here. Profiles record no shapes of results: they follow from the inputs.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import Any

from ullage.product import LARGEST

# What an operator's result is. "broadcast": of the shape that its inputs have together; "first": of its first input's; "none": of a
# size that does not count beside what is read, or among the inputs; "flags": as "broadcast", a byte each; "copied": the second input is
# read, and the first is written; "written": the first input is written, and nothing read. Of lists of tensors (cat) no types are recorded
_BROADCAST = (
    *("add", "sub", "rsub", "mul", "div", "pow", "maximum", "minimum", "where", "lerp", "addcmul", "addcdiv", "atan2", "fmod", "remainder"),
    *("neg", "abs", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid", "silu", "gelu", "relu", "elu", "softplus", "erf"),
    *("reciprocal", "square", "clamp", "clamp_min", "clamp_max", "leaky_relu", "hardtanh", "hardswish", "mish", "masked_fill"),
    *("gelu_backward", "silu_backward", "sigmoid_backward", "tanh_backward", "threshold_backward", "_softmax_backward_data"),
    *("_log_softmax_backward_data", "leaky_relu_backward", "hardswish_backward", "elu_backward", "bitwise_not"),
)
_FIRST = ("_softmax", "_log_softmax", "native_layer_norm", "_fused_rms_norm", "cumsum", "flip", "roll")
_NONE = ("mean", "sum", "amax", "amin", "max", "min", "argmax", "argmin", "all", "any", "linalg_vector_norm", "norm", "var_mean", "prod")
_FLAGS = ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "isnan", "isinf", "isfinite")
_RESULT = {
    **{f"aten::{name}": "broadcast" for name in _BROADCAST},
    **{f"aten::{name}_": "first" for name in _BROADCAST},
    **{f"aten::{name}": "first" for name in _FIRST},
    **{f"aten::{name}": "none" for name in _NONE},
    **{f"aten::{name}": "flags" for name in _FLAGS},
    "aten::copy_": "copied",
    "aten::fill_": "written",
    "aten::zero_": "written",
}
# Kernels that a compiler wrote take their results among their inputs. Where the name tells of rows or parts that are picked out of a
# tensor, how much of it is read nobody knows
_COMPILED = re.compile(r"^triton_(poi|red|per)_(?!.*(slice|embedding|index|gather|scatter|select))")
_FLOATS = {
    "double": 8, "float": 4, "half": 2, "bfloat16": 2,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
}  # fmt: skip
_SIZES = {
    **_FLOATS, "long": 8, "long int": 8, "int": 4, "short": 2, "short int": 2, "signed char": 1, "char": 1, "unsigned char": 1, "bool": 1,
}  # fmt: skip
_NO_TENSOR = ("", "scalar", "scalarlist", "string")
_Input = tuple[list[int], str, int]  # dims, type, elements that differ


@lru_cache(maxsize=4096)
def tells_bytes(operator: str) -> bool:
    """Return whether an operator's bytes follow from its inputs.

    >>> tells_bytes("aten::add_"), tells_bytes("triton_poi_fused_gelu_view_15"), tells_bytes("triton_poi_fused_clone_slice_11")
    (True, True, False)
    """
    return operator in _RESULT or _COMPILED.match(operator) is not None


def bytes_by(operator: str, dims: Any, types: Any, strides: Any = None) -> int | None:
    """Return how many bytes an operator's inputs and result take; None where shapes or types are not recorded, or not known.

    An input that is spread over a dimension (a stride of 0) is read once, and one of fewer dimensions is what it is:

    >>> bytes_by("aten::add", [[4, 8], [8], []], ["float", "float", "Scalar"])  # 32 and 8 numbers read, 32 written
    288
    >>> bytes_by("aten::copy_", [[4, 8], [4, 8]], ["c10::BFloat16", "float"])  # 32 × 4 B read, 32 × 2 B written
    192
    >>> bytes_by("aten::mul", [[4, 8], [4, 8]], ["float", "float"], [[8, 1], [0, 1]])
    288
    """
    result = _RESULT.get(operator, "none")
    found = _inputs(dims, types, strides)
    if not found:
        return None
    if result == "written":
        return _whole(found[0])
    if result == "copied":
        return _whole(found[0]) + _read(found[1]) if len(found) == 2 else None
    return sum(_read(one) for one in found) + _written(result, found)


def joined(dims: Any) -> int | None:
    """Return how many numbers the tensors have that an operator joins, None where their shapes are not recorded.

    >>> joined([[[2, 3], [4, 3]], []])
    18
    """
    tensors = dims[0] if isinstance(dims, list) and dims else None
    if not isinstance(tensors, list) or not tensors or not all(_is_shape(shape) for shape in tensors):
        return None
    return sum(prod(shape) if shape else 1 for shape in tensors)


def _inputs(dims: Any, types: Any, strides: Any) -> list[_Input] | None:
    """Return an operator's tensors, None where one of them is of a type or shape that is not known."""
    if not isinstance(dims, list) or not isinstance(types, list) or len(dims) != len(types):
        return None
    found: list[_Input] = []
    for place, (shape, named) in enumerate(zip(dims, types, strict=True)):
        kind = str(named).lower().removeprefix("c10::")
        if kind in _NO_TENSOR:
            continue
        if kind not in _SIZES or not _is_shape(shape):
            return None
        own = strides[place] if isinstance(strides, list) and len(strides) == len(dims) else None
        steps = own if isinstance(own, list) and len(own) == len(shape) else [1] * len(shape)
        found.append((shape, kind, prod(size for size, step in zip(shape, steps, strict=True) if step != 0)))
    return found


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list) and len(shape) <= 8 and all(isinstance(size, int) and 0 <= size < LARGEST for size in shape)


def _read(one: _Input) -> int:
    return one[2] * _SIZES[one[1]]


def _whole(one: _Input) -> int:
    return prod(one[0]) * _SIZES[one[1]]


def _written(result: str, found: list[_Input]) -> int:
    if result == "none":
        return 0
    if result == "first":
        return _whole(found[0])
    ranks = max(len(shape) for shape, _, _ in found)
    aligned = [[1] * (ranks - len(shape)) + shape for shape, _, _ in found]
    elements: int = prod(0 if 0 in sizes else max(sizes) for sizes in zip(*aligned, strict=True))
    if result == "flags":
        return elements
    floats = [_FLOATS[kind] for shape, kind, _ in found if kind in _FLOATS and shape] or [_FLOATS[k] for _, k, _ in found if k in _FLOATS]
    return elements * (max(floats) if floats else max(_SIZES[kind] for _, kind, _ in found))
