"""Fleets whose devices change in time, kept by a real Prometheus and a real VictoriaMetrics: our answers against the reference.

One server holds many fleets, each in hours of its own, and is asked for one at a time by `since` and `until`. Numbers are written with
`repr`, and both servers give back what a gauge at rest keeps (24 bits) and whole counters, so answers agree to rounding: 1e-9.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fleet_generator import EXPOSED, exposition_labels
from tests.fleet.servers import prometheus, victoria_metrics
from tests.fleet.test_fleet_property import agree, as_reference, fleet_of, mirror, turned
from tests.seeds import some
from ullage.intake import opened
from ullage.sources.prometheus_routes import Route, grid, instant
from ullage.sources.source import Options

APART = 6 * 3600  # s between two fleets: their hours, turned round, are within three, and blocks of Prometheus are of two
Start = Callable[..., AbstractContextManager[str]]
SERVERS = pytest.mark.parametrize("start", [prometheus, victoria_metrics])


def at_own_hours(fleet: dict[str, Any], number: int) -> dict[str, Any]:
    """The fleet so many times `APART` earlier. No server takes readings from the future."""
    shift = -number * APART
    samples = [row | {"time": row["time"] + shift} for row in fleet["samples"]]
    return fleet | {"window": tuple(time + shift for time in fleet["window"]), "samples": samples}


def text_of(fleet: dict[str, Any], stamp: Callable[[int], str]) -> str:
    """All that the fleet's exporters said, metric by metric, with the labels that a server adds to what it scrapes."""
    rows = turned(fleet)
    lines = []
    for field, metric, _, factor, _, _ in EXPOSED:
        lines.append(f"# TYPE {metric} gauge\n")
        for row in rows:
            if row[field] is not None:
                labels = f'cluster="{row["cluster"]}",instance="{row["host"]}:9400",job="dcgm",{exposition_labels(row, "hpc_job")}'
                number = row[field] if isinstance(row[field], int) else row[field] * factor
                lines.append(f"{metric}{{{labels}}} {number!r} {stamp(row['time'])}\n")
    return "".join(lines)


def stamps_of(start: Start) -> Callable[[int], str]:
    """How a server's import writes a time: OpenMetrics in seconds, the exposition format in milliseconds."""
    return str if start is prometheus else lambda seconds: str(seconds * 1000)


def compare(start: Start, folder: Path, seeds: range) -> None:
    """Put the fleets of these seeds into one server, and ask it for each."""
    drawn = [(seed, at_own_hours(fleet_of(seed), number)) for number, seed in enumerate(seeds)]
    fleets = [(seed, fleet) for seed, fleet in drawn if fleet["samples"]]
    with start(folder, history=[text_of(fleet, stamps_of(start)) for _, fleet in fleets]) as url:
        for seed, fleet in fleets:
            # at the left end of a window nothing is read: a fleet's last moment, which becomes its first, has no sample
            since, until = ((2 * mirror(fleet) - moment) * 1000 for moment in reversed(fleet["window"]))
            with opened([url], options=Options(since=since, until=until), gap_ms=fleet["gap"] * 1000) as taken:
                samples = as_reference(fleet, taken.samples.to_pyarrow())
                assert taken.problems.complete, seed
            agree(seed, fleet, samples)


@pytest.mark.parametrize("seeds", some([range(500, 503), range(503, 508)], 1))
@SERVERS
def test_a_server_gives_what_a_walk_second_by_second_finds(start: Start, seeds: range, tmp_path: Path) -> None:
    compare(start, tmp_path, seeds)


@pytest.mark.parametrize("seeds", some([range(500, 502), range(502, 506)], 1))
@pytest.mark.parametrize(("start", "route"), [(victoria_metrics, instant), (victoria_metrics, grid(1000)), (prometheus, grid(1000))])
def test_every_other_route_to_a_server_gives_the_same(
    start: Start, route: Route, seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ullage.sources.prometheus._best", lambda *_: route)
    compare(start, tmp_path, seeds)


@pytest.mark.full
@pytest.mark.parametrize("block", range(8))
@SERVERS
def test_three_hundred_fleets_in_servers(start: Start, block: int, tmp_path: Path) -> None:
    compare(start, tmp_path, range(5000 + 40 * block, 5040 + 40 * block))
