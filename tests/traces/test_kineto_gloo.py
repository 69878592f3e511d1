"""Collectives that hosts run themselves: gloo's threads, what they hide, how many bytes, in which order."""

from __future__ import annotations

import json

import pytest

from tests.traces.kineto_events import on_host, reading
from ullage import read_trace

GLOO = {"backend": "gloo", "world_size": 2, "pg_config": [{"pg_name": "0", "backend_config": "cpu:gloo,cuda:gloo"}]}
MAIN, POOL, OTHER = 12, 90, 91


def thread(event, tid):
    return {**event, "tid": tid}


def operator(ts, dur, name, tid=MAIN):
    return thread(on_host(ts, dur, name, cat="cpu_op"), tid)


def gloo(ts, dur, name="gloo:all_reduce", tid=POOL, **args):
    return thread(on_host(ts, dur, name, **args), tid)


def file(folder, *events, rank=0, **run):
    path = folder / f"rank{rank}.json"
    about = {"baseTimeNanoseconds": 1_767_189_312_000_000_000, "distributedInfo": {**GLOO, "rank": rank, **run}}
    path.write_text(json.dumps(about | {"traceEvents": list(events)}))
    return path


def communicated(folder, *events, **run):
    """Return the ns in which the host of these events communicates."""
    return read_trace(file(folder, *events, **run)).profile.run.processes[0].communication.total


ISSUE = operator(0, 10, "c10d::allreduce_")


def test_a_collective_costs_only_what_its_starter_does_not_compute(tmp_path):
    # it runs 5–105; the thread that started it computes 20–50 and 60–70, so 60 of 100 us are lost
    assert communicated(tmp_path, ISSUE, gloo(5, 100), operator(20, 30, "aten::mm"), operator(60, 10, "aten::add")) == 60_000


def test_an_operator_counts_whole_though_it_calls_others(tmp_path):
    assert communicated(tmp_path, ISSUE, gloo(5, 100), operator(20, 30, "aten::mm"), operator(21, 1, "aten::resolve_conj")) == 70_000


def test_what_encloses_other_operators_may_be_waiting_and_hides_nothing(tmp_path):
    outer = operator(10, 90, "autograd::engine::evaluate_function: MyReduceBackward")
    assert communicated(tmp_path, ISSUE, gloo(5, 100), outer, operator(20, 30, "aten::mm")) == 70_000


def test_an_operator_that_encloses_nothing_computes(tmp_path):
    assert communicated(tmp_path, ISSUE, gloo(5, 100), operator(20, 30, "mylib::fused")) == 70_000


def test_an_operator_that_starts_a_collective_itself_hides_nothing(tmp_path):
    outer = operator(0, 100, "aten::mm")  # a distributed tensor's, say
    assert communicated(tmp_path, outer, operator(1, 1, "c10d::allreduce_"), gloo(5, 100)) == 100_000


def test_threads_that_start_no_collective_hide_none(tmp_path):
    assert communicated(tmp_path, ISSUE, gloo(5, 100), operator(20, 30, "aten::mm", tid=OTHER)) == 100_000


def test_where_nothing_says_which_thread_starts_a_collective_any_may_hide_it(tmp_path):
    # PyTorch before 1.13 has no c10d:: operators: of 5–105 the main thread computes 20–50
    assert communicated(tmp_path, gloo(5, 100), operator(20, 30, "aten::mm")) == 70_000
    # the note of its arguments, 4 us of communication itself, says so too: the other thread's 60–70 then hides nothing
    noted = operator(0, 4, "record_param_comms"), operator(20, 30, "aten::mm"), operator(60, 10, "aten::add", tid=OTHER)
    assert communicated(tmp_path, gloo(5, 100), *noted) == 74_000


def test_a_send_on_the_main_thread_blocks_it(tmp_path):
    # c10d::recv_ waits by itself, 0–40; gloo:recv 40–50; an operator that another thread ran then hides nothing
    events = operator(0, 40, "c10d::recv_"), gloo(40, 10, "gloo:recv", tid=MAIN), operator(5, 30, "aten::copy_", tid=OTHER)
    assert communicated(tmp_path, *events) == 50_000


def test_waiting_for_a_collective_tensor_is_communication_on_the_host_and_not_with_nccl(tmp_path):
    events = operator(0, 40, "_c10d_functional::wait_tensor"), operator(50, 10, "aten::mm")
    assert communicated(tmp_path, *events) == 40_000
    mixed = {"backend": "cpu:gloo,cuda:nccl", "pg_config": []}
    assert communicated(tmp_path, *events, **mixed) == 0


def test_operators_are_not_kept_where_no_host_runs_collectives(tmp_path):
    nccl = {"backend": "nccl", "pg_config": [{"pg_name": "0", "backend_config": "cuda:nccl"}]}
    rows, _, _ = reading(file(tmp_path, ISSUE, operator(20, 30, "aten::mm"), **nccl))
    assert rows == []


