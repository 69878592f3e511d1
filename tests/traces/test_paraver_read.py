"""Paraver traces: small ones written out by hand, on hosts and devices, whole and damaged."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.run import Run, device_parts, device_totals, host_parts, host_totals, merge
from ullage.traces.paraver.records import records
from ullage.traces.trace import TraceOptions, recognised

HEAD = "#Paraver (09/10/2019 at 16:09):100_ns:1(2):1:2(1:1,1:1),1\nc:1:1:2:1:2\n"
# rank 0 runs 10–40, is in MPI 40–60, runs 60–90; rank 1 runs 0–100 but for an I/O state 50–55 that no call tells of
STATES = (
    "1:1:1:1:1:0:10:2\n1:1:1:1:1:10:40:1\n1:1:1:1:1:40:60:13\n1:1:1:1:1:60:90:1\n1:2:1:2:1:0:50:1\n1:2:1:2:1:50:55:12\n1:2:1:2:1:55:100:1\n"
)
EVENTS = "2:1:1:1:1:40:50000002:10:42000050:300:42000059:200\n2:1:1:1:1:60:50000002:0:42000050:7:42000059:9\n"
EVENTS += "2:1:1:1:1:90:50000003:32:42000050:500:42000059:400\n"
NAMES = "STATES\n1    Running\n\nEVENT_TYPE\n9   50000002    MPI Collective Comm\n9   50000003    MPI Other\n"
NAMES += "VALUES\n10   MPI_Allreduce\n32   MPI_Finalize\n0   Outside MPI\n"


def written(folder: Path, text: str, names: str = NAMES, rows: str = "") -> Path:
    (folder / "run.pcf").write_text(names)
    if rows:
        (folder / "run.row").write_text(rows)
    path = folder / "run.prv"
    path.write_text(text)
    return path


def load(path: Path, options: TraceOptions | None = None) -> tuple[Run, Recording, Problems, list[str]]:
    trace, file = recognised(path)
    assert trace.name == "paraver"
    assert trace.read is not None
    recording, problems = Recording(file.name), Problems()
    capture = gather(trace.read(file, recording, options or TraceOptions(), problems), recording)
    return merge([reduce(capture)]), recording, problems, capture.words


def hosts(run: Run) -> list[tuple[int, int, int]]:
    return [(p.useful, p.offload, p.communication) for p in host_parts(run)]


def test_useful_time_is_the_running_state_and_calls_have_their_names(tmp_path: Path) -> None:
    run, recording, problems, words = load(written(tmp_path, HEAD + STATES + EVENTS))
    # rank 0: 30 + 30 of 100 run; 10 not created, 20 in MPI_Allreduce; it is over at 90, in MPI_Finalize. rank 1: 95 of 100
    assert run.elapsed() == 100
    assert hosts(run) == [(60, 0, 30), (95, 0, 5)]
    assert set(words) == {"MPI_Allreduce", "MPI_Finalize", "Not created", "I/O"}
    assert [p.rank for p in run.processes] == [0, 1]
    assert problems.repaired == {"calls without an end, taken to last to the end of the trace": 1}  # MPI_Finalize
    assert recording.cut == ""


def test_counters_count_in_running_bursts_alone(tmp_path: Path) -> None:
    _, recording, _, _ = load(written(tmp_path, HEAD + STATES + EVENTS))
    # 300 over 0–40 (running from 10 on) and 500 over 60–90; 7 was read over 40–60, in MPI
    assert recording.counters == {0: {"instructions": 800, "useful_time": 60, "cycles": 600}}


def test_times_without_a_unit_are_microseconds(tmp_path: Path) -> None:
    run, _, _, _ = load(written(tmp_path, (HEAD + STATES).replace("100_ns", "100")))
    assert run.elapsed() == 100_000
    assert hosts(run)[1] == (95_000, 0, 5_000)


def test_worker_threads_wait_in_parallel_and_do_not_communicate(tmp_path: Path) -> None:
    head = "#Paraver (09/10/2019 at 16:09):100_ns:1(2):1:1(2:1)\n"
    states = "1:1:1:1:1:0:100:1\n1:2:1:1:2:0:70:1\n1:2:1:1:2:70:100:5\n"
    run, _, _, _ = load(written(tmp_path, head + states + "2:1:1:1:1:100:50000003:0\n"))
    # the main thread runs for 100, its worker for 70 and waits for 30
    assert hosts(run) == [(170, 0, 0)]
    (part,) = host_parts(run)
    assert (part.threads, part.imbalance, part.parallel) == (2, 30, 30)


def test_lanes_of_devices_run_kernels_and_move_memory(tmp_path: Path) -> None:
    rows = "LEVEL NODE SIZE 1\nnode7\n\nLEVEL THREAD SIZE 3\nTHREAD 1.1.1\nCUDA-D1.S1-node7\nCUDA-D1.S2-node7\n"
    names = NAMES + "\nEVENT_TYPE\n0   63000001   CUDA library call\nVALUES\n1   cudaLaunch\n3   cudaStreamSynchronize\n"
    names += "\nEVENT_TYPE\n0   63000019   CUDA kernel\nVALUES\n5   saxpy\n6   ncclDevKernel_AllReduce_Sum\n"
    text = "#Paraver (09/10/2019 at 16:09):100_ns:1(2):1:1(3:1)\n1:1:1:1:1:0:100:1\n"
    text += "2:1:1:1:1:10:63000001:1\n2:1:1:1:1:20:63000001:0\n2:1:1:1:1:30:63000001:3\n2:1:1:1:1:80:63000001:0\n"
    # stream 1: a kernel 20–60 and one that only communicates 60–70; stream 2: a copy 50–80
    text += "1:2:1:1:2:20:60:1\n2:2:1:1:2:20:63000019:5\n1:2:1:1:2:60:70:1\n2:2:1:1:2:60:63000019:6\n1:3:1:1:3:50:80:17\n"
    run, recording, _, words = load(written(tmp_path, text, names, rows))
    assert hosts(run) == [(40, 60, 0)]
    (part,) = device_parts(run)
    assert (part.kernel, part.collective, part.memory, part.idle) == (40, 10, 10, 40)
    assert {"saxpy", "ncclDevKernel_AllReduce_Sum", "cudaLaunch", "cudaStreamSynchronize"} <= set(words)
    assert recording.processes[0].host == "node7"


def test_traces_of_nsys2prv_have_events_and_no_states(tmp_path: Path) -> None:
    rows = "LEVEL NODE SIZE 1\nnode1\n\nLEVEL THREAD SIZE 2\nTHREAD 1.1.1\nCUDA-D0.S7\n"
    names = "EVENT_TYPE\n0 63000000 CUDA library call\nVALUES\n0 End\n1 cudaLaunchKernel_v7000\n\n"
    names += "EVENT_TYPE\n0 63000006 CUDA kernel\nVALUES\n2 gemm\n\n"
    names += (
        "EVENT_TYPE\n0 63000001 CUDA memcpy kernel\nVALUES\n3 CUDA memset\n\nEVENT_TYPE\n0 9200 Correlation ID\n0 63000002 Memcopy size\n"
    )
    text = "#Paraver (01/01/2026 at 10:00):100_ns:0:1:1:(2:1)\n2:0:1:1:1:5:63000000:1:9200:42\n2:0:1:1:1:15:63000000:0:9200:0\n"
    text += "2:0:1:1:2:20:63000006:2:9200:42\n2:0:1:1:2:60:63000006:0:9200:0\n2:0:1:1:2:60:63000001:3:63000002:4096\n"
    text += "2:0:1:1:2:100:63000001:0:63000002:0\n"
    run, _, problems, _ = load(written(tmp_path, text, names, rows))
    assert hosts(run) == [(90, 10, 0)]
    totals = device_totals(device_parts(run), run.elapsed())
    assert totals is not None
    assert (totals.kernel_time, totals.memory_time, totals.bytes) == (40, 40, 4096)
    assert problems.lines() == []


def test_bad_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    bad = "1:1:1:1:1:5\nhello\n2:1:1:1:1:7::3\n1:9:1:7:1:0:10:1\n\n# a remark\n9:1:2\n"
    run, _, problems, _ = load(written(tmp_path, HEAD + bad + STATES + EVENTS))
    assert hosts(run) == [(60, 0, 30), (95, 0, 5)]
    assert problems.dropped == {"lines that are not records": 4, "records of threads that the first line doesn't list": 1}


@pytest.mark.parametrize("packed", [False, True])
def test_a_truncated_trace_gives_what_came_before(packed: bool, tmp_path: Path) -> None:
    lines = "".join(f"1:1:1:1:1:{t}:{t + 7}:1\n1:1:1:1:1:{t + 7}:{t + 10}:13\n" for t in range(0, 1_000_000, 10))
    text = (HEAD.replace("100_ns", "1000000_ns") + lines).encode()
    path = tmp_path / "run.prv.gz"
    path.write_bytes(gzip.compress(text)[:-200_000] if packed else text[:1_500_005])
    run, recording, _, _ = load(path)
    useful, _, rest = hosts(run)[0]
    assert recording.cut
    assert 0 < run.elapsed() < 1_000_000  # the rest is not taken for useful time
    assert useful / (useful + rest) == pytest.approx(0.7, abs=0.001)
    with pytest.raises(UllageError):
        load(path, TraceOptions(strict=True))


def test_a_trace_that_stops_before_its_length_is_cut(tmp_path: Path) -> None:
    run, recording, _, _ = load(written(tmp_path, HEAD.replace("100_ns", "5000_ns") + STATES + EVENTS))
    assert "its last record is at" in recording.cut
    assert run.elapsed() == 100


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.prv.gz"
    path.write_bytes(gzip.compress((HEAD + STATES * 10_000).encode()))
    with pytest.raises(UllageError, match="unpacks to more than"):
        load(path, TraceOptions(limit=100_000))


def test_without_names_beside_it_events_have_numbers(tmp_path: Path) -> None:
    path = tmp_path / "alone.prv"
    path.write_text(HEAD + STATES + EVENTS)
    _, _, problems, words = load(path)
    assert "MPI Collective Comm 10" in words
    assert "there is no alone.pcf beside the trace: events have numbers, not names" in problems.notes


def test_a_first_line_without_processes_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "run.prv"
    path.write_text("#Paraver (09/10/2019 at 16:09):100_ns\n")
    with pytest.raises(UllageError, match="does not begin as a Paraver trace"):
        load(path)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),
            st.integers(1, 4),
            st.integers(0, 2**40),
            st.lists(st.tuples(st.integers(1, 5), st.integers(-9, 10**15)), min_size=1),
        )
    )
)
def test_records_are_the_lines_numbers(rows: list[tuple[int, int, int, list[tuple[int, int]]]]) -> None:
    text = "".join(f"2:1:1:{task}:{thread}:{time}:" + ":".join(f"{k}:{v}" for k, v in events) + "\n" for task, thread, time, events in rows)
    problems = Problems()
    got = records(text.encode(), np.array([2, 4]), problems)
    assert got.events.tolist() == [[1, task, thread, time, k, v] for task, thread, time, events in rows for k, v in events if k in (2, 4)]
    assert not problems.dropped


def test_host_totals_of_a_small_trace_are_pops(tmp_path: Path) -> None:
    run, _, _, _ = load(written(tmp_path, HEAD + STATES + EVENTS))
    totals = host_totals(host_parts(run), run.elapsed())
    assert totals is not None
    assert (totals.useful_time, totals.max_busy_time, totals.elapsed) == (155, 95, 100)
