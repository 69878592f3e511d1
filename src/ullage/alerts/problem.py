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


def problems_of(fleet: Mapping[str, Any], watch: Mapping[str, Any], command: str = "") -> list[Problem]:
    """Return the problems of a fleet's document and of one of `ullage watch`, each straggler once: with what the report says it has cost.

    Both find stragglers by one rule: a report those of its whole window, a watch those of the last hour. One of the report that is over is
    no problem any more.
    """
    watched = list(problems_of_watch(watch))
    over = {number for number, one in enumerate(fleet.get("findings", ())) if one["kind"] == "straggler" and _is_over(one)}
    found = [one for number, one in enumerate(problems_of_fleet(fleet, command)) if number not in over]
    cost = [(now, next((one for one in found if _same_straggler(one, now)), None)) for now in watched]
    merged = [now if one is None else msgspec.structs.replace(now, gpu_hours=one.gpu_hours, command=one.command) for now, one in cost]
    known = {one.key for _, one in cost if one is not None}
    return [*(one for one in found if one.key not in known), *merged]


def _is_over(finding: Mapping[str, Any]) -> bool:
    return any(fact["name"] == "until" and fact["value"] != TO_THE_END for fact in finding["evidence"])


def _same_straggler(finding: Problem, now: Problem) -> bool:
    """Return whether a finding and what is seen now are about the same device, or one of them about the host of the other."""
    if (finding.kind, now.kind) != ("straggler", "straggler_now"):
        return False
    names = ("cluster", "job", *(["gpu"] if "gpu" in finding.where and "gpu" in now.where else ["host"]))
    return all(finding.where.get(name) == now.where.get(name) for name in names)


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
TO_THE_END = "the last sample"  # until when one was slow that is so still
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
