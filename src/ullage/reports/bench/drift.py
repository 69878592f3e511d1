"""Whether a device still does what it did: a short suite beside a stored one, and who is to blame for what moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ullage.benches.bench import Plain, Quantity
from ullage.benches.result import BenchResult, CaseRow
from ullage.errors import UllageError, harmless
from ullage.metrics.drift import drift, drift_beyond_clock
from ullage.reports.bench.roofline import LEVELS as MEMORY_LEVELS
from ullage.reports.bench.suite import MeasuredAnswer
from ullage.views.shown import ShownByView

CYCLES: tuple[Quantity, ...] = ("latency", "bytes_per_cycle", "bytes_per_cycle_sm", "results_per_cycle_sm")
RATES: tuple[Quantity, ...] = ("throughput", "bandwidth", "rate")
LIMIT = 0.03  # the change that counts where nobody names another
Cause = Literal["unchanged", "memory or firmware", "power or clock", "the memory's own rate", "fails now", "not compared"]
Key = tuple[tuple[str, Plain], ...]


@dataclass(frozen=True)
class MovedNumber:
    """One number then and now (SI units; None: not measured), how far it moved, and what such a move speaks of."""

    bench: str
    labels: Mapping[str, Plain]
    quantity: Quantity
    before: float | None
    now: float | None
    change: float | None
    beyond_clock: float | None
    cause: Cause


@dataclass(frozen=True)
class DriftBaseline(MeasuredAnswer, ShownByView, view="ullage.render.drift:baseline"):
    """What a GPU does now, kept in a file so that it can be compared with later."""

    results: tuple[BenchResult, ...]
    place: str


@dataclass(frozen=True)
class DriftReport(MeasuredAnswer, ShownByView, view="ullage.render.drift"):
    """Every number of either suite: what fails now first, then what moved furthest; `limit` is the change that counts."""

    gpu: str
    before: str
    now: str
    limit: float
    rows: tuple[MovedNumber, ...]
    notes: tuple[str, ...]

    @property
    def moved(self) -> tuple[MovedNumber, ...]:
        """What moved by more than the limit."""
        return tuple(row for row in self.rows if row.cause not in ("unchanged", "not compared"))


def drift_report(now: Sequence[BenchResult], before: Sequence[BenchResult], limit: float = LIMIT) -> DriftReport:
    """Return what moved between two suites of one model of GPU.

    What only one of them tried is not compared. Raises UllageError where one is empty, where they are of different models, and
    where they have no number in common. Different devices of one model are compared, and a note says so.
    """
    if not now or not before:
        raise UllageError("there is nothing to compare", "a baseline is what `ullage bench drift --out FILE` wrote")
    gpus = list(dict.fromkeys(result.gpu for result in [*before, *now]))
    if len(gpus) > 1:
        names = ", ".join(f"'{harmless(gpu, 80)}'" for gpu in gpus)
        raise UllageError(f"the results are of several GPUs: {names}", "compare GPUs of one model")
    then, here = _values(before), _values(now)
    failed = {(result.bench, tuple(row.labels.items())) for result in now for row in result.rows if _fails(row)}
    keys = dict.fromkeys([*then, *here])
    rows = [_moved(key, then.get(key), here.get(key), limit, key[:2] in failed) for key in keys]
    if not any(row.change is not None or row.cause == "fails now" for row in rows):
        raise UllageError("the two have no number in common", "a baseline is what `ullage bench drift --out FILE` wrote")
    rows.sort(key=lambda row: (row.cause != "fails now", row.change is None, -abs(row.change or 0.0)))
    return DriftReport(gpus[0], _date(before), _date(now), limit, tuple(rows), (*_notes(now, before), *_uncompared(rows)))


def _date(results: Sequence[BenchResult]) -> str:
    return max(result.date for result in results)


def _fails(row: CaseRow) -> bool:
    """Whether a case was tried and has no number; one that there was no time for was not tried."""
    return bool(row.problem) and not row.problem.startswith("not run")


def _notes(now: Sequence[BenchResult], before: Sequence[BenchResult]) -> Iterable[str]:
    for name in ("driver", "compiler", "power_limit"):
        then, here = _said(before, name), _said(now, name)
        if then != here:
            yield f"{name.replace('_', ' ')} {then} then, {here} now"
    if _said(before, "uuid_hash") != _said(now, "uuid_hash"):
        yield "the baseline is of another device of this model"


def _said(results: Sequence[BenchResult], name: str) -> str:
    """Return what a machine says of itself; "not known" where it doesn't."""
    found = dict.fromkeys(result.machine.get(name) for result in results)
    return harmless(", ".join("not known" if one is None else str(one) for one in found), 120)


def _uncompared(rows: Sequence[MovedNumber]) -> Iterable[str]:
    for what, count in (
        ("the baseline has", sum(1 for row in rows if row.cause == "not compared" and row.now is None)),
        ("this time there are", sum(1 for row in rows if row.cause == "not compared" and row.before is None)),
    ):
        if count:
            yield f"{what} {count:,} {'number' if count == 1 else 'numbers'} more: not compared"


_Place = tuple[str, Key, Quantity]


def _values(results: Sequence[BenchResult]) -> dict[_Place, CaseRow]:
    return {
        (result.bench, tuple(row.labels.items()), quantity): row
        for result in results
        for row in result.rows
        for quantity in (*CYCLES, *RATES)
        if quantity in row.values
    }


def _moved(key: _Place, before: CaseRow | None, now: CaseRow | None, limit: float, failed: bool) -> MovedNumber:
    bench, labels, quantity = key
    then = None if before is None else before.values[quantity].value
    here = None if now is None else now.values[quantity].value
    if then is None or here is None:
        return MovedNumber(
            bench, dict(labels), quantity, then, here, None, None, "fails now" if here is None and failed else "not compared"
        )
    change = drift(here, then)
    clocks = _clocks(before, now)
    beyond = None if clocks is None or quantity not in RATES else drift_beyond_clock(here, then, *clocks)
    return MovedNumber(bench, dict(labels), quantity, then, here, change, beyond, _cause(key, change, beyond, clocks, limit))


def _clocks(before: CaseRow | None, now: CaseRow | None) -> tuple[float, float] | None:
    """Return the SM clock now and before, None where one is not known."""
    found = [row.stamp.sm_clock for row in (now, before) if row is not None and row.stamp is not None]
    return (found[0], found[1]) if len(found) == 2 and found[0] and found[1] else None


def _cause(key: _Place, change: float | None, beyond: float | None, clocks: tuple[float, float] | None, limit: float) -> Cause:
    """Return what a change speaks of.

    Cycles of what lies beyond the SMs hold a time that no SM clock changes: where the clock moved as far, they followed it. And
    the bandwidth of device memory does not follow the SM clock: it has a cause of its own.
    """
    _, labels, quantity = key
    level = dict(labels).get("level")
    if change is None or abs(change) <= limit:
        return "unchanged"
    if quantity == "bandwidth" and level == MEMORY_LEVELS[0]:
        return "the memory's own rate"
    if quantity in CYCLES:
        clock = drift(*clocks) if clocks is not None and level in MEMORY_LEVELS else 0.0
        return "power or clock" if limit < abs(clock) and clock * change > 0 and abs(change) <= abs(clock) + limit else "memory or firmware"
    return "power or clock" if beyond is None or abs(beyond) <= limit else "memory or firmware"
