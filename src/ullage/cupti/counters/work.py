"""FLOPs that a kernel executed, by precision, from its counters: tensor operations and those of the vector pipes.

**Tensor.** `sm__ops_path_tensor_…` count math operations by source type, result type, instruction and sparsity. The library says no more
than "math ops"; an operation is one FLOP, a multiply-add two: a BF16 product of 1024 × 1024 × 1024 has been reported to count exactly
2 × 1024³ on a GPU. `make gpu` repeats that here; until it has run on a chip, this is the convention and not a measurement. What
`…_sparsity_on` counts of a 2:4 sparse product (all terms or those multiplied) nobody has said: `tensor_work` keeps it apart, and
`flops` counts it as the library does.

**Instruction.** Hopper has products by warp (HMMA, IMMA: "legacy") and by warp group (HGMMA, IGMMA), Blackwell by warp and by
tcgen05 (UTC…); legacy ones reach only part of the peak. FP8 and FP64 are not split: Hopper's FP8 is by warp group alone.

**Vector.** Where instructions were counted by type (`…_sass_thread_inst_executed_op_ffma_pred_on`) an FMA is two FLOPs, an ADD or MUL
one. Half precision works on two numbers at once, and the library doesn't say whether it counts a packed instruction once: these FLOPs
are at least what is given. Where only the pipe was counted (`sm__inst_executed_pipe_fma`), the FLOPs are at most 64 for each warp's
instruction, as integer products go through that pipe too: the key says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ullage.cupti.metric_names.dictionary import base

_TENSOR = re.compile(
    r"sm__ops_path_tensor(?:_op_(?P<op>[a-z]+))?_src_(?P<source>[a-z0-9_]+?)(?:_dst_(?P<result>[a-z0-9]+))?"
    r"(?:_sparsity_(?P<sparsity>on|off))?(?:_realtime)?"
)
# Mixed sources have one rate on the tensor core: FP8, FP6 and FP4 together run as FP8 does.
_RATE = {"fp4_fp6_fp8": "fp8", "fp4_fp6": "fp8", "fp16_bf16_tf32": "fp16"}
_LEGACY = ("hmma", "imma", "bmma", "dmma", "qmma")
_VECTOR = re.compile(r"(?:sm|smsp)__sass_thread_inst_executed_op_(?P<type>[dfh])(?P<deed>fma|add|mul)(?P<pair>2?)_pred_on")
_TYPES = {"d": "fp64", "f": "fp32", "h": "fp16"}
_PIPES = {"sm__inst_executed_pipe_fma": "fp32 vector, at most", "sm__inst_executed_pipe_fp64": "fp64 vector, at most"}
_LANES = 32
_NOISE = 1e-6  # of a total: what it may lie above its parts where all of them were counted, in other passes


@dataclass(frozen=True)
class TensorMetric:
    """What a counter of tensor operations counts; "" where it doesn't tell things apart."""

    name: str
    instruction: str
    source: str
    result: str
    sparsity: str

    @property
    def precision(self) -> str:
        """The precision, as `ullage gpus` has it, whose peak these operations run against."""
        return _RATE.get(self.source, self.source)

    def refines(self, other: TensorMetric) -> bool:
        """Whether this counts a part of what the other counts."""
        mine, theirs = self._parts(), other._parts()
        narrower = all(one == two or not two for one, two in zip(mine, theirs, strict=True))
        return self.source == other.source and narrower and mine != theirs

    @property
    def detail(self) -> int:
        """How many things it tells apart."""
        return sum(bool(part) for part in self._parts())

    def _parts(self) -> tuple[str, str, str]:
        return self.instruction, self.result, self.sparsity


@dataclass(frozen=True)
class TensorWork:
    """Operations of one kind: `legacy` are those of warp-level instructions, None where the counter doesn't tell."""

    precision: str
    instruction: str
    sparse: bool | None
    legacy: bool | None
    flops: float


