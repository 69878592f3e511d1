"""Any input, told by its content, and the question that answers about it: what `ullage open` and `ullage.open` ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from ullage.cupti.pc_sampling.samples import holds_samples
from ullage.errors import UllageError, harmless
from ullage.intake import at_rest
from ullage.kernels.sass.binary import is_binary
from ullage.reports.waterfall.inputs import SURE, certainty, sorted_by_kind
from ullage.sources.source import is_url_or_live_source
from ullage.trainlogs.log import is_log
from ullage.written_values import expanded_path

WHAT = {
    "telemetry": "telemetry",
    "trace": "a trace",
    "config": "a model's configuration",
    "gemms": "a list of matrix products",
    "binary": "machine code of a GPU",
    "samples": "sampled program counters",
    "log": "a trainer's log",
}
_ASKED_OF = {
    "telemetry": "fleet",
    "trace": "trace",
    "config": "flops",
    "gemms": "waterfall",
    "log": "waterfall",
    "binary": "sass",
    "samples": "cupti stalls",
}
_PARTS_OF_A_JOB = {"telemetry", "trace", "config", "gemms", "log"}  # what a waterfall puts together


@dataclass(frozen=True)
class Opening:
    """What some places hold, by kind, and the command that answers about them."""

    kinds: tuple[str, ...]
    command: str

    @property
    def words(self) -> str:
        """What the places hold, in words.

        >>> Opening(("config", "telemetry"), "waterfall").words
        "a model's configuration, telemetry"
        """
        return ", ".join(WHAT[kind] for kind in self.kinds)


def opening_of(places: Sequence[str]) -> Opening:
    """Return what some places hold, and the command for it; parts of one job are a waterfall.

    Raises UllageError for a place that is not there, that nobody recognises, and for kinds that no single report is of.
    """
    if not places:
        raise UllageError("nothing is named to open", "name a URL, a file or a folder first, and options after it")
    kinds = {found for place in places for found in _kinds(place)}
    if len(kinds) > 1 and not kinds <= _PARTS_OF_A_JOB:
        raise UllageError(f"no report is of {' and '.join(WHAT[one] for one in sorted(kinds))} together", "open them one by one")
    ordered = tuple(sorted(kinds, key=list(WHAT).index))
    return Opening(ordered, "waterfall" if len(kinds) > 1 else _ASKED_OF[ordered[0]])


def _kinds(place: str) -> set[str]:
    """Return what a place holds: one kind, or the several of a folder with a model's configuration and what was recorded of it."""
    if is_url_or_live_source(place) or at_rest(place):
        return {"telemetry"}
    path = expanded_path(place)
    files = [path] if path.is_file() else sorted(islice((one for one in path.iterdir() if one.is_file()), 50)) if path.is_dir() else []
    found = [one for file in files[:50] if (one := _of_file(file))]
    if found and len(found) == len(files):
        return set(found)
    return set(sorted_by_kind([place]))


def _of_file(path: Path) -> str | None:
    """Return what a file holds that is no part of a job's waterfall; None for all others."""
    return next((name for name, holds in _HOLDS.items() if holds(path)), None)


def _is_samples(path: Path) -> bool:
    return path.suffix.lower() == ".parquet" and holds_samples(path)


def _is_log(path: Path) -> bool:
    return certainty(path) < SURE and is_log(path)


_HOLDS: dict[str, Callable[[Path], bool]] = {"binary": is_binary, "samples": _is_samples, "log": _is_log}


def open_any(*places: str | Path, **given: Any) -> Any:
    """Return the answer to the question that some places are for: `ullage.fleet`, `trace`, `flops`, `waterfall` or `sass` of them.

    `given` are that function's own arguments. Raises UllageError as `opening_of` and that function do.
    """
    functions = import_module("ullage")
    named = [str(place) for place in places]
    opened = opening_of(named)
    if opened.command not in functions.__all__:
        raise UllageError(f"{harmless(named[0])} is {opened.words}, which Python has no function for", f"`ullage {opened.command}` answers")
    return getattr(functions, opened.command)(*named, **given)
