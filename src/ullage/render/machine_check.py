"""The view of what this machine allows of tracing and counting."""

from __future__ import annotations

from typing import Any

from ullage.errors import harmless
from ullage.views.declared import Document
from ullage.views.view import Headline, Item, ItemList, Section, View

_ANSWER = {"yes": "can be", "no": "can't be", "perhaps": "can perhaps be"}
_OF = {"tracing": "CUDA programs {} traced here", "counters": "hardware counters {} read"}


def view(report: dict[str, Any]) -> View:
    """Return the report of `ullage.cupti.permissions` as data, the answer first, then what stands in the way and what to do."""
    tracing, counters = possibilities(report)
    library = f"CUPTI {report['cupti'] or 'of unknown version'} ({harmless(report['library'])})" if report["library"] else "no CUPTI"
    driver = f"a driver of CUDA {report['driver']}" if report["driver"] else "no NVIDIA driver"
    return View(
        kind="cupti-check",
        subject="This machine",
        headline=Headline(tracing, counters),
        basis=[f"{library}; {driver}"],
        sections=[Section("findings", "What stands in the way", [ItemList(obstacles(report))])],
    )


def possibilities(report: dict[str, Any]) -> tuple[str, str]:
    """Return whether programs can be traced and counters read, in words: an answer, and how it goes on."""
    tracing, counters = (of.format(_ANSWER[report[what]]) for what, of in _OF.items())
    return tracing, f"; {counters}"


def obstacles(report: dict[str, Any]) -> list[Item]:
    """Return what stands in the way, each with what to do about it."""
    return [Item(f"{harmless(one['what'], 400)}{_stops(one)}", remarks=[harmless(one["do"], 400)]) for one in report["findings"]]


def record(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report for JSON: it is plain data."""
    return report


def _stops(finding: dict[str, Any]) -> str:
    surely = finding["surely"]
    what = f"{'' if surely else 'may stop '}{' and '.join(finding['stops'])}{' impossible' if surely else ''}"
    return f" ({what})" if finding["stops"] else ""


class ObstacleDocument(Document):
    """What stands in the way of tracing or counting, surely or perhaps, and what to do about it."""

    what: str
    do: str
    stops: list[str]
    surely: bool


class CuptiCheckDocument(Document):
    """The answer of `ullage cupti check`: "yes", "no" or "perhaps", and why."""

    tracing: str
    counters: str
    cupti: str | None
    library: str | None
    driver: str | None
    findings: list[ObstacleDocument]
