"""What a place holds that somebody names for a waterfall: telemetry, a trace, a model's configuration, matrix products, a trainer's log.

Told by content, never by a name: whoever recognises it most surely has it, telemetry before a trace where both may.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from ullage.compressed import head
from ullage.errors import UllageError, harmless
from ullage.intake import at_rest
from ullage.sources.source import SOURCES, Place, is_url_or_live_source
from ullage.traces.trace import TRACES, File
from ullage.trainlogs.log import is_log
from ullage.written_values import expanded_path

Kind = Literal["telemetry", "trace", "config", "gemms", "log"]

LOOKED_AT = 50  # files of a folder
SURE = 2  # what a reader answers who takes a file for its own by more than its form
CONFIGS = ("config.json", "model_index.json")
SMALL = 32 << 20  # bytes of a JSON file that may be a configuration or a list of products
_TAKES = (
    "it takes telemetry (as `ullage fleet`), traces (as `ullage trace`), a model's config.json, lists of matrix products, "
    "and trainers' logs"
)
NAMES = ("architectures", "model_type", "_class_name")  # how a configuration names its model


def sorted_by_kind(places: Iterable[str]) -> dict[Kind, list[str]]:
    """Return places by what they hold. Raises UllageError for one that is not there or that nothing recognises."""
    found: dict[Kind, list[str]] = {}
    for place in (part for named in places for part in _parts(named)):
        found.setdefault(kind(place), []).append(place)
    return found


def _parts(place: str) -> list[str]:
    """Return what a folder holds beside a model's configuration, where that is surely of a job, too; every other place as it is."""
    folder = expanded_path(place)
    if "://" in place or not has_config(folder):
        return [place]
    beside = (path for path in sorted(folder.iterdir()) if not path.name.startswith(".") and path.name not in CONFIGS)
    return [place, *(str(path) for path in islice(beside, LOOKED_AT) if _surely(path))]


def has_config(folder: Path) -> bool:
    """Return whether a folder holds a model's configuration."""
    return any((folder / name).is_file() for name in CONFIGS)


def _surely(path: Path) -> bool:
    """Return whether a place is telemetry, traces, matrix products or a trainer's log, and not only might be."""
    if path.is_dir():
        return not has_config(path) and max((max(_scores(file)) for file in islice(_files(path), LOOKED_AT)), default=0) >= SURE
    return path.is_file() and (max(_scores(path)) >= SURE or _listed(path) == "gemms" or is_log(path))


def kind(place: str) -> Kind:
    """Return what a place holds."""
    if is_url_or_live_source(place) or at_rest(place):
        return "telemetry"
    path = expanded_path(place)
    if path.is_dir():
        return _of_folder(path)
    if path.exists():
        return _of_file(path)
    if any(sign in place for sign in "*?["):
        return "trace"
    raise UllageError(
        f"there is no file or folder '{harmless(place)}'", "name telemetry, a trace, a config.json or a list of matrix products"
    )


def _of_folder(folder: Path) -> Kind:
    if has_config(folder):
        return "config"
    if any(s.folder and s.recognise(Place(str(folder), folder)) for s in SOURCES.values()):
        return "telemetry"
    scores = [_scores(path) for path in islice(_files(folder), LOOKED_AT)]
    if max((max(score) for score in scores), default=0) < SURE and is_log(folder):
        return "log"
    telemetry, trace = (max((score[n] for score in scores), default=0) for n in (0, 1))
    if not telemetry and not trace:
        raise UllageError(f"no reader recognises what the folder {harmless(str(folder))} holds", _TAKES)
    return "trace" if trace > telemetry else "telemetry"


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, one folder after another: whoever wants the first few waits for no more of them."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found = (Path(place, name) for name in sorted(names) if not name.startswith("."))
        yield from (path for path in found if path.is_file())


def _of_file(path: Path) -> Kind:
    telemetry, trace = _scores(path)
    if max(telemetry, trace) < SURE and (found := _listed(path) or ("log" if is_log(path) else None)) is not None:
        return found
    if not telemetry and not trace:
        raise UllageError(f"no reader recognises what {harmless(str(path))} holds", _TAKES)
    return "trace" if trace > telemetry else "telemetry"


def _scores(path: Path) -> tuple[int, int]:
    """Return how surely a file is telemetry, and how surely a trace."""
    start = head(path)
    place, file = Place(str(path), path, start), File(path, start)
    return max(s.recognise(place) for s in SOURCES.values() if not s.folder), max(t.recognise(file) for t in TRACES.values())


def certainty(path: Path) -> int:
    """Return how surely a file is telemetry or a trace: `SURE`, less, or 0."""
    return max(_scores(path))


def _listed(path: Path) -> Kind | None:
    """Return "config" for a model's configuration and "gemms" for a list of matrix products, by their fields; None for other files."""
    if path.stat().st_size > SMALL:
        return None
    try:
        found = _decoded(path)
    except ValueError:
        return None
    if isinstance(found, dict) and any(found.get(name) for name in NAMES):
        return "config"
    rows = found.get("gemms", [found]) if isinstance(found, dict) else found
    first = rows[0] if isinstance(rows, list) and rows else None
    return "gemms" if isinstance(first, dict) and ({"m", "n", "k"} <= first.keys() or "theoretical_flops" in first) else None


def _decoded(path: Path) -> Any:
    import json

    with path.open("rb") as file:
        return json.loads(file.read())
