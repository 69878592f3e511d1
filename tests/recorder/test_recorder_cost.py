"""What the recorder takes is not the program's useful time: it is measured, taken off and told."""

from __future__ import annotations

import json
import random

import pytest
from click.testing import CliRunner

from tests.recorder.recorder_runs import HERE, compiled, library, run, run_program
from tests.recorder.recordings import MAIN, Made, host, of, rows
from ullage import read_trace
from ullage.cli._parts import question_or_group
from ullage.cupti.chunks import ChunkType, ChunkWriter, HostKind, chunks

NAMES = {1: "MPI_Test", 2: "step"}


def polling(folder, *words):
    """Run the program that polls, or computes between its calls."""
    source = HERE / "polling_program.c"
    double = compiled(source, "libpolling.so", ("-DLIBRARY", "-shared", "-fPIC", "-Wl,-soname,libpolling.so"))
    program = compiled(source, "program", (f"-L{double.parent}", "-lpolling", f"-Wl,-rpath,{double.parent}"))
    ran = run(folder, [program, *words], preload=[library()])
    assert ran.code == 0, ran.errors
    return ran.only


def without_costs(path, to):
    """Copy a recording, without what it says of the recorder's own time."""
    writer = ChunkWriter(to)
    with path.open("rb") as file:
        for chunk in chunks(file, str(path)):
            payload = chunk.payload
            if chunk.type == ChunkType.INFO:
                payload = json.dumps({key: value for key, value in chunk.json().items() if not key.endswith("_ns")}).encode()
            elif chunk.type == ChunkType.HOST:
                payload = chunk.host()[chunk.host()["kind"] != HostKind.OVERHEAD].tobytes()
            writer.add(ChunkType(chunk.type), payload, chunk.flags)
    writer.close()
    return to


def share(path):
    """Return a process' useful share of its time."""
    (part,) = read_trace(path).report().whole.host_parts
    assert part.useful + part.communication + part.recorder == part.elapsed
    return part.useful / part.elapsed


def test_a_program_that_only_polls_is_told_that_it_computes_nothing(tmp_path):
    # its time goes to calls that do nothing, to the recorder, and to a loop of two instructions; where other programs want the processor it
    # may be taken away in that loop, and nobody knows
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        recording = polling(folder, "100000")
        assert recording.did(HostKind.MPI).count("MPI_Test") == 100_000
        told, plain = share(recording.path), share(without_costs(recording.path, folder / "plain.ullage"))
        assert told < plain
        if told < 0.2 < plain:
            return
    pytest.fail(f"useful {told:.0%}, without what the recorder says of itself {plain:.0%}")


def test_a_program_that_computes_is_told_the_same_with_and_without(tmp_path):
    recording = polling(tmp_path, "300", "0.001")
    useful = share(recording.path)
    assert useful > 0.9 and useful == pytest.approx(share(without_costs(recording.path, tmp_path / "plain.ullage")), abs=2e-3)


def test_a_call_s_cost_is_measured_and_what_holds_a_thread_up_is_recorded(tmp_path):
    # 4 threads × 5,000 regions × 2 records; a ring holds 1,024
    recording = run_program(tmp_path, "threads").only
    assert all(0 < recording.info[name] < 10_000 for name in ("mpi_within_ns", "mpi_between_ns", "region_ns"))
    held = {}
    for kind, name, _, _, start, end, thread, _ in recording.host:
        if kind == HostKind.OVERHEAD:
            assert (name, start <= end) == ("", True)
            held.setdefault(thread, []).append((start, end))
    assert len(held) == 4 and all(len(spans) >= 9 for spans in held.values())  # at each time that half a ring is full, at the least
    assert all(a[1] <= b[0] for spans in held.values() for a, b in zip(sorted(spans), sorted(spans)[1:], strict=False))


# --- recordings written by hand ---


def by_hand(path, records, between=0, last=1000, rank=None, **cost):
    info = {"kinds": {}, "mpi_within_ns": 20, "mpi_between_ns": between} | ({} if rank is None else {"rank": rank, "ranks": 2})
    made = Made(path, None, **info).clocks(0).named(NAMES, flags=1)
    return made.host(*records).clocks(last).end(**cost)


def drawn(seed):
    """Return records of two threads, one of which calls MPI, in any order, and after how long the recorder is done with a call."""
    dice = random.Random(seed)
    records, between = [], dice.choice([0, 3, 10, 40])
    for thread in (MAIN, MAIN + 1):
        moment = 0
        while moment < 900:
            start = moment + dice.randrange(30)
            moment = start + dice.randrange(1, 40)
            kinds = [HostKind.MPI, HostKind.OVERHEAD] if thread == MAIN else [HostKind.OVERHEAD]
            kind = dice.choice(kinds)
            records.append(host(start, moment, 0 if kind == HostKind.OVERHEAD else 1, kind, serial=0, thread=thread))
    dice.shuffle(records)
    return records, between


