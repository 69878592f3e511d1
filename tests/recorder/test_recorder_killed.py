"""Whatever ends a process, its recording tells all that its threads did: what they had not written is read from their rings."""

from __future__ import annotations

import errno
import signal
import struct
import subprocess
import time
from collections import Counter

import numpy as np
import pytest

from tests.cupti import cupti_double
from tests.recorder.recorder_runs import HERE, compiled, library, run
from tests.recorder.recordings import MAIN, Made, host, of, rows
from ullage import read_trace
from ullage.cupti.chunks import HOST, ChunkType, HostKind, chunks
from ullage.cupti.chunks import names as packed_names
from ullage.cupti.rings import HEADER, MAGIC, RING, beside

SELDOM = "3600000"  # ms between flushes: nothing is written but by a thread whose ring is full
ROOM = 4  # records of the rings that are written here by hand


def program():
    return compiled(HERE / "killed_program.c", "killed_program")


def ended(folder, *words, **environment):
    """Return a program that ran to its end, and how many regions of each name each of its processes says that it recorded."""
    ran = run(folder, [program(), *words], **{"ULLAGE_FLUSH": SELDOM} | environment)
    lines = [line.rsplit(" ", 1) for line in ran.output.splitlines()]
    told = Counter()
    for place, count in lines:
        told[tuple(place.split(" ", 1))] += int(count)
    return ran, told


