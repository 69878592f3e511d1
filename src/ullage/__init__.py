"""Ullage: how far every GPU falls short of full, and where the shortfall goes.

    ullage.open("anything")                              the report that a file, folder or URL is for, told by its content
    ullage.peak("H100 SXM", "bf16")                      peak of a GPU, FLOP/s
    ullage.read_samples("scrapes/")                      telemetry as record batches (`ullage.tables.SAMPLES`)
    ullage.fleet("scrapes/", by="job")                   OFU, the telemetry tree, the ledger, trust
    ullage.job("4711", "store/")                         one job: where it ran, its OFU, where the rest went
    ullage.flops("config.json", batch=8, seq=4096)       FLOPs of a model step; with step_time and gpu, MFU and HFU
    ullage.gemm(4096, 4096, 4096, gpu="H100 SXM")        what tiles pad of a matrix product
    ullage.audit_mfu("config.json", reported=0.54, ofu=0.26)   which mistakes explain a reported MFU
    ullage.waterfall(telemetry="job.parquet", trace="traces/", config="config.json")   from peak to MFU, factor by factor
    ullage.read_trace("rank*.json.gz").tree("ai")        host and device efficiency trees of a profile
    with ullage.region("forward"):                       a named part of a program under `ullage run`; .tree() while it runs

Importing the package is cheap: what a function needs is loaded when it is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ullage.asking.telemetry import read_samples as read_samples
    from ullage.errors import UllageError as UllageError
    from ullage.gpus.chip import find as gpu
    from ullage.gpus.chip import peak as peak
    from ullage.live.regions import region as region
    from ullage.opening import open_any as open  # noqa: A004 - it opens any input
    from ullage.questions.audit.counter import audit_counter as audit_counter
    from ullage.questions.audit.mfu import audit_mfu as audit_mfu
    from ullage.questions.audit.peaks import audit_peaks as audit_peaks
    from ullage.questions.doctor import doctor as doctor
    from ullage.questions.fleet import fleet as fleet
    from ullage.questions.flops import flops as flops
    from ullage.questions.gemm import gemm as gemm
    from ullage.questions.job import job as job
    from ullage.questions.sass import sass as sass
    from ullage.questions.trace.compare import trace_compare as trace_compare
    from ullage.questions.trace.gemms import trace_gemms as trace_gemms
    from ullage.questions.trace.scaling import trace_scaling as trace_scaling
    from ullage.questions.trace.stragglers import trace_stragglers as trace_stragglers
    from ullage.questions.trace.trace import trace as trace
    from ullage.questions.waterfall import waterfall as waterfall
    from ullage.traced import read_trace as read_trace

__version__ = "0.1.0"
__all__ = [
    "UllageError",
    "__version__",
    "audit_counter",
    "audit_mfu",
    "audit_peaks",
    "doctor",
    "fleet",
    "fleet_map",
    "flops",
    "gemm",
    "gpu",
    "job",
    "open",
    "peak",
    "read_samples",
    "read_trace",
    "region",
    "sass",
    "trace",
    "trace_compare",
    "trace_gemms",
    "trace_scaling",
    "trace_stragglers",
    "watch",
    "waterfall",
]

_HOME = {
    "UllageError": ("ullage.errors", "UllageError"),
    "audit_mfu": ("ullage.questions.audit.mfu", "audit_mfu"),
    "audit_counter": ("ullage.questions.audit.counter", "audit_counter"),
    "audit_peaks": ("ullage.questions.audit.peaks", "audit_peaks"),
    "doctor": ("ullage.questions.doctor", "doctor"),
    "fleet": ("ullage.questions.fleet", "fleet"),
    "fleet_map": ("ullage.questions.fleet_map", "fleet_map"),
    "flops": ("ullage.questions.flops", "flops"),
    "gemm": ("ullage.questions.gemm", "gemm"),
    "gpu": ("ullage.gpus.chip", "find"),
    "job": ("ullage.questions.job", "job"),
    "open": ("ullage.opening", "open_any"),
    "peak": ("ullage.gpus.chip", "peak"),
    "read_samples": ("ullage.asking.telemetry", "read_samples"),
    "read_trace": ("ullage.traced", "read_trace"),
    "region": ("ullage.live.regions", "region"),
    "sass": ("ullage.questions.sass", "sass"),
    "trace": ("ullage.questions.trace.trace", "trace"),
    "trace_compare": ("ullage.questions.trace.compare", "trace_compare"),
    "trace_gemms": ("ullage.questions.trace.gemms", "trace_gemms"),
    "trace_scaling": ("ullage.questions.trace.scaling", "trace_scaling"),
    "trace_stragglers": ("ullage.questions.trace.stragglers", "trace_stragglers"),
    "watch": ("ullage.questions.watch", "watch"),
    "waterfall": ("ullage.questions.waterfall", "waterfall"),
}


def __dir__() -> list[str]:
    return sorted([*__all__, "live"])


def __getattr__(name: str) -> Any:
    if name == "live":
        return import_module("ullage.live")
    if name not in _HOME:
        raise AttributeError(f"module 'ullage' has no attribute '{name}'")
    module, attribute = _HOME[name]
    found = globals()[name] = getattr(import_module(module), attribute)  # the next time it is found at once: regions are entered often
    return found
