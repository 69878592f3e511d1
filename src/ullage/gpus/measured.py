"""What a GPU was measured to do: ceilings beside the stated peaks, a file a device, found by its UUID or by its model.

Files lie in the folder that ULLAGE_CEILINGS names, or else in `ullage/ceilings` of the user's configuration folder
(XDG_CONFIG_HOME, `~/.config`). `ullage bench --save` writes them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

from ullage.errors import UllageError, harmless
from ullage.gpus.chip import find
from ullage.gpus.names import fold
from ullage.gpus.precision import canonical

FOLDER: Final = "ULLAGE_CEILINGS"
FORMAT: Final = 1


@dataclass(frozen=True)
class Ceiling:
    """One measured ceiling in FLOP/s or B/s, and under what: by which bench (`source`), when, SM clock (Hz), power (W), data."""

    value: float
    source: str
    date: str = ""
    data: str = ""
    sm_clock: float | None = None
    power: float | None = None


@dataclass(frozen=True)
class Ceilings:
    """A device's measured ceilings: `flops` by precision, `bandwidth` by level ("global memory", "L2 cache").

    `date` is of the newest (UTC, ISO), `driver` the one that it was measured with.
    """

    gpu: str
    uuid_hash: str
    date: str
    driver: str
    flops: Mapping[str, Ceiling]
    bandwidth: Mapping[str, Ceiling]

    def peak(self, precision: str) -> Ceiling | None:
        """Return the ceiling of a precision, None where it was not measured.

        >>> Ceilings("H200", "", "", "", {"bf16": Ceiling(7e14, "best_gemm")}, {}).peak("bfloat16").value
        700000000000000.0
        """
        return self.flops.get(canonical(precision))


def folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return where ceilings are kept.

    >>> folder({"ULLAGE_CEILINGS": "/data/ceilings"}).as_posix()
    '/data/ceilings'
    """
    environment = os.environ if environment is None else environment
    if environment.get(FOLDER):
        return Path(environment[FOLDER]).expanduser()
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
        found = replace(found, flops={**before.flops, **found.flops}, bandwidth={**before.bandwidth, **found.bandwidth})
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
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            raise ValueError(f"it is not of format {FORMAT}")
        words = {name: str(found[name]) for name in ("gpu", "uuid_hash", "date", "driver")}
        return Ceilings(**words, flops=_each(found["flops"]), bandwidth=_each(found["bandwidth"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = f"{harmless(str(path), 200)} holds no measured ceilings ({harmless(str(error), 100)})"
        raise UllageError(problem, "write it with `ullage bench --save`") from error


def _each(found: Mapping[str, Any]) -> dict[str, Ceiling]:
    ceilings = {name: Ceiling(**one) for name, one in found.items()}
    for one in ceilings.values():
        numbers = [n for n in (one.value, one.sm_clock, one.power) if n is not None]
        if not all(isinstance(n, int | float) and 0 < n < 1e20 for n in numbers):
            raise ValueError("a ceiling, its clock or its power is no number above 0")
        if not all(isinstance(word, str) for word in (one.source, one.date, one.data)):
            raise ValueError("a ceiling does not say where it is from")
    return ceilings


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


def measured_ceiling(gpu: str, precision: str, place: Path | None = None) -> tuple[float, str]:
    """Return the measured ceiling of a model of GPU at a precision (FLOP/s), and where it is from, in words.

    Raises UllageError where nothing was measured of such a GPU, or not at this precision.
    """
    found = ceilings_of(gpu, place=place)
    hint = "measure it on such a GPU: `ullage bench wgmma best-gemm --save`"
    if found is None:
        raise UllageError(f"nobody measured the ceilings of a '{harmless(gpu, 80)}'", hint)
    one = found.peak(precision)
    if one is None:
        raise UllageError(f"nobody measured the ceiling of a '{found.gpu}' at {precision}", f"{hint}; it has {', '.join(found.flops)}")
    return one.value, described(found, precision, one)


def described(found: Ceilings, name: str, one: Ceiling) -> str:
    """Return in words where a ceiling is from.

    >>> one = Ceiling(7e14, "best-gemm: 8192 8192 8192 bf16", "2026-08-10T12:00:00Z", "random", 1.755e9)
    >>> described(Ceilings("NVIDIA H200", "", "", "", {}, {}), "bf16", one)
    'NVIDIA H200, bf16, best-gemm: 8192 8192 8192 bf16, 2026-08-10, SM clock 1,755 MHz'
    """
    clock = "" if one.sm_clock is None else f"SM clock {one.sm_clock / 1e6:,.0f} MHz"
    return harmless(", ".join(part for part in (found.gpu, name, one.source, one.date[:10], clock) if part), 300)
