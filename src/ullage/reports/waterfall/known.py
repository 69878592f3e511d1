"""What is known of a job before its waterfall is drawn: the reports on its sources, and what is said by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ullage.errors import UllageError
from ullage.gpus.measured import ChosenCeiling
from ullage.metrics.evidence import OFU_ERROR
from ullage.metrics.steps import FASTEST
from ullage.reports.fleet.fleet import FleetReport
from ullage.reports.flops import FlopsReport
from ullage.reports.trace.trace import TraceReport
from ullage.reports.waterfall.evidence import TileLoss
from ullage.views.notation import currency_name
from ullage.views.numbers import percent


@dataclass(frozen=True)
class GivenByHand:
    """What is said by hand: ratios in [0, 1] (`ofu`, `mfu`, `tile`, `model`), a measured `ceiling` in FLOP/s with its source and with what
    must be said of it, a `price` of a GPU-hour and its `currency`, how many `hours` or `steps` the job ran, and what OFU may be off
    (`error`, relative).

    `measured_at` is the precision at which the GPU's own ceiling is to be looked up, where none is given; `memory` the bandwidth that was
    measured beside it.
    """

    ofu: float | None = None
    mfu: float | None = None
    tile: float | None = None
    model: float | None = None
    ceiling: float | None = None
    ceiling_source: str = "given"
    ceiling_caution: str = ""
    measured_at: str | None = None
    memory: ChosenCeiling | None = None
    price: float | None = None
    currency: str = ""
    hours: float | None = None
    steps: int | None = None
    error: float = OFU_ERROR

    def __post_init__(self) -> None:
        """Refuse what can't be: the most that a ratio may be is 1, and a little more for OFU, whose clock may pass the tensor clock."""
        for name, (words, high) in _RATIOS.items():
            value = getattr(self, name)
            if value is not None and not 0 < value <= high:
                raise UllageError(f"{words} of {value:g} ({value * 100:g} %) can't be", f"it lies above 0 and is at most {percent(high)}")
        for name, (words, low, high, hint) in _AMOUNTS.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise UllageError(f"{words} of {value:g} can't be", hint)
        currency_name(self.currency)
        if not 0 <= self.error < 1:
            raise UllageError(f"an error of {self.error:g} can't be", "give a relative error such as 0.03")


_RATIOS = {"ofu": ("an OFU", FASTEST), "mfu": ("an MFU", 1.0), "tile": ("a tile efficiency", 1.0), "model": ("a model efficiency", 1.0)}
_AMOUNTS = {  # the least and the most of each, and what to write
    "ceiling": ("a ceiling", 1e10, 1e17, "give FLOP/s of one GPU: 800 TFLOP/s are 800e12"),
    "price": ("a price", 0.0, 1e6, "give money for one GPU-hour: 2.50"),
    "hours": ("a time in hours", 1e-9, 1e6, "give the hours that the job ran, not times its GPUs"),
    "steps": ("a number of steps", 1, 10**12, "give how many steps the job took"),
}


@dataclass(frozen=True)
class LogReport:
    """What a trainer's log says of a job: means over its lines (`steps`), weighed by time; `complete` whether all of it was read."""

    place: str
    steps: int
    mfu: float | None
    step_time: float | None
    complete: bool = True


@dataclass(frozen=True)
class SourceReports:
    """The reports on a job's sources, as far as there are any; `gpus` is how many GPUs it ran on, `gpu` what they were said to be, and
    `precision` that of the peak where no step says it."""

    telemetry: FleetReport | None = None
    trace: TraceReport | None = None
    flops: FlopsReport | None = None
    gemms: TileLoss | None = None
    log: LogReport | None = None
    gpus: int | None = None
    gpu: str | None = None
    precision: str = "bf16"
    notes: tuple[str, ...] = ()


def gpu_name(found: SourceReports) -> str | None:
    """Return what the job's GPUs were said to be, else what telemetry or a trace calls them; None where these name none, or several."""
    if found.gpu is not None:
        return found.gpu
    names = models(found)
    return names[0] if len(names) == 1 else None


def models(found: SourceReports) -> list[str]:
    """Return what telemetry calls the job's GPUs, else what a trace does."""
    names: set[str] = set()
    if found.telemetry is not None:
        names = {group.key for group in found.telemetry.models if group.key != "no model"}
    if not names and found.trace is not None and found.trace.run is not None:
        names = {device.name for device in found.trace.run.devices if device.name}
    return sorted(names)


def products(found: SourceReports) -> list[tuple[str, TileLoss]]:
    """Return what lists of matrix products, and a trace's own kernels, tell of tiles, each with its source."""
    kernels = None if found.trace is None else found.trace.gemms
    return [(source, loss) for source, loss in (("products", found.gemms), ("kernels", kernels)) if loss is not None and loss.covered > 0]


UNTILED = ("attention", "convolution")  # families of kernels that multiply matrices and of whose tiles nothing is known


def untiled(trace: TraceReport | None) -> float:
    """Return the share of the time of a trace's kernels that multiply which goes to those without a tile model; 0 without a trace.

    Attention kernels have no product whose sizes the operator tells, and implicit products of convolutions are the library's own.
    """
    if trace is None or trace.gemms is None or trace.kernels is None:
        return 0.0
    apart = sum(row.time for row in trace.kernels.families if row.family in UNTILED)
    return apart / (apart + trace.gemms.time) if apart else 0.0


def with_gpus(found: SourceReports, gpus: int | None) -> SourceReports:
    """Return the same with the number of GPUs: as given, else as telemetry has them, else as the trace does."""
    if gpus is None and found.telemetry is not None:
        gpus = max(1, round(found.telemetry.gpus))
    if gpus is None and found.trace is not None and found.trace.whole.device_totals is not None:
        gpus = found.trace.whole.device_totals.devices
    return replace(found, gpus=gpus)
