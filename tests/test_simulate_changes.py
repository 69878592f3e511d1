"""Simulated devices that change in time: what `ullage fleet` finds is what the answer key says, whatever changes beside what."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from ullage.cli.simulate import command
from ullage.errors import UllageError
from ullage.intake import opened
from ullage.reports.fleet import Question
from ullage.reports.fleet import fleet as fleet_report
from ullage.simulate.changes import CHANGES
from ullage.simulate.fleet import Simulation, Specification, fleet
from ullage.simulate.specification import boundaries, uuid
from ullage.simulate.write import write
from ullage.sums.windows import settle

H100 = (("NVIDIA H100 80GB HBM3", 1.0),)
LIMIT_MS = 60_000  # what a sample may stand for, at the intervals drawn here
FAULTS = ((), (), ("shared",), ("held_idle", "straggler"), ("silent",), ("free", "reset"))


def drawn(seed: int, without: frozenset[str] = frozenset()) -> Simulation:
    """A random small fleet in which about half of all changes happen."""
    draw = random.Random(seed)
    changes = tuple(name for name in CHANGES if draw.random() < 0.55 and name not in without)
    per_host = draw.choice((4, 5, 8))
    return fleet(
        Specification(
            gpus=per_host * draw.randint(3, 4),
            gpus_per_host=per_host,
            hours=draw.choice((0.7, 1.0, 1.3)),
            interval=draw.choice((10.0, 15.0, 20.0)),
            seed=seed,
            changes=changes or ("mig",),
            faults=draw.choice(FAULTS),
            counters=draw.random() < 0.4,
            summed=draw.random() < 0.2,
        )
    )


def settled(simulation: Simulation) -> pa.Table:
    """What a perfect reader gives, at rest."""
    return settle(pa.Table.from_batches(list(simulation.batches())).unify_dictionaries())


def with_first_spans(table: pa.Table, simulation: Simulation) -> Any:
    """Samples at rest as an Ibis table, in which the first sample of each device stands for the time since its host was scraped before.

    Ours guesses that by the median interval of the device; the key knows it.
    """
    import ibis

    specification, start = simulation.specification, {}
    for host in range(specification.hosts):
        times = boundaries(specification, host, simulation.interval_ms(host)).tolist()
        before = dict(pairwise(times)) | {}
        start |= {uuid(specification, gpu): {later: earlier for earlier, later in before.items()} for gpu in specification.gpus_of(host)}
    gpus, migs = table["gpu"].to_pylist(), table["mig"].to_pylist()
    times = table["time"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
    span = table["span_ms"].to_numpy().copy()
    for row, device in enumerate(zip(gpus, migs, strict=True)):
        if row == 0 or device != (gpus[row - 1], migs[row - 1]):
            span[row] = min(times[row] - start[gpus[row]][times[row]], LIMIT_MS)
    place = table.schema.get_field_index("span_ms")
    return ibis.memtable(table.set_column(place, table.schema.field(place), pa.array(span, pa.int32())))


def agree(simulation: Simulation, samples: Any, tolerance: float) -> None:
    """Compare the report over samples with the answer key."""
    key, seed = simulation.answers, simulation.specification.seed
    reports = {by: fleet_report(samples, None, Question(by=by)) for by in ("job", "host", "cluster")}
    whole, planted = reports["job"], key["fleet"]

    def close(found: float | None, expected: float | None, *what: object) -> None:
        assert found == pytest.approx(expected, rel=tolerance, abs=tolerance), (seed, *what)

    expected = {gpu: word for gpu, word in key["faults"].items() if word != "ok"}
    assert {finding.gpu: finding.verdict for finding in whole.findings} == expected, seed
    close(whole.ofu, planted["measured_ofu"], "ofu")
    close(whole.exact_share, planted["exact_share"], "exact share")
    close(whole.gpu_hours, planted["gpu_hours"], "GPU-hours")
    hours = {owner: time / 3_600_000 for owner, time in key["ledger"].items()}
    # the key holds whole GPU-milliseconds of each owner
    assert whole.ledger == pytest.approx(hours, rel=tolerance, abs=1e-6), seed
    # a step that no time falls into is none of the report's, and loses nothing in the key
    factors = dict.fromkeys(planted["measured_chain"], 1.0) | {factor.name: factor.value for factor in whole.tree.factors}
    assert factors == pytest.approx(planted["measured_chain"], rel=tolerance, abs=tolerance), seed
    for by, section in (("job", "jobs"), ("host", "hosts"), ("cluster", "clusters")):
        groups = {group.key: group for group in reports[by].groups}
        alone = {name for name in groups if name != f"no {by}" and "," not in name}
        assert alone == set(key[section]), (seed, by)
        for name, figures in key[section].items():
            close(groups[name].ofu, figures["measured_ofu"], by, name, "ofu")
            close(groups[name].exact_share, figures["exact_share"], by, name, "exact share")
            close(groups[name].gpu_hours, figures["gpu_hours"], by, name, "GPU-hours")


def compare(seed: int) -> None:
    simulation = drawn(seed)
    agree(simulation, with_first_spans(settled(simulation), simulation), 1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_a_fleet_that_changes_in_time_has_the_figures_of_its_key(seed: int) -> None:
    compare(seed)


@pytest.mark.full
@pytest.mark.parametrize("block", range(10))
def test_three_hundred_fleets_that_change_in_time(block: int) -> None:
    for seed in range(100 + 30 * block, 130 + 30 * block):
        compare(seed)


@contextmanager
def through_files(simulation: Simulation, form: str, folder: Path) -> Iterator[Any]:
    made = write(simulation, folder, form)
    with opened([str(made.samples)], jobs=[str(made.jobs)]) as taken:
        yield with_first_spans(taken.samples.to_pyarrow(), simulation)


@pytest.mark.parametrize("form", ["parquet", "csv", "exposition", "prometheus"])
@pytest.mark.parametrize("seed", range(40, 43))
def test_what_is_written_and_read_again_has_the_figures_of_the_key(seed: int, form: str, tmp_path: Path) -> None:
    # no file of an exporter, and no page, names its cluster; a reading in percent is kept in 24 bits before it is divided by 100
    simulation = drawn(seed, without=frozenset({"reclustered"}) if form == "exposition" else frozenset())
    with through_files(simulation, form, tmp_path / form) as samples:
        agree(simulation, samples, 1e-6)
