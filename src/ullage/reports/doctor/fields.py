"""Which of an exporter's fields a place has, on how many GPUs, and what each of the others would add to a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ullage.field import HEALTH
from ullage.sources.naming.dcgm_names import ON_BY_DEFAULT
from ullage.sources.naming.names import NAMES

if TYPE_CHECKING:
    import ibis.expr.types as ir


@dataclass(frozen=True)
class Capability:
    """What a report can say where samples hold all of some fields at once, or all of one of several such sets; `adds` says what."""

    name: str
    adds: str
    needs: Sequence[tuple[str, ...]]


CAPABILITIES = (
    Capability("OFU", "how full each GPU is", (("tensor_active", "sm_clock"), ("tensor_cycles", "sm_cycles"))),
    Capability("OFU by cycle counters", "OFU without the error of sampled clocks", (("tensor_cycles", "sm_cycles"),)),
    Capability("activity", "the share of time in which a GPU does anything", (("gr_active",),)),
    Capability("SM fill", "how many of a busy GPU's SMs have work", (("sm_active",),)),
    Capability("GPU utilization", "what dashboards say, beside OFU, and a check of the other gauges", (("gpu_util",),)),
    Capability("memory's roof", "which jobs memory bounds, and how near they are to its bandwidth", (("dram_active", "memory_clock"),)),
    Capability("other pipes", "work of the FP64, FP32 and FP16 pipes", (("fp64_active",), ("fp32_active",), ("fp16_active",))),
    Capability("NVLink", "what NVLink carries", (("nvlink_tx", "nvlink_rx"),)),
    Capability("PCIe", "what PCIe carries", (("pcie_tx", "pcie_rx"),)),
    Capability("energy", "kWh of each job, from the GPU's own meter", (("energy",),)),
    Capability("power", "power now; and energy, where there is no meter", (("power",),)),
    Capability("clock reasons", "why a clock is low: a power cap, heat, a limit that somebody set", (("throttle",),)),
    Capability("temperature", "heat as a cause", (("temperature",),)),
    Capability("health", "which GPUs told of faults of their hardware", tuple((name,) for name in HEALTH)),
    Capability("memory", "how much of its memory a job holds", (("memory_used",),)),
)


@dataclass(frozen=True)
class CapabilityShare:
    """On how many of `of` GPUs a capability is there, and for which share of their sampled time; `missing` names the fields to switch on.

    Those in `missing` are DCGM's names, of the first set of fields that is enough; `off_by_default` says whether dcgm-exporter's own list
    leaves one of them out.
    """

    capability: Capability
    gpus: int
    of: int
    time: float
    missing: tuple[str, ...]
    off_by_default: bool


def capability_shares(samples: ir.Table) -> tuple[list[CapabilityShare], int]:
    """Return what settled samples are good for, and for how many GPUs jobs are named. Raises nothing for an empty table: 0 of 0 GPUs."""
    asked = {"gpus": samples.gpu.nunique(), "time": samples.span_ms.sum(), "with_jobs": samples.gpu.nunique(where=samples.job.notnull())}
    for number, capability in enumerate(CAPABILITIES):
        there = _there(samples, capability)
        asked |= {f"gpus_{number}": samples.gpu.nunique(where=there), f"time_{number}": samples.span_ms.sum(where=there)}
    [row] = samples.aggregate(**asked).to_pyarrow().to_pylist()
    shares = [
        _share(capability, row[f"gpus_{number}"], row["gpus"], row[f"time_{number}"] or 0, row["time"] or 0)
        for number, capability in enumerate(CAPABILITIES)
    ]
    return shares, row["with_jobs"]


def _there(samples: ir.Table, capability: Capability) -> ir.BooleanValue:
    found = None
    for fields in capability.needs:
        together = None
        for field in fields:
            known = samples[field].notnull()
            together = known if together is None else together & known
        found = together if found is None else found | together
    return found


def _share(capability: Capability, gpus: int, of: int, time: float, all_time: float) -> CapabilityShare:
    fields = capability.needs[0] if gpus < of else ()
    off = any(field not in ON_BY_DEFAULT for field in fields)
    return CapabilityShare(capability, gpus, of, time / all_time if all_time else 0.0, tuple(map(dcgm_name, fields)), off)


def dcgm_name(field: str) -> str:
    """Return what DCGM and its exporter call a field.

    >>> dcgm_name("sm_active"), dcgm_name("throttle")
    ('DCGM_FI_PROF_SM_ACTIVE', 'DCGM_FI_DEV_CLOCKS_EVENT_REASONS')
    """
    names = (name for of_unit in NAMES[field].values() for name in of_unit.split())
    return next((name for name in names if name.startswith("DCGM_FI_")), field)
