"""The report on a run as plain data for JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from msgspec import UNSET, UnsetType, field

from ullage.metrics.instructions import host_instructions
from ullage.metrics.losses import Bill
from ullage.metrics.tree import Node
from ullage.recording import Mode
from ullage.render.gemms import GemmsDocument
from ullage.render.gemms import declared as gemms
from ullage.render.trace_what_if import WhatIfDocument
from ullage.render.trace_what_if import declared as what_if
from ullage.reports.trace.code import CodeReport, CopyRow
from ullage.reports.trace.idleness import Idleness
from ullage.reports.trace.kernels import FamilyRow, Overlap
from ullage.reports.trace.lane_shares import device_shares, device_times, host_shares
from ullage.reports.trace.late_ranks import Late
from ullage.reports.trace.part import RunPart
from ullage.reports.trace.restated import Restated
from ullage.reports.trace.sequences import FedRank, verdict
from ullage.reports.trace.trace import TraceReport
from ullage.sums.lanes.code.calls import CallRow
from ullage.sums.lanes.code.times import CodeTimes
from ullage.sums.lanes.idle import Gap, Rhythm
from ullage.sums.lanes.run import DevicePart, HostPart
from ullage.sums.nccl_arrivals import NcclArrivals
from ullage.totals import DeviceTotals, Factors, HostTotals, Resource
from ullage.views.declared import At, Document, Nanoseconds, Ratio, Seconds, Words, filled, plain_data

# Efficiencies by their short names within a tree.
_NAMES = {
    "host_parallel_efficiency": "parallel_efficiency",
    "mpi_parallel_efficiency": "mpi_parallel_efficiency",
    "hybrid_mpi_parallel_efficiency": "mpi_parallel_efficiency",
    "host_load_balance": "load_balance",
    "hybrid_load_balance": "load_balance",
    "host_communication_efficiency": "communication_efficiency",
    "device_offload_efficiency": "device_offload_efficiency",
    "device_parallel_efficiency": "parallel_efficiency",
    "device_load_balance": "load_balance",
    "device_communication_efficiency": "communication_efficiency",
}
_HOST = ("parallel_efficiency", "mpi_parallel_efficiency", "load_balance", "communication_efficiency", "device_offload_efficiency")
C = TypeVar("C", bound=Document)
IDLE_SHARES = ("launched", "unknown")
_DEVICE = ("parallel_efficiency", "load_balance", "communication_efficiency", "orchestration_efficiency")


class TraceWindowDocument(Document):
    """The time that the trees cover, on the captures' clock; `rule` is how it was chosen."""

    start_ns: Nanoseconds | None
    end_ns: Nanoseconds | None
    recorded: Nanoseconds | None = field(name="recorded_ns")
    rule: str | None


class ProcessDocument(Document, kw_only=True):
    """What a process spent its time on; `off_s` (off the CPU) is there where it was recorded."""

    rank: Annotated[int | None, At("process.rank")]
    process: int
    host: Annotated[str, At("process.host")]
    elapsed: Seconds = field(name="elapsed_s")
    useful: Seconds = field(name="useful_s")
    offload: Seconds = field(name="offload_s")
    communication: Seconds = field(name="communication_s")
    threads: int
    parallel: Seconds = field(name="parallel_s")
    recorder: Seconds = field(name="recorder_s")
    off_s: float | UnsetType = UNSET
    shares: dict[str, Ratio]


class TracedDeviceDocument(Document):
    """What a device spent its time on; in `talp` mode a collective counts as a kernel."""

    device: Annotated[str, At("device.key")]
    name: Annotated[str, At("device.name")]
    kernel_s: float
    collective_s: float
    memory_s: float
    idle_s: float
    unknown: Seconds = field(name="unknown_s")
    launches: Annotated[int | None, At("device.launches")]
    shares: dict[str, Ratio]


class TreeBoundsDocument(Document):
    """The bounds between which each efficiency surely lies."""

    host: dict[str, list[Ratio | None]] | None
    device: dict[str, list[Ratio | None]] | None


class HostTotalsDocument(Document, kw_only=True):
    """Sums over `resources`, each of which is a `resource`, times in ns; `off_time` is there where it was recorded."""

    resource: Resource
    resources: Annotated[int, At("processes")]
    processes: int | None
    elapsed: Nanoseconds
    useful_time: Nanoseconds
    offload_time: Nanoseconds
    max_busy_time: Nanoseconds | None
    parallel_time: Nanoseconds
    instructions: int | None
    cycles: int | None
    calls: int | None
    openmp_imbalance_time: Nanoseconds | None
    openmp_scheduling_time: Nanoseconds | None
    openmp_serialisation_time: Nanoseconds | None
    off_time: Nanoseconds | UnsetType = UNSET
    instructions_per_cycle: float | None
    useful_clock_hz: float | None


