"""What fixes brought: the fleet is asked of the hours before and after a problem was over, one problem a look, each once a day."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ullage.alerts.book import Alert, AlertBook
from ullage.alerts.measured_fix import DAY_S, LONGEST_S, measured_fix, windows_of_fix
from ullage.alerts.problem import Problem
from ullage.errors import UllageError
from ullage.reports.fleet.where import Condition, FieldTest, FleetFilter
from ullage.service.logs import ServiceLog
from ullage.views.declared import iso

Ask = Callable[..., Mapping[str, Any]]  # from a question's name, and words of it by name, to its document


@dataclass(frozen=True)
class PlaceOfFix:
    """The GPUs on which a fix is measured: in words, and as a condition on the fleet (None: all of it)."""

    words: str
    condition: Condition | None


def place_of_fix(problem: Problem) -> PlaceOfFix | None:
    """Return the GPUs on which the fix of a problem is measured; None where the problem does not say.

    A job is over one day, and what was fixed in it serves the next: of it all jobs of its owner count.
    """
    where, owner = problem.where, problem.owner
    named = next((name for name in ("gpu", "host", "user") if name in where), None)
    if named is not None:
        words, tests = f"{named} {where[named]}", [_test(named, where[named])]
    elif "job" in where:
        if " " in owner or owner == "unknown":  # the operators, the scheduler: not whose jobs they are
            return None
        words, tests = f"owner {owner}", [_owned_by(owner)]
    elif set(where) <= {"cluster"}:
        words, tests = "the fleet", []
    else:
        return None
    tests += [_test("cluster", where["cluster"])] if "cluster" in where else []
    return PlaceOfFix(words, FleetFilter("and", tuple(tests)) if len(tests) > 1 else tests[0] if tests else None)


def _test(name: str, value: object) -> Condition:
    return FieldTest(name, str(value))


def _owned_by(owner: str) -> Condition:
    """Return the condition on jobs of an owner: their user or, where they say none, their namespace."""
    nobody = FleetFilter("and", (FieldTest("user", ""), FieldTest("namespace", owner)))
    return FleetFilter("or", (FieldTest("user", owner), nobody))


@dataclass
class FixMeasurement:
    """Measures what fixes of the last week brought, and keeps it in the book."""

    book: AlertBook
    ask: Ask
    log: ServiceLog
    tried: dict[str, float] = field(default_factory=dict)  # when a fix was looked at (s), by the alert's key

    def look(self, now: float) -> None:
        """Measure one fix that is due at a time (s)."""
        measured, over = self.book.fixes(), self.book.alerts("resolved")
        self.tried = {one.problem.key: self.tried[one.problem.key] for one in over if one.problem.key in self.tried}
        for alert in over:
            last = max(measured[alert.problem.key][1] if alert.problem.key in measured else 0.0, self.tried.get(alert.problem.key, 0.0))
            place, windows = place_of_fix(alert.problem), _due_windows(alert, last, now)
            if place is not None and windows is not None:
                self.tried[alert.problem.key] = now
                self._measure(alert.problem.key, place, windows, now)
                return

    def _measure(self, key: str, place: PlaceOfFix, windows: Sequence[tuple[float, float]], now: float) -> None:
        words = {} if place.condition is None else {"where": str(place.condition)}
        try:
            before, after = (
                self.ask("fleet", by="hour", since=_time(start), until=_time(end), **words).get("groups", ()) for start, end in windows
            )
        except UllageError as error:
            self.log("no look at a fix", {"key": key, "problem": error.problem})
            return
        fix = measured_fix(place.words, before, after)
        if fix is not None:
            self.book.keep_fix(key, fix, now)


def _due_windows(alert: Alert, last: float, now: float) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Return the times (s) that are compared, of an alert that was last looked at some time ago (s); None where it is not due."""
    resolved = alert.resolved or now
    due = now - last >= DAY_S and last < resolved + LONGEST_S
    return windows_of_fix(alert.opened or alert.first_seen, resolved, now) if due else None


def _time(seconds: float) -> str:
    return iso(round(1000 * seconds))
