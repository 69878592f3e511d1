"""The view of old counters by their new names."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, UnsetType, field

from ullage.errors import harmless
from ullage.reports.counters.old_counters import OldCounters, Translated
from ullage.views.declared import At, Document, Words, filled, plain_data
from ullage.views.numbers import counted
from ullage.views.view import Headline, Item, ItemList, Paragraph, Section, View

_UNITS = {"percent": " %", "level": " %", "bytes": " B", "bytes/s": " B/s"}  # of a value that was computed


def view(report: OldCounters) -> View:
    """Return the answer as data: of a single one in its first line, of several after their number; the passes that collect them."""
    found, reverse, chip, valued, passes = report.found, report.reverse, report.chip, report.valued, report.passes
    lines = f"{counted(passes, 'pass', 'passes')} over ranges on {chip}, for all that is to be collected" if passes is not None else ""
    if len(found) == 1 and reverse is None:
        name, answer = _answer(found[0], valued)
        details = [Paragraph("\n".join(f"  {line}" for line in _details(found[0], chip, valued)), kept=True), Paragraph(lines)]
        return View("cupti-map", "Old counters", Headline(name, answer), sections=[Section("details", "Details", details)])
    some = sum(1 for each in found if each.old.used)
    head = Headline(f"{len(found)} old metrics and events", f": {some} have a new formula, {len(found) - some} have none")
    if reverse is not None:
        head = Headline(harmless(reverse), f" stands for {counted(len(found), 'old one')}")
    items = [Item("".join(_answer(each, valued)), remarks=_details(each, chip, valued)) for each in found]
    return View("cupti-map", "Old counters", head, sections=[Section("each", "Each of them", [ItemList(items), Paragraph(lines)])])


def _answer(found: Translated, valued: bool) -> tuple[str, str]:
    """Return a name, and what stands for it."""
    old = found.old
    if not old.used:
        return old.name, f" has no new equivalent: {old.note}"
    if valued and found.value is not None:
        return f"{old.name} = {found.value:.10g}{_UNITS.get(old.kind, '')}", f", by {old.used}"
    return old.name, f" = {old.used}"


def _details(found: Translated, chip: str | None, valued: bool) -> list[str]:
    """Return the lines below the answer: what it was, what the guide says, what the chip has, what is missing."""
    old = found.old
    where = f" of capability {', '.join(old.capability.split())}" if old.capability else ""
    kind = "a level from 0 to 10" if old.kind == "level" else old.kind
    lines = [f"was {'an event' if old.api == 'event' else 'a metric'}{where} ({kind}): {old.meaning}"]
    if not old.used:
        return lines
    if old.instead and old.formula:
        lines.append(f"NVIDIA's guide: {old.formula}")
    if old.note:
        lines.append(f"note: {old.note}")
    if found.collect:
        lines.append(f"collect {','.join(found.collect)}")
    if chip:
        lines += _on_chip(found, chip)
    if valued and found.value is None:
        lacking = f"missing {', '.join(found.missing)}" if found.missing else "it divides by zero, or isn't finite"
        lines.append(f"no value: {lacking}")
    return lines


def _on_chip(found: Translated, chip: str) -> list[str]:
    renamed = [f"{chip} has {name} for {part}" for part, name in _called_otherwise(found).items()]
    lacking = [f"{chip} has no {part}" for part, name in found.names.items() if not name]
    beside = [f"{chip} counts apart {', '.join(found.beside)}: packed instructions, twice the work each"] if found.beside else []
    return (renamed + lacking or [f"{chip} has {'it' if len(found.collect) == 1 else 'all of them'}"]) + beside


class OldCounterDocument(Document, kw_only=True):
    """An old metric or event by its new names; with a chip what that has of them, with values what it comes to."""

    name: Annotated[str, At("old.name")]
    api: Annotated[str, At("old.api")]
    capability: list[str]
    kind: Annotated[str, At("old.kind")] = field(name="class")
    meaning: Annotated[str, At("old.meaning")]
    guide: Annotated[Words, At("old.formula")]
    formula: Annotated[Words, At("old.used")]
    note: Annotated[Words, At("old.note")]
    collect: list[str]
    called_otherwise: dict[str, str] | UnsetType = UNSET
    not_on_chip: list[str] | UnsetType = UNSET
    beside: list[str] | UnsetType = UNSET
    value: float | UnsetType | None = UNSET
    missing: list[str] | UnsetType = UNSET


class CuptiMapDocument(Document):
    """The answer of `ullage cupti map`."""

    chip: str | None
    release: str | None
    found: list[OldCounterDocument]
    passes: int | UnsetType | None = UNSET


def record(report: OldCounters) -> dict[str, Any]:
    """Return the answer for JSON."""
    found = [_translated(each, report.chip, report.valued) for each in report.found]
    return plain_data(CuptiMapDocument, report, found=found, passes=report.passes if report.counted else UNSET)


def _translated(found: Translated, chip: str | None, valued: bool) -> OldCounterDocument:
    """Return one of them for JSON; what is not known is None."""
    lacking = [part for part, name in found.names.items() if not name]
    on_chip = {"called_otherwise": _called_otherwise(found), "not_on_chip": lacking, "beside": list(found.beside)}
    unset = (*(() if chip else on_chip), *(() if valued else ("value", "missing")))
    given = {**(on_chip if chip else {}), **dict.fromkeys(unset, UNSET)}
    return filled(OldCounterDocument, found, capability=found.old.capability.split(), **given)


def _called_otherwise(found: Translated) -> dict[str, str]:
    return {part: name for part, name in found.names.items() if name and name != part}
