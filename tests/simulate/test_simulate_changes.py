"""Simulated devices that change in time: what `ullage fleet` finds is what the answer key says, whatever changes beside what."""

from __future__ import annotations

import json
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

from tests.seeds import some
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.intake import opened
from ullage.reports.fleet.fleet import fleet as fleet_report
from ullage.reports.fleet.request import FleetRequest
from ullage.simulate.changes import CHANGES
from ullage.simulate.fleet import Simulation, Specification, fleet
from ullage.simulate.serve import serve
from ullage.simulate.specification import boundaries, uuid
from ullage.simulate.write import write
from ullage.sources.source import Options
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
        before = {later: earlier for earlier, later in pairwise(times)}
        start |= {uuid(specification, gpu): before for gpu in specification.gpus_of(host)}
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
    reports = {by: fleet_report(samples, None, FleetRequest(by=by)) for by in ("job", "host", "cluster")}
    whole, planted = reports["job"], key["fleet"]

    def close(found: float | None, expected: float | None, *what: object) -> None:
        assert found == pytest.approx(expected, rel=tolerance, abs=tolerance), (seed, *what)

    expected = {gpu: word for gpu, word in key["faults"].items() if word != "ok"}
    assert {finding.gpu: finding.verdict for finding in whole.doubtful_series} == expected, seed
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


@pytest.mark.parametrize("seed", some(range(20), 3))
def test_a_fleet_that_changes_in_time_has_the_figures_of_its_key(seed: int) -> None:
    compare(seed)


@pytest.mark.full
@pytest.mark.parametrize("block", range(10))
def test_three_hundred_fleets_that_change_in_time(block: int) -> None:
    for seed in range(100 + 30 * block, 130 + 30 * block):
        compare(seed)


@contextmanager
def through_files(simulation: Simulation, form: str, folder: Path) -> Iterator[Any]:
    """Write a fleet and read it again; where no file says the cluster, the user does."""
    made = write(simulation, folder, form)
    unnamed = form in ("exposition", "prometheus") and not simulation.specification.changes_any("reclustered")
    options = Options(cluster=simulation.specification.cluster if unnamed else None)
    with opened([str(made.samples)], jobs=[str(made.jobs)], options=options) as taken:
        assert taken.problems.complete
        yield with_first_spans(taken.samples.to_pyarrow(), simulation)


def compare_files(seed: int, form: str, folder: Path) -> None:
    # a reading in percent is kept in 24 bits before it is divided by 100, so that it may differ by one of 2^24
    simulation = drawn(seed)
    with through_files(simulation, form, folder) as samples:
        agree(simulation, samples, 1e-6 if simulation.specification.changes_any("percent_later") else 1e-9)


FORMS = pytest.mark.parametrize("form", ["parquet", "csv", "exposition", "prometheus"])


@FORMS
@pytest.mark.parametrize("seed", [40, *(pytest.param(seed, marks=pytest.mark.full) for seed in (41, 42))])
def test_what_is_written_and_read_again_has_the_figures_of_the_key(seed: int, form: str, tmp_path: Path) -> None:
    compare_files(seed, form, tmp_path / form)


@pytest.mark.full
@FORMS
@pytest.mark.parametrize("block", range(4))
def test_sixty_fleets_written_in_every_form_and_read_again(block: int, form: str, tmp_path: Path) -> None:
    for seed in range(500 + 15 * block, 515 + 15 * block):
        compare_files(seed, form, tmp_path / str(seed))


# --- each change by itself ---