class RunPartDocument(Document):
    """A run, or a rank, region, device or step of it: its efficiencies, and the totals and times that they come from."""

    elapsed_s: Annotated[Seconds, At("elapsed")]
    elapsed_ns: Annotated[Nanoseconds, At("elapsed")]
    host: dict[str, Ratio | None] | None
    device: dict[str, Ratio | None] | None
    bounds: TreeBoundsDocument
    cannot_tell: list[str]
    host_totals: HostTotalsDocument | None
    device_totals: DeviceTotals | None
    processes: list[ProcessDocument]
    devices: list[TracedDeviceDocument]


class NamedPartDocument(RunPartDocument):
    """A rank, region, device or step."""

    name: str


class NamedGapTimeDocument(Document):
    """A piece of code that was running while a device had nothing to do."""

    name: str
    time_ns: Nanoseconds
    share: Ratio | None


class GapDocument(Document):
    """A gap of a device, which begins `at_ns` after the run's first moment."""

    device: str
    start: Nanoseconds
    end: Nanoseconds
    cause: str
    before: str
    after: str
    code: dict[str, NamedGapTimeDocument]
    at_ns: Nanoseconds
    idle_ns: Nanoseconds


class IdleDocument(Document):
    """Idle time by cause, and the longest gaps."""

    total: Nanoseconds = field(name="total_ns")
    causes: dict[str, Nanoseconds] = field(name="causes_ns")
    shares: dict[str, Ratio]
    gaps: list[GapDocument]
    rhythm: Rhythm | None
    rhythms: dict[str, Rhythm]


class SequencesDocument(Document):
    """What ranks were fed, and whether that is why some computed longer."""

    steps: int
    imbalance: float
    at_equal_tokens: float
    ranks: list[FedRank]
    verdict: str


class RestatementDocument(Document):
    """TALP's printed efficiencies held against its raw times; `rows` are those that differ."""

    compared: int
    agree: int
    explained: int
    contradict: int
    rows: list[Restated]
    notes: list[str]


class KernelRowDocument(Document):
    """Kernels, or copies, of one name; times in ns."""

    name: str
    family: str
    kind: str
    count: int
    time: Nanoseconds
    longest: Nanoseconds
    bytes: int
    share: Ratio | None
    mean: float


class OverlapDocument(Document):
    """How much communication and copying ran while devices computed, ns, summed over devices."""

    device: str
    collective: Nanoseconds
    collective_exposed: Nanoseconds
    memory: Nanoseconds
    memory_exposed: Nanoseconds
    collective_hidden: Ratio | None
    memory_hidden: Ratio | None


class KernelSummaryDocument(Document):
    """Where device time went, by name and by family; sums over streams and devices in ns."""

    families: list[FamilyRow]
    kernels: list[KernelRowDocument]
    copies: list[KernelRowDocument]
    kernel_time: Nanoseconds
    copy_time: Nanoseconds
    overlap: list[Overlap]
    overlap_all: OverlapDocument
    notes: list[str]


class IdleCodeTimeDocument(Document):
    """Idle time of devices by one name, ns: in how many gaps, how long in all, the longest."""

    name: str
    count: int
    time: Nanoseconds
    longest: Nanoseconds
    share: Ratio | None


class IdleCodeTimesDocument(Document):
    """Idle time by name at one level, ns; `outside` is that in which nothing of this level was open."""

    rows: list[IdleCodeTimeDocument]
    outside: Nanoseconds
    outside_share: Ratio | None


class KernelCodeTimeDocument(Document):
    """Time of kernels by one name, ns; `backward` went by on gradients."""

    name: str
    count: int
    time: Nanoseconds
    longest: Nanoseconds
    backward: Nanoseconds
    share: Ratio | None


class KernelCodeTimesDocument(Document):
    """Time of kernels by name at one level, ns; `outside` is that in which nothing of this level was open."""

    rows: list[KernelCodeTimeDocument]
    outside: Nanoseconds
    outside_share: Ratio | None


class DeviceCodeDocument(Document):
    """Time of kernels by level, ns; `unlaunched` is that of kernels whose launch was not recorded."""

    all: Nanoseconds
    unlaunched: Nanoseconds
    levels: dict[str, KernelCodeTimesDocument]
    unlaunched_share: Ratio | None


