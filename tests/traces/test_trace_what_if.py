"""What if: a profile replayed with other durations, held to an independent simulation of random jobs."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.seeds import some
from tests.traces import whatif_reference as reference
from tests.traces.trace_command import ask, refused
from tests.traces.whatif_plans import draw, draw_events
from ullage.recording import Process, Recording
from ullage.reports.trace.what_if import WhatIf, what_if
from ullage.simulate.traces import kineto, nsys, talp
from ullage.simulate.traces.pils import USE_CASES, pils
from ullage.simulate.traces.training import TrainingPlan, training
from ullage.sums.lanes.collectives.matching import match
from ullage.sums.lanes.common import with_common
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.run import merge
from ullage.tables import intervals

BASE = 1_700_000_000_000_000_000
NAMES = {
    "call": "cudaMalloc",
    "launch": "cudaLaunchKernel",
    "sync": "cudaStreamSynchronize",
    "record": "cudaEventRecord",
    "hold": "cudaStreamWaitEvent",
    "meet": "cudaEventSynchronize",
}
SORTS = {"call": "other", "launch": "launch", "sync": "sync", "record": "other", "hold": "other", "meet": "sync"}
ROUNDING = 100  # ns: durations are whole, and a mean of them is not


def captured(plan, ahead=0, told=lambda _: True):
    """Yield a capture of each rank of a plan, as its profiler would have written it; each rank's clock is so many ns `ahead` of the one
    before it, on a machine of its own; waits for events are in it as far as they are `told`."""
    calls, ops = reference.simulate(plan)
    calls = [call | {"correlation": number + 1} for number, call in enumerate(calls)]
    for rank in range(len(plan)):
        recording = Recording(f"rank{rank}.json", rank=rank, clock="utc")
        base = BASE + rank * ahead
        recording.saw(rank, base, base + max(row["end"] for row in calls + ops))  # profilers run until the job has ended
        recording.processes[rank] = Process(rank=rank, host="node")
        recording.host = f"node {rank}" if ahead else "node"
        mine = [row for row in calls if row["rank"] == rank], [row for row in ops if row["rank"] == rank]
        talks, others = ([row for row in mine[0] if (row["sort"] == "talk") == talk] for talk in (True, False))
        rows = [_calls(others, rank, base), _talks(talks, rank, base), _operations(mine[1], rank, len(plan), base)]
        yield gather([*rows, _events([row for row in others if "record" in row and told(row)], rank, base)], recording)


def _events(rows, rank, base):
    return intervals(
        {
            "start": [base + row["start"] for row in rows],
            "end": [base + row["end"] for row in rows],
            "kind": ["event"] * len(rows),
            "process": [rank] * len(rows),
            "device": [0] * len(rows),
            "stream": [row["stream"] for row in rows],
            "correlation": [row["correlation"] for row in rows],
            "awaited_stream": [row["awaited"] for row in rows],
            "awaited": [row["record"] + 1 for row in rows],
        }
    )


def _talks(rows, rank, base):
    return intervals(
        {
            "start": [base + row["start"] for row in rows],
            "end": [base + row["end"] for row in rows],
            "kind": ["mpi"] * len(rows),
            "name": ["MPI_Allreduce"] * len(rows),
            "process": [rank] * len(rows),
            "thread": [row["thread"] for row in rows],
        }
    )


def _calls(rows, rank, base):
    return intervals(
        {
            "start": [base + row["start"] for row in rows],
            "end": [base + row["end"] for row in rows],
            "kind": ["api"] * len(rows),
            "name": [NAMES[row["sort"]] for row in rows],
            "call": [SORTS[row["sort"]] for row in rows],
            "process": [rank] * len(rows),
            "thread": [row["thread"] for row in rows],
            "correlation": [row["correlation"] for row in rows],
        }
    )


def _operations(rows, rank, ranks, base):
    together = [row["key"] is not None for row in rows]
    return intervals(
        {
            "start": [base + row["start"] for row in rows],
            "end": [base + row["end"] for row in rows],
            "kind": ["collective" if joint else "kernel" for joint in together],
            "name": [f"kernel {row['name']}" for row in rows],
            "process": [rank] * len(rows),
            "device": [0] * len(rows),
            "stream": [row["stream"] for row in rows],
            "correlation": [row["call"] + 1 for row in rows],
            "operation": ["allreduce" if joint else None for joint in together],
            "group": ["all" if joint else None for joint in together],
            "sequence": [row["key"] for row in rows],
            "members": [ranks if joint else None for joint in together],
        }
    )


def answered(plan, ahead=0, told=lambda _: True) -> WhatIf:
    """What is said of a plan."""
    kept = [reduce(capture, replay=True) for capture in captured(plan, ahead, told)]
    run = merge(kept)
    matched = match(run.captures)
    found = what_if(with_common(run, matched.clocks), matched)
    assert found is not None
    return found


def holds(found: WhatIf, change: str, *truths: int, slack: int = 0) -> None:
    """See that the true times lie between the bounds."""
    time = next(s.time for s in found.speedups if s.change == change)
    assert time.least - slack <= min(truths) and max(truths) <= time.most + slack, (change, truths, time)
    assert time.likely is None or time.least <= time.likely <= time.most


@pytest.mark.parametrize("seed", some(range(300), 12))
def test_what_a_job_would_have_taken_lies_between_the_bounds(seed: int):
    plan = draw(seed, threads=1 + seed % 3 // 2, streams=1 + seed % 4)
    found, recorded = answered(plan), reference.elapsed(plan)
    assert found.elapsed == found.path.time == recorded
    assert sum(row.time for row in found.path.rows) == sum(rank.time for rank in found.path.ranks) == recorded
    holds(found, "no_communication", reference.elapsed(reference.changed(plan, reference.without_communication)))
    free, bare = (reference.elapsed(reference.changed(plan, change)) for change in (reference.launched_free, reference.without_host))
    holds(found, "launches_in_graphs", bare, free)


@pytest.mark.parametrize("seed", some(range(1000, 1150), 4))
def test_without_late_ranks_lies_between_the_bounds(seed: int):
    known = {"streams": 1 + seed % 3, "ranks": 2 + seed % 3}
    found = answered(draw(seed, **known))
    holds(found, "no_late_ranks", reference.elapsed(draw(seed, **known, even=True)), slack=ROUNDING)


@pytest.mark.parametrize("seed", some(range(2000, 2150), 4))
def test_where_the_trace_tells_all_waits_the_likely_time_is_the_true_one(seed: int):
    # one stream a rank: each synchronisation waits for all that was submitted, and there is nothing else to wait for
    known = {"streams": 1, "events": False, "ranks": 1 + seed % 4}
    plan = draw(seed, **known)
    found = answered(plan)
    times = {s.change: s.time.likely for s in found.speedups}
    assert times["no_communication"] == reference.elapsed(reference.changed(plan, reference.without_communication))
    assert found.off == 0 and found.inferred == 0
    if len(plan) > 1:
        assert abs(times["no_late_ranks"] - reference.elapsed(draw(seed, **known, even=True))) <= ROUNDING


@pytest.mark.parametrize("seed", some(range(7000, 7300), 12))
def test_collectives_of_hosts_hold_ranks_up_like_those_of_devices(seed: int):
    known = {"streams": 1 + seed % 3, "ranks": 2 + seed % 3, "hosts": True}
    plan = draw(seed, **known)
    found, recorded = answered(plan), reference.elapsed(plan)
    assert found.elapsed == found.path.time == recorded
    assert sum(row.time for row in found.path.rows) == sum(rank.time for rank in found.path.ranks) == recorded
    assert found.collectives == sum(item[0] == "talk" for item in plan[0][0]) and found.alone == 0
    holds(found, "no_communication", reference.elapsed(reference.changed(plan, reference.without_communication)))
    free, bare = (reference.elapsed(reference.changed(plan, change)) for change in (reference.launched_free, reference.without_host))
    holds(found, "launches_in_graphs", bare, free)
    holds(found, "no_late_ranks", reference.elapsed(draw(seed, **known, even=True)), slack=ROUNDING)
    assert next(s for s in found.speedups if s.change == "no_late_ranks").factor is not None


@pytest.mark.parametrize("seed", some(range(8000, 8150), 6))
def test_the_likely_time_is_the_true_one_where_hosts_do_the_collectives_too(seed: int):
    known = {"streams": 1, "events": False, "ranks": 2 + seed % 3, "hosts": True}
    plan = draw(seed, **known)
    found = answered(plan)
    times = {s.change: s.time.likely for s in found.speedups}
    assert times["no_communication"] == reference.elapsed(reference.changed(plan, reference.without_communication))
    assert abs(times["no_late_ranks"] - reference.elapsed(draw(seed, **known, even=True))) <= ROUNDING
    assert found.off == 0 and found.inferred == 0


@pytest.mark.parametrize("seed", some(range(7000, 9000), 25))
def test_where_waits_for_events_are_recorded_the_likely_time_is_the_true_one(seed: int, monkeypatch: pytest.MonkeyPatch):
    # each synchronisation of streams is one of the whole device: nothing has to be inferred, and what is likely is certain
    monkeypatch.setitem(NAMES, "sync", "cudaDeviceSynchronize")
    plan = draw_events(seed)
    found = answered(plan)
    assert found.elapsed == found.path.time == reference.elapsed(plan)
    assert (found.off, found.inferred) == (0, 0)
    without = reference.changed(plan, reference.without_communication)
    silent = next(s for s in found.speedups if s.change == "no_communication")
    assert silent.time.least == silent.time.likely == reference.elapsed(without)
    holds(found, "no_communication", reference.elapsed(without))
    free, bare = (reference.elapsed(reference.changed(plan, change)) for change in (reference.launched_free, reference.without_host))
    holds(found, "launches_in_graphs", bare, free)


@pytest.mark.parametrize("seed", some(range(9000, 11000), 25))
def test_bounds_hold_whichever_waits_for_events_are_recorded(seed: int):
    plan, draws = draw_events(seed, threads=1 + seed % 2), random.Random(seed)
    share = draws.choice((0, 0.5, 1))
    found = answered(plan, told=lambda row: row["stream"] is None or draws.random() < share)
    assert found.elapsed == found.path.time == reference.elapsed(plan)
    holds(found, "no_communication", reference.elapsed(reference.changed(plan, reference.without_communication)))
    free, bare = (reference.elapsed(reference.changed(plan, change)) for change in (reference.launched_free, reference.without_host))
    holds(found, "launches_in_graphs", bare, free)


@pytest.mark.parametrize("seed", some(range(3000, 3100), 3))
def test_longer_work_on_the_critical_path_makes_the_job_longer_by_as_much(seed: int):
    plan = draw(seed, streams=1 + seed % 3)
    before, found = reference.elapsed(plan), answered(plan)
    on_path = {row.name for row in found.path.rows if row.kind == "kernel"}
    chosen = random.Random(seed).choice(sorted(on_path)) if on_path else None
    longer = reference.changed(plan, lambda item: _longer(item, chosen))
    if chosen is not None:
        assert reference.elapsed(longer) >= before + 700


def test_an_operation_that_begins_when_one_on_another_stream_ends_waited_for_it():
    # on both ranks a kernel on stream 0 waits for a collective of 100 µs on stream 1, which a call at 1 µs launches: it runs from 6 to 106
    # µs, the kernel to 156 µs, and the synchronisation returns at 157.5 µs. Without communication the kernel waits for its own launch
    # alone, at 3 µs and 5 µs later: it ends at 58 µs, and all is over at 59.5 µs.
    items = [
        ("call", 1_000),
        ("launch", 2_000, 1, 100_000, 0, 5_000, 0, []),
        ("launch", 2_000, 0, 50_000, 1, 5_000, None, [0]),
        ("sync", 1_500, [0, 1]),
    ]
    found = answered([[items], [items]])
    assert found.elapsed == 157_500 and found.inferred == 2 and found.off == 0
    silent = next(s for s in found.speedups if s.change == "no_communication")
    assert (silent.time.least, silent.time.likely, silent.time.most) == (59_500, 59_500, 59_500)
    assert found.path.kinds == {"kernel": 50_000, "collective": 100_000, "call": 1_000, "latency": 5_000, "wait": 1_500}


def test_who_comes_late_is_on_the_path_and_says_how_long_others_waited():
    # rank 0 computes 40 µs and rank 1 100 µs before a collective of 10 µs: rank 0 comes 60 µs earlier; had both computed 70 µs, 30 µs less
    def items(lasts):
        return [
            ("call", 1_000),
            ("launch", 2_000, 0, lasts, 0, 5_000, None, []),
            ("launch", 2_000, 0, 10_000, 1, 5_000, 0, []),
            ("sync", 1_500, [0]),
        ]

    found = answered([[items(40_000)], [items(100_000)]])
    even = next(s for s in found.speedups if s.change == "no_late_ranks")
    assert found.elapsed == 1_000 + 5_000 + 100_000 + 10_000 + 1_500
    assert even.time.least == even.time.likely == even.time.most == found.elapsed - 30_000
    late = {rank.label: (rank.awaited, rank.waited) for rank in found.path.ranks}
    assert late == {"rank 0": (0, 0), "rank 1": (1, 60_000)} and found.path.time == found.elapsed


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_that_never_communicate_may_wait_for_one_another_in_a_way_that_nobody_recorded(ranks: int):
    items = [("call", 1_000), ("launch", 2_000, 0, 50_000, 0, 5_000, None, []), ("sync", 1_500, [0])]
    even, silent, launched = answered([[items]] * ranks).speedups
    assert even.time.likely is None and even.time.most == 57_500
    assert (even.time.least, even.high) == ((57_500, 1.0) if ranks == 1 else (0, None))
    assert (silent.time.least, silent.time.likely, silent.time.most) == (57_500, 57_500, 57_500)
    assert (launched.time.least, launched.time.likely, launched.time.most) == (51_500, 52_500, 52_500)  # without the call of 1 us; with it


def test_communication_of_the_host_is_told_from_what_else_it_does():
    # a call of 10 µs at 0, communication from 20 to 60 µs, and a call from 80 to 90 µs that launches a kernel of 30 µs at 85 µs
    calls = _calls([{"sort": "call", "start": 0, "end": 10_000, "thread": 0, "correlation": 1},
                    {"sort": "launch", "start": 80_000, "end": 90_000, "thread": 0, "correlation": 2}], 0, BASE)  # fmt: skip
    kernel = _operations([{"start": 85_000, "end": 115_000, "key": None, "name": 0, "stream": 7, "call": 1}], 0, 1, BASE)
    talk = intervals(
        {"start": [BASE + 20_000], "end": [BASE + 60_000], "kind": ["mpi"], "name": ["MPI_Wait"], "process": [0], "thread": [0]}
    )
    run = merge([reduce(gather([calls, kernel, talk], Recording("rank0.json", clock="utc")), replay=True)])
    found = what_if(run, match(run.captures))
    assert found is not None and found.elapsed == 115_000
    assert found.path.kinds == {"kernel": 30_000, "call": 10_000, "host": 30_000, "talk": 40_000, "latency": 5_000}
    even, silent, _ = found.speedups
    assert (silent.time.least, silent.time.likely, silent.time.most) == (75_000, 75_000, 75_000)
    assert (even.time.least, even.time.likely, even.time.most) == (75_000, None, 115_000)  # who else was waited for is not known


@pytest.mark.parametrize("seed", some(range(4000, 4060), 4))
def test_clocks_that_differ_change_nothing(seed: int):
    plan = draw(seed, ranks=3, streams=2)
    if sum(item[0] == "launch" and item[6] is not None for item in plan[0][0]) >= 3:  # fewer do not tell how clocks differ
        assert answered(plan, ahead=123_456_789) == answered(plan)


@pytest.mark.parametrize("seed", some(range(5000, 5060), 4))
def test_launches_of_unequal_latency_still_add_up(seed: int):
    plan = draw(seed, jitter=True, threads=1 + seed % 2)
    found = answered(plan)
    assert found.elapsed == found.path.time == reference.elapsed(plan) == sum(row.time for row in found.path.rows)
    assert 0 <= found.off < 1


@pytest.mark.parametrize("seed", some(range(6000, 6200), 5))
def test_whatever_a_trace_holds_is_replayed_and_adds_up(seed: int):
    draws = random.Random(seed)
    run = merge([reduce(_nonsense(draws, rank), replay=True) for rank in range(draws.randint(1, 3))])
    matched = match(run.captures)
    found = what_if(with_common(run, matched.clocks), matched)
    if found is not None:
        assert found.path.time == sum(row.time for row in found.path.rows) == sum(rank.time for rank in found.path.ranks)
        for row in found.speedups:
            assert row.time.least <= (row.time.likely if row.time.likely is not None else row.time.most) <= row.time.most


def _nonsense(draws, rank):
    """A capture whose rows begin and end anywhere, on few threads and streams, with calls that launch nothing and work that nobody
    launched."""
    step = draws.choice((1, 1000))

    def rows(count, **columns):
        start = [draws.randrange(100) * step for _ in range(count)]
        base = {"start": [BASE + s for s in start], "end": [BASE + s + draws.choice((0, 1, 5, 60)) * step for s in start]}
        return intervals(base | {name: [choose() for _ in range(count)] for name, choose in columns.items()})

    calls = rows(
        draws.randint(1, 30),
        kind=lambda: "api",
        name=lambda: draws.choice(("cudaDeviceSynchronize", "cudaLaunchKernel", "cudaEventSynchronize", None)),
        call=lambda: draws.choice(("launch", "sync", "copy", "graph", "other")),
        process=lambda: draws.randrange(2),
        thread=lambda: draws.randrange(3),
        correlation=lambda: draws.choice((None, draws.randrange(20))),
    )
    hosts = draws.random() < 0.4  # do the collectives
    ops = rows(
        draws.randint(1, 30),
        kind=lambda: draws.choice(("kernel", "memcpy", "graph") if hosts else ("kernel", "collective", "memcpy", "graph", "lost")),
        name=lambda: draws.choice(("k", "ncclDevKernel_AllReduce", None)),
        process=lambda: draws.choice((None, 0, 1)),
        device=lambda: draws.randrange(2),
        stream=lambda: draws.choice((None, 0, 1)),
        correlation=lambda: draws.choice((None, draws.randrange(20))),
        operation=lambda: draws.choice((None, "allreduce", "send")),
        group=lambda: draws.choice((None, "g")),
        sequence=lambda: draws.choice((None, 0, 1, 2)),
        members=lambda: draws.choice((None, 2, 3)),
    )
    talks = rows(
        draws.choice((0, 0, 5, 20)),
        kind=lambda: "mpi",
        name=lambda: draws.choice(("MPI_Allreduce", "MPI_Barrier", "MPI_Wait", "gloo:all_reduce", None)),
        process=lambda: draws.randrange(2),
        thread=lambda: draws.randrange(3),
        group=lambda: draws.choice((None, "g")),
    )
    events = rows(
        draws.choice((0, 0, 5, 20)),
        kind=lambda: "event",
        process=lambda: draws.choice((None, 0, 1)),
        device=lambda: draws.choice((None, 0, 1)),
        stream=lambda: draws.choice((None, 0, 1, 2)),
        correlation=lambda: draws.choice((None, draws.randrange(20))),
        awaited_stream=lambda: draws.choice((None, 0, 1, 2)),
        awaited=lambda: draws.choice((None, draws.randrange(20))),
    )
    return gather(
        [calls, ops, talks, events], Recording(f"rank{rank}.json", rank=rank, clock=draws.choice(("utc", "own")), covers="process")
    )


def _longer(item, name):
    return (*item[:3], item[3] + 700, *item[4:]) if item[0] == "launch" and f"kernel {item[4]}" == name else item


# -- the command --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training job of four ranks, of which the third is slow."""
    folder = tmp_path_factory.mktemp("slow")
    kineto.write(training(TrainingPlan(ranks=4, straggler=2)), folder)
    return folder


