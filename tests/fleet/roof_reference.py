"""What each roof and each joule comes to, second by second: slow, exact (fractions), and meant to be checked by reading.

A device is {"chip": peaks, "scrapes": [row, …]}, its rows in order of time (whole seconds). A row speaks for the seconds since the row
before it, and for at most `gap` of them; its owner is theirs. What lies before that is silence, of which no gauge says anything. A device's
first row speaks for `first` seconds. Choice: what a counter grew by over a silence is not used, as with cycles. A gauge that is None was
not read. Source: equations.md, sections 2, 6 and 10.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

Row = dict[str, Any]
ROOFS = ("tensor", "memory", "fp64", "fp32", "fp16", "nvlink_tx", "nvlink_rx", "pcie_tx", "pcie_rx")


def product(*numbers: Any) -> Fraction | None:
    """The product; None where one of them was not read or nobody states it."""
    result = Fraction(1)
    for number in numbers:
        if number is None:
            return None
        result *= Fraction(number)
    return result


def over(value: Any, peak: Any) -> Fraction | None:
    """The quotient; None without either."""
    return None if value is None or not peak else Fraction(value) / Fraction(peak)


def levels(row: Row, chip: Row) -> dict[str, Fraction | None]:
    """How high under each roof a device is in a second for which this row speaks."""
    clock, memory = over(row["sm_clock"], chip["sm_clock"]), over(row["memory_clock"], chip["memory_clock"])
    found = {name: product(row[f"{name}_active"], clock) for name in ("fp64", "fp32", "fp16")}
    found |= {"tensor": product(row["tensor_active"], over(row["sm_clock"], chip["tensor_clock"]))}
    found |= {"memory": product(row["dram_active"], memory)}
    return found | {name: over(row[name], chip[name.split("_")[0]]) for name in ROOFS[5:]}


def watts(row: Row, before: Row | None, gap: int) -> tuple[str, Fraction | None]:
    """How fast energy is spent between two rows, and by which meter: the counter, else a sample of power, else nobody knows."""
    near = before is not None and row["time"] - before["time"] <= gap
    if before is not None and near and None not in (row["energy"], before["energy"]) and row["energy"] >= before["energy"]:
        return "counter", Fraction(row["energy"] - before["energy"]) / (row["time"] - before["time"])
    return ("sampled", Fraction(row["power"])) if row["power"] is not None else ("none", None)


def seconds(device: Row, gap: int, first: int) -> Iterator[tuple[str, Row, str, Fraction | None]]:
    """Every second of a device: whose it is, what was read of it (nothing, in a silence), which meter speaks, and its joules."""
    for number, row in enumerate(device["scrapes"]):
        before = device["scrapes"][number - 1] if number else None
        meter, rate = watts(row, before, gap)
        for second in range(before["time"] if before else row["time"] - first, row["time"]):
            if row["time"] - second <= gap:
                yield row["owner"], row, meter, rate
            else:
                yield "silence", {}, "none", None


def reference(fleet: Row) -> dict[str, Row]:
    """For each owner: level[roof] (a mean over the seconds in which it was read), time[roof], joules and seconds by meter."""
    found: dict[str, Row] = defaultdict(lambda: {name: defaultdict(Fraction) for name in ("sum", "time", "joules", "metered")})
    for device in fleet["devices"]:
        heights = {id(row): levels(row, device["chip"]) for row in device["scrapes"]}
        for owner, row, meter, rate in seconds(device, fleet["gap"], fleet["first"]):
            for roof, level in heights.get(id(row), {}).items():
                if level is not None:
                    found[owner]["sum"][roof] += level
                    found[owner]["time"][roof] += 1
            found[owner]["metered"][meter] += 1
            found[owner]["joules"][meter] += rate or 0
    for sums in found.values():
        sums["level"] = {roof: sums["sum"][roof] / sums["time"][roof] for roof in sums["time"]}
    return dict(found)