def with_one(change: str, **more: Any) -> tuple[Simulation, Any, np.ndarray]:
    """A fleet with one change, which happens on its first host: what that host gives out, and which of its samples are after the moment."""
    simulation = fleet(Specification(gpus=16, hours=1, interval=20, seed=3, models=H100, changes=(change,), **more))
    given, (made,) = simulation.host(0), simulation.plan.changed
    assert made.change == change and {gpu // 8 for gpu in made.gpus} == {0}
    return simulation, given, given.times[1:] > made.start


def test_a_gpu_is_cut_and_put_together_again_and_its_instances_leave_a_rest() -> None:
    simulation, given, _ = with_one("mig")
    (made,) = simulation.plan.changed
    inside = (given.times[1:] > made.start) & (given.times[1:] <= made.end)
    instances = np.array([row.profile is not None for row in given.rows])
    assert instances.any() and (given.present[instances] == inside).all()
    assert np.isnan(given.values["tensor_active"][7]).tolist() == inside.tolist()
    assert not np.isnan(given.values["sm_clock"][7]).any() and np.isnan(given.values["sm_clock"][instances]).all()
    # weights of one GPU: whole, or its instances and the rest
    assert given.weight[[7, *np.flatnonzero(instances)]].sum(axis=0) == pytest.approx(np.ones(len(inside)))
    shares = sum(row.share for row in given.rows if row.profile)
    assert simulation.answers["ledger"]["not_sliced"] == pytest.approx((1 - shares) * np.diff(given.times)[inside].sum(), abs=1)


def test_a_gpu_that_exists_for_a_part_of_the_window_has_no_time_outside_it() -> None:
    simulation, given, _ = with_one("elastic")
    (made,) = simulation.plan.changed
    lived = np.diff(given.times)[(given.times[1:] > made.start) & (given.times[1:] <= made.end)].sum()
    assert simulation.answers["ledger"]["total"] == 15 * 3_600_000 + lived < 16 * 3_600_000
    assert simulation.answers["ledger"]["unknown"] == 0


def test_a_host_takes_another_name_or_cluster() -> None:
    renamed, moved = (with_one(change)[0].answers for change in ("renamed", "reclustered"))
    assert set(renamed["hosts"]) == {"node0001", "node0001-new", "node0002"} and set(renamed["clusters"]) == {"simulated"}
    assert set(moved["hosts"]) == {"simulated/node0001", "simulated-2/node0001", "node0002"}
    assert set(moved["clusters"]) == {"simulated", "simulated-2"}
    assert {f"{cluster}/100002" for cluster in moved["clusters"]} < set(moved["jobs"])
    assert sum(figures["gpu_hours"] for figures in moved["hosts"].values()) == pytest.approx(16)


def test_a_job_that_takes_gpus_over_leaves_no_pause() -> None:
    _, given, _ = with_one("handed_over")
    held = given.first[0]
    assert (held >= 0).all() and np.count_nonzero(np.diff(held)) == 1


def test_an_exporter_changes_to_percent_and_trust_says_so() -> None:
    simulation, given, after = with_one("percent_later")
    for name in ("gr_active", "tensor_active"):
        factor = np.where(after, 100, 1)
        assert given.wire[name] == pytest.approx(given.values[name] * factor)
    assert sorted(set(simulation.answers["faults"].values())) == ["ok", "wrong unit"]


@pytest.mark.parametrize("change", ["counters_appear", "counters_vanish"])
@pytest.mark.parametrize("counters", [False, True])
def test_cycle_counters_are_read_from_a_moment_on_or_up_to_one(change: str, counters: bool) -> None:
    simulation, _, after = with_one(change, counters=counters)
    table = pa.Table.from_batches(list(simulation.batches(hosts=[0])))
    read = np.array(table["tensor_cycles"].is_valid()).reshape(8, -1)
    assert (read == (after if change == "counters_appear" else ~after)).all()
    elsewhere = pa.Table.from_batches(list(simulation.batches(hosts=[1])))["tensor_cycles"]
    assert elsewhere.null_count == (0 if counters else len(elsewhere))
    # growth needs two readings
    exact = read[:, 1:] & read[:, :-1]
    assert simulation.answers["hosts"]["node0001"]["exact_share"] == pytest.approx(exact.sum() / read.size, abs=0.01)


def test_a_clock_that_follows_its_work_scatters_and_counters_stay_right() -> None:
    simulation, given, after = with_one("clock_follows", counters=True)
    clock = given.values["sm_clock"][6]
    assert clock[after].std() > 3 * clock[~after].std() and clock[after].max() == 1980e6
    figures = simulation.answers["jobs"]["100002"]  # the job that has its GPUs all the time
    # of the first sample no growth is known
    assert figures["measured_ofu"] == pytest.approx(figures["ofu"], rel=2e-3) and figures["exact_share"] > 0.99
    # the gauge is a mean over cycles, so its product with a clock sampled at a random moment scatters about the truth
    assert 0.001 < abs(figures["sampled_ofu"] / figures["ofu"] - 1) < 0.03


def test_a_page_has_no_line_of_what_is_not_read() -> None:
    simulation = fleet(Specification(gpus=8, gpus_per_host=4, hours=1, interval=20, seed=3, models=H100, changes=("all",)))
    assert len(simulation.plan.changed) == len(CHANGES)
    server = serve(simulation, 0, clock=lambda: simulation.specification.start / 1000 + 1800)
    try:
        text = server.page(None)
    finally:
        server.server_close()
    assert text and "nan" not in text and str(-(2**63)) not in text
    instances = [line for line in text.splitlines() if "GPU_I_PROFILE" in line]
    assert instances and not any(line.startswith("DCGM_FI_DEV_SM_CLOCK{") for line in instances)


def test_without_changes_the_key_has_nothing_new() -> None:
    key = fleet(Specification(gpus=8, hours=0.5)).answers
    assert not {"changed", "hosts", "clusters"} & set(key) and "measured_ofu" not in key["fleet"]


def test_a_change_that_nobody_knows_and_a_form_that_cannot_say_it_are_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UllageError, match="can't change 'mgi'"):
        fleet(Specification(gpus=16, changes=("mgi",)))
    with pytest.raises(UllageError, match="'dmon' can't say what changes"):
        write(fleet(Specification(gpus=16, hours=0.5, changes=("mig",))), tmp_path / "out", "dmon")


def test_one_host_has_no_place_for_a_change() -> None:
    assert fleet(Specification(gpus=8, hours=0.5, changes=("mig", "renamed"))).skipped == ["mig", "renamed"]  # in their fixed order


def test_the_command_changes_what_it_is_asked_to_and_its_help_lists_it(tmp_path: Path) -> None:
    shown = CliRunner().invoke(cli, ["simulate", "--help"]).output
    assert all(f" {name}" in shown for name in CHANGES)
    arguments = ["--gpus", "16", "--hours", "0.5", "--faults", "none", "--change", "mig", "--out", str(tmp_path / "out")]
    assert CliRunner().invoke(cli, ["simulate", *arguments]).exit_code == 0
    assert [made["change"] for made in json.loads((tmp_path / "out" / "answers.json").read_text())["changed"]] == ["mig"]
    assert CliRunner().invoke(cli, ["simulate", *arguments, "--changes", "none"]).exit_code != 0