def read(ran):
    """Return the same as the recordings tell it, by the pid that each names."""
    found = Counter()
    for recording in ran.recordings:
        for row in of(rows(recording.path)[0], "region"):
            found[str(recording.info["pid"]), row["name"]] += 1
    return found


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("killed", -signal.SIGKILL),
        ("leaves", 3),
        pytest.param("terminated", -signal.SIGTERM, marks=pytest.mark.full),
        pytest.param("aborts", -signal.SIGABRT, marks=pytest.mark.full),
        pytest.param("becomes another", 0, marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("count", [200, pytest.param(0, marks=pytest.mark.full), 5000])
def test_a_process_that_no_handler_sees_the_end_of_loses_nothing(how, code, count, tmp_path):
    # a ring holds 1,024 records, two of a region: the writer comes when one is half full
    ran, told = ended(tmp_path, "regions", how, str(count))
    assert (ran.code, ran.errors, ran.only.end) == (code, "", None)
    assert read(ran) == +told
    _, recording, problems = rows(ran.only.path)
    assert recording.cut == ""
    assert [line for line in problems.lines() if "ended without closing" in line] or count == 5000  # all of these may be written


def test_a_process_that_ends_by_itself_leaves_no_rings(tmp_path):
    ran, told = ended(tmp_path, "regions", "", "5000")
    assert read(ran) == told and ran.only.end["lost"] == 0
    assert list((tmp_path / "rec").iterdir()) == [ran.only.path]


def test_workers_that_are_forked_and_leave_are_all_there(tmp_path):
    ran, told = ended(tmp_path, "workers", "")
    assert read(ran) == told and len(ran.recordings) == 3
    report = read_trace(tmp_path / "rec").report()
    assert not report.partial and len(report.whole.host_parts) == 3
    assert any("82 records read from the rings of processes that ended without closing" in note for note in report.notes)  # 2 × (20 + 21)


@pytest.mark.full
def test_workers_of_workers_are_all_there(tmp_path):
    ran, told = ended(tmp_path, "nested", "killed")
    assert read(ran) == told and len(ran.recordings) == 7


@pytest.mark.parametrize("how", ["killed", ""])
def test_a_child_forked_past_the_c_library_leaves_its_parents_rings_alone(how, tmp_path):
    # 3,000 regions of the child would go round the parent's ring almost six times
    ran, told = ended(tmp_path, "raw", how)
    assert read(ran) == told and len(ran.recordings) == 1


@pytest.mark.full
@pytest.mark.parametrize("flush", ["0", "10"])
def test_threads_killed_at_any_moment_have_each_region_once(flush, tmp_path):
    # a thread is killed between two counts: one region may have been recorded that it has not counted yet
    for attempt in range(10):
        folder, counts = tmp_path / str(attempt), tmp_path / f"counts-{attempt}"
        folder.mkdir()
        given = cupti_double.environment(ULLAGE_RECORD=str(folder), ULLAGE_RECORDER=str(library()), ULLAGE_FLUSH=flush, COUNTS=str(counts))
        with subprocess.Popen([program(), "threads"], env=given) as running:
            until = time.monotonic() + 10
            while not list(folder.glob("*.rings")) and time.monotonic() < until:
                time.sleep(0.001)
            time.sleep(0.01 + 0.0037 * attempt)
            running.kill()
        (path,) = folder.glob("*.ullage")
        regions = of(rows(path)[0], "region")
        named = Counter(row["name"] for row in regions)
        pairs = np.frombuffer(counts.read_bytes(), np.uint64).reshape(-1, 2).tolist()
        for name, (begun, done) in zip("abc", pairs, strict=True):
            assert done <= named[name] <= begun <= done + 1, (attempt, name)


def test_where_the_disk_has_no_room_rings_are_memory_and_the_note_says_so(tmp_path):
    ran, _ = ended(tmp_path, "regions", "leaves", "300", ULLAGE_RESERVE=str(1 << 60))
    assert ran.code == 3 and not beside(ran.only.path).exists()
    ran, told = ended(tmp_path, "regions", "", "300", ULLAGE_RECORD=str(tmp_path / "other"))
    assert told and not list((tmp_path / "other").glob("*.rings"))


def test_a_limit_on_the_size_of_files_is_no_end_of_the_program(tmp_path):
    ran = run(tmp_path, ["sh", "-c", f"ulimit -f 100; exec {program()} regions nothing 300"])
    assert (ran.code, ran.errors, len(ran.only.did())) == (0, "", 307)
    assert not beside(ran.only.path).exists()
    assert any(problem["what"] == "rings" and problem["code"] == errno.EFBIG for problem in ran.only.info.get("problems", ()))


# --- rings written by hand ---


def ring(records, head, tail, then=None, at=0):
    """Return a ring whose record number n, of all that its thread put in, is `records[n]`; only the last ones are still in it."""
    places = np.zeros(ROOM, HOST)
    for number, record in enumerate(records[:head]):
        places[number % ROOM] = record
    return struct.pack("<3I4xQ40x", head % 2**32, tail % 2**32, (tail if then is None else then) % 2**32, at) + places.tobytes()


def written(path, *rings, names=None, count=None, magic=MAGIC):
    """Write the rings of a recording's process, and return the recording."""
    text = packed_names(names or {})
    stride = RING.size + ROOM * HOST.itemsize
    begin = [HOST.itemsize, ROOM, stride, HEADER.size, 200, HEADER.size + 200, len(text), len(rings) if count is None else count]
    beside(path).write_bytes(struct.pack("<8s8I", magic, *begin) + text.ljust(200, b"\0") + b"".join(rings))
    return path


def regions(count):
    """Return regions of 10 ns each, one after another, named in turns."""
    return [host(10 * n, 10 * n + 10, 1 + n % 2, serial=n + 1) for n in range(count)]


def killed(folder, rows=(), **info):
    """Return a recording of a killed process that has written some records, and where its last chunk of them is."""
    made = Made(folder / "a.ullage", None, **{"kinds": {}} | info).clocks(0).named({1: "one"}, flags=1)
    path = (made.host(*rows) if rows else made).killed()
    with path.open("rb") as file:
        return path, max((chunk.offset for chunk in chunks(file, "it") if chunk.type == ChunkType.HOST), default=0)


def told(path):
    """Return when each region began that a recording and its rings tell of, with its name, sorted; and the problems."""
    found, recording, problems = rows(path)
    return sorted((row["start"], row.get("name")) for row in of(found, "region")), recording, problems


def expected(*numbers):
    return [(10 * n, "one" if n % 2 == 0 else "two") for n in numbers]


@pytest.mark.parametrize(
    ("head", "tail", "then", "left"),
    [
        (3, 0, None, (0, 1, 2)),
        (7, 3, None, (3, 4, 5, 6)),  # once round
        (7, 7, None, ()),
        (7, 4, 6, (6,)),  # killed when 4 and 5 were written and before the tail said so
        (7, 4, 7, ()),
    ],
)
def test_what_lies_between_tail_and_head_is_read_once(head, tail, then, left, tmp_path):
    already = tail if then is None else then
    path, at = killed(tmp_path, regions(already))
    written(path, ring(regions(head), head, tail, then, at if then else 0), names={2: "two"})
    found, recording, problems = told(path)
    assert found == expected(*range(already), *left) and not recording.cut
    assert [line.split(" ", 1)[0] for line in problems.lines() if "rings" in line] == [str(len(left))] * bool(left)


def test_numbers_of_records_may_go_round_two_to_the_32(tmp_path):
    path, _ = killed(tmp_path)
    places = regions(4)
    # the record before the turn lies in the last place, those after it in the first two
    bytes_ = ring([places[0], places[1], places[3], places[2]], 4, 0)
    bytes_ = struct.pack("<3I4xQ40x", 2, 2**32 - 1, 2**32 - 1, 0) + bytes_[RING.size :]
    written(path, bytes_, names={2: "two"})
    assert told(path)[0] == expected(0, 1, 2)


def test_a_process_lived_until_the_last_record_that_it_left(tmp_path):
    path, _ = killed(tmp_path)
    found = [host(100, 400, 1), host(500, 0, 1, HostKind.OPEN, serial=2), host(600, 900, 2, HostKind.MPI, thread=MAIN + 1)]
    written(path, ring(found, 3, 0), names={1: "one", 2: "MPI_Recv"})
    report = read_trace(path).report()
    assert (report.whole.elapsed, report.whole.host_parts[0].communication) == (900, 300)
    assert [(row["start"], row["end"]) for row in of(rows(path)[0], "region")] == [(100, 400), (500, 900)]  # it never ended


def test_where_cuda_was_recorded_what_was_not_flushed_of_it_is_missing(tmp_path):
    path, _ = killed(tmp_path, kinds={"10": 0})
    _, recording, _ = told(written(path, ring(regions(2), 2, 0)))
    said = "the program ended without closing; 2 records read from its rings, and of its devices what it had flushed"
    assert recording.cut.startswith(said)


def test_a_chunk_that_was_cut_by_the_kill_is_in_the_rings(tmp_path):
    path, at = killed(tmp_path, regions(3))
    path.write_bytes(path.read_bytes()[:-8])
    found, recording, _ = told(written(path, ring(regions(4), 4, 0, 3, at), names={2: "two"}))
    assert (found, recording.cut) == (expected(0, 1, 2, 3), "")


def test_a_recording_that_was_cut_after_the_kill_is_told_so(tmp_path):
    path, at = killed(tmp_path, regions(3))
    path.write_bytes(path.read_bytes()[: at - 8])
    _, recording, _ = told(written(path, ring(regions(4), 4, 3, 3, at)))
    assert recording.cut.startswith("it ends at byte ")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ("magic", "it does not begin as rings do"),
        ("empty", "it does not begin as rings do"),
        ("header", "its header makes no sense"),
        ("cut", "1 of 2 rings are missing"),
        ("head", "1 of 2 rings make no sense"),
        ("many", "4,294,967,293 of 4,294,967,295 rings are missing"),
    ],
)
def test_damaged_rings_are_one_note_and_the_rest_is_read(damage, why, tmp_path):
    path, _ = killed(tmp_path, regions(2))
    good, bad = ring(regions(4), 4, 2), ring(regions(4), 4, 2 if damage != "head" else 2 - ROOM)
    written(
        path, good, bad, names={2: "two"}, magic=b"nonsense" if damage == "magic" else MAGIC, count=2**32 - 1 if damage == "many" else None
    )
    data = bytearray(beside(path).read_bytes())
    if damage == "header":
        data[8:16] = bytes(8)
    beside(path).write_bytes({"empty": b"", "cut": data[:-1]}.get(damage, data))
    found, recording, problems = told(path)
    assert expected(0) == found[:1] and len(found) == {"cut": 4, "head": 4, "many": 6}.get(damage, 2)
    assert recording.cut.endswith(f"which are damaged: {why}")
    assert f"{path} ends early: {recording.cut}" in read_trace(path).report().notes
    assert sum("rings" in line for line in problems.lines()) <= 1


def test_rings_beside_a_recording_are_no_trace_of_their_own(tmp_path):
    path, _ = killed(tmp_path, regions(2))
    written(path, ring(regions(3), 3, 2), names={2: "two"})
    assert not [note for note in read_trace(tmp_path).report().notes if "no trace" in note]


def test_rings_of_a_process_that_ended_by_itself_say_nothing(tmp_path):
    path = Made(tmp_path / "a.ullage", None).clocks(0).named({1: "one", 2: "two"}, flags=1).host(*regions(2)).clocks(20).end()
    assert told(written(path, ring(regions(4), 4, 2)))[0] == expected(0, 1)


def test_rings_that_could_not_be_shared_are_told_where_the_process_was_killed(tmp_path):
    problem = {"problems": [{"what": "rings", "code": errno.ENOSPC, "detail": "/tmp/x.rings"}]}
    for end in (False, True):
        made = Made(tmp_path / f"{end}.ullage", None, **problem).clocks(0).named({1: "one", 2: "two"}, flags=1)
        made.host(*regions(2)).clocks(20)
        notes = read_trace(made.end() if end else made.killed()).report().notes
        said = "its rings could not be kept beside the recording (No space left on device): what a killed process had not flushed is lost"
        assert (said in notes) == (not end)
