"""How a microbenchmark's numbers and stamps are written for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ullage.benches.bench import Plain, Quantity
from ullage.benches.result import BenchResult, Stamp
from ullage.errors import harmless
from ullage.reports.bench.bench import BenchNumber, BenchTable
from ullage.views.numbers import UNKNOWN, binary_size, percent

NOT_YET = "not measured yet"
NO_DATA = "none"  # what a row that runs nothing says of its data
BYTES = ("size", "footprint")  # labels that count bytes


@dataclass(frozen=True)
class Unit:
    """How a column is headed, and how many SI units one of its units is."""

    name: str
    scale: float = 1.0


UNITS: Mapping[Quantity, Unit] = {
    "latency": Unit("cycles"),
    "throughput": Unit("TFLOP/s", 1e12),
    "bandwidth": Unit("GB/s", 1e9),
    "bytes_per_cycle": Unit("B/clk"),
    "bytes_per_cycle_sm": Unit("B/clk/SM"),
    "results_per_cycle_sm": Unit("1/clk/SM"),
    "time": Unit("µs", 1e-6),
    "rate": Unit("1/s"),
    "power": Unit("W"),
    "efficiency": Unit("TFLOP/J", 1e12),
}
_PREFIXES = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))


def unit(quantity: Quantity, values: Iterable[float]) -> Unit:
    """Return the unit in which values of a quantity are written; a rate has the largest prefix that leaves the highest three digits.

    >>> unit("rate", [4.1e9, 1.9e12]).name, unit("rate", [679.5, 4200.0]).name, unit("latency", []).name
    ('G/s', '1/s', 'cycles')
    """
    highest = max(map(abs, values), default=0.0)
    if quantity == "rate":
        return next((Unit(f"{prefix}/s", scale) for prefix, scale in _PREFIXES if highest >= 100 * scale), UNITS["rate"])
    return UNITS[quantity]


def units(table: BenchTable) -> dict[Quantity, Unit]:
    """Return the unit of each quantity of a table: one for all of its numbers, measured and published."""
    values: dict[Quantity, list[float]] = {quantity: [] for _, quantity in table.places}
    for cell in table.cells:
        values[cell.quantity] += [*cell.published.values(), *([] if cell.value is None else [cell.value.value])]
    return {quantity: unit(quantity, found) for quantity, found in values.items()}


def shown(value: float | None, unit: Unit) -> str:
    """Return a value in a unit with at least three digits, and one after the point below 10,000.

    >>> shown(728.5e12, UNITS["throughput"]), shown(1.79e12, UNITS["efficiency"]), shown(0.517e12, UNITS["throughput"])
    ('728.5', '1.79', '0.517')
    >>> shown(12_345.6, UNITS["latency"]), shown(None, UNITS["latency"])
    ('12,346', '–')
    """
    if value is None:
        return UNKNOWN
    scaled = value / unit.scale
    size = abs(scaled)
    if scaled and (size < 1 or size >= 1e9):
        return f"{scaled:.3g}"
    return f"{scaled:,.{0 if size >= 10_000 else 1 if size >= 10 else 2}f}" if scaled else "0"


def measured(cell: BenchNumber | None, unit: Unit) -> tuple[str, str]:
    """Return what was measured and its share of the stated peak; a dash where nothing was, "wrong" or "failed" where it was tried."""
    if cell is None or (cell.value is None and not cell.problem):
        return UNKNOWN, ""
    if cell.value is None:
        return verdict(cell.problem), ""
    return shown(cell.value.value, unit), "" if cell.share is None else percent(cell.share)


def verdict(problem: str) -> str:
    """Return a word for why there is not a number.

    >>> verdict("the result is wrong: 3 of 128 differ"), verdict("not run: the time was up"), verdict("needs PyTorch")
    ('wrong', 'not run', 'failed')
    """
    return "not run" if problem.startswith("not run") else "wrong" if "wrong" in problem else "failed"


def short(gpu: str) -> str:
    """Return a GPU's name without its maker's.

    >>> short("NVIDIA GeForce RTX 4090"), short("NVIDIA A100-PCIE-40GB")
    ('RTX 4090', 'A100-PCIE-40GB')
    """
    return harmless(gpu.removeprefix("NVIDIA ").removeprefix("GeForce "), 60)


def word(label: Plain, name: str = "") -> str:
    """Return a label as it stands in a table; `name` is what it says.

    >>> word(None), word(True), word(256), word("SS"), word(65536, "size")
    ('', 'yes', '256', 'SS', '64 Ki')
    """
    if label is None or isinstance(label, bool):
        return "" if label is None else "yes" if label else "no"
    return binary_size(label) if name in BYTES and isinstance(label, int | float) else harmless(str(label), 60)


def stamped(stamps: Iterable[Stamp | None]) -> str:
    """Return in a few words under what numbers were measured; "" where nobody knows.

    >>> one = Stamp(1.755e9, "kernel", 412.0, 61.0, (), "random")
    >>> stamped([one, Stamp(1.98e9, "kernel", 300.0, 61.0, (), "zero")])
    'SM clock 1,755 to 1,980 MHz, 300 to 412 W, not throttled, data random and zero'
    """
    known = [stamp for stamp in stamps if stamp is not None]
    if not known:
        return ""
    clock = _range([stamp.sm_clock for stamp in known], 1e6, "MHz")
    parts = [f"SM clock {clock or 'not known'}", _range([stamp.power for stamp in known], 1.0, "W") or "power not known"]
    data = dict.fromkeys(harmless(stamp.data, 40) for stamp in known if stamp.data != NO_DATA)
    return ", ".join([*parts, throttled(known), f"data {' and '.join(data) or NO_DATA}"])


def under(stamps: Iterable[Stamp | None]) -> str:
    """Return clock and power of some numbers in a cell's width.

    >>> under([Stamp(1.755e9, "kernel", 412.0, 61.0, ("power cap",), "random")]), under([None])
    ('1,755 MHz, 412 W, throttled', '')
    """
    known = [stamp for stamp in stamps if stamp is not None]
    reasons = any(stamp.throttle for stamp in known)
    parts = [_range([s.sm_clock for s in known], 1e6, "MHz"), _range([s.power for s in known], 1.0, "W"), "throttled" if reasons else ""]
    return ", ".join(part for part in parts if part)


def conditions(stamps: Iterable[Stamp | None]) -> str:
    """Return the clock of a row's numbers, the lowest one, the highest temperature, and what held the clock back; "" where nobody knows.

    >>> one = Stamp(1.41e9, "kernel", 698.0, 71.0, ("power cap",), "random", 1.38e9, 5.3, 1.1)
    >>> conditions([one]), conditions([Stamp(1.98e9, "kernel", None, None, (), "zero")]), conditions([None])
    ('1,410 (1,380) MHz, 71 °C, power cap', '1,980 MHz, nothing', '')
    """
    known = [stamp for stamp in stamps if stamp is not None]
    if not known:
        return ""
    clock, lowest = _range([s.sm_clock for s in known], 1e6, "MHz"), [s.lowest_clock for s in known if s.lowest_clock is not None]
    if clock and lowest:
        clock = clock.replace(" MHz", f" ({min(lowest) / 1e6:,.0f}) MHz")
    reasons = dict.fromkeys(harmless(reason, 40) for s in known for reason in s.throttle or ())
    unknown = all(s.throttle is None for s in known)
    parts = [clock, _range([s.temperature for s in known], 1.0, "°C"), *(reasons or ([] if unknown else ["nothing"]))]
    return ", ".join(part for part in parts if part)


def _range(values: Iterable[float | None], scale: float, name: str) -> str:
    known = [value / scale for value in values if value is not None]
    if not known:
        return ""
    low, high = f"{min(known):,.0f}", f"{max(known):,.0f}"
    return f"{low} {name}" if low == high else f"{low} to {high} {name}"


def throttled(stamps: Sequence[Stamp]) -> str:
    """Return whether clocks were held down while numbers were measured, and why."""
    reasons = dict.fromkeys(harmless(reason, 40) for stamp in stamps for reason in stamp.throttle or ())
    if reasons:
        return f"throttled ({', '.join(reasons)})"
    return "throttling not known" if any(stamp.throttle is None for stamp in stamps) else "not throttled"


def made_on(results: Sequence[BenchResult]) -> str:
    """Return with what results were measured, and when: what differs between them is named with each value."""
    said = {"driver": "driver {}", "compiler": "CUDA compiler {}", "torch": "PyTorch {}", "power_limit": "power limit {} W"}
    parts = []
    for name, words in said.items():
        values = dict.fromkeys(result.machine[name] for result in results if result.machine.get(name) is not None)
        if values:
            parts.append(words.format(" and ".join(f"{v:g}" if isinstance(v, float) else harmless(str(v), 40) for v in values)))
    days = sorted({result.date[:10] for result in results})
    return harmless(", ".join([*parts, " to ".join(dict.fromkeys([days[0], days[-1]]))]), 300) if days else ""
