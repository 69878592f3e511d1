"""Collectives that hosts run themselves, in what a run would take: gloo's, and MPI's of a program whose devices have their own."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import pytest

import ullage
from tests.seeds import some
from ullage.recording import Process, Recording
from ullage.reports.trace.what_if import WhatIf, what_if
from ullage.simulate.traces import nsys
from ullage.simulate.traces.scenario import Scenario, ScenarioEvent
from ullage.sums.lanes.collectives.matching import match
from ullage.sums.lanes.common import with_common
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.replaying.waits_of_hosts import pooled
from ullage.sums.lanes.run import merge
from ullage.sums.lanes.spans import spans
from ullage.tables import intervals

BASE, MAIN, POOL = 1_700_000_000_000_000_000, 12, 90


def simulated(plan):
    """A job whose threads each do one item after another: ("work", ns), ("begin", key, ns) starts a collective, which ends so long after
    the last rank has begun it, and ("finish", key) waits for it. Return how long it takes, and for each rank when it worked and when
    its collectives ran."""
    now, at, begun, ns = [0] * len(plan), [0] * len(plan), {}, {}
    works = [[] for _ in plan]
    while any(place < len(items) for place, items in zip(at, plan, strict=True)):
        for rank, items in enumerate(plan):
            while at[rank] < len(items):
                word, *more = items[at[rank]]
                if word == "work":
                    works[rank].append((now[rank], now[rank] + more[0]))
                    now[rank] += more[0]
                elif word == "begin":
                    begun.setdefault(more[0], {})[rank], ns[more[0]] = now[rank], more[1]
                elif len(begun[more[0]]) < len(plan):
                    break
                else:
                    now[rank] = max(now[rank], max(begun[more[0]].values()) + ns[more[0]])
                at[rank] += 1
    ran = [[(start[rank], max(start.values()) + ns[key], key) for key, start in begun.items()] for rank in range(len(plan))]
    return max(now), works, ran


def drawn(seed: int, *, even: bool = False, overlap: bool = True):
    """A random job of ranks that begin collectives and wait for them later; before each collective, and while it runs, each rank takes as
    many times as long as a factor of its own says (`even`: as the mean of all does)."""
    random = Random(seed)
    ranks, plan, open_keys = random.randint(2, 4), [], []
    plan = [[] for _ in range(ranks)]
    for key in range(random.randint(3, 6)):
        late = [random.choice((2, 3, 6)) for _ in range(ranks)]
        late = [Fraction(sum(late), ranks)] * ranks if even else late
        for _ in range(random.randint(1, 3)):
            work = random.randint(1, 300) * 1200
            for items, factor in zip(plan, late, strict=True):
                items.append(("work", int(work * factor)))
        item = ("begin", key, random.randint(1, 900) * 1000)
        open_keys.append(key)
        done = open_keys if not overlap or random.random() < 0.6 else []
        for items in plan:
            items += [item, *(("finish", one) for one in done)]
        open_keys = [one for one in open_keys if one not in done]
    for items in plan:
        items += [*(("finish", one) for one in open_keys), ("work", 2400)]
    return plan


def _rows(rank, kind, name, thread, spans):
    many = len(spans)
    return intervals(
        {
            "start": [BASE + span[0] for span in spans],
            "end": [BASE + span[1] for span in spans],
            "kind": [kind] * many,
            "name": [name] * many,
            "process": [rank] * many,
            "thread": [thread] * many,
        }
    )


def answered(plan) -> WhatIf:
    """What is said of a job."""
    elapsed, works, ran = simulated(plan)
    kept = []
    for rank, (worked, collectives) in enumerate(zip(works, ran, strict=True)):
        recording = Recording(f"rank{rank}.json", rank=rank, clock="utc", host="node")
        recording.saw(rank, BASE, BASE + elapsed)
        recording.processes[rank] = Process(rank=rank, host="node")
        talks = [_rows(rank, "mpi", "gloo:all_reduce", POOL + key % 2, [(start, end)]) for start, end, key in collectives]
        both = [_rows(rank, kind, "aten::mm", MAIN, worked) for kind in ("operator", "computing")]
        kept.append(reduce(gather([*talks, *both], recording), replay=True))
    run = merge(kept)
    matched = match(run.captures)
    found = what_if(with_common(run, matched.clocks), matched)
    assert found is not None
    return found


def silent(plan):
    return [[(item[0], item[1], 0) if item[0] == "begin" else item for item in items] for items in plan]


@pytest.mark.parametrize("seed", some(range(1000), 25))
def test_without_communication_of_gloo_lies_between_the_bounds(seed: int):
    plan = drawn(seed)
    found, (elapsed, _, _), (truth, _, _) = answered(plan), simulated(plan), simulated(silent(plan))
    assert found.elapsed == found.path.time == elapsed
    even, time = (next(s.time for s in found.speedups if s.change == change) for change in ("no_late_ranks", "no_communication"))
    assert time.least <= truth <= time.most and time.least <= time.likely <= time.most
    assert even.likely is not None and found.collectives == sum(item[0] == "begin" for item in plan[0])


@pytest.mark.parametrize("seed", some(range(1000, 2000), 15))
def test_who_waits_for_gloo_at_once_is_answered_exactly(seed: int):
    plan = drawn(seed, overlap=False)
    found = answered(plan)
    times = {s.change: s.time for s in found.speedups}
    silence, evened = simulated(silent(plan))[0], simulated(drawn(seed, even=True, overlap=False))[0]
    assert times["no_communication"].likely == silence
    assert abs(times["no_late_ranks"].likely - evened) <= 100  # ns: durations are whole, a mean of them is not
    assert times["launches_in_graphs"].likely == found.elapsed and found.off == 0
    last = {rank.label: rank.awaited for rank in found.path.ranks}
    assert sum(last.values()) <= found.collectives


def test_a_slow_rank_of_a_gloo_job_is_named(tmp_path: Path):
    # rank 1 computes 300 us, rank 0 100 us, before each of 3 collectives of 50 us: each takes 350 us; had both computed 200 us, 250 us
    for rank, work in ((0, 100), (1, 300)):
        events = []
        for step in range(3):
            begin = step * 350
            place = {"ph": "X", "pid": 11 + rank}
            events.append(place | {"cat": "cpu_op", "name": "aten::mm", "tid": MAIN, "ts": begin, "dur": work})
            issue = {"cat": "cpu_op", "name": "c10d::allreduce_", "tid": MAIN, "ts": begin + work - 1, "dur": 1}
            events += [
                place | issue,
                place | {"cat": "user_annotation", "name": "gloo:all_reduce", "tid": POOL, "ts": begin + work, "dur": 350 - work},
            ]
        about = {"baseTimeNanoseconds": BASE, "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": 2}}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(about | {"traceEvents": events}))
    found = ullage.read_trace(tmp_path, what_if=True).report().what_if
    even, quiet, _ = found.speedups
    assert found.elapsed == 3 * 350_000 and (even.time.likely, quiet.time.likely) == (3 * 250_000, 3 * 300_000)
    assert [row.name for row in found.path.rows if row.kind == "collective"] == ["gloo:all_reduce"]
    assert [(rank.awaited, rank.waited) for rank in found.path.ranks if rank.label == "rank 1"] == [(1, 200_000)]


def test_a_collective_that_begins_while_the_lane_waits_follows_the_one_that_ended_since_then():
    # the lane waits from 100 to 300; the first collective ended when that began, the second at 150, the third begins at 160
    exposed = spans((100, 300))
    start, end = np.array([50, 90, 160]), np.array([100, 150, 300])
    held = pooled(start, end, np.zeros(3, np.int32), exposed, (0, 1))
    assert held.sure.tolist() == [False, True, True] and [column.tolist() for column in held.queued] == [[2], [1]]
    # one that ended before the lane waited is nothing that a later one follows
    held = pooled(np.array([50, 120]), np.array([100, 300]), np.zeros(2, np.int32), exposed, (0, 1))
    assert [column.tolist() for column in held.queued] == [[], []]
    # where the lane is when a collective begins: in its wait, or at a mark of its own
    calls = sorted(zip(held.calls.start.tolist(), held.calls.end.tolist(), strict=True))
    assert calls == [(50, 50), (100, 100), (100, 300)] and held.silent[0, 1].pieces == 0


def test_collectives_of_several_processes_follow_those_of_their_own():
    # in each of two processes the first begins when its lane begins to wait, at 100, and the second when that has ended, at 150
    recording = Recording("both.json", clock="utc", host="node")
    talks = [_rows(process, "mpi", "gloo:all_reduce", POOL, [(100, 150), (150, 300)]) for process in (1, 2)]
    beside = [_rows(process, "operator", "aten::mm", MAIN, [(0, 100), (300, 400)]) for process in (1, 2)]
    kept = reduce(gather([*talks, *beside], recording), replay=True)
    ops, events = kept.work.operations, kept.work.events
    pairs = [(after, before) for after, before in zip(events.after.tolist(), events.before.tolist(), strict=True) if after >= 0]
    told = [(ops.process[a], ops.start[a] - BASE, ops.process[b], ops.start[b] - BASE) for a, b in pairs]
    assert sorted(told) == [(1, 150, 1, 100), (2, 150, 2, 100)]


def test_time_in_which_a_lane_waits_and_no_collective_ends_is_communication_of_another_sort():
    held = pooled(np.array([150]), np.array([200]), np.zeros(1, np.int32), spans((10, 20), (100, 200), (300, 400)), (0, 1))
    assert list(zip(*held.silent[0, 1], strict=True)) == [(10, 20), (300, 400)] and held.waits.start.tolist() == [100]


def test_the_thread_that_submits_work_waits_for_gloo_where_one_does_and_else_the_one_that_computes_beside_it():
    def lane(*more) -> set[int]:
        recording = Recording("rank0.json", rank=0, clock="utc", host="node")
        talks = [_rows(0, "mpi", "gloo:all_reduce", POOL, [(5_000, 9_000)])]
        beside = [_rows(0, "computing", "aten::mm", 13, [(5_000, 6_000)]), _rows(0, "operator", "aten::add", 14, [(0, 9_500)])]
        work = reduce(gather([*talks, *beside, *more], recording), replay=True).work
        waiting = [code for code, word in enumerate(work.words) if word == "gloo:all_reduce"]
        return set(work.calls.thread[np.isin(work.calls.name, waiting)].tolist())

    def api(process: int, call: str):
        return intervals(
            {"start": [BASE], "end": [BASE + 100], "kind": ["api"], "name": ["k"], "call": [call], "process": [process], "thread": [MAIN]}
        )

    assert lane() == {13}
    assert lane(_rows(0, "computing", "aten::mm", 15, [(8_000, 8_100)])) == {13}  # for a shorter time, though later
    assert lane(api(0, "launch")) == {MAIN} and lane(api(0, "sync")) == {13} and lane(api(1, "launch")) == {13}


def test_mpi_beside_nccl_is_matched_across_ranks_and_is_communication_in_talps_tree(tmp_path: Path):
    # after a collective of the devices, 300 to 400 us, rank 1 comes 100 us late to one of MPI that ends at 700 us
    events = []
    for rank in range(2):
        process, one = 7001 + rank, {"device": rank, "stream": 7, "blocks": 8, "threads": 128}

        def host(start, end, kind, name, process=process, **known):
            events.append(ScenarioEvent(start * 1000, end * 1000, kind, name, process, thread=process, **known))

        host(0, 100, "host", "aten::x")
        host(100, 110, "api", "cudaLaunchKernel", call="launch", correlation=1)
        joint = {"operation": "allreduce", "group": "0", "sequence": 0, "members": 2}
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
        events.append(ScenarioEvent(300_000, 400_000, "collective", name, process, correlation=1, **one, **joint))
        host(110, 410, "api", "cudaDeviceSynchronize", call="sync", correlation=2)
        host(500 + 100 * rank, 700, "mpi", "MPI_Allreduce")
        host(700, 1000, "host", "aten::y")
    devices = {rank: ("NVIDIA H100", f"GPU-{rank}") for rank in range(2)}
    path = nsys.write(Scenario("both", tuple(events), {7001: 0, 7002: 1}, devices), tmp_path / "both.sqlite")
    profile = ullage.read_trace(path, what_if=True)
    # of 1000 us, 200 and 100 are communication: 1700 / 2000; TALP takes MPI and what a host runs itself for it, never NCCL
    assert profile.tree("talp")["mpi_parallel_efficiency"] == 0.85 == profile.tree("ai")["mpi_parallel_efficiency"]
    found = profile.report().what_if
    assert found.collectives == 2 and "talk" not in found.path.kinds
    assert "MPI_Allreduce" in [row.name for row in found.path.rows if row.kind == "collective"]
    assert {rank.label: rank.waited for rank in found.path.ranks}["rank 1"] == 100_000
