"""Two reports on a fleet side by side: this window beside an earlier one, or beside another place.

A figure has the error that is stated of it: clock samples bound OFU (and with it the step "clock" and what falls short of full), samples of
power bound energy, and what cycles or time count has none. A change is told only where it exceeds the stated errors of both figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ullage.errors import UllageError, harmless

if TYPE_CHECKING:
    from ullage.reports.fleet.fleet import FleetReport

ROUNDING = 1e-9  # of a figure: what two ways of adding up the same may differ by
MOST_JSON = 1 << 30  # bytes of a kept report


@dataclass(frozen=True)
class FigureWithError:
    """A figure, and the least and the most that it may be by its stated error; all the same where none is stated."""

    value: float
    least: float
    most: float

    @classmethod
    def of(cls, value: float | None, bounds: Sequence[float] | None = None) -> FigureWithError | None:
        """Return a figure with its bounds; None where it is not known.

        >>> FigureWithError.of(0.3, (0.28, 0.31)), FigureWithError.of(None)
        (FigureWithError(value=0.3, least=0.28, most=0.31), None)
        """
        if value is None or not math.isfinite(value):
            return None
        least, most = (value, value) if bounds is None else bounds
        return cls(value, min(value, least), max(value, most))

    def less_than(self, whole: float) -> FigureWithError:
        """Return what it falls short of a whole that has no error."""
        return FigureWithError(whole - self.value, whole - self.most, whole - self.least)

    def times(self, factor: float) -> FigureWithError:
        """Return it times a factor ≥ 0 that has no error."""
        return FigureWithError(self.value * factor, self.least * factor, self.most * factor)


@dataclass(frozen=True)
class FigureChange:
    """A figure before and now (None: not known there), and what its change lies between by the stated errors of both."""

    before: FigureWithError | None
    now: FigureWithError | None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The least and the most that the change may be; None where a figure is not known."""
        if self.before is None or self.now is None:
            return None
        return self.now.least - self.before.most, self.now.most - self.before.least

    @property
    def exceeds_error(self) -> bool:
        """Whether there is a change beyond the stated errors."""
        if self.bounds is None or self.before is None or self.now is None:
            return False
        rounding = ROUNDING * max(abs(self.before.value), abs(self.now.value))
        return self.bounds[0] > rounding or self.bounds[1] < -rounding

    @property
    def change(self) -> float | None:
        """The change, where it exceeds the stated errors of both figures; 0 where both are the same and have none; else None."""
        if self.before is None or self.now is None or self.bounds is None:
            return None
        if self.exceeds_error:
            return self.now.value - self.before.value
        largest = max(abs(self.before.value), abs(self.now.value))
        return 0.0 if self.bounds[1] - self.bounds[0] <= 2 * ROUNDING * largest else None


@dataclass(frozen=True)
class GroupFigures:
    """What is compared of a job, user, host …: GPU-hours, OFU, and GPU-hours short of full."""

    gpu_hours: float
    ofu: FigureWithError | None
    ullage: FigureWithError | None


@dataclass(frozen=True)
class StepFigures:
    """What a step of the chain loses: GPU-hours, and their share of those whose OFU is known."""

    label: str
    lost: FigureWithError
    share: FigureWithError


@dataclass(frozen=True)
class FleetFigures:
    """What is compared of a fleet's report. `window` is in ms since 1970; `steps` are by name, `groups` by key."""

    window: tuple[int, int]
    gpus: float
    gpu_hours: float
    ofu: FigureWithError | None
    ullage: FigureWithError | None
    gpu_util: FigureWithError | None
    kwh: FigureWithError | None
    steps: Mapping[str, StepFigures]
    by: str
    groups: Mapping[str, GroupFigures]

    @property
    def hours(self) -> float:
        """How long the window is, in hours."""
        return (self.window[1] - self.window[0]) / 3_600_000


@dataclass(frozen=True)
class ChangedStep:
    """A step of the chain: GPU-hours lost, and their share."""

    name: str
    label: str
    lost: FigureChange
    share: FigureChange


@dataclass(frozen=True)
class ChangedGroup:
    """A job, user, host … in either: its hours are None where it was not there."""

    key: str
    gpu_hours: FigureChange
    ofu: FigureChange
    ullage: FigureChange

    @property
    def presence(self) -> str:
        """Whether it is in both, "new", or "gone"."""
        return "new" if self.gpu_hours.before is None else "gone" if self.gpu_hours.now is None else "both"