class StreamQueueDocument(Document):
    """The queue of a stream (-1: not known), times in ns; `mean` launches stood in it."""

    stream: int
    launches: int
    delay: Nanoseconds | None
    delay_95: Nanoseconds | None
    queued: Nanoseconds
    longest: int
    elapsed: Nanoseconds
    mean: float | None


class IdleSharesDocument(Document):
    """Shares of idle time that belong to no code: work was handed over already, or no host thread answers for it."""

    launched: Ratio | None
    unknown: Ratio | None


class CodeDocument(Document):
    """Which code a run's time belongs to, times in ns, summed over devices."""

    idle_time: Nanoseconds
    launched: Nanoseconds
    unknown: Nanoseconds
    idle: dict[str, IdleCodeTimesDocument]
    device: DeviceCodeDocument
    calls: list[CallRow]
    queues: dict[str, list[StreamQueueDocument]]
    copies: list[CopyRow]
    idle_shares: IdleSharesDocument


class BandwidthDocument(Document):
    """Collectives of one operation, process group and size: bytes, times in ns, bandwidths in B/s."""

    operation: str
    group: str
    members: int
    least: int
    most: int
    count: int
    bytes: int
    time: Nanoseconds
    waiting: bool
    hosts: int | None
    algorithm: float | None
    bus: float | None
    link: str | None
    rate: float | None
    share: Ratio | None
    mean: float


class TraceDocument(RunPartDocument, kw_only=True):
    """The answer of `ullage trace`: times in s (`_s`) or integer ns (`_ns`), ratios in [0, 1]; what does not exist is null."""

    files: Annotated[list[str], At("places")]
    source: str
    status: Literal["partial", "whole"]
    mode: str
    window: TraceWindowDocument
    region: str | None
    bill: Bill | None
    host_bill: Bill | None
    regions: list[NamedPartDocument]
    ranks: list[NamedPartDocument]
    by_device: list[NamedPartDocument]
    steps: list[NamedPartDocument]
    idle: IdleDocument | None
    kernels: KernelSummaryDocument | None
    code: CodeDocument | None
    sequences: SequencesDocument | None
    gemms: GemmsDocument | None
    collectives: Annotated[Late | None, At("late")]
    nccl: NcclArrivals | UnsetType = UNSET
    bandwidths: list[BandwidthDocument]
    what_if: WhatIfDocument | None
    restated: RestatementDocument | None
    tables_of: Words
    problems: Annotated[list[str], At("notes")]


def record(report: TraceReport) -> dict[str, Any]:
    """Return the report as plain data."""
    parts = {"regions": report.regions, "ranks": report.ranks, "by_device": report.devices, "steps": report.steps}
    return plain_data(
        TraceDocument,
        report,
        status="partial" if report.partial else "whole",
        window=_window(report),
        **_values(report.whole, report.mode),
        **{name: [filled(NamedPartDocument, one, **_values(one, report.mode)) for one in of] for name, of in parts.items()},
        **_explained(report),
    )


def _window(report: TraceReport) -> TraceWindowDocument:
    captures = report.run.captures if report.run is not None else ()
    shared = report.run.shared if report.run is not None else None
    start = min((c.window[0] for c in captures), default=None) if shared is None else shared[0]
    end = max((c.window[1] for c in captures), default=None) if shared is None else shared[1]
    return filled(TraceWindowDocument, report, start_ns=start, end_ns=end, rule=report.window if captures else None)


def _values(found: RunPart, mode: Mode) -> dict[str, Any]:
    """Return the values of a part of a run by their fields."""
    bounds = {
        name: None if tree is None else {_NAMES.get(n.metric, n.metric): [n.low, n.high] for _, n in tree.walk()}
        for name, tree in (("host", found.host), ("device", found.device))
    }
    return {
        "elapsed_s": found.elapsed / 1e9,
        "elapsed_ns": found.elapsed,
        "host": None if found.host is None else _efficiencies(found.host, _HOST) | _whole_level(found.host, found.factors),
        "device": None if found.device is None else _efficiencies(found.device, _DEVICE),
        "bounds": TreeBoundsDocument(**bounds),
        "cannot_tell": [n.metric for tree in (found.host, found.device) if tree for _, n in tree.walk() if not n.certain],
        "host_totals": None if found.host_totals is None else _host_totals(found.host_totals, len(found.host_parts)),
        "device_totals": found.device_totals,
        "processes": [_process(part, found.elapsed) for part in found.host_parts],
        "devices": [_device(part, found.elapsed, mode) for part in found.device_parts],
    }


