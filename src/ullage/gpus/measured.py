"""What a GPU was measured to do: ceilings beside the stated peaks, a file a device, found by its UUID or by its model.

A *burst* lasts a fraction of a second, at a clock that the board may not hold; a *sustained* ceiling is of seconds under load, after the
clock has settled. Jobs are held against the sustained one where it is known.

Files lie in the folder that ULLAGE_CEILINGS names, or else in `ullage/ceilings` of the user's configuration folder
(XDG_CONFIG_HOME, `~/.config`). `ullage bench --save` writes them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

from ullage.errors import UllageError, harmless
from ullage.gpus.chip import find
from ullage.gpus.names import fold
from ullage.gpus.precision import canonical
from ullage.written_values import expanded_path

FOLDER: Final = "ULLAGE_CEILINGS"
FORMAT: Final = 2
BURSTS_ONLY: Final = 1  # the format before, which knew no other ceilings, and not how long they took
KINDS: Final = ("flops", "bandwidth", "sustained_flops", "sustained_bandwidth")  # the first two are of bursts
MEMORY: Final = "global memory"  # the level of a bandwidth
MEASURE: Final = "ullage bench sustained-ceilings --save"


@dataclass(frozen=True)
class MeasuredCeiling:
    """One measured ceiling in FLOP/s or B/s, and under what: by which bench (`source`), when, "random" or "zero" data.

    Median and lowest SM clock in Hz, mean power in W, highest temperature in °C and what held the clock back are those of the `seconds`
    that were timed. None: not known.
    """

    value: float
    source: str
    date: str = ""
    data: str = ""
    sm_clock: float | None = None
    power: float | None = None
    lowest_clock: float | None = None
    temperature: float | None = None
    seconds: float | None = None
    throttle: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ChosenCeiling:
    """The ceiling that a job is held against: FLOP/s, where it is from in words, and what must be said with it ("" where nothing)."""

    value: float
    source: str
    caution: str = ""


@dataclass(frozen=True)
class Ceilings:
    """A device's measured ceilings: `flops` by precision and `bandwidth` by level ("global memory", "L2 cache") of bursts, and both as it
    sustained them.

    `date` is of the newest (UTC, ISO), `driver` the one that it was measured with.
    """

    gpu: str
    uuid_hash: str
    date: str
    driver: str
    flops: Mapping[str, MeasuredCeiling]
    bandwidth: Mapping[str, MeasuredCeiling]
    sustained_flops: Mapping[str, MeasuredCeiling] = field(default_factory=dict)
    sustained_bandwidth: Mapping[str, MeasuredCeiling] = field(default_factory=dict)

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions that have a ceiling of either kind."""
        return tuple(dict.fromkeys([*self.flops, *self.sustained_flops]))

    def peak(self, precision: str) -> ChosenCeiling | None:
        """Return the ceiling of a precision that a job is held against: the sustained one, else the burst; None where neither is known.

        >>> burst, sustained = {"bf16": MeasuredCeiling(7e14, "best-gemm")}, {"bf16": MeasuredCeiling(6e14, "sustained-ceilings")}
        >>> Ceilings("H200", "", "", "", burst, {}, sustained).peak("bfloat16").value
        600000000000000.0
        >>> Ceilings("H200", "", "", "", burst, {}).peak("bfloat16").caution[:36]
        'the measured ceiling is a burst, and'
        """
        name = canonical(precision)
        if name in self.sustained_flops:
            one = self.sustained_flops[name]
            return ChosenCeiling(one.value, described(self, name, one))
        if name in self.flops:
            one = self.flops[name]
            lasted = "" if one.seconds is None else f" of {one.seconds:.2g} s"
            caution = f"the measured ceiling is a burst{lasted}, and hours under load may clock lower: `{MEASURE}` measures what holds"
            return ChosenCeiling(one.value, described(self, name, one), caution)
        return None

    @property
    def memory(self) -> ChosenCeiling | None:
        """The bandwidth of global memory in B/s that kernels are held against: the sustained one, else the burst; None without either.

        >>> Ceilings("H200", "", "", "", {}, {"global memory": MeasuredCeiling(4e12, "memory-bandwidth")}).memory.source
        'H200, global memory, memory-bandwidth'
        """
        one = self.sustained_bandwidth.get(MEMORY) or self.bandwidth.get(MEMORY)
        return None if one is None else ChosenCeiling(one.value, described(self, MEMORY, one))


def folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return where ceilings are kept.

    >>> folder({"ULLAGE_CEILINGS": "/data/ceilings"}).as_posix()
    '/data/ceilings'
    """
    environment = os.environ if environment is None else environment
    if environment.get(FOLDER):
        return expanded_path(environment[FOLDER])
    base = environment.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "ullage" / "ceilings"


def save(found: Ceilings, place: Path) -> Path:
    """Write a device's ceilings into a folder and return the file.

    What the folder holds of this device is replaced where it was measured anew and stays where it wasn't; a file there that can't
    be read, which a newer release may have written, is put aside as NAME.json.unread1.
    """
    name = "-".join(word for word in (*fold(found.gpu), found.uuid_hash) if word)
    path = place / f"{''.join(c if c.isalnum() or c in '-._' else '_' for c in name)[:150]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        before = load(path) if path.exists() else found
        kinds: dict[str, Any] = {kind: {**getattr(before, kind), **getattr(found, kind)} for kind in KINDS}
        found = replace(found, **kinds)
    except UllageError:
        path.rename(next(aside for n in count(1) if not (aside := path.with_name(f"{path.name}.unread{n}")).exists()))
    half = path.with_suffix(".part")
    half.write_text(json.dumps({"format": FORMAT, **asdict(found)}, indent=2) + "\n", encoding="utf-8")
    half.replace(path)
    return path


def load(path: Path) -> Ceilings:
    """Return the ceilings of a file; raises UllageError for one that holds none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        version = found.get("format") if isinstance(found, dict) else None
        if version not in (FORMAT, BURSTS_ONLY):
            raise ValueError(f"it is not of format {FORMAT}")
        gpu, uuid_hash, date, driver = (str(found[name]) for name in ("gpu", "uuid_hash", "date", "driver"))
        kinds = KINDS if version == FORMAT else KINDS[:2]
        return Ceilings(gpu, uuid_hash, date, driver, *(_each(found[kind]) for kind in kinds))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = f"{harmless(str(path), 200)} holds no measured ceilings ({harmless(str(error), 100)})"
        raise UllageError(problem, "write it with `ullage bench --save`") from error


def _each(found: Mapping[str, Any]) -> dict[str, MeasuredCeiling]:
    return {name: _checked(MeasuredCeiling(**one)) for name, one in found.items()}


def _checked(one: MeasuredCeiling) -> MeasuredCeiling:
    """Return a ceiling as it is read; raises ValueError for what can't be."""
    known = [n for n in (one.value, one.sm_clock, one.power, one.lowest_clock, one.temperature, one.seconds) if n is not None]
    if not all(isinstance(n, int | float) and 0 < n < 1e20 for n in known):
        raise ValueError("a ceiling, its clock, power, temperature or time is not a number above 0")
    reasons = [] if one.throttle is None else one.throttle
    if not isinstance(reasons, list) or not all(isinstance(word, str) for word in (one.source, one.date, one.data, *reasons)):
        raise ValueError("a ceiling does not say where it is from")
    return one if one.throttle is None else replace(one, throttle=tuple(reasons))


def ceilings_of(gpu: str, uuid_hash: str = "", place: Path | None = None) -> Ceilings | None:
    """Return what was measured of this very device (by `uuid_hash`), else of one of its model, the newest; None where nothing was.

    `gpu` is any name that `ullage.gpus` knows, or the driver's own. A damaged file raises UllageError: what was measured is not
    silently passed over.
    """
    place = folder() if place is None else place
    found = [load(path) for path in sorted(place.glob("*.json"))] if place.is_dir() else []
    same = [one for one in found if uuid_hash and one.uuid_hash == uuid_hash]
    alike = [one for one in found if _model(one.gpu) == _model(gpu)]
    return max(same or alike, key=lambda one: one.date, default=None)


def _model(gpu: str) -> object:
    """Return what two names of one model have in common: the chip that we know, else their words."""
    try:
        return find(gpu).name
    except UllageError:
        return fold(gpu)


def measured_ceiling(gpu: str, precision: str, place: Path | None = None) -> ChosenCeiling:
    """Return the measured ceiling of a model of GPU at a precision: what it sustained, else a burst, which says so.

    Raises UllageError where nothing was measured of such a GPU, or not at this precision.
    """
    found = ceilings_of(gpu, place=place)
    hint = f"measure it on such a GPU: `{MEASURE}`"
    if found is None:
        raise UllageError(f"nobody measured the ceilings of a '{harmless(gpu, 80)}'", hint)
    one = found.peak(precision)
    if one is None:
        raise UllageError(f"nobody measured the ceiling of a '{found.gpu}' at {precision}", f"{hint}; it has {', '.join(found.precisions)}")
    return one


def described(found: Ceilings, name: str, one: MeasuredCeiling) -> str:
    """Return in words where a ceiling is from and what it was measured under.

    >>> one = MeasuredCeiling(6e14, "sustained-ceilings: BF16 wgmma", "2026-08-10T12:00:00Z", "random", 1.41e9, 698.0, 1.38e9, 71.0, 5.3)
    >>> described(Ceilings("NVIDIA H200", "", "", "", {}, {}), "bf16", one)
    'NVIDIA H200, bf16, sustained-ceilings: BF16 wgmma, 2026-08-10, 5.3 s, SM clock 1,410 MHz (lowest 1,380), 698 W, 71 °C, random data'
    """
    return harmless(", ".join(part for part in (found.gpu, name, one.source, one.date[:10], conditions(one)) if part), 400)


def conditions(one: MeasuredCeiling) -> str:
    """Return in words what a ceiling was measured under, as far as it is known.

    >>> conditions(MeasuredCeiling(7e14, "best-gemm", data="random", sm_clock=1.755e9, seconds=0.29, throttle=("power cap",)))
    '0.29 s, SM clock 1,755 MHz, held back by power cap, random data'
    """
    lowest = "" if one.lowest_clock is None else f" (lowest {one.lowest_clock / 1e6:,.0f})"
    parts = [
        "" if one.seconds is None else f"{one.seconds:.2g} s",
        "" if one.sm_clock is None else f"SM clock {one.sm_clock / 1e6:,.0f} MHz{lowest}",
        "" if one.power is None else f"{one.power:,.0f} W",
        "" if one.temperature is None else f"{one.temperature:.0f} °C",
        f"held back by {' and '.join(one.throttle)}" if one.throttle else "",
        f"{one.data} data" if one.data else "",
    ]
    return harmless(", ".join(part for part in parts if part), 300)
