"""JAX profiles: scenarios written as XLA's profiler writes them come back with the sums that brute force gives; real files are told."""

import gzip
import json

import pytest

import ullage
from tests.traces import format_brute_force
from tests.traces.test_trace_files import given
from tests.traces.test_trace_sources_agree import several
from tests.traces.trace_brute_force import summed
from ullage.errors import UllageError
from ullage.simulate.traces import jax, kineto, xplane
from ullage.simulate.traces.answers import answer
from ullage.simulate.traces.pils import USE_CASES, pils
from ullage.simulate.traces.training import TrainingPlan, training
from ullage.traces.trace import TRACES, recognised

RUNS = {
    **{f"training {seed}": training(TrainingPlan(ranks=1, seed=seed, host_bound=seed % 2 == 1)) for seed in range(8)},
    "two devices a process": several({11: (0, 1)}),
    "graphs of kernels": training(TrainingPlan(ranks=1, graph="kernels")),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("packed", [True, False])
def test_a_profile_gives_the_sums_that_brute_force_gives(tmp_path, name, packed):
    [path] = jax.write(RUNS[name], tmp_path, gzip=packed)
    report, expected = ullage.read_trace(str(path)).report("ai"), summed(format_brute_force.jax(path))
    assert given(report.whole) == expected.whole
    assert sum(p.device.launches for p in report.whole.device_parts) == expected.kernels
    assert [found.name for found in report.steps] == [step for step, _ in expected.steps]
    for found, (_, part) in zip(report.steps, expected.steps, strict=True):
        assert found.elapsed == part.elapsed


@pytest.mark.parametrize("name", RUNS)
def test_a_profile_gives_the_answers_of_its_scenario(tmp_path, name):
    [path] = jax.write(RUNS[name], tmp_path)
    whole, true = ullage.read_trace(str(path)).report("ai").whole, answer(RUNS[name])
    assert whole.device_totals == true.device and whole.host_totals == true.host


def test_ranks_are_told_by_the_user(tmp_path):
    paths = jax.write(training(TrainingPlan(ranks=2)), tmp_path)
    run = ullage.read_trace([str(path) for path in paths], ranks={path.name: rank for rank, path in enumerate(paths)})
    assert run.report("ai").whole.device_totals.devices == 2


def test_what_is_made_from_the_streams_is_not_counted_again(tmp_path):
    [path] = jax.write(RUNS["training 0"], tmp_path)
    assert b"XLA Ops" in gzip.decompress(path.read_bytes())
    kernels = ullage.read_trace(str(path)).report("ai").kernels
    assert all(row.name != "fusion.1" for row in kernels.kernels)


def tpu(*events):
    """A TPU's profile: a module around two operations on `XLA Ops`, µs."""
    named = [("process_name", None, "/device:TPU:0"), ("thread_name", 1, "XLA Modules"), ("thread_name", 2, "XLA Ops")]
    metadata = [{"ph": "M", "pid": 3, "tid": tid, "name": what, "args": {"name": name}} for what, tid, name in named]
    rows = [{"ph": "X", "pid": 3, "tid": tid, "ts": ts, "dur": dur, "name": name} for tid, ts, dur, name in events]
    return json.dumps({"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": [*metadata, *rows]})


def test_a_tpu_has_operations_for_kernels_and_no_host(tmp_path):
    path = tmp_path / "host.trace.json"
    path.write_text(tpu((1, 0, 100, "jit_step"), (2, 10, 30, "fusion.1"), (2, 50, 40, "all-reduce.2")))
    tree = ullage.read_trace(str(path)).tree("ai")
    part = tree.report.whole.device_parts[0]
    # from 10 to 90 µs: 30 computing, 40 in the collective
    assert (tree.report.whole.elapsed, part.kernel, part.collective) == (80_000, 30_000, 40_000)
    assert tree.host is None


def test_a_profile_of_the_cpu_is_told_for_what_it_is(shared_data):
    with pytest.raises(UllageError, match="JAX profile without a GPU or TPU"):
        ullage.read_trace(str(shared_data / "jax" / "cpu.trace.json.gz"))


def test_pytorchs_profiles_are_not_taken_for_jaxs(tmp_path):
    for path in kineto.write(pils(USE_CASES["1"].load), tmp_path):
        assert recognised(path)[0].name == "kineto"
    [path] = jax.write(RUNS["training 0"], tmp_path)
    assert recognised(path)[0].name == "jax"
    assert {name for name, trace in TRACES.items() if trace.recognise(recognised(path)[1]) > 1} == {"jax"}


def test_a_profile_that_ends_early_gives_what_comes_before(tmp_path):
    [path] = jax.write(RUNS["training 0"], tmp_path, gzip=False)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    traced = ullage.read_trace(str(path))
    assert traced.report("ai").partial and traced.report("ai").whole.device_parts[0].kernel > 0
    with pytest.raises(UllageError):
        ullage.read_trace(str(path), strict=True)


def test_hostile_values_are_left_out(tmp_path):
    path = tmp_path / "host.trace.json"
    rows = [(2, "NaN", 5, "a"), (2, 0, -5, "b"), (2, 1e300, 5, "c"), (2, 10, 30, "\x1b[31m<script>")]
    path.write_text(tpu(*rows))
    report = ullage.read_trace(str(path)).report("ai")
    assert report.partial and report.whole.device_parts[0].kernel == 30_000


def test_a_million_events_are_said_to_be_cut(tmp_path, monkeypatch):
    from ullage.traces import jax_trace

    monkeypatch.setattr(jax_trace, "MOST_EVENTS", 2)
    path = tmp_path / "host.trace.json"
    path.write_text(tpu((2, 10, 30, "fusion.1"), (2, 50, 40, "fusion.2")))
    assert any("writes no more than" in note for note in ullage.read_trace(str(path)).report("ai").notes)
    path.write_text(tpu((2, 10, 30, "fusion.1")))
    assert not any("writes no more than" in note for note in ullage.read_trace(str(path)).report("ai").notes)


def profiled(logs, date, run, **more):
    """Write the folder of one run of JAX's profiler: each host's xplane file and JSON, and the first host's once more for Perfetto."""
    folder = logs / "plugins" / "profile" / date
    planes, viewed = xplane.write(run, folder), jax.write(run, folder, **more)
    (folder / "perfetto_trace.json.gz").write_bytes(viewed[0].read_bytes())
    (folder / "host-0.memory_profile.json.gz").write_bytes(gzip.compress(b"{}"))
    return planes, viewed


@pytest.mark.parametrize("given_as", ["logs", "plugins/profile/2026_08_10_12_00_00"])
def test_a_folder_of_the_profiler_is_one_run_that_counts_each_host_once(tmp_path, given_as):
    run = training(TrainingPlan(ranks=2))
    planes, _ = profiled(tmp_path / "logs", "2026_08_10_12_00_00", run)
    folder = tmp_path / "logs" if given_as == "logs" else tmp_path / "logs" / given_as
    report = ullage.read_trace(str(folder)).report("ai")
    alone = ullage.read_trace([str(path) for path in planes]).report("ai")
    assert given(report.whole) == given(alone.whole)
    assert report.whole.device_totals.devices == 2 and len(report.places) == 2
    assert any("3 files left out" in note for note in report.notes) and not report.partial


def test_without_xplane_files_the_json_of_each_host_counts_once(tmp_path):
    planes, viewed = profiled(tmp_path, "2026_08_10_12_00_00", training(TrainingPlan(ranks=2)))
    for path in planes:
        path.unlink()
    report = ullage.read_trace(str(tmp_path)).report("ai")
    assert report.whole.device_totals.devices == 2 and len(report.places) == len(viewed)


def test_profiles_of_two_dates_are_not_one_run(tmp_path):
    for date in ("2026_08_10_12_00_00", "2026_08_11_12_00_00"):
        profiled(tmp_path, date, training(TrainingPlan(ranks=1)))
    with pytest.raises(UllageError, match="2 profiles") as refused:
        ullage.read_trace(str(tmp_path))
    assert refused.value.hint.endswith("plugins/profile/2026_08_11_12_00_00")
    assert ullage.read_trace(refused.value.hint.partition(": ")[2]).report("ai").whole.device_totals.devices == 1