def _efficiencies(tree: Node, names: tuple[str, ...]) -> dict[str, float | None]:
    """Return a tree flat: the names that programs rely on (null where the program can't have such a factor), then all others it has."""
    values = {_NAMES.get(node.metric, node.metric): node.value for _, node in tree.walk()}
    return {name: values.get(name) for name in names} | values


def _whole_level(tree: Node, factors: Factors) -> dict[str, float | None]:
    """Return the level that a tree has no node for because it is the whole: that of MPI, or of OpenMP, of a program with nothing else."""
    seen = {_NAMES.get(node.metric, node.metric) for _, node in tree.walk()}
    levels = {"mpi_parallel_efficiency": factors.mpi, "openmp_parallel_efficiency": factors.openmp}
    return {name: tree.value for name, has in levels.items() if has and name not in seen}


def _host_totals(totals: HostTotals, processes: int) -> HostTotalsDocument:
    """Return the sums over `resources`, each of which is a `resource`: a process, a thread or a CPU (of `processes`, null: not known)."""
    counted = host_instructions(totals)
    more: dict[str, Any] = {"off_time": totals.off_time or UNSET}  # 0: nothing of it was recorded
    more |= {"instructions_per_cycle": counted and counted.per_cycle, "useful_clock_hz": counted and counted.clock}
    return filled(HostTotalsDocument, totals, processes=processes or None, **more)


def _process(part: HostPart, elapsed: int) -> ProcessDocument:
    off: dict[str, Any] = {"off_s": part.off / 1e9} if part.process.off_known else {}
    return filled(ProcessDocument, part, process=part.process.key[1], shares=host_shares(part, elapsed), **off)


def _device(part: DevicePart, elapsed: int, mode: Mode) -> TracedDeviceDocument:
    times = {f"{name}_s": ns / 1e9 for name, ns in device_times(part, mode).items()}
    return filled(TracedDeviceDocument, part, shares=device_shares(part, elapsed, mode), **times)


def _explained(report: TraceReport) -> dict[str, Any]:
    """Return what explains the trees: idle time by cause, kernels, and TALP's own figures held against them."""
    idle, kernels, restated = report.idle, report.kernels, report.restated
    return {
        "idle": None if idle is None else _idle(idle),
        "kernels": None if kernels is None else filled(KernelSummaryDocument, kernels),
        "code": None if report.code is None else _code(report.code),
        "sequences": None if report.sequences is None else filled(SequencesDocument, report.sequences, verdict=verdict(report.sequences)),
        "gemms": None if report.gemms is None else gemms(report.gemms),
        **({"nccl": UNSET} if report.nccl is None else {}),
        "what_if": None if report.what_if is None else what_if(report.what_if),
        "restated": None if restated is None else filled(RestatementDocument, restated, contradict=len(restated.contradictions)),
    }


def _idle(found: Idleness) -> IdleDocument:
    shares = {cause: ns / found.total for cause, ns in found.causes.items()} if found.total else {}
    return filled(IdleDocument, found, shares=shares, gaps=[_gap(gap, found.origin) for gap in found.gaps])


def _gap(gap: Gap, origin: int) -> GapDocument:
    length = gap.end - gap.start
    code = {
        level: NamedGapTimeDocument(name=one.name, time_ns=one.time, share=one.time / length if length else None)
        for level, one in gap.code.items()
    }
    return filled(GapDocument, gap, code=code, at_ns=gap.start - origin, idle_ns=length)


def _code(report: CodeReport) -> CodeDocument:
    """Return times in ns; at each level rows, `outside` and what is common to all levels add up to all, and so do their shares."""
    device, idle_time = report.device, report.idle_time
    levels = {level: _code_times(KernelCodeTimesDocument, times, device.all) for level, times in device.levels.items()}
    return filled(
        CodeDocument,
        report,
        idle={level: _code_times(IdleCodeTimesDocument, times, idle_time) for level, times in report.idle.items()},
        idle_shares=filled(IdleSharesDocument, report, **{name: _part(getattr(report, name), idle_time) for name in IDLE_SHARES}),
        device=filled(DeviceCodeDocument, device, levels=levels, unlaunched_share=_part(device.unlaunched, device.all)),
    )


def _code_times(kind: type[C], times: CodeTimes, whole: int) -> C:
    row = KernelCodeTimeDocument if kind is KernelCodeTimesDocument else IdleCodeTimeDocument
    rows = [filled(row, one, share=_part(one.time, whole)) for one in times.rows]
    return filled(kind, times, rows=rows, outside_share=_part(times.outside, whole))


def _part(time: int, whole: int) -> float | None:
    return time / whole if whole else None
