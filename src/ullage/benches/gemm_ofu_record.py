"""A run of the harness as a file: a line that says on what, then a line for each product, written as soon as it is measured."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ullage.benches.bench import Plain
from ullage.benches.gemm_ofu_plan import PlannedGemm
from ullage.errors import UllageError, harmless

FORMAT = "ullage gemm-ofu 1"
_SAME = ("gpu", "uuid_hash", "driver", "torch")  # of the machine: what a run that goes on must share with its beginning


@dataclass(frozen=True)
class Observation:
    """What was seen of one product. Everything beside `gemm` may be missing: then `problem` says why.

    `flops` were done in `seconds`; the rest is as in `gemm_ofu_watch.Seen`; `kernels` are the names of what one product launches.
    """

    gemm: PlannedGemm
    kernels: tuple[str, ...] = ()
    problem: str = ""
    flops: float | None = None
    settled: float | None = None
    seconds: float | None = None
    tensor_active: float | None = None
    sm_clock: float | None = None
    clock_samples: int = 0
    sm_cycles: tuple[float | None, float | None] = (None, None)
    tensor_cycles: tuple[float | None, float | None] = (None, None)
    power: float | None = None
    temperature: float | None = None
    throttle: tuple[str, ...] | None = None


@dataclass(frozen=True)
class GemmRecording:
    """A run: the machine, the settings (seconds, seed, largest, notes on what was left out), and what was seen."""

    machine: Mapping[str, Plain]
    settings: Mapping[str, Any]
    date: str
    observations: tuple[Observation, ...]
    place: str = ""

    @property
    def gpu(self) -> str:
        """The GPU's name."""
        return str(self.machine.get("gpu", ""))


def read(path: Path) -> GemmRecording:
    """Return what a file holds; a last line that was cut is left out. Raises UllageError for any other file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UllageError(f"{path} can't be read ({error})", "name a file that `ullage bench gemm-ofu` wrote") from error
    head = _parsed(lines[0]) if lines else None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise UllageError(f"{path} is no recording of gemm-ofu", "name a file that `ullage bench gemm-ofu` wrote")
    try:
        float(head["settings"]["seconds"]), int(head["settings"]["largest"]), head["machine"]["gpu"]
        return GemmRecording(head["machine"], head["settings"], head["date"], tuple(_observations(lines[1:])), str(path))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UllageError(f"{path} is a damaged recording of gemm-ofu ({harmless(str(error), 80)})", "measure again") from error


def _observations(lines: list[str]) -> Iterator[Observation]:
    for number, line in enumerate(lines):
        found = _parsed(line)
        if found is None and number == len(lines) - 1:
            return
        yield restored(found)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def restored(found: Any) -> Observation:
    """Return the observation that a line holds."""
    lists = {name: tuple(found[name]) for name in ("kernels", "sm_cycles", "tensor_cycles")}
    throttle = None if found["throttle"] is None else tuple(found["throttle"])
    return Observation(**{**found, **lists, "throttle": throttle, "gemm": PlannedGemm(**found["gemm"])})


class Book:
    """A recording that grows: what it holds already is `done`; `add` appends a line and sees that it reaches the disk.

    Raises UllageError for a file that holds a run on another machine or with other settings.
    """

    def __init__(self, path: Path, machine: Mapping[str, Plain], settings: Mapping[str, Any], date: str) -> None:
        self.path = path
        self.done: set[PlannedGemm] = set()
        if path.exists() and path.stat().st_size:
            self._go_on(read(path), machine, settings)
        else:
            _append(path, {"format": FORMAT, "date": date, "machine": dict(machine), "settings": dict(settings)})

    def _go_on(self, before: GemmRecording, machine: Mapping[str, Plain], settings: Mapping[str, Any]) -> None:
        for name, now, then in [
            *((key, machine.get(key), before.machine.get(key)) for key in _SAME),
            *((key, settings.get(key), before.settings.get(key)) for key in ("seconds", "seed", "largest")),
        ]:
            if now != then:
                raise UllageError(f"{self.path} was begun with {name} {then}, now it is {now}", "name another file with --record")
        self.done = {one.gemm for one in before.observations}
        _repair(self.path)

    def add(self, observation: Observation) -> None:
        """Append what was seen of one product."""
        _append(self.path, asdict(observation))
        self.done.add(observation.gemm)


def _append(path: Path, data: Mapping[str, Any]) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n")
    except OSError as error:
        raise UllageError(f"{path} can't be written ({error})", "name another file with --record") from error


def _repair(path: Path) -> None:
    """Cut off a last line that was not written whole."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole != len(content):
        os.truncate(path, whole)
