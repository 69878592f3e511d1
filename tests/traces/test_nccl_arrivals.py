"""Who arrives last at collectives by what NCCL told: known arrivals, what can't be compared, and a slow reference over drawn ones."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from statistics import median_low

import numpy as np
import pytest

from ullage import read_trace
from ullage.cupti.chunks import HOST, NCCL, ChunkType, ChunkWriter, HostKind
from ullage.cupti.chunks import names as name_entries
from ullage.problems import Problems
from ullage.recording import NcclCollectives, Recording
from ullage.render.trace import view
from ullage.render.trace_collectives import told_by_nccl
from ullage.render.trace_json import record
from ullage.reports.trace.nccl import nccl_notes, nccl_report
from ullage.sums.nccl_arrivals import TOGETHER, NcclProcess, nccl_arrivals
from ullage.traces.recorded.facts import RecordingFacts
from ullage.traces.recorded.nccl import NO_ROOM, WITHOUT_SENSE, nccl_collectives
from ullage.views.html import html

NAMES = {1: "AllReduce", 2: "Broadcast", 3: "world"}


def row(sequence, start, rank, *, ranks=2, took=0, function=1, communicator=77, serial=None, began=50, channels=1):
    """Return a collective as a tuple of its fields; its kernel, of a GPU whose clock is its own, took so many ns (0: not told)."""
    found = np.zeros(1, NCCL)
    found["sequence"], found["start"], found["end"], found["rank"], found["ranks"] = sequence, start, start + 1, rank, ranks
    found["communicator"], found["function"], found["name"], found["channels"] = communicator, function, 3, channels
    found["serial"] = sequence + 1 if serial is None else serial
    if took:
        found["gpu_start"], found["gpu_end"], found["started"], found["ended"] = began, began + took, channels, channels
    return found


def process(rank, rows, machine="boot a", names=NAMES, **more):
    return NcclProcess(f"rank {rank}", rank, machine, NcclCollectives(np.concatenate([np.zeros(0, NCCL), *rows]), names, **more))


def by_rank(found):
    return {one.rank: one for one in found.processes}


def test_the_last_of_three_programs_and_of_three_gpus_are_told_apart():
    # programs arrive at 10, 40 and 25, so rank 1 is last, 30 behind the first; GPUs are there for 90, 70 and 100, so rank 1's comes last,
    # 20 after the last but one: rank 0 waits 20, rank 2 waits 30
    starts, times = (10, 40, 25), (90, 70, 100)
    found = nccl_arrivals([process(n, [row(5, starts[n], n, ranks=3, took=times[n], began=1000 * n + 1)]) for n in range(3)])
    assert (found.collectives, found.communicators, found.incomplete, found.repeated) == (1, 1, 0, 0)
    told = [(n, one.last, one.behind, one.worst, one.gpu_last, one.gpu_lost, one.gpu_waited) for n, one in sorted(by_rank(found).items())]
    assert told == [(0, 0, 0, 0, 0, 0, 20), (1, 1, 30, 30, 1, 20, 0), (2, 0, 15, 15, 0, 0, 30)]
    assert found.processes[0].rank == 1


def test_two_that_arrive_at_once_are_neither_last():
    found = nccl_arrivals([process(n, [row(5, 10, n, took=30)]) for n in range(2)])
    assert [(one.last, one.gpu_last, one.gpu_lost, one.behind) for one in found.processes] == [(0, 0, 0, 0)] * 2


def test_one_number_of_two_functions_or_of_two_communicators_is_two_collectives():
    rows = [[row(5, 10 + n, n), row(5, 90 - n, n, function=2), row(5, 200 + n, n, communicator=2**64 - 1)] for n in range(2)]
    found = nccl_arrivals([process(n, mine) for n, mine in enumerate(rows)])
    assert (found.collectives, found.communicators) == (3, 2)
    assert {n: one.last for n, one in by_rank(found).items()} == {0: 1, 1: 2}


def test_functions_are_matched_by_their_names_not_by_each_process_own_numbers():
    other = {2: "AllReduce", 1: "Broadcast"}
    found = nccl_arrivals([process(0, [row(5, 10, 0, function=1)]), process(1, [row(5, 11, 1, function=2)], names=other)])
    assert found.collectives == 1


def test_a_rank_that_is_not_recorded_and_a_number_that_comes_again_leave_collectives_out():
    # 5 is of three ranks, two of which are recorded; 6 came twice at rank 0, as launches of a graph do; 7 is whole
    rows = [[row(5, 10, n, ranks=3), row(6, 20, n), row(7, 30 + n, n)] for n in range(2)]
    rows[0].append(row(6, 25, 0, serial=9))
    found = nccl_arrivals([process(n, mine) for n, mine in enumerate(rows)])
    assert (found.collectives, found.incomplete, found.repeated) == (1, 1, 1)
    notes = nccl_notes(found)
    assert "NCCL's own arrivals leave out 1 collective of which not all ranks are recorded" in notes
    assert any("CUDA graph" in note for note in notes)


def test_two_processes_that_claim_one_rank_of_one_communicator_are_not_matched():
    found = nccl_arrivals([process(0, [row(5, 10, 0)]), process(1, [row(5, 11, 0)])])
    assert (found.collectives, found.repeated) == (0, 1)


def test_programs_on_two_machines_are_not_compared_but_their_gpus_are():
    rows = [row(5, 10, 0, took=50), row(5, 10**9, 1, took=40)]
    for machines in (("boot a", "boot b"), ("", "")):
        found = nccl_arrivals([process(n, [rows[n]], machine=machines[n]) for n in range(2)])
        assert [(one.compared, one.last, one.behind) for one in found.processes] == [(0, 0, None)] * 2
        assert by_rank(found)[1].gpu_lost == 10 and any("different machines" in note for note in nccl_notes(found))
    assert nccl_arrivals([process(n, [rows[n]]) for n in range(2)]).processes[0].compared == 1


def test_a_gpu_is_compared_only_where_all_leave_together_and_all_times_are_whole():
    # a rank may leave a broadcast before others have come
    assert nccl_arrivals([process(n, [row(5, 10, n, took=50 + n, function=2)]) for n in range(2)]).processes[0].gpu_lost is None
    half = row(5, 10, 1, took=50, channels=2)
    assert nccl_arrivals([process(0, [row(5, 10, 0, took=60)]), process(1, [half])]).processes[0].gpu_compared == 1
    half["ended"] = 1  # of two channels that began
    found = nccl_arrivals([process(0, [row(5, 10, 0, took=60)]), process(1, [half])])
    assert found.processes[0].gpu_compared == 0 and any("--nccl gpu" in note for note in nccl_notes(found))
    assert told_by_nccl(found).endswith("of all that was recorded: when programs enqueued them")
    half["ended"] = 2
    found = nccl_arrivals([process(0, [row(5, 10, 0, took=60)]), process(1, [half])])
    assert told_by_nccl(found).endswith(", and when their GPUs began them") and not any("--nccl gpu" in note for note in nccl_notes(found))


def test_no_note_points_to_arrivals_of_gpus_that_were_not_recorded():
    found = nccl_arrivals([process(n, [row(5, 10 + n, n)], machine=f"boot {n}") for n in range(2)])
    assert [note for note in nccl_notes(found) if "see the GPUs'" in note] == []
    assert sum("different machines" in note for note in nccl_notes(found)) == 1


def test_collectives_of_one_rank_and_none_at_all_are_no_arrivals():
    assert nccl_arrivals([process(0, [row(5, 10, 0, ranks=1)])]) is None and nccl_report([Recording("a.ullage")]) is None
    counted = nccl_arrivals([process(0, [], counted=7), process(1, [], lost=2)])
    assert (counted.collectives, counted.counted, counted.lost) == (0, 7, 2) and len(nccl_notes(counted)) == 2


def test_a_report_names_ranks_and_says_how_many_were_matched():
    found = [NcclCollectives(row(5, 10 + n, n), NAMES) for n in range(2)]
    recordings = [Recording(f"{n}.ullage", rank=n, boot="x", nccl=one) for n, one in enumerate(found)]
    report = nccl_report(recordings)
    assert report.processes[0].label == "rank 1"
    assert told_by_nccl(report).startswith("1 collective matched by NCCL's own numbers in 1 communicator, ")
    assert nccl_report([replace(one, rank=None) for one in recordings]).processes[0].label == "process 1"


# --- a slow reference ---


def reference(processes):
    """Return how many collectives were matched, and for each process (compared, last, behind, worst, GPUs compared, last, lost, waited)."""
    groups = defaultdict(list)
    for number, one in enumerate(processes):
        for each in one.collectives.rows:
            if each["ranks"] > 1:
                key = int(each["communicator"]), int(each["ranks"]), one.collectives.names[int(each["function"])], int(each["sequence"])
                groups[key].append((number, each))
    matched, behind, found = 0, defaultdict(list), {number: [0] * 5 for number in range(len(processes))}
    for (_, ranks, function, _), members in groups.items():
        if sorted(int(each["rank"]) for _, each in members) != list(range(ranks)):
            continue
        matched += 1
        if len({processes[number].machine for number, _ in members}) == 1:
            starts = sorted(int(each["start"]) for _, each in members)
            for number, each in members:
                behind[number].append(int(each["start"]) - starts[0])
                found[number][0] += int(each["start"]) > starts[-2]
        times = [int(each["gpu_end"]) - int(each["gpu_start"]) for _, each in members]
        if function in TOGETHER and all(time > 0 for time in times):
            for (number, _), time in zip(members, times, strict=True):
                others = sorted(times)
                found[number][1] += 1
                found[number][2] += time < others[1]
                found[number][3] += others[1] - time if time < others[1] else 0
                found[number][4] += time - others[0]
    answers = {}
    for number, (last, compared, gpu_last, lost, waited) in found.items():
        some = behind[number]
        times = (median_low(some), max(some)) if some else (None, None)
        answers[number] = (len(some), last, *times, compared, gpu_last, *((lost, waited) if compared else (None, None)))
    return matched, answers


def drawn(seed):
    """Return processes of several communicators: numbers that come again, ranks that lack, two machines, kernels without times."""
    dice = random.Random(seed)
    rows = defaultdict(list)
    for communicator in range(dice.randint(1, 4)):
        members = dice.sample(range(6), dice.randint(1, 5))
        for sequence in range(dice.randint(0, 12)):
            function = dice.choice([1, 2])
            for rank, number in enumerate(members):
                for _ in range(dice.choice([0, 1, 1, 1, 1, 1, 1, 1, 1, 2])):
                    took = dice.choice([0, 5, 5, 9, 40]) if dice.random() < 0.2 else dice.randint(1, 40)
                    given = {"communicator": communicator, "function": function, "ranks": len(members), "took": took}
                    rows[number].append(row(sequence, dice.randint(1, 30), rank, serial=len(rows[number]) + 1, **given))
    return [process(number, rows[number], machine=dice.choice(["a", "a", "a", "b"])) for number in range(6)]


@pytest.mark.parametrize("seed", range(40))
def test_arrivals_are_those_of_a_slow_reference(seed):
    processes = drawn(seed)
    matched, answers = reference(processes)
    found = nccl_arrivals(processes)
    if found is None:
        assert matched == 0
        return
    assert found.collectives == matched
    fields = ("compared", "last", "behind", "worst", "gpu_compared", "gpu_last", "gpu_lost", "gpu_waited")
    told = {one.rank: tuple(getattr(one, name) for name in fields) for one in found.processes}
    assert told == answers


def test_what_makes_no_sense_is_dropped_and_counted_and_of_one_serial_the_last_counts():
    backwards, later = row(1, 10, 0, serial=1), row(3, 30, 0, serial=3, took=7)
    backwards["end"] = 9
    rows = [backwards, row(2, 20, 5, serial=2), row(3, 30, 0, serial=3), later, row(4, 25, 1, serial=4), row(5, 2**63, 0, serial=5)]
    told, problems = RecordingFacts(nccl=[np.concatenate(rows[:3]), np.concatenate(rows[3:])], host_names=NAMES), Problems()
    told.info["nccl"] = {"counted": 4, "lost": 2, "astray": 1}
    found = nccl_collectives(told, problems, "here")
    assert found.rows["sequence"].tolist() == [4, 3] and int(found.rows["gpu_end"][1]) == 57  # in the order of their starts
    assert (found.counted, found.lost) == (4, 2) and problems.dropped == {WITHOUT_SENSE: 3, NO_ROOM: 2}
    assert nccl_collectives(RecordingFacts(info={"nccl": {"counted": -1, "lost": "x"}}), Problems(), "here") is None


def test_text_page_and_json_show_the_same_arrivals(tmp_path):
    names = {**NAMES, 9: "all"}
    for rank in range(2):
        writer = ChunkWriter(tmp_path / f"rank-{rank}.ullage")
        writer.add(ChunkType.INFO, {"host": "a", "boot": "b", "pid": 40 + rank, "rank": rank, "ranks": 2, "started": 10**18})
        writer.add(ChunkType.CLOCKS, b"".join(number.to_bytes(8, "little") for number in (0, 10**18, 10**9)))
        writer.add(ChunkType.NAMES, name_entries(names), flags=1)
        host = np.zeros(1, HOST)
        host["start"], host["end"], host["thread"], host["name"], host["kind"] = 10**9, 2 * 10**9, 40 + rank, 9, HostKind.REGION
        writer.add(ChunkType.HOST, host.tobytes())
        # rank 1's program comes 3 ms later, and its GPU is in the kernel for 2 ms less
        writer.add(ChunkType.NCCL, row(0, 10**9 + rank * 3_000_000, rank, took=(9 - 2 * rank) * 1_000_000).tobytes())
        writer.close()
    report = read_trace(tmp_path).report()
    said = record(report)["nccl"]["processes"]
    assert [(one["label"], one["worst"], one["gpu_lost"], one["gpu_waited"]) for one in said] == [
        ("rank 1", 3_000_000, 2_000_000, 0),
        ("rank 0", 0, 0, 2_000_000),
    ]
    line = next(line for line in str(report).splitlines() if line.startswith("rank 1"))
    assert line.split() == ["rank", "1", "1", "of", "1", "3.000", "ms", "3.000", "ms", "1", "of", "1", "2.000", "ms", "0", "ns"]
    page = html(view(report))
    assert "Who arrived last, as NCCL told it" in page and "1 collective matched by NCCL" in page and "3.000 ms" in page
    assert nccl_notes(report.nccl) == []
