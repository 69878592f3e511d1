"""What a PyTorch operator asked for that multiplies without being one product of two matrices: convolutions and grouped products.

A convolution counts as PyTorch's own counter counts it (torch/utils/flop_counter.py, `conv_flop_count`): two for each weight at each
position, of the padding too; both of its gradients count as much each. Numbers to move are its input, its weights and its result, each
once, which are the same three tensors for the gradients.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any, NamedTuple

from ullage.product import CONVOLUTION, GROUPED, LARGEST, Multiplied


class _Arguments(NamedTuple):
    """Where an operator's arguments stand; None: it has none, and `transposed` may be told by the operator itself."""

    padding: int
    stride: int
    dilation: int
    transposed: int | bool = False
    output_padding: int | None = None


# by the operators' schemas (aten/src/ATen/native/native_functions.yaml); input and weight stand first
_FORWARD = {
    **dict.fromkeys(("aten::convolution", "aten::_convolution", "aten::convolution_overrideable"), _Arguments(4, 3, 5, 6, 7)),
    "aten::cudnn_convolution": _Arguments(2, 3, 4),
    "aten::cudnn_convolution_relu": _Arguments(4, 3, 5),
    "aten::cudnn_convolution_transpose": _Arguments(2, 4, 5, True, 3),
    "aten::miopen_convolution": _Arguments(3, 4, 5),
    "aten::miopen_depthwise_convolution": _Arguments(3, 4, 5),
    "aten::miopen_convolution_transpose": _Arguments(3, 5, 6, True, 4),
}
_BACKWARD = {  # the gradient of the result, the input and the weight stand first
    "aten::convolution_backward": 7,
    "aten::convolution_backward_overrideable": 6,
}
_NARROW = {"double": "fp64", "float": "fp32", "half": "fp16", "bfloat16": "bf16"}

# Kernels that multiply for a convolution; those beside them lay its tensors out otherwise, or add up what was split
_BESIDE = re.compile(r"(?i)nchwtonhwc|nhwctonchw|transpose|reduce|im2d?2?col|subtensorop|bias|opaque|elementwise|precompute|fill|memset")
_MULTIPLIES = re.compile(r"(?i)fprop|dgrad|wgrad|implicit_?gemm|implicit_convolve|igemm|gemm|cijk_|convolve|conv2d|conv_depthwise")
_FEWER = re.compile(r"(?i)winograd|fft")  # algorithms that need fewer FLOPs, in kernels of several steps


def is_convolution(operator: str) -> bool:
    """Return whether an operator is a convolution, or its gradients."""
    return operator.startswith("aten::") and "convolution" in operator


def convolved(operator: str, dims: Any, types: Any, concrete: Any) -> Multiplied | None:
    """Return what each of a convolution's kernels that multiply computes, None where its sizes are not recorded.

    >>> options = ["", "", "[1, 1]", "[2, 2]", "[1, 1]", "2"]  # padding, stride, dilation, groups
    >>> convolved("aten::cudnn_convolution", [[2, 8, 12, 12], [16, 4, 3, 3]] + [[]] * 4, ["float"] * 2, options).flops
    82944
    """
    if not isinstance(dims, list) or not isinstance(concrete, list):
        return None
    try:
        if operator in _BACKWARD:
            result, given, weight = (_shape(dims, place) for place in range(3))
            positions = given if _flag(concrete[_BACKWARD[operator]]) else result
            elements, place = prod(result) + prod(given) + prod(weight), 1
        else:
            at = _FORWARD[operator]
            given, weight, place = _shape(dims, 0), _shape(dims, 1), 0
            transposed = at.transposed if isinstance(at.transposed, bool) else _flag(concrete[at.transposed])
            result = _transposed(at, given, weight, concrete) if transposed else _result(at, given, weight, concrete)
            width = _groups(operator, concrete) * weight[1] if transposed else weight[0]
            positions = given if transposed else [given[0], width, *result]
            elements = prod(given) + prod(weight) + given[0] * width * prod(result)
    except (IndexError, KeyError, ValueError, TypeError, ZeroDivisionError):
        return None
    if min(result) < 1:
        return None
    flops = 2 * positions[0] * prod(positions[2:]) * prod(weight)
    kind = str(types[place]).lower().removeprefix("c10::") if isinstance(types, list) and len(types) > place else ""
    fits = 0 < flops < LARGEST**2 and 0 < elements < LARGEST**2
    return Multiplied(CONVOLUTION, f"{_sizes(given)}*{_sizes(weight)}", flops, elements, _NARROW.get(kind, "")) if fits else None


