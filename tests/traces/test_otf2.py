"""OTF2 archives: scenarios written through the format's own library come back with the sums that brute force gives."""

import shutil
import sys
from dataclasses import replace

import pytest

import ullage
from tests.seeds import some
from tests.traces import format_brute_force
from tests.traces.test_trace_files import given
from tests.traces.test_trace_sources_agree import several
from tests.traces.trace_brute_force import summed
from ullage.errors import UllageError
from ullage.simulate.traces.answers import answer
from ullage.simulate.traces.pils import USE_CASES, pils
from ullage.simulate.traces.scenario import Scenario, ScenarioEvent
from ullage.simulate.traces.training import TrainingPlan, training
from ullage.traces.trace import TRACES, recognised

pytest.importorskip("otf2", reason="the format's library (pip install 'ullage[otf2]')")
from ullage.simulate.traces import otf2

LOST = ("step", "overhead", "graph", "lost", "parallel", "off")


def recorded(scenario: Scenario) -> Scenario:
    """What an archive holds of a scenario: no steps, and not how much a memset sets."""
    kept = (replace(e, bytes=None) if e.kind == "memset" else e for e in scenario.events if e.kind not in LOST)
    return replace(scenario, events=tuple(kept))


RUNS = {
    **{f"training {seed}": recorded(training(TrainingPlan(ranks=2, seed=seed, host_bound=seed % 2 == 1))) for seed in range(6)},
    **{f"use case {number}": recorded(pils(case.load)) for number, case in USE_CASES.items()},
    "two devices a process": recorded(several({11: (0, 1), 12: (2, 3)})),
}
OTHER_CLOCKS = [(name, resolution) for name in RUNS for resolution in (10**6, 2_400_000_000)]
CLOCKED = [*((name, 10**9) for name in RUNS), *some(OTHER_CLOCKS, 6)]


def anchor(scenario, folder, **how):
    [path] = otf2.write(scenario, folder / "archive", **how)
    return path


@pytest.mark.parametrize("drawn", CLOCKED, ids=str)
def test_an_archive_gives_the_sums_that_brute_force_gives(tmp_path, drawn):
    name, resolution = drawn
    path = anchor(RUNS[name], tmp_path, resolution=resolution)
    report, expected = ullage.read_trace(str(path)).report("ai"), summed(format_brute_force.otf2(path))
    assert given(report.whole) == expected.whole
    assert sum(p.device.launches for p in report.whole.device_parts) == expected.kernels
    assert {found.name: given(found) for found in report.regions} == expected.regions


@pytest.mark.parametrize("name", RUNS)
def test_an_archive_gives_the_answers_of_its_scenario(tmp_path, name):
    whole, true = ullage.read_trace(str(anchor(RUNS[name], tmp_path))).report("ai").whole, answer(RUNS[name])
    # what the transfer of collectives takes follows from several ranks, which the answer looks at one by one
    assert replace(whole.device_totals, max_kernel_transfer_time=None) == true.device and whole.host_totals == true.host


def test_mpi_init_and_finalize_are_the_edges_of_the_run(tmp_path):
    events = (
        ScenarioEvent(0, 100, "mpi", "MPI_Init", 1, thread=1),
        ScenarioEvent(300, 400, "mpi", "MPI_Barrier", 1, thread=1),
        ScenarioEvent(500, 700, "mpi", "MPI_Finalize", 1, thread=1),
    )
    whole = ullage.read_trace(str(anchor(Scenario("edges", events, {1: 0}), tmp_path))).report("talp").whole
    # from 100 to 500: 100 in the barrier
    assert (whole.elapsed, whole.host_totals.useful_time) == (400, 300)


def test_ranks_and_hosts_are_named(tmp_path):
    run = ullage.read_trace(str(anchor(RUNS["training 0"], tmp_path))).profile.run
    assert [process.rank for process in run.processes] == [0, 1]


def test_the_anchor_is_known_by_its_own_reader_alone_and_a_folder_will_do(tmp_path):
    path = anchor(RUNS["training 0"], tmp_path)
    file = recognised(path)[1]
    assert [name for name, trace in TRACES.items() if trace.recognise(file)] == ["otf2"]
    folder, alone = (ullage.read_trace(str(place)).report("ai") for place in (path.parent, path))
    assert folder.whole.device_totals == alone.whole.device_totals and not folder.partial


def test_without_its_events_an_archive_is_refused_in_words(tmp_path):
    path = anchor(RUNS["training 0"], tmp_path)
    shutil.rmtree(path.parent / "traces")
    with pytest.raises(UllageError):
        ullage.read_trace(str(path)).report("ai")


def test_without_the_library_it_is_said_what_to_install(tmp_path, monkeypatch):
    path = anchor(RUNS["training 0"], tmp_path)
    monkeypatch.setitem(sys.modules, "otf2", None)
    with pytest.raises(UllageError, match="needs the library 'otf2'"):
        ullage.read_trace(str(path)).report("ai")