def test_the_slow_rank_of_a_simulated_job_is_its_critical_path(slow: Path):
    found = json.loads(ask(slow, "--what-if", "--json").out)["what_if"]
    even, silent, launched = found["speedups"]
    # rank 2 computes 1.5 times as long as the three others, so 1.5 / ((3 + 1.5) / 4) = 1.33 times the mean; not all is computing
    assert even["change"] == "no_late_ranks" and 1.25 < even["factor"] < 1.35 and even["low"] <= even["factor"] <= even["high"]
    assert 1 <= silent["factor"] < 1.05 and 1 <= launched["factor"] < 1.05  # the device is busy 98 % of the time, 2 % with collectives
    assert max(found["path"]["ranks"], key=lambda rank: rank["time_ns"])["label"] == "rank 2"
    path = found["path"]
    assert path["time_ns"] == found["elapsed_ns"]
    for parts in ("rows", "ranks", "kinds"):
        assert sum(part["time_ns"] for part in path[parts]) == path["time_ns"]
    assert found["off"] < 0.01


def test_the_answer_is_said_in_text_and_on_the_page(slow: Path, tmp_path: Path):
    said = ask(slow, "--what-if").out
    for words in (
        "what if",
        "no rank came late",
        "communication took no time",
        "launches were in graphs",
        "critical path",
        "critical path by rank",
        "the replay is off by",
    ):
        assert words in said
    assert ask(slow, "--what-if", "--out", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert "launches were in graphs" in page and "critical path" in page.lower()
    assert json.loads(ask(slow, "--json").out)["what_if"] is None and "what if" not in ask(slow).out


def test_the_rank_that_others_wait_for_in_mpi_is_named(tmp_path: Path):
    # rank 1 does a tenth of what rank 0 does and then waits in MPI: even ranks would take 1 / ((1 + 0.1) / 2) = 1.82 times less
    path = nsys.write(pils(USE_CASES["4"].load), tmp_path / "run.sqlite")
    found = json.loads(ask(path, "--what-if", "--json").out)["what_if"]
    even = found["speedups"][0]
    assert found["collectives"] == 1 and found["alone"] == 0 and found["notes"] == []
    assert even["change"] == "no_late_ranks" and 1.75 < even["low"] <= even["factor"] <= even["high"] < 1.85
    assert "talk" not in {kind["kind"] for kind in found["path"]["kinds"]}
    assert any(row["name"].startswith("MPI_") for row in found["path"]["rows"] if row["kind"] == "collective")


def test_a_region_is_not_replayed(slow: Path):
    assert "can't be replayed" in refused(slow, "--what-if", "--region", "forward")


def test_files_of_sums_are_not_replayed(tmp_path: Path):
    sums = talp.write(pils(USE_CASES["4"].load), tmp_path / "talp.json")
    said = ask(sums, "--what-if", "--json")
    assert said.code == 0 and json.loads(said.out)["what_if"] is None
    assert any("replay" in note for note in json.loads(said.out)["problems"])


def test_one_rank_alone_does_not_tell_who_came_late(slow: Path):
    found = json.loads(ask(slow / "training_rank0.json", "--what-if", "--json").out)["what_if"]
    even, silent, _ = found["speedups"]
    assert even["factor"] is None and even["low"] == 1 and even["high"] >= silent["factor"] > 1
    assert any("one rank" in note for note in found["notes"])


@pytest.mark.parametrize("name", ["nsys/nsysai_mfu_2gpu_before.sqlite", "kineto/hta_a100_rank0of2_nccl_data.json.gz"])
def test_real_profiles_add_up(shared_data: Path, name: str):
    found = json.loads(ask(shared_data / name, "--what-if", "--json").out)["what_if"]
    assert found["path"]["time_ns"] == sum(row["time_ns"] for row in found["path"]["rows"])
    assert abs(found["path"]["time_ns"] - found["elapsed_ns"]) < 0.001 * found["elapsed_ns"]
    assert 0 <= found["off"] < 0.01
    for row in found["speedups"]:
        assert 0.99 <= row["low"] <= (row["factor"] or row["low"]) <= row["high"]


def test_the_page_shows_what_the_command_prints(slow: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "110")
    page = (Path(__file__).parents[2] / "docs" / "what-if.md").read_text(encoding="utf-8")
    printed = ask(slow, "--what-if").out.splitlines()
    shown = page.split("```console\n")[1].split("```")[0].splitlines()
    for line in shown[3:-1]:
        assert line in printed, line