def nanosecond_by_nanosecond(records, between, last):
    """Return (useful, communication, recorder), each nanosecond looked at by itself."""
    zero = host(0, 0, 0)[0]
    calls = sorted((r[0] - zero, r[1] - zero, r[2]) for r in records if r[4] == HostKind.MPI)
    lasts = []
    for start, end, thread in calls:
        later = [begin for begin, _, who in calls if who == thread and begin > start]
        lasts.append((start, max(end, min([end + between, *later]))))
    threads = {thread for *_, thread in calls}
    own = [(r[0] - zero, r[1] - zero) for r in records if r[4] == HostKind.OVERHEAD and r[2] in threads]
    found = [0, 0, 0]
    for moment in range(last):
        talks = any(start <= moment < end for start, end in lasts)
        held = any(start <= moment < end for start, end in own)
        found[1 if talks else 2 if held else 0] += 1
    return tuple(found)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(4, 40))])
def test_what_the_recorder_took_is_told_to_the_nanosecond(seed, tmp_path):
    records, between = drawn(seed)
    (part,) = read_trace(by_hand(tmp_path / "a.ullage", records, between)).report().whole.host_parts
    assert (part.useful, part.communication, part.recorder) == nanosecond_by_nanosecond(records, between, 1000)


def test_a_call_reaches_to_the_next_one_and_no_further(tmp_path):
    calls = [host(0, 10, 1, HostKind.MPI), host(15, 20, 1, HostKind.MPI), host(100, 110, 1, HostKind.MPI)]
    found, _, _ = rows(by_hand(tmp_path / "a.ullage", calls, between=30))
    assert [(row["start"], row["end"]) for row in of(found, "mpi")] == [(0, 15), (15, 50), (100, 140)]


@pytest.mark.parametrize("between", [-5, 10**9, "30", 1.5])
def test_a_cost_that_cant_be_is_none(between, tmp_path):
    found, _, _ = rows(by_hand(tmp_path / "a.ullage", [host(0, 10, 1, HostKind.MPI)], between=between))
    assert [(row["start"], row["end"]) for row in of(found, "mpi")] == [(0, 10)]


def test_in_a_program_without_mpi_the_main_thread_is_looked_at(tmp_path):
    held = [host(10, 30, 0, HostKind.OVERHEAD, thread=thread) for thread in (40, 41)]
    path = by_hand(tmp_path / "a.ullage", [*held, host(40, 70, 0, HostKind.OVERHEAD, thread=41), host(0, 90, 2)])
    (part,) = read_trace(path).report().whole.host_parts
    assert (part.recorder, part.useful) == (20, 980)


def test_what_regions_cost_is_in_the_sum(tmp_path):
    path = Made(tmp_path / "a.ullage", None, kinds={}, region_ns=4).clocks(0).named(NAMES, flags=1)
    path = path.host(*(host(10 * n, 10 * n + 5, 2, serial=n) for n in range(25))).clocks(1000).end()
    assert "the recorder itself: 1e-07 s in the program's threads (10 % of the run), 0 s in its own" in read_trace(path).report().notes


def test_the_rank_that_it_cost_most_is_spoken_of_and_all_forms_tell_the_same(tmp_path):
    calls = [host(100 * n, 100 * n + 10, 1, HostKind.MPI) for n in range(10)]
    held = [host(950, 1000, 0, HostKind.OVERHEAD)]
    by_hand(tmp_path / "0.ullage", calls, between=30, rank=0, writer_ns=7)
    by_hand(tmp_path / "1.ullage", calls + held, between=30, rank=1, writer_ns=8)
    report = read_trace(tmp_path).report()
    # ten calls of 20 + 30 ns, and 50 ns
    said = (
        "the recorder itself: rank 1, the most of 2: 5.5e-07 s in the program's threads "
        "(55 % of the run; 10 calls of MPI, 50 ns each, which counts as no useful time), 8e-09 s in its own"
    )
    assert [note for note in report.notes if note.startswith("the recorder itself")] == [said]
    text = CliRunner().invoke(question_or_group("trace"), [str(tmp_path)]).output
    told = json.loads(CliRunner().invoke(question_or_group("trace"), [str(tmp_path), "--json"]).output)
    first, second = told["processes"]
    assert (first["recorder_s"], second["recorder_s"]) == (0, 5e-8)
    assert second["shares"]["recorder"] == pytest.approx(0.05)
    (head,) = [line for line in text.splitlines() if line.startswith("process")]
    (row,) = [line for line in text.splitlines() if line.startswith("rank 1 ") and line.endswith("%")]
    assert head.endswith("the recorder") and row.split()[-2:] == ["5.0", "%"]