def kernels_of(operator: str, concrete: Any) -> int:
    """Return how many kernels of a convolution multiply: one, or one for each of the two gradients that are wanted; 0: not known.

    >>> kernels_of("aten::convolution_backward", [""] * 10 + ["[False, True, True]"])
    1
    """
    if operator not in _BACKWARD:
        return 1
    try:
        wanted = str(concrete[-1]).strip("[]").split(",")
        return sum(_flag(word.strip()) for word in wanted[:2])
    except (IndexError, ValueError, TypeError, KeyError):
        return 0


def multiplies(kernel: str) -> bool | None:
    """Return whether a convolution's kernel multiplies, None where its name does not tell.

    >>> multiplies("cutlass_tensorop_s1688dgrad_optimized_tf32"), multiplies("nchwToNhwcKernel"), multiplies("miopen_foo")
    (True, False, None)
    """
    if _FEWER.search(kernel):
        return None
    if _BESIDE.search(kernel) and not kernel.startswith("Cijk_"):
        return False
    return True if _MULTIPLIES.search(kernel) else None


def grouped(dims: Any, types: Any, precisions: dict[str, str]) -> Multiplied | None:
    """Return what the products of a group come to, of which one size differs from product to product and has one sum in all.

    How many rows each product has is not recorded: numbers to move count the matrices of one product, the least that there may be.

    >>> grouped([[32, 16], [4, 16, 24], [4]], ["c10::BFloat16"] * 2, {"bfloat16": "bf16"}).word
    'grouped 32x16*4x16x24 24576 FLOP 1664 numbers bf16'
    """
    try:
        a, b = _shape(dims, 0), _shape(dims, 1)
    except (IndexError, ValueError, TypeError):
        return None
    if {len(a), len(b)} - {2, 3} or a[-1] != b[-2]:
        return None
    both = len(a) == len(b) == 3
    if both and a[0] != b[0]:
        return None
    products, m, n, k = (a[0] if both else 1), a[-2], b[-1], a[-1]
    kind = str(types[0]).lower().removeprefix("c10::") if isinstance(types, list) and types else ""
    elements = products * (m * k + k * n + m * n)
    return Multiplied(GROUPED, f"{_sizes(a)}*{_sizes(b)}", 2 * products * m * n * k, elements, precisions.get(kind, ""))


def _shape(dims: Any, place: int) -> list[int]:
    shape = dims[place]
    if not isinstance(shape, list) or not 2 <= len(shape) <= 8 or not all(isinstance(s, int) and 0 < s < LARGEST for s in shape):
        raise ValueError
    return shape


def _result(at: _Arguments, given: list[int], weight: list[int], concrete: list[Any]) -> list[int]:
    """Return the result's positions by dimension; of one number given for all it is that of each."""
    ranks = len(weight) - 2
    padding, stride, dilation = (_each(concrete[place], ranks) for place in (at.padding, at.stride, at.dilation))
    return [
        (size + 2 * p - d * (k - 1) - 1) // s + 1 for size, k, p, s, d in zip(given[2:], weight[2:], padding, stride, dilation, strict=True)
    ]


def _transposed(at: _Arguments, given: list[int], weight: list[int], concrete: list[Any]) -> list[int]:
    ranks = len(weight) - 2
    padding, stride, dilation = (_each(concrete[place], ranks) for place in (at.padding, at.stride, at.dilation))
    more = _each(concrete[at.output_padding], ranks) if at.output_padding is not None else [0] * ranks
    return [
        (size - 1) * s - 2 * p + d * (k - 1) + o + 1
        for size, k, p, s, d, o in zip(given[2:], weight[2:], padding, stride, dilation, more, strict=True)
    ]


def _groups(operator: str, concrete: list[Any]) -> int:
    at = _FORWARD[operator]
    place = 8 if not isinstance(at.transposed, bool) else max(at.padding, at.stride, at.dilation) + 1
    return int(concrete[place])


def _each(text: Any, ranks: int) -> list[int]:
    values = [int(word) for word in str(text).strip("[]").split(",")]
    return values * ranks if len(values) == 1 else values


def _flag(text: Any) -> bool:
    return {"True": True, "False": False}[str(text)]


def _sizes(shape: list[int]) -> str:
    return "x".join(str(size) for size in shape)
