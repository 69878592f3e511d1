"""Scenarios as xplane files, as XLA's profiler writes them: the same planes and lines as `jax` writes, as protobuf and complete."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ullage.protobuf import message, number, string
from ullage.simulate.traces.jax import planes
from ullage.simulate.traces.scenario import Scenario

START = 5_000  # ns from the profile's begin to a line's


def write(scenario: Scenario, folder: Path) -> list[Path]:
    """Write one file a process into a folder, in the order of the ranks, and return where they are; records what `jax.write` does."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for process in sorted(scenario.ranks, key=scenario.ranks.__getitem__):
        path = folder / f"{scenario.host}-{scenario.ranks[process]}.xplane.pb"
        began = {"profile_start_time": scenario.epoch}
        parts = [_plane(at, name, lines, {}) for at, (name, lines) in enumerate(planes(scenario, process))]
        path.write_bytes(b"".join((_plane(98, "/host:metadata", {}, {}), *parts, _plane(99, "Task Environment", {}, began))))
        paths.append(path)
    return paths


def _plane(at: int, name: str, lines: dict[str, list[dict[str, Any]]], told: dict[str, int]) -> bytes:
    events = _numbered(event["name"] for line in lines.values() for event in line)
    stats = _numbered([*told, *(key for line in lines.values() for event in line for key in event.get("args", {}))])
    return message(
        1,
        number(1, at),
        string(2, name),
        *(_line(line, found, events, stats) for line, found in lines.items()),
        *(message(4, number(1, key), message(2, number(1, key), string(2, word))) for word, key in events.items()),
        *(message(5, number(1, key), message(2, number(1, key), string(2, word))) for word, key in stats.items()),
        *(message(6, number(1, stats[word]), number(3, value)) for word, value in told.items()),
    )


def _numbered(words: Iterable[str]) -> dict[str, int]:
    return {word: at for at, word in enumerate(dict.fromkeys(words), 1)}


def _line(name: str, found: list[dict[str, Any]], events: dict[str, int], stats: dict[str, int]) -> bytes:
    parts = [
        message(
            4,
            number(1, events[event["name"]]),
            number(2, (round(event["ts"] * 1000) - START) * 1000),
            number(3, round(event["dur"] * 1000) * 1000),
            *(message(4, number(1, stats[key]), _value(value)) for key, value in event.get("args", {}).items()),
        )
        for event in found
    ]
    return message(3, string(2, name), number(3, START), *parts)


def _value(value: str) -> bytes:
    return number(4, int(value)) if value.isdecimal() else string(5, value)
