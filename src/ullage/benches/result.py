"""What a microbenchmark found: rows of labels and values, each with the stamp of how it was measured; to JSON and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ullage.benches.bench import Plain
from ullage.errors import UllageError, harmless

FORMAT = 1
SUSTAINED, SETTLED = 5.0, 1.0  # seconds from which on a run, and the load before it that does not count, tell what an hour of it gets


@dataclass(frozen=True)
class Stamp:
    """Under what a number was measured. None: not known.

    `sm_clock` is the median in Hz, from the kernel's own cycle counter and timer ("kernel"), or sampled from the driver ("driver"):
    `clock_from`; `lowest_clock` the lowest that either saw. `power` is the mean in W, `temperature` the highest in °C; `throttle` names
    the clock event reasons that were active; `data` is "random" or "zero". All are over the `seconds` that were timed; before these the
    load had run for `settled` seconds.
    """

    sm_clock: float | None
    clock_from: str | None
    power: float | None
    temperature: float | None
    throttle: tuple[str, ...] | None
    data: str
    lowest_clock: float | None = None
    seconds: float | None = None
    settled: float | None = None

    @property
    def sustained(self) -> bool:
        """Whether the load ran long enough, after its clock had settled, to tell what an hour of it gets."""
        return (self.seconds or 0.0) >= SUSTAINED and (self.settled or 0.0) >= SETTLED


@dataclass(frozen=True)
class Value:
    """A measured value: the median of `repeats`, the least and the greatest of them. SI units; `unit` names it."""

    value: float
    low: float
    high: float
    repeats: int
    unit: str


@dataclass(frozen=True)
class CaseRow:
    """A case's outcome: values by quantity, or, with none, the `problem` for which there is not a number."""

    labels: Mapping[str, Plain]
    values: Mapping[str, Value]
    stamp: Stamp | None
    problem: str = ""
    precision: str | None = None
    sparse: bool = False
    flops: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class BenchResult:
    """A bench's rows on one device. `machine` says gpu, uuid_hash, driver, cuda, compiler, power_limit, sms, …; `date` is UTC, ISO."""

    bench: str
    date: str
    machine: Mapping[str, Plain]
    quick: bool
    rows: tuple[CaseRow, ...]
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def gpu(self) -> str:
        """The device's name."""
        return str(self.machine.get("gpu", ""))


def record(result: BenchResult) -> dict[str, Any]:
    """Return a result as JSON holds it."""
    return {"format": FORMAT, **asdict(result)}


def restored(found: Mapping[str, Any], place: str = "the result") -> BenchResult:
    """Return the result that `record` wrote; raises UllageError for anything else.

    >>> restored({"format": 0})
    Traceback (most recent call last):
    ...
    ullage.errors.UllageError: the result is no result of a microbenchmark (format 0)
      write one with `ullage bench --json`
    """
    if not isinstance(found, Mapping) or found.get("format") != FORMAT:
        number = found.get("format") if isinstance(found, Mapping) else None
        raise UllageError(f"{place} is no result of a microbenchmark (format {number})", "write one with `ullage bench --json`")
    try:
        rows = tuple(_row(row) for row in found["rows"])
        words = {name: _is(found[name], str, name) for name in ("bench", "date")}
        machine = {str(name): _plain(value) for name, value in found["machine"].items()}
        notes = tuple(_is(note, str, "note") for note in found["notes"])
        extra = dict(_is(found["extra"], dict, "extra"))
        return BenchResult(
            **words, machine=machine, quick=bool(found["quick"]), rows=rows, notes=notes, seconds=_number(found["seconds"]), extra=extra
        )
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        said = harmless(f"{type(error).__name__}: {error}", 120)
        raise UllageError(
            f"{place} is a damaged result of a microbenchmark ({said})", "measure again with `ullage bench --json`"
        ) from error


def _row(found: Mapping[str, Any]) -> CaseRow:
    stamp = found["stamp"]
    values = {
        str(name): Value(**{**value, **{n: _number(value[n]) for n in ("value", "low", "high")}}) for name, value in found["values"].items()
    }
    return CaseRow(
        labels={str(name): _plain(value) for name, value in found["labels"].items()},
        values=values,
        stamp=None if stamp is None else _stamp(stamp),
        problem=_is(found["problem"], str, "problem"),
        precision=_is(found["precision"], str | None, "precision"),
        sparse=bool(found["sparse"]),
        flops=int(_number(found["flops"])),
        bytes=int(_number(found["bytes"])),
    )


def _stamp(found: Mapping[str, Any]) -> Stamp:
    numbers = {name: None if found[name] is None else _number(found[name]) for name in ("sm_clock", "power", "temperature")}
    later = ("lowest_clock", "seconds", "settled")  # which older recordings lack
    numbers |= {name: None if found.get(name) is None else _number(found[name]) for name in later}
    throttle = None if found["throttle"] is None else tuple(_is(reason, str, "throttle") for reason in found["throttle"])
    return Stamp(
        clock_from=_is(found["clock_from"], str | None, "clock_from"), throttle=throttle, data=_is(found["data"], str, "data"), **numbers
    )


def _number(found: Any) -> float:
    """Return a finite number as it is; raises ValueError for anything else (JSON files hold NaN and infinities, too)."""
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise ValueError(f"{str(found)[:40]!r} is not a number")
    return found


def _plain(found: Any) -> Plain:
    return _is(_number(found) if isinstance(found, float) else found, str | int | float | bool | None, "label")  # type: ignore[no-any-return]


def _is(found: Any, kind: Any, name: str) -> Any:
    if not isinstance(found, kind):
        raise TypeError(f"{name} is {str(found)[:40]!r}")
    return found
