"""A problem that an answer tells of: what makes it the same one next time, and what whoever is told needs to know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ullage.alerts.profile_request import WantedProfile
from ullage.views.numbers import percent

SURE_AT_ONCE = "high"  # a problem of this confidence is told when it is first seen, others when they are seen again
PLACE = ("cluster", "job", "user", "host", "index", "gpu", "mig", "model")  # what tells two places apart, in this order,
KIND_OF_JOBS = ("job_name", "gpus")  # and what tells kinds of jobs apart, where no job is named


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong: its `kind` and where, which make its `key`; whose it is, since when (ISO), what it has cost, how sure, the evidence.

    `advice` is what to do, `command` shows more, and `profile` is the one that would say more, where one would.
    """

    kind: str
    title: str
    where: dict[str, str | int]
    owner: str
    gpu_hours: float
    confidence: str
    evidence: str
    advice: str
    command: str = ""
    since: str = ""
    profile: WantedProfile | None = None

    @property
    def key(self) -> str:
        """What is the same for the same problem, whenever it is seen: an address part without blanks."""
        return "/".join([self.kind, *(f"{name}={self.where[name]}" for name in self._named)]).replace(" ", "_")

    @property
    def place(self) -> str:
        """Where it is, in words."""
        return ", ".join(f"{name.replace('_', ' ')} {self.where[name]}" for name in self._named) or "the fleet"

    @property
    def _named(self) -> list[str]:
        return [name for name in (*PLACE, *(() if "job" in self.where else KIND_OF_JOBS)) if name in self.where]

    @property
    def summary(self) -> str:
        """What is wrong in one line."""
        return f"{self.title}: {self.place}"


def problems_of_fleet(document: Mapping[str, Any], command: str = "") -> Iterator[Problem]:
    """Yield the problems that a fleet's document has as findings."""
    for one in document.get("findings", ()):
        yield Problem(
            kind=str(one["kind"]),
            title=str(one["kind"]).replace("_", " "),
            where=dict(one["where"]),
            owner=str(one["owner"]),
            gpu_hours=float(one["gpu_hours"]),
            confidence=str(one["confidence"]),
            evidence=_evidence(one["evidence"]),
            advice=str(one["advice"]),
            command=str(one.get("next") or command),
        )


def problems_of_watch(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems that a document of `ullage watch` has: changes for the worse that go on, and stragglers."""
    for one in document.get("changes", ()):
        if one["worse"] and one["goes_on"]:
            yield Problem(
                kind=f"change_{one['scope']}_{one['measure']}",
                title={"fleet": "most jobs fell at once", "run": "slower than earlier runs"}.get(one["scope"], "fell while it ran"),
                where=dict(one["where"]),
                owner=str(one["owner"]),
                gpu_hours=float(one["gpu_hours"]),
                confidence=str(one["confidence"]),
                evidence="; ".join([f"{one['measure']} {one['before']:.3g} → {one['after']:.3g}", *one["beside"]]),
                advice=str(one["advice"]),
                command=str(one["command"]),
                since=str(one["start"]),
            )
    for one in document.get("stragglers", ()):
        if one["end"] is None:
            yield _straggler(one)


def _straggler(one: Mapping[str, Any]) -> Problem:
    where = {"cluster": one["cluster"], "job": one["job"], "host": one["host"], "gpu": one["gpus"][0] if len(one["gpus"]) == 1 else None}
    return Problem(
        kind="straggler_now",
        title="a straggler",
        where={name: value for name, value in where.items() if value is not None},
        owner="the operators of the hosts",
        gpu_hours=0.0,
        confidence="high" if one["longer"] >= STRAGGLES else "medium",
        evidence=f"{one['longer']:.2f} times as long as the others of its job for the same work",
        advice=STRAGGLER_ADVICE[one["sign"]],
        since=str(one["start"]),
    )


STRAGGLES = 1.3  # times as long as its peers, from which on nobody doubts it: no uneven sharding does no more work in so much more time
STRAGGLER_ADVICE = {
    "clock": "look at its power and cooling: its clock is lower than that of the others; drain it until that is fixed",
    "busy": "compare it alone with another one (ullage bench drift), and look at its memory errors; drain it if it is slower",
    "late": "see what its host does (CPU, data loader, PCIe link): it rests while the others wait for it",
    "link": "look at its NVLinks (nvidia-smi nvlink -e): they send packets again, and the job is slower",
}


def _evidence(facts: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{fact['name']} {_value_in_words(fact['value'], str(fact.get('unit', '')))}" for fact in facts)


def _value_in_words(value: Any, unit: str) -> str:
    """Return a value of a document with its unit.

    >>> _value_in_words(0.5, "ratio"), _value_in_words(8.0, "GPU-hours"), _value_in_words(4, "1"), _value_in_words(None, "ratio")
    ('50 %', '8 GPU-hours', '4', 'not known')
    """
    if value is None or isinstance(value, str):
        return value or "not known"
    if unit == "ratio":
        return percent(value)
    return " ".join(filter(None, [f"{value:,.3g}" if isinstance(value, float) else f"{value:,}", "" if unit == "1" else unit]))