@pytest.mark.parametrize(
    ("name", "dims", "types", "size"),
    [
        ("gloo:all_reduce", [[1000]], ["float"], 4000),
        ("gloo:all_reduce", [[10, 10], [3]], ["c10::BFloat16", "long int"], 224),
        ("gloo:all_gather", [[1000]], ["float"], None),  # more comes out than goes in
        ("gloo:all_reduce", [[]], ["double"], 8),  # a scalar
        ("gloo:all_reduce", [[1000]], ["quint4x2"], None),
        ("gloo:all_reduce", [[-1], "x"], ["float", "float"], None),
        ("gloo:all_reduce", [], [], None),
        ("gloo:barrier", None, None, None),
    ],
)
def test_bytes_come_from_the_shapes_where_as_much_goes_in_as_comes_out(tmp_path, name, dims, types, size):
    told = {} if dims is None else {"Input Dims": dims, "Input type": types}
    rows, _, _ = reading(file(tmp_path, gloo(0, 10, name, **told)))
    assert [(row["kind"], row["bytes"]) for row in rows] == [("mpi", size)]


def test_collectives_are_matched_though_gloos_threads_take_them_in_any_order(tmp_path):
    # each rank has two threads, and which takes the next collective differs; rank 1 comes 50 us late to each of four
    begins = [0, 1000, 2000, 3000]
    first = [gloo(t, 100, tid=tid) for t, tid in zip(begins, (90, 91, 90, 91), strict=True)]
    second = [gloo(t + 50, 50, tid=tid) for t, tid in zip(begins, (80, 80, 81, 80), strict=True)]
    file(tmp_path, *first, rank=0)
    file(tmp_path, *second, rank=1)
    report = read_trace(tmp_path).report()
    assert report.late.collectives == 4 and report.late.skew.median == 50_000
    worst = report.late.stragglers[0]
    assert (worst.label, worst.last, worst.lost) == ("rank 1", 4, 4 * 50_000)
    assert not any("not matched" in note for note in report.notes)


def test_waiting_in_two_collectives_at_once_is_waiting_once(tmp_path):
    # of three pairs of collectives side by side, rank 0 starts both at 0 and 10, rank 1 both at 60: 60 us are lost, not 110
    for rank, begins in ((0, (0, 10)), (1, (60, 60))):
        events = [gloo(t + begin, 100 - begin, tid=tid) for t in (0, 1000, 2000) for begin, tid in zip(begins, (90, 91), strict=True)]
        file(tmp_path, *events, rank=rank)
    found = {s.label: (s.last, s.lost, s.waited) for s in read_trace(tmp_path).report().late.stragglers}
    assert found == {"rank 1": (6, 3 * 60_000, 0), "rank 0": (0, 0, 3 * 60_000)}


def test_a_rank_that_was_recorded_for_a_shorter_time_is_pointed_out(tmp_path):
    file(tmp_path, operator(0, 1000, "aten::mm"), rank=0)
    file(tmp_path, operator(0, 989, "aten::mm"), rank=1)
    (note,) = [note for note in read_trace(tmp_path).report().notes if "recorded for" in note]
    assert note.startswith("rank 1 was recorded for 0.000989 s, rank 0 for 0.001 s")
    file(tmp_path, operator(0, 991, "aten::mm"), rank=1)
    assert not any("recorded for" in note for note in read_trace(tmp_path).report().notes)


@pytest.mark.parametrize("about", ["nowhere", "before", "after"])
def test_what_computes_beside_gloo_counts_wherever_the_file_says_that_there_is_gloo(tmp_path, about):
    # the main thread starts a collective in 1 us and computes for 99 us, as long as gloo runs: all of it is useful
    events = [operator(0, 1, "c10d::allreduce_"), gloo(1, 99), operator(1, 99, "aten::mm")]
    base, run = {"baseTimeNanoseconds": 10**18}, {"distributedInfo": {**GLOO, "rank": 0}}
    whole = {**base, **(run if about == "before" else {}), "traceEvents": events, **(run if about == "after" else {})}
    path = tmp_path / "gloo.json"
    path.write_text(json.dumps(whole))
    assert read_trace(path).tree("talp")["host_parallel_efficiency"] == 1


def ring(folder, *, ranks):
    folder.mkdir()
    for rank in range(ranks):
        sends = [operator(100, 10, "c10d::send"), gloo(101, 8, "gloo:send", tid=MAIN), gloo(200, 50, "gloo:broadcast")]
        file(folder, ISSUE, gloo(5, 50), *sends, rank=rank)
    return read_trace(folder).report()


def test_sends_and_broadcasts_are_said_not_to_be_compared_across_ranks(tmp_path):
    # c10d::send and gloo:send are one send on two floors; all-reduces are compared, and one rank alone has nothing to compare
    found = [note for note in ring(tmp_path / "two", ranks=2).notes if "not compared" in note]
    assert [note.partition(":")[0] for note in found] == ["2 broadcasts, 2 sends of hosts are not compared across ranks"]
    assert not any("not compared" in note for note in ring(tmp_path / "alone", ranks=1).notes)


def test_the_table_of_calls_says_whose_they_are_and_names_no_devices_where_there_are_none(tmp_path):
    text = str(ring(tmp_path / "two", ranks=2))
    (head,) = [line for line in text.splitlines() if line.startswith("calls ")]
    assert head.split("  ")[0] == "calls that communicate" and "devices waited" not in head
