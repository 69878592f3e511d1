"""Old counters by their new names, as text for a terminal and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ullage.errors import harmless
from ullage.reports.old_counters import Translated

_UNITS = {"percent": " %", "level": " %", "bytes": " B", "bytes/s": " B/s"}  # of a value that was computed


def text(found: Sequence[Translated], reverse: str | None, chip: str | None, valued: bool) -> str:
    """Return the answer: of a single one in its first line, of several after their number."""
    if len(found) == 1 and reverse is None:
        return "\n".join([_answer(found[0], valued), "", *_details(found[0], chip, valued)])
    some = sum(1 for each in found if each.old.used)
    head = f"{len(found)} old metrics and events: {some} have a new formula, {len(found) - some} have none"
    if reverse is not None:
        head = f"{harmless(reverse)} stands for {len(found)} old {'one' if len(found) == 1 else 'ones'}"
    return "\n\n".join([head, *("\n".join([_answer(each, valued), *_details(each, chip, valued)]) for each in found)])


def record(found: Translated, chip: str | None, valued: bool) -> dict[str, Any]:
    """Return one of them for JSON; what is not known is None."""
    old = found.old
    told: dict[str, Any] = {
        "name": old.name,
        "api": old.api,
        "capability": old.capability.split(),
        "class": old.kind,
        "meaning": old.meaning,
        "guide": old.formula or None,
        "formula": old.used or None,
        "note": old.note or None,
        "collect": found.collect,
    }
    if chip:
        told["called_otherwise"] = _called_otherwise(found)
        told["not_on_chip"] = [part for part, name in found.names.items() if not name]
        told["beside"] = list(found.beside)
    if valued:
        told |= {"value": found.value, "missing": list(found.missing)}
    return told


def _called_otherwise(found: Translated) -> dict[str, str]:
    return {part: name for part, name in found.names.items() if name and name != part}


def _answer(found: Translated, valued: bool) -> str:
    old = found.old
    if not old.used:
        return f"{old.name} has no new equivalent: {old.note}"
    if valued and found.value is not None:
        return f"{old.name} = {found.value:.10g}{_UNITS.get(old.kind, '')}, by {old.used}"
    return f"{old.name} = {old.used}"


def _details(found: Translated, chip: str | None, valued: bool) -> list[str]:
    """Return the lines below the answer: what it was, what the guide says, what the chip has, what is missing."""
    old = found.old
    where = f" of capability {', '.join(old.capability.split())}" if old.capability else ""
    kind = "a level from 0 to 10" if old.kind == "level" else old.kind
    lines = [f"  was {'an event' if old.api == 'event' else 'a metric'}{where} ({kind}): {old.meaning}"]
    if not old.used:
        return lines
    if old.instead and old.formula:
        lines.append(f"  NVIDIA's guide: {old.formula}")
    if old.note:
        lines.append(f"  note: {old.note}")
    if found.collect:
        lines.append(f"  collect {','.join(found.collect)}")
    if chip:
        lines += _on_chip(found, chip)
    if valued and found.value is None:
        lacking = f"missing {', '.join(found.missing)}" if found.missing else "it divides by zero, or isn't finite"
        lines.append(f"  no value: {lacking}")
    return lines


def _on_chip(found: Translated, chip: str) -> list[str]:
    renamed = [f"  {chip} has {name} for {part}" for part, name in _called_otherwise(found).items()]
    lacking = [f"  {chip} has no {part}" for part, name in found.names.items() if not name]
    beside = [f"  {chip} counts apart {', '.join(found.beside)}: packed instructions, twice the work each"] if found.beside else []
    return (renamed + lacking or [f"  {chip} has {'it' if len(found.collect) == 1 else 'all of them'}"]) + beside
