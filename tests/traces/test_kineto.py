"""PyTorch profiles are read exactly, whoever wrote them; each number is worked out beside it."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.traces.kineto_events import BASE, call, kernel, on_host, only, reading, written
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.simulate.traces.kineto import write
from ullage.simulate.traces.training import TrainingPlan, training
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.run import device_parts, merge
from ullage.traces.json.array import Array, opening
from ullage.traces.json.source import JsonSource
from ullage.traces.kineto.event import events as events_of
from ullage.traces.kineto.event import usable
from ullage.traces.kineto.meta import rank_in
from ullage.traces.trace import File, TraceOptions, recognised


def test_a_time_late_in_a_quarter_is_exact_to_the_nanosecond(tmp_path):
    # beyond 2^42 us a float has steps of 0.98 ns: the product with 1000, rounded once more, is a nanosecond off
    for ts, start in ((4458676522690.655, 4458676522690655), (4458676522709.059, 4458676522709059), (8796093022207.999, 8796093022207999)):
        assert only(written(tmp_path, kernel(ts, 2.5)))["start"] == start


@pytest.mark.parametrize("how", [{}, {"compact": True}, {"gzip": True}, {"gzip": True, "compact": True}], ids=str)
def test_a_run_reads_back_as_it_was_however_it_is_written(how, tmp_path):
    run = training(TrainingPlan(graph="kernels"))
    on_device = ("kernel", "collective", "memcpy", "memset")
    perfect = pa.Table.from_batches(list(run.batches())).to_pylist()
    for path, (process, rank) in zip(write(run, tmp_path, **how), run.ranks.items(), strict=True):
        rows, recording, problems = reading(path)
        mine = [row | ({"process": None} if row["kind"] in on_device else {}) for row in perfect if row["process"] == process]
        assert Counter(map(str, rows)) == Counter(map(str, mine))
        assert (recording.rank, recording.ranks, recording.clock, recording.host) == (rank, 2, "utc", "node-1")
        assert (recording.resolution, recording.prefers, problems.lines()) == (1, "ai", [])
        assert recording.extent == {process: run.recording().extent[process]}
        assert recording.devices == {number: d for number, d in recording.devices.items() if d.key == run.devices[number][1]}


def test_files_of_one_run_give_the_device_times_of_a_perfect_reader(tmp_path):
    run = training(TrainingPlan(straggler=1))
    read = []
    for path in write(run, tmp_path):
        form, file = recognised(path)
        recording = Recording(path.name)
        read.append(reduce(gather(form.read(file, recording, TraceOptions(), Problems()), recording)))
    perfect = merge([reduce(gather(run.batches(), run.recording()))])
    times = [sorted((p.kernel, p.collective, p.memory) for p in device_parts(r)) for r in (merge(read), perfect)]
    assert times[0] == times[1]


def test_a_boot_that_was_noted_in_the_profile_is_its_machine_s(tmp_path):
    _, recording, _ = reading(written(tmp_path, call(0, 9), kernel(10, 5), host_name="modal", boot_id="1f0c"))
    assert (recording.host, recording.boot) == ("modal", "1f0c")


def test_whole_microseconds_are_kept_and_said(tmp_path):
    run = training(TrainingPlan(ranks=1))
    rows, recording, problems = reading(write(run, tmp_path, decimals=0)[0])
    assert recording.resolution == 1000
    assert all(row["start"] % 1000 == row["end"] % 1000 == 0 for row in rows)
    assert not problems.lines()


@pytest.mark.parametrize("first", [True, False])
def test_the_base_time_counts_before_and_after_the_events(first, tmp_path):
    rest = {"traceEvents": [kernel(1000.001, 0.5)]}
    base = {"baseTimeNanoseconds": BASE}
    row = only(written(tmp_path, text=json.dumps(base | rest if first else rest | base)))
    # 1000.001 us after the base are 1,000,001 ns; half a microsecond is 500
    assert (row["start"], row["end"]) == (BASE + 1_000_001, BASE + 1_000_501)


def test_microseconds_since_1970_with_decimals_are_exact(tmp_path):
    # a float of this size knows only quarters of a microsecond
    text = json.dumps({"traceEvents": [kernel(0, 1.5)]}).replace('"ts": 0', '"ts": 1711964646976123.457')
    rows, recording, _ = reading(written(tmp_path, text=text))
    assert (rows[0]["start"], rows[0]["end"], recording.clock) == (1_711_964_646_976_123_457, 1_711_964_646_976_124_957, "utc")


def test_times_without_a_base_are_on_a_clock_of_their_own(tmp_path):
    rows, recording, _ = reading(written(tmp_path, kernel(5, 2)))
    assert (rows[0]["start"], recording.clock, recording.resolution) == (5000, "own", 1000)


def test_an_array_of_events_alone_is_a_trace(tmp_path):
    row = only(written(tmp_path, text=json.dumps([kernel(5, 2)])))
    assert (row["kind"], row["start"], row["end"]) == ("kernel", 5000, 7000)


def test_what_the_profiler_draws_beside_the_work_is_no_work(tmp_path):
    rows, recording, _ = reading(
        written(
            tmp_path,
            kernel(10, 5),
            {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#1", "pid": 0, "tid": 7, "ts": 0, "dur": 100},
            {"ph": "X", "cat": "cuda_sync", "name": "Context Sync", "pid": 0, "tid": 7, "ts": 0, "dur": 100},
            {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "ts": 0, "dur": 100},
            {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 100},
            on_host(0, 50, "nccl:all_reduce"),
        )
    )
    assert [row["kind"] for row in rows] == ["kernel"]
    assert recording.extent == {}


def test_operators_show_that_a_process_lives_and_python_functions_only_where_nothing_else_does(tmp_path):
    operator, function = on_host(10, 20, "aten::mm", "cpu_op"), on_host(0, 100, "train.py(1): main", "python_function")
    assert reading(written(tmp_path, operator, function))[1].extent == {11: (10_000, 30_000)}
    assert reading(written(tmp_path, function))[1].extent == {11: (0, 100_000)}


def test_annotations_are_steps_regions_or_communication(tmp_path):
    names = ["ProfilerStep#3", "forward", "gloo:barrier"]
    rows, _, _ = reading(written(tmp_path, *(on_host(10 * n, 5, name) for n, name in enumerate(names))))
    assert [(row["kind"], row["name"], row["process"], row["thread"]) for row in rows] == [
        ("step", "ProfilerStep#3", 11, 12),
        ("region", "forward", 11, 12),
        ("mpi", "gloo:barrier", 11, 12),
    ]


def test_calls_are_told_apart_on_both_vendors(tmp_path):
    names = ["cudaLaunchKernel", "hipGraphLaunch", "cuLaunchKernelEx", "hipMemcpyWithStream", "hipDeviceSynchronize"]
    cats = ["cuda_runtime", "cuda_runtime", "cuda_driver", "hip_runtime", "cuda_runtime"]
    rows, _, _ = reading(written(tmp_path, *(call(10 * n, 5, name, cat) for n, (name, cat) in enumerate(zip(names, cats, strict=True)))))
    assert [row["call"] for row in rows] == ["launch", "graph", "launch", "copy", "sync"]


def test_a_kernel_on_amds_stream_0_keeps_stream_and_geometry(tmp_path):
    row = only(written(tmp_path, kernel(1, 2, device=2, stream=0, grid=[77, 2, 1], block=[128, 1, 2])))
    assert (row["device"], row["stream"], row["blocks"], row["threads"]) == (2, 0, 154, 256)


COLLECTIVE = {"Collective name": "_allgather_base", "In msg nelems": 1024, "Out msg nelems": 8192, "dtype": "BFloat16"}
COLLECTIVE |= {"Group size": 8, "Process Group Name": "3", "Seq": 41}
GATHERED = ("allgather", "3", 41, 8, 16_384)  # 8,192 elements come out, of 2 bytes each


def told(row):
    return row["operation"], row["group"], row["sequence"], row["members"], row["bytes"]


def test_a_collective_tells_group_number_and_bytes(tmp_path):
    row = only(written(tmp_path, kernel(1, 2, "ncclDevKernel_Generic_4(x)", **COLLECTIVE)))
    assert (row["kind"], *told(row)) == ("collective", *GATHERED)


def test_a_collective_that_says_nothing_is_told_by_its_launch(tmp_path):
    launch = on_host(0, 1, "record_param_comms", "cpu_op", **COLLECTIVE, **{"External id": 99})
    row = only(written(tmp_path, kernel(5, 2, "ncclDevKernel_Generic_4(x)", **{"External id": 99}), launch))
    assert told(row) == GATHERED


def test_numbers_too_wide_for_32_bits_are_kept_beside_narrow_ones(tmp_path):
    # the first kernel says how many bytes it moved, the second, of 3 · 2^31, is told by its launch; threads are pthreads' addresses
    given = COLLECTIVE | {"In msg nelems": 3 << 30, "Out msg nelems": 3 << 30, "Collective name": "allreduce"}
    launch = on_host(0, 1, "record_param_comms", "cpu_op", **given, **{"External id": 99})
    near = [call(at, 1, correlation=number) | {"tid": 2**47 + at} for at, number in ((2, 2**31 - 1), (4, 2**31))]
    small = {"External id": 98, "Collective name": "allreduce", "In msg nelems": 4, "Out msg nelems": 4, "dtype": "Byte"}
    work = [
        kernel(at, 2, "ncclDevKernel_Generic_4(x)", correlation=n, **more)
        for at, n, more in ((5, 2**31 - 1, small), (8, 2**31, {"External id": 99}))
    ]
    rows, _, _ = reading(written(tmp_path, launch, *near, *work))
    assert [row["bytes"] for row in rows if row["kind"] == "collective"] == [4, 3 << 31]
    assert [(row["thread"], row["correlation"]) for row in rows if row["kind"] == "api"] == [(2**47 + 2, 2**31 - 1), (2**47 + 4, 2**31)]
    path = written(tmp_path, launch, *near, *work)
    form, file = recognised(path)
    recording = Recording(path.name)
    capture = gather(form.read(file, recording, TraceOptions(), Problems()), recording)
    assert capture.calls.thread.tolist() == [2**47 + 2, 2**47 + 4]
    assert capture.device.correlation.tolist() == [2**31 - 1, 2**31]


def test_launches_count_as_communication_only_where_the_host_runs_them(tmp_path):
    launch = on_host(0, 1, "record_param_comms", "cpu_op", **COLLECTIVE)
    assert only(written(tmp_path, launch, distributedInfo={"backend": "gloo", "rank": 0}))["kind"] == "mpi"
    assert reading(written(tmp_path, launch, distributedInfo={"backend": "cpu:gloo,cuda:nccl"}))[0] == []
    groups = {"backend": "cpu:gloo,cuda:nccl", "pg_config": [{"pg_name": "3", "backend_config": "cpu:gloo"}]}
    assert told(only(written(tmp_path, launch, distributedInfo=groups))) == GATHERED


@pytest.mark.parametrize(
    ("duration", "why"),
    [(0, "a duration of 0"), (-3, "a negative duration"), (None, "without a duration"), (7.4e15, "an impossible duration")],
)
def test_a_kernel_without_a_true_duration_is_lost_where_it_began(duration, why, tmp_path):
    bad = kernel(20, duration)
    if duration is None:
        del bad["dur"]
    rows, recording, problems = reading(written(tmp_path, kernel(10, 5), bad, call(0, 100)))
    assert [(r["kind"], r["start"], r["end"]) for r in rows if r["kind"] != "api"] == [("kernel", 10_000, 15_000), ("lost", 20_000, 20_000)]
    assert [line for line in problems.lines() if why in line and line.startswith("1 ")]
    assert recording.untimed == 0


def test_a_kernel_whose_clock_was_never_read_has_no_time_at_all(tmp_path):
    # the others are 50 days after the base
    rows, recording, problems = reading(written(tmp_path, kernel(0, 5), kernel(4.4e12, 5), call(4.4e12, 100)))
    assert [r["kind"] for r in rows] == ["kernel", "api"]
    assert recording.untimed == 1
    assert "1 device events at an impossible time left out" in problems.lines()[0]


def test_a_kernel_that_outlasts_everything_by_orders_is_lost(tmp_path):
    # 100 hours in a profile of 100 us
    rows, _, _ = reading(written(tmp_path, kernel(10, 3.6e11), call(0, 100)))
    assert [(r["kind"], r["start"], r["end"]) for r in rows] == [("api", 0, 100_000), ("lost", 10_000, 10_000)]


def test_kernels_long_after_the_last_call_are_kept(tmp_path):
    # ten minutes, with nothing of the host beside
    assert [r["kind"] for r in reading(written(tmp_path, call(0, 100), kernel(6e8, 6e7)))[0]] == ["api", "kernel"]


def test_of_a_key_that_is_there_twice_the_last_counts(tmp_path):
    text = json.dumps({"traceEvents": [kernel(10, 5)]}).replace('"ts": 10', '"ts": 3, "ts": 10')
    assert only(written(tmp_path, text=text))["start"] == 10_000


@pytest.mark.parametrize(
    ("name", "rank"),
    [("trace_8_rank_1.json", 1), ("a100_rank0of16.json.gz", 0), ("run_r5.json", 5), ("rank-12.x.json", 12), ("r2.1.json", None)],
)
def test_a_rank_is_found_in_the_name_of_a_file(name, rank):
    assert rank_in(name) == rank


def test_the_files_own_rank_wins_then_the_one_asked_for_then_the_name(tmp_path):
    said = written(tmp_path, kernel(1, 2), name="rank3.json", distributedInfo={"rank": 1})
    silent = written(tmp_path, kernel(1, 2), name="rank4.json")
    assert [reading(said, rank=2)[1].rank, reading(silent, rank=2)[1].rank, reading(silent)[1].rank] == [1, 2, 4]


@pytest.mark.parametrize("text", ['{"traceEvents": "none"}', '{"a": 1}', "[1, 2]", '{"metrics": [{"ph": 7}]}', "[]"])
def test_json_that_is_no_trace_is_not_taken_for_one(text, tmp_path):
    with pytest.raises(UllageError):
        reading(written(tmp_path, text=text))


def test_the_word_traceevents_deeper_in_a_file_is_no_list_of_events(tmp_path):
    text = json.dumps({"schemaVersion": 1, "notes": {"traceEvents": [kernel(1, 2)]}, "traceEvents": [kernel(10, 5)]})
    assert only(written(tmp_path, text=text))["start"] == 10_000


NAMES = st.text(st.sampled_from('}{,"\\[]: pha\n') | st.characters(codec="utf-8"), max_size=30)


@given(st.lists(NAMES, max_size=30), st.integers(1, 400), st.sampled_from([None, 1]))
def test_where_a_file_is_cut_into_chunks_makes_no_difference(tmp_path_factory, names, size, indent):
    # names hold what stands between two events, and arguments hold lists of objects that look like events
    events = [kernel(n + 1, 1, name, more=[{"ph": "X"}, {"name": name}]) for n, name in enumerate(names)]
    path = tmp_path_factory.mktemp("cut") / "t.json"
    path.write_text(json.dumps({"traceEvents": events, "more": [{"id": 1}, {"id": 2}]}, indent=indent))
    source = JsonSource(File(path), 1 << 30)
    _, start = opening(source, "traceEvents")
    array = Array(source, events_of, usable, start, chunk=size)
    read = [event.name for chunk in array for event in chunk.elements]
    assert (read, array.count, array.cut, array.dropped, array.repaired) == (names, len(names), "", 0, 0)
    assert msgspec.json.decode(b"{" + array.remainder().strip().removeprefix(b","))["more"] == [{"id": 1}, {"id": 2}]


@given(st.permutations([kernel(10, 5), kernel(12, 9, stream=8), call(0, 9), call(3, 3, cat="cuda_driver"), on_host(0, 50, "f")]))
def test_the_order_of_events_and_their_repetition_make_no_difference(tmp_path_factory, events):
    folder = tmp_path_factory.mktemp("order")
    rows = []
    for times in (1, 2):
        form, file = recognised(written(folder, *events * times))
        recording = Recording("t")
        done = reduce(gather(form.read(file, recording, TraceOptions(), Problems()), recording))
        rows.append((done.devices[0].kernel.total, done.processes[0].offload.total, done.processes[0].window))
    # kernels from 10 to 21 us on two streams, calls from 0 to 9 us
    assert rows == [(11_000, 9_000, (0, 21_000))] * 2


def test_a_packed_file_is_read_by_its_content(tmp_path):
    path = Path(tmp_path) / "trace.json"  # whatever it is called
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": [kernel(5, 2)]}).encode()))
    assert only(path)["start"] == 5000


def test_a_call_that_ends_before_it_begins_is_left_out_and_one_without_an_end_is_another_sort_of_event(tmp_path):
    begin = call(5, 0) | {"ph": "B"}
    del begin["dur"]
    rows, _, problems = reading(written(tmp_path, call(0, 3), call(4, -1), begin))
    assert len(rows) == 1
    assert [line.split(" left out")[0] for line in problems.lines()] == ["1 events on hosts with an impossible duration"]
