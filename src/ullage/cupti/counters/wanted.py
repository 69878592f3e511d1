"""The counters that Ullage itself needs, in sets; the names differ by chip, so each quantity has its names in order of preference.

`device` is one pass by ranges and by PM sampling on every data-centre chip from A100 on: it can be sampled beside a running job. `kernel`
is for ranges around kernels, `vector` needs instructions patched into kernels (slow) and is asked for by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ullage.cupti.counters.work import finest
from ullage.cupti.metric_names.dictionary import base
from ullage.errors import UllageError, did_you_mean

_SHARE = ".avg.pct_of_peak_sustained_elapsed"


@dataclass(frozen=True)
class WantedQuantity:
    """What is wanted: its name and unit in Ullage's words, what it means, the metrics that give it (the first that a chip has).

    The metric's value times `scale` is in that unit: shares come as percent.
    """

    name: str
    unit: str
    meaning: str
    metrics: tuple[str, ...]
    scale: float = 1.0


def _share(name: str, meaning: str, *counters: str) -> WantedQuantity:
    return WantedQuantity(name, "1", meaning, tuple(counter + _SHARE for counter in counters), 0.01)


def _amount(name: str, unit: str, meaning: str, *metrics: str) -> WantedQuantity:
    return WantedQuantity(name, unit, meaning, metrics)


_TENSOR_ACTIVE = _share(
    "tensor_active", "share of elapsed SM cycles in which any tensor pipe is active (TPA)",
    "sm__pipe_tensor_cycles_active_v2", "sm__pipe_tensor_cycles_active",
)  # fmt: skip
_SM_ACTIVE = _share("sm_active", "share of elapsed SM cycles with a warp in flight, averaged over SMs", "sm__cycles_active")
_DRAM = (
    _amount("dram_read", "B", "bytes read from device memory", "dram__bytes_read.sum", "dram__bytes_op_read.sum"),
    _amount("dram_written", "B", "bytes written to device memory", "dram__bytes_write.sum", "dram__bytes_op_write.sum"),
)
DEVICE = (
    _TENSOR_ACTIVE,
    _SM_ACTIVE,
    _share("dram_active", "share of memory cycles in which data move", "dram__cycles_active"),
    _amount("sm_clock", "Hz", "SM cycles elapsed a second: the mean clock of the window", "sm__cycles_elapsed.avg.per_second"),
    _amount("sm_cycles", "cycles", "SM cycles elapsed, over all SMs", "sm__cycles_elapsed.sum"),
    _amount("sm_active_cycles", "cycles", "SM cycles with a warp in flight, over all SMs", "sm__cycles_active.sum"),
    *_DRAM,
)
KERNEL = (
    _amount("time", "ns", "duration of the kernel", "gpu__time_duration.sum"),
    _amount("sm_cycles_longest", "cycles", "elapsed cycles of the SM that counted most", "sm__cycles_elapsed.max"),
    _TENSOR_ACTIVE,
    _SM_ACTIVE,
    *_DRAM,
    _amount("l2_bytes", "B", "bytes that the L2 was asked for", "lts__t_bytes.sum"),
    _amount(
        "tensor_instructions", "instructions", "tensor instructions, a warp's each",
        "sm__inst_executed_pipe_tensor_v2.sum", "sm__inst_executed_pipe_tensor.sum",
    ),
    _amount(
        "group_instructions", "instructions", "products of a warp group (Hopper): the rest of the tensor instructions is legacy",
        "sm__inst_executed_pipe_tensor_op_gmma.sum",
    ),
    _amount("fma_instructions", "instructions", "those of the FMA pipes: FP32, and integer products", "sm__inst_executed_pipe_fma.sum"),
    _amount("fp64_instructions", "instructions", "instructions of the FP64 pipe", "sm__inst_executed_pipe_fp64.sum"),
)  # fmt: skip
_SASS = "sm__sass_thread_inst_executed_op_{}_pred_on.sum"
VECTOR = tuple(
    _amount(deed, "instructions", f"{deed.upper()} of threads, predicated-off ones left out", _SASS.format(deed))
    for deed in ("ffma", "fadd", "fmul", "hfma", "hadd", "hmul", "dfma", "dadd", "dmul", "ffma2", "fadd2", "fmul2")
)
SETS: Mapping[str, tuple[WantedQuantity, ...]] = {"device": DEVICE, "kernel": KERNEL, "vector": VECTOR}


def wanted(which: str, known: Iterable[str]) -> dict[str, str]:
    """Return the metrics of a set that a chip has, by quantity; `known` are the chip's base names.

    `kernel` has the tensor operations of every kind too, each by its own name, from which `work.flops` makes FLOPs; they come first, as
    CUPTI 13.1 then needs a pass less on GH100 and GB202. A quantity that the chip doesn't count is left out. Raises UllageError for a set
    that there isn't.

    >>> wanted("device", ["sm__cycles_active"])
    {'sm_active': 'sm__cycles_active.avg.pct_of_peak_sustained_elapsed', 'sm_active_cycles': 'sm__cycles_active.sum'}
    """
    if which not in SETS:
        raise UllageError(f"there is no set of counters '{which}'", did_you_mean(which, SETS, "ullage cupti plan --help"))
    names = list(known)
    held = set(names)
    found = {quantity.name: next((m for m in quantity.metrics if base(m) in held), "") for quantity in SETS[which]}
    if which == "kernel":
        found = {name: f"{name}.sum" for name in finest(names)} | found
    return {quantity: metric for quantity, metric in found.items() if metric}
