"""What else changed when something changed: what samples tell of a job's devices, before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ullage.errors import harmless
from ullage.field import CLOCK_LIMITS
from ullage.sums.devices import clock_limit, cycles_counted, milliseconds_of
from ullage.views.numbers import counted, percent

NAMES = ("host", "model", "mig", "namespace", "container")
WORDS = {"host": "hosts", "model": "GPUs", "mig": "MIG instances", "namespace": "namespaces", "container": "containers"}
LIMITS = {"thermal": "heat", "slowdown": "a hardware slowdown", "application": "an application clock", "power_cap": "the power limit"}
MOVED = 0.2  # of the time: limits of the clock and the way in which cycles are counted come and go a little by themselves
MOST_NAMES = 3  # that a sentence lists


@dataclass(frozen=True)
class DeviceFacts:
    """What samples tell of a job's devices over some time: names by column, GPUs, the usual time between samples (ms), shares of time."""

    names: Mapping[str, frozenset[str]]
    gpus: int
    interval_ms: int
    counted: float
    limits: Mapping[str, float]


def device_facts(samples: Any, cluster: str | None, job: str, span: tuple[int, int]) -> DeviceFacts | None:
    """Return what samples (Ibis) tell of a job's devices in a span of time (ms); None where there are none."""
    at = milliseconds_of(samples.time)
    whose = (samples.job.cast("string") == job) & samples.cluster.cast("string").identical_to(cluster)
    own = samples.filter(whose & (at > span[0]) & (at <= span[1]))
    counts = cycles_counted(own)
    own = own.mutate(_limit=clock_limit(own), _counted=counts if not isinstance(counts, bool) else _literal(counts))
    grouped = own.group_by([*NAMES, "gpu", "_limit", "_counted"]).aggregate(time=own.span_ms.sum(), median=own.span_ms.median())
    rows: list[dict[str, Any]] = grouped.to_pyarrow().to_pylist()
    whole = sum(row["time"] for row in rows)
    if not whole:
        return None
    names = {name: frozenset(str(row[name]) for row in rows if row[name] is not None) for name in NAMES}
    limits = {name: sum(row["time"] for row in rows if row["_limit"] == code) / whole for code, name in enumerate(CLOCK_LIMITS, 1)}
    usual = max(rows, key=lambda row: row["time"])["median"]
    return DeviceFacts(
        names, len({row["gpu"] for row in rows}), int(usual), sum(row["time"] for row in rows if row["_counted"]) / whole, limits
    )


def _literal(value: bool) -> Any:
    import ibis

    return ibis.literal(value)


def changed_beside(before: DeviceFacts | None, after: DeviceFacts | None) -> list[str]:
    """Return in words what is not as it was."""
    return [] if before is None or after is None else [*_names(before, after), *_telemetry(before, after), *_clocks(before, after)]


def _names(before: DeviceFacts, after: DeviceFacts) -> Iterator[str]:
    for name in NAMES:
        came, went = after.names[name] - before.names[name], before.names[name] - after.names[name]
        if came or went:
            told = [f"{words} {_list_of_names(sorted(found))}" for words, found in (("now", came), ("no longer", went)) if found]
            yield f"{WORDS[name]}: {', '.join(told)}"
    if before.gpus != after.gpus:
        yield f"{counted(after.gpus, 'GPU')} in place of {before.gpus:,}"


def _telemetry(before: DeviceFacts, after: DeviceFacts) -> Iterator[str]:
    if not 0.7 < after.interval_ms / max(before.interval_ms, 1) < 1.4:
        yield f"samples come every {after.interval_ms / 1000:g} s in place of {before.interval_ms / 1000:g} s"
    if abs(after.counted - before.counted) > MOVED:
        yield f"cycles are counted {percent(after.counted)} of the time, before {percent(before.counted)}: the exporter is another one"


def _clocks(before: DeviceFacts, after: DeviceFacts) -> Iterator[str]:
    for name, words in LIMITS.items():
        if abs(after.limits[name] - before.limits[name]) > MOVED:
            yield f"{words} lowers the clock {percent(after.limits[name])} of the time, before {percent(before.limits[name])}"


def _list_of_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return harmless(", ".join(names[:MOST_NAMES]), 200) + more
