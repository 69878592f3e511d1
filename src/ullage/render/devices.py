"""Watched devices in words: what `ullage sample` and `ullage top` say of a GPU, and of all of them together."""

from __future__ import annotations

from collections.abc import Mapping

from ullage.errors import harmless
from ullage.live.sampling.course import Course, Totals
from ullage.live.sampling.watched_device import Watched
from ullage.sources.naming.clock_reasons import reasons
from ullage.views.declared import Document, Ratio
from ullage.views.numbers import UNKNOWN, counted, money, percent


def headline(totals: Totals, *, now: bool) -> str:
    """Return the answer in one line; `now` puts OFU of the last readings before that since the start."""
    if totals.ofu is None:
        return f"OFU unknown for {counted(totals.gpus, 'GPU')}"
    current = f"{percent(totals.now, 1)} now, " if now else ""
    since = f"{percent(totals.ofu, 1)} since the start" if now else percent(totals.ofu, 1)
    cost = "" if totals.cost is None else f", costing {money(totals.cost)} an hour"
    worth = f"{totals.ullage or 0.0:.1f} of {counted(totals.known, 'GPU')}"
    return f"OFU {current}{since}; {worth}{'' if totals.known == 1 else chr(39) + ' worth'} missing{cost}"


def basis(totals: Totals) -> str:
    """Return how OFU was found and of how much: "exact, by cycle counters; 8 GPUs, 1 silent"."""
    method = "" if totals.ofu is None else "exact, by cycle counters; " if totals.exact else "sampled, by activity and clock; "
    rest = totals.gpus - totals.known
    unknown = f", OFU of {counted(rest, 'GPU')} unknown" if totals.ofu is not None and rest > 1e-9 else ""
    silent = f", {totals.silent} silent" if totals.silent else ""
    return f"{method}{counted(totals.gpus, 'GPU')}{unknown}{silent}"


def named(device: Watched, course: Course) -> str:
    """Return what a device is called on its row: its number, with the host where there are several, and its MIG instance."""
    hosts = {other.row.get("host") for other in course}
    number = str(device.row.get("index", device.gpu))
    host = f"{device.row.get('host')}/" if len(hosts) > 1 else ""
    return harmless(f"{host}{number}{':' + device.mig if device.mig else ''}", 40)


def share(value: float | None) -> str:
    """Return a ratio in whole percent."""
    return UNKNOWN if value is None else percent(value)


def fine(value: float | None) -> str:
    """Return a ratio in percent with one digit."""
    return UNKNOWN if value is None else percent(value, 1)


def of(value: float | None, most: float | None, unit: float) -> str:
    """Return a level, and what it can be at most where that is known.

    >>> of(1.41e9, 1.98e9, 1e6), of(612.0, None, 1), of(None, 700.0, 1)
    ('1,410/1,980', '612', '–')
    """
    if value is None:
        return UNKNOWN
    return f"{value / unit:,.0f}" + (f"/{most / unit:,.0f}" if most else "")


def clock(device: Watched) -> str:
    """Return the SM clock over the highest, MHz."""
    return of(device.row.get("sm_clock"), device.limits.sm_clock or (device.chip.sm_clock if device.chip else None), 1e6)


def power(device: Watched) -> str:
    """Return the power over what the board may draw, W."""
    return of(device.row.get("power"), device.limits.power or (device.chip.power if device.chip else None), 1.0)


def memory(device: Watched) -> str:
    """Return the memory in use over all there is, GB."""
    most = None if device.mig else device.limits.memory or (device.chip.memory if device.chip else None)
    return of(device.row.get("memory_used"), most, 1e9)


def temperature(device: Watched) -> str:
    """Return the temperature, °C."""
    return of(device.row.get("temperature"), None, 1.0)


def held_back(device: Watched, room: int = 200) -> str:
    """Return why the clock is held back, "" when nothing does; what does not fit the room is counted: "power cap +1"."""
    mask = device.row.get("throttle")
    words = () if mask is None else reasons(int(mask))
    told = ", ".join(words)
    return told if len(told) <= room or len(words) < 2 else f"{words[0]} +{len(words) - 1}"


def notes(course: Course, extra: list[str]) -> list[str]:
    """Return what must be said: why OFU of some devices is not known, what their chips' figures rest on, and `extra`."""
    why: dict[str, list[str]] = {}
    for device in course.counted():
        if device.mean_ofu is None and device.unknown:
            why.setdefault(device.unknown, []).append(named(device, course))
    found = [f"OFU of GPU {some(names)} is not known: {reason}" for reason, names in why.items()]
    warnings = {device.chip.warning for device in course if device.chip and device.chip.warning}
    sampled = {device.chip.clock_warning for device in course if device.chip and device.method == "sampled"}
    warnings |= {warning for warning in sampled if warning}
    return [harmless(note, 1000) for note in (*found, *sorted(warnings), *extra)]


def some(names: list[str], most: int = 8) -> str:
    """Return the first names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


class ReadingDocument(Document):
    """A reading of `ullage sample --json`, in SI units: beside these keys every field that was told, as `ullage metrics --fields` lists."""

    time: int
    host: str | None
    gpu: str | None
    index: int | None
    mig: str | None
    model: str | None
    job: str | None
    user: str | None
    ofu: Ratio | None
    method: str | None


def record(device: Watched) -> dict[str, object]:
    """Return a device's last reading as plain data: who it is, OFU and how it was found, and every field that was told, in SI units."""
    row: Mapping[str, object] = device.row
    who = {name: row.get(name) for name in ("host", "gpu", "index", "mig", "model", "job", "user")}
    told = {name: value for name, value in row.items() if name not in (*who, "time", "flags")}
    return {"time": device.time, **who, "ofu": device.ofu, "method": device.method, **told}