@dataclass(frozen=True)
class FleetComparison:
    """A fleet's report beside another one, which is `named`. `steps` are in the order of the chain; of `groups` the first changed most."""

    named: str
    before: FleetFigures
    now: FleetFigures
    ofu: FigureChange
    ullage: FigureChange
    gpu_hours: FigureChange
    gpus: FigureChange
    gpu_util: FigureChange
    kwh: FigureChange
    steps: tuple[ChangedStep, ...]
    by: str
    groups: tuple[ChangedGroup, ...]
    notes: tuple[str, ...] = field(default=())


def compared(before: FleetFigures, now: FleetFigures, named: str, chain: Sequence[str]) -> FleetComparison:
    """Return two reports side by side; `chain` names all steps in their order."""
    groups = _groups(before, now) if before.by == now.by else ()
    return FleetComparison(
        named=named,
        before=before,
        now=now,
        ofu=FigureChange(before.ofu, now.ofu),
        ullage=FigureChange(before.ullage, now.ullage),
        gpu_hours=_exact(before.gpu_hours, now.gpu_hours),
        gpus=_exact(before.gpus, now.gpus),
        gpu_util=FigureChange(before.gpu_util, now.gpu_util),
        kwh=FigureChange(before.kwh, now.kwh),
        steps=_steps(before, now, chain),
        by=now.by,
        groups=groups,
        notes=tuple(_notes(before, now)),
    )


def _exact(before: float | None, now: float | None) -> FigureChange:
    return FigureChange(FigureWithError.of(before), FigureWithError.of(now))


def _steps(before: FleetFigures, now: FleetFigures, chain: Sequence[str]) -> tuple[ChangedStep, ...]:
    names = sorted({*before.steps, *now.steps}, key=lambda name: (chain.index(name.split("_x_")[0]), name))
    found = []
    for name in names:
        old, new = before.steps.get(name), now.steps.get(name)
        label = next(one.label for one in (new, old) if one is not None)
        lost, share = (_change(old, new, part) for part in ("lost", "share"))
        found.append(ChangedStep(name, label, lost, share))
    return tuple(found)


def _change(before: object, now: object, name: str) -> FigureChange:
    return FigureChange(getattr(before, name, None), getattr(now, name, None))


def _groups(before: FleetFigures, now: FleetFigures) -> tuple[ChangedGroup, ...]:
    found = []
    for key in {**now.groups, **before.groups}:
        old, new = before.groups.get(key), now.groups.get(key)
        found.append(
            ChangedGroup(
                key,
                _exact(None if old is None else old.gpu_hours, None if new is None else new.gpu_hours),
                _change(old, new, "ofu"),
                _change(old, new, "ullage"),
            )
        )
    return tuple(sorted(found, key=lambda one: (-_size_of_change(one.ullage), one.key)))


def _size_of_change(ullage: FigureChange) -> float:
    """Return by how many GPU-hours the ullage changed; what is new or gone changes by all of it, what is within its error by nothing."""
    if ullage.before is None or ullage.now is None:
        return abs((ullage.before or ullage.now or FigureWithError(0.0, 0.0, 0.0)).value)
    return abs(ullage.change or 0.0)


def _notes(before: FleetFigures, now: FleetFigures) -> list[str]:
    found = []
    if abs(before.hours - now.hours) > 0.001 * now.hours:
        found.append(
            f"the windows are {before.hours:,.4g} h and {now.hours:,.4g} h long: their GPU-hours differ for that alone; compare the shares"
        )
    if before.window[0] < now.window[1] and now.window[0] < before.window[1] and before.window != now.window:
        found.append("the two windows overlap: what lies in both is no change")
    if before.by != now.by:
        found.append(f"the other report is by {harmless(before.by, 20)}: its rows can't stand beside those by {now.by}")
    return found


# --- figures of a report ---


def figures_of(report: FleetReport) -> FleetFigures:
    """Return what is compared of a `FleetReport`."""
    kwh, error_kwh = report.energy.kwh, report.energy.error_kwh or 0.0
    return FleetFigures(
        window=report.window,
        gpus=report.gpus,
        gpu_hours=report.gpu_hours,
        ofu=(ofu := FigureWithError.of(report.ofu, report.ofu_bounds)),
        ullage=_short(ofu, report.counted_hours),
        gpu_util=FigureWithError.of(report.gpu_util),
        kwh=FigureWithError.of(kwh, None if kwh is None else (kwh - error_kwh, kwh + error_kwh)),
        steps=_step_figures(
            [(factor.name, factor.label, lost) for factor, lost in report.tree.losses(report.counted_hours)], ofu, report.counted_hours
        ),
        by=report.by,
        groups={
            one.key: GroupFigures(one.gpu_hours, own := FigureWithError.of(one.ofu, one.ofu_bounds), _short(own, one.counted_hours))
            for one in report.groups
        },
    )


