"""DCGM's profiling fields by the counters of CUPTI: what to collect on one's own GPU to see what a fleet's exporter reports.

DCGM's profiling module is closed. That a metric is a field's twin is inferred from the wording of the field in `dcgm_fields.h` and from
the metric's name and unit, and was not measured; `Twin.status` says so. Utilizations are shares of *elapsed* cycles in both: the
profilers' usual `…_active` variants divide by the cycles in which the SM had work, and are higher.
"""

from __future__ import annotations

from dataclasses import dataclass

from ullage.cupti.metric_names.changes import namesake

INFERRED = "inferred from wording"
_PERCENT, _RATE = ".avg.pct_of_peak_sustained_elapsed", ".sum.per_second"
# Ullage's field, DCGM's number of it, the metric. Chips that call the metric by another name are asked by `namesake`.
_FIELDS = (
    ("gr_active", 1001, f"gr__cycles_active{_PERCENT}"),
    ("sm_active", 1002, f"sm__cycles_active{_PERCENT}"),
    ("sm_occupancy", 1003, f"sm__warps_active{_PERCENT}"),
    ("tensor_active", 1004, f"sm__pipe_tensor_cycles_active{_PERCENT}"),
    ("dram_active", 1005, f"dram__cycles_active{_PERCENT}"),
    ("fp64_active", 1006, f"sm__pipe_fp64_cycles_active{_PERCENT}"),
    ("fp32_active", 1007, f"sm__pipe_fma_cycles_active{_PERCENT}"),
    ("fp16_active", 1008, f"sm__inst_executed_pipe_fp16{_PERCENT}"),
    ("pcie_tx", 1009, f"pcie__write_bytes{_RATE}"),
    ("pcie_rx", 1010, f"pcie__read_bytes{_RATE}"),
    ("nvlink_tx", 1011, f"nvltx__bytes{_RATE}"),
    ("nvlink_rx", 1012, f"nvlrx__bytes{_RATE}"),
    ("imma_active", 1013, f"sm__pipe_tensor_op_imma_cycles_active{_PERCENT}"),
    ("hmma_active", 1014, f"sm__pipe_tensor_op_hmma_cycles_active{_PERCENT}"),
    ("dfma_active", 1015, f"sm__pipe_tensor_op_dmma_cycles_active{_PERCENT}"),
)


@dataclass(frozen=True)
class Twin:
    """A field of the samples table (`ullage metrics --fields`) and its metric on a chip: field = metric × factor, in the field's unit."""

    field: str
    dcgm: int
    metric: str
    factor: float
    status: str = INFERRED


def twins(chip: str, release: str | None = None) -> tuple[Twin, ...]:
    """Return the twins that a chip has, in the order of DCGM's numbers. Raises UllageError for a chip that isn't known.

    >>> [twin.metric for twin in twins("GB100") if twin.field == "hmma_active"]
    ['sm__pipe_tensor_subpipe_hmma_cycles_active.avg.pct_of_peak_sustained_elapsed']
    """
    found = ((field, number, name, namesake(name, chip, release)) for field, number, name in _FIELDS)
    return tuple(Twin(field, number, own, 0.01 if name.endswith(_PERCENT) else 1.0) for field, number, name, own in found if own)