def tensor_metric(name: str) -> TensorMetric | None:
    """Return what a metric counts of the tensor path; None for any other metric.

    >>> tensor_metric("sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum").instruction
    'hgmma'
    """
    found = _TENSOR.fullmatch(base(name))
    if found is None:
        return None
    return TensorMetric(base(name), found["op"] or "", found["source"], found["result"] or "", found["sparsity"] or "")


def finest(names: Iterable[str]) -> list[str]:
    """Return the counters of tensor operations that together count each operation once, as finely as they can; in their order.

    >>> finest(["sm__ops_path_tensor_src_fp8", "sm__ops_path_tensor_src_fp8_sparsity_off", "sm__ops_path_tensor_src_fp8_sparsity_on"])
    ['sm__ops_path_tensor_src_fp8_sparsity_off', 'sm__ops_path_tensor_src_fp8_sparsity_on']
    """
    known = [found for name in names if not base(name).endswith("_realtime") and (found := tensor_metric(name)) is not None]
    return [one.name for one in known if not any(other.refines(one) for other in known)]


def tensor_work(values: Mapping[str, float]) -> list[TensorWork]:
    """Return the tensor operations of a kernel by precision, instruction and sparsity, each counted once; NaN and absent are left out.

    `values` are counter values by metric name, of which only `.sum` is an amount. What a total counts beyond those of its parts that are
    there is work of its own, of which less is known.
    """
    known = [(what, value) for name, value in values.items() if _amount(name, value) and (what := tensor_metric(name)) is not None]
    found: list[tuple[TensorMetric, float]] = []
    for what, value in sorted((one for one in known if not one[0].name.endswith("_realtime")), key=lambda one: -one[0].detail):
        parts = [amount for part, amount in found if part.refines(what)]
        rest = value - sum(parts)
        if not parts or rest > _NOISE * value:
            found.append((what, rest))
    return [_work(what, amount) for what, amount in found]


def _work(what: TensorMetric, amount: float) -> TensorWork:
    sparse = {"on": True, "off": False}.get(what.sparsity)
    legacy = what.instruction in _LEGACY if what.instruction else None
    return TensorWork(what.precision, what.instruction, sparse, legacy, amount)


def vector_flops(values: Mapping[str, float]) -> dict[str, float]:
    """Return the FLOPs of the vector pipes by precision: "fp32 vector", or "fp32 vector, at most" where only the pipe was counted."""
    found: dict[str, float] = {}
    for name, value in values.items():
        counted = _VECTOR.fullmatch(base(name))
        again = name.startswith("smsp__") and name.replace("smsp__", "sm__", 1) in values  # one count, under two names
        if counted and _amount(name, value) and not again:
            key = f"{_TYPES[counted['type']]} vector"
            weight = (2 if counted["deed"] == "fma" else 1) * (2 if counted["pair"] else 1)
            found[key] = found.get(key, 0) + weight * value
    for name, value in values.items():
        key = _PIPES.get(base(name), "")
        if key and _amount(name, value) and key.removesuffix(", at most") not in found:
            found[key] = 2 * _LANES * value
    return found


def flops(values: Mapping[str, float]) -> dict[str, float]:
    """Return the FLOPs that a kernel executed, by precision; the module says how they are counted. {} where nothing was counted.

    `values` are a kernel's counter values by metric name (`ranges` and `evaluate` give them), sums.

    >>> flops({"sm__ops_path_tensor_src_bf16_dst_fp32.sum": 2147483648.0, "sm__inst_executed_pipe_fma.sum": 1000.0})
    {'bf16': 2147483648.0, 'fp32 vector, at most': 64000.0}
    """
    found: dict[str, float] = {}
    for part in tensor_work(values):
        found[part.precision] = found.get(part.precision, 0) + part.flops
    return {**found, **vector_flops(values)}


def _amount(name: str, value: float) -> bool:
    """Whether this is an amount that may be summed: `.sum`, and a number."""
    return name == base(name) + ".sum" and math.isfinite(value)