def _short(ofu: FigureWithError | None, counted: float) -> FigureWithError | None:
    return None if ofu is None else ofu.less_than(1.0).times(counted)


def _step_figures(losses: Sequence[tuple[str, str, float]], ofu: FigureWithError | None, counted: float) -> dict[str, StepFigures]:
    """Return the steps with their errors: all that is not certain about OFU is so about the clock, in whose step it stands."""
    found = {}
    for name, label, lost in losses:
        bounds = None
        if ofu is not None and "clock" in name.split("_x_"):
            bounds = (lost - (ofu.most - ofu.value) * counted, lost + (ofu.value - ofu.least) * counted)
        own = FigureWithError.of(lost, bounds)
        if own is not None:
            found[name] = StepFigures(label, own, own.times(1 / counted if counted > 0 else 0.0))
    return found


# --- figures of a report that was kept as JSON ---


class _StoredWindow(msgspec.Struct):
    start: str
    end: str


class _StoredLoss(msgspec.Struct):
    name: str
    label: str
    gpu_hours: float


class _StoredUllage(msgspec.Struct):
    gpu_hours: float | None = None


class _StoredEnergy(msgspec.Struct):
    kwh: float | None = None
    error_kwh: float | None = None


class _StoredGroup(msgspec.Struct):
    key: str
    gpu_hours: float
    ofu: float | None = None
    ofu_bounds: tuple[float, float] | None = None
    ullage_gpu_hours: float | None = None


class _StoredReport(msgspec.Struct):
    window: _StoredWindow
    gpus: float
    gpu_hours: float
    losses: list[_StoredLoss]
    ullage: _StoredUllage
    by: str
    groups: list[_StoredGroup]
    ofu: float | None = None
    ofu_bounds: tuple[float, float] | None = None
    gpu_util: float | None = None
    energy: _StoredEnergy = msgspec.field(default_factory=_StoredEnergy)


def is_kept_report(head: bytes) -> bool:
    """Return whether a file that begins so may be a report as `ullage fleet --json` writes it.

    >>> is_kept_report(b'{ "complete": true, "read_until": null'), is_kept_report(b'{"status": "success"')
    (True, False)
    """
    return head.lstrip().startswith(b"{") and b'"complete"' in head[:200]


def read_figures(path: Path, moment_of: Callable[[str], int]) -> FleetFigures:
    """Return what is compared of a report that `ullage fleet --json` wrote. Raises UllageError for another file."""
    where = harmless(path.name)
    with path.open("rb") as file:
        data = file.read(MOST_JSON + 1)
    try:
        stored = msgspec.json.decode(data, type=_StoredReport)
        window = moment_of(stored.window.start), moment_of(stored.window.end)
    except (msgspec.DecodeError, UllageError, RecursionError) as error:
        raise UllageError(
            f"{where} is no report of `ullage fleet --json`: {harmless(str(error))}", "write one with ullage fleet SOURCE --json > FILE"
        ) from error
    ofu = FigureWithError.of(stored.ofu, stored.ofu_bounds)
    counted = _counted(stored.ofu, stored.ullage.gpu_hours, stored.gpu_hours)
    kwh, error_kwh = stored.energy.kwh, stored.energy.error_kwh or 0.0
    return FleetFigures(
        window=window,
        gpus=stored.gpus,
        gpu_hours=stored.gpu_hours,
        ofu=ofu,
        ullage=_short(ofu, counted),
        gpu_util=FigureWithError.of(stored.gpu_util),
        kwh=FigureWithError.of(kwh, None if kwh is None else (kwh - error_kwh, kwh + error_kwh)),
        steps=_step_figures([(one.name, one.label, one.gpu_hours) for one in stored.losses], ofu, counted),
        by=stored.by,
        groups={one.key: _stored_group(one) for one in stored.groups},
    )


def _stored_group(one: _StoredGroup) -> GroupFigures:
    ofu = FigureWithError.of(one.ofu, one.ofu_bounds)
    return GroupFigures(one.gpu_hours, ofu, _short(ofu, _counted(one.ofu, one.ullage_gpu_hours, one.gpu_hours)))


def _counted(ofu: float | None, ullage: float | None, gpu_hours: float) -> float:
    """Return the GPU-hours whose OFU is known: what falls short of them is their number × (1 − OFU).

    >>> _counted(0.75, 5.0, 24.0), _counted(None, None, 24.0)
    (20.0, 0.0)
    """
    if ofu is None or ullage is None:
        return 0.0
    return ullage / (1 - ofu) if ofu < 1 else gpu_hours
