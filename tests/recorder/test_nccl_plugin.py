"""The recorder as NCCL's profiler plugin: on a double of NCCL's side, under `ullage run`, on NVIDIA's own code."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.recorder.recorder_runs import HERE, compiled, library
from tests.recorder.recorder_runs import run as recorded
from tests.recorder.run_runs import environment
from tests.recorder.run_runs import record as ullage_run
from ullage.cupti.chunks import chunks
from ullage.live.launch import LONGEST_PLUGIN, PLUGIN, RecorderSettings, no_plugin
from ullage.live.launch import environment as launched
from ullage.problems import Problems
from ullage.traces.recorded.facts import RecordingFacts
from ullage.traces.recorded.nccl import nccl_collectives

COLL, KERNEL = 2, 64  # bits of NCCL's mask
MOST = 4096  # collectives at once, as in nccl.c
SIZE = 104  # bytes of a record


def double():
    return compiled(HERE / "nccl_double.c", "nccl_double")


def told_of(path):
    """Return what a recording says of itself."""
    told = RecordingFacts()
    with path.open("rb") as file:
        for chunk in chunks(file, str(path)):
            told.add(chunk)
    return told


def play(folder, *lines, code=0, **given):
    """Run a script in the double with the recorder as its plugin; return what it printed, and what its recording says."""
    folder.mkdir(exist_ok=True)
    (folder / "script").write_text("\n".join(lines) + "\n")
    ran = recorded(folder, [double(), folder / "script"], **{PLUGIN: str(library()), "ULLAGE_NCCL": "2"} | given)
    assert (ran.code, ran.errors) == (code, ""), ran.errors
    printed = [json.loads(line) for line in ran.output.splitlines()]
    return printed, told_of(ran.only.path) if ran.recordings else None


def rows_of(told):
    """Return the collectives of a recording as dictionaries, their words in place of numbers."""
    found = nccl_collectives(told, Problems(), "here")
    words = ("name", "function", "datatype", "algorithm", "protocol")
    rows = [] if found is None else found.rows
    return [{key: found.names[int(row[key])] if key in words else int(row[key]) for key in found.rows.dtype.names} for row in rows]


INIT = "init 0 18446744073709551615 2 8 3 world"


def test_a_collective_is_recorded_with_all_that_nccl_tells_of_it(tmp_path):
    printed, told = play(
        tmp_path, INIT, "coll 0 0 41 AllReduce 1000 0 ncclFloat32 2 RING SIMPLE", "stop 0",
        "kernel 0 0 0 5000", "kernel 1 0 1 4990", "end 1 7000", "end 0 6990", "coll 1 0 7 Broadcast 9 5 ncclInt8 1 TREE LL", "finalize 0",
    )  # fmt: skip
    assert printed[:2] == [{"plugin": "ullage"}, {"mask": COLL | KERNEL, "context": 1}]
    first, second = rows_of(told)
    # the GPU's time is from the first channel's start, 4990, to the last one's end, 7000; 18446744073709551615 is 2**64 - 1
    expected = {
        "communicator": 2**64 - 1, "sequence": 41, "gpu_start": 4990, "gpu_end": 7000, "count": 1000, "name": "world",
        "function": "AllReduce", "datatype": "ncclFloat32", "algorithm": "RING", "protocol": "SIMPLE", "rank": 3, "ranks": 8, "root": 0,
        "nodes": 2, "channels": 2, "started": 2, "ended": 2,
    }  # fmt: skip
    assert {key: first[key] for key in expected} == expected
    assert printed[2]["before"] <= first["start"] <= printed[2]["after"] and first["end"] >= first["start"]
    # it was neither stopped nor did its kernel begin before the program ended: it is told all the same
    assert second["function"] == "Broadcast" and second["root"] == 5 and second["end"] == second["gpu_start"] == second["gpu_end"] == 0
    assert told.info["nccl"] == {"interface": 4, "communicators": 1, "collectives": 2, "counted": 0, "lost": 0, "astray": 0}


def test_a_killed_program_leaves_the_collective_that_it_hangs_in(tmp_path):
    _, told = play(tmp_path, INIT, "coll 0 0 1 AllReduce 1 0 ncclInt8 1 RING LL", "stop 0", "sleep 400", "kill", code=-9)
    (row,) = rows_of(told)
    assert row["sequence"] == 1 and row["end"] > 0 and row["started"] == 0


def test_what_is_known_later_of_a_collective_replaces_what_was_told_before(tmp_path):
    _, told = play(
        tmp_path, INIT, "coll 0 0 1 AllReduce 1 0 ncclInt8 1 RING LL", "stop 0", "sleep 300", "kernel 0 0 0 50", "sleep 300", "end 0 90"
    )
    (row,) = rows_of(told)
    assert sum(len(part) for part in told.nccl) > 1 and (row["gpu_start"], row["gpu_end"], row["ended"]) == (50, 90, 1)


def test_communicators_of_several_threads_are_recorded_each_with_its_own(tmp_path):
    starts = [f"init {n} {70 + n} 1 8 {n} group-{n}" for n in range(8)]
    _, told = play(tmp_path, *starts, "threads 0 8 500", *(f"finalize {n}" for n in range(8)))
    rows = rows_of(told)
    assert told.info["nccl"]["lost"] == 0 and len(rows) == 8 * 500
    for n in range(8):
        mine = [row for row in rows if row["communicator"] == 70 + n]
        assert [row["sequence"] for row in mine] == list(range(500))
        # two channels, from 900 + n to 3000 + n
        assert all((row["gpu_start"], row["gpu_end"]) == (900 + at, 3000 + at) for at, row in enumerate(mine))
        assert {(row["name"], row["rank"], row["ended"]) for row in mine} == {(f"group-{n}", n, 2)}


def test_of_more_collectives_at_once_than_there_is_room_for_each_is_told_or_counted_as_lost(tmp_path):
    # the writer is woken when a quarter of the table is new; whether it comes in time is the system's to say
    count = 3 * MOST
    _, told = play(tmp_path, INIT, *(f"coll {n} 0 {n} AllReduce 1 0 ncclInt8 1 RING LL" for n in range(count)), ULLAGE_FLUSH="3600000")
    rows = rows_of(told)
    assert len({row["sequence"] for row in rows}) == len(rows) >= MOST
    assert len(rows) + told.info["nccl"]["lost"] == count == told.info["nccl"]["collectives"]


@pytest.mark.parametrize(("room", "kept"), [(3 * SIZE, 3), (3 * SIZE + 1, 4)])
def test_beyond_the_bytes_of_events_collectives_are_only_counted(room, kept, tmp_path):
    lines = [line for n in range(6) for line in (f"coll {n} 0 {n} AllReduce 1 0 ncclInt8 1 RING LL", f"stop {n}", "sleep 200")]
    printed, told = play(tmp_path, INIT, *lines, ULLAGE_EVENTS=str(room), ULLAGE_NCCL="1")
    rows = rows_of(told)
    assert [row["sequence"] for row in rows] == list(range(kept))
    assert told.info["nccl"]["counted"] == 6 - kept and told.info["nccl"]["collectives"] == 6
    assert [one["handle"] for one in printed[2:]] == [1] * kept + [0] * (6 - kept)


def test_what_nccl_never_does_harms_nothing_and_is_counted(tmp_path):
    use = ["coll 0 0 1 AllReduce 1 0 ncclInt8 1 RING LL", "stop 0", "stop 0", "kernel 0 0 0 5", "end 0 9", "end 0 70"]
    _, told = play(tmp_path, INIT, "wrong", *use, "finalize 0", "finalize 0", "coll 1 0 2 AllReduce 1 0 ncclInt8 1 RING LL", "wrong")
    (row,) = rows_of(told)  # the second end of the kernel is none, and neither is what comes after the communicator's end
    assert (row["gpu_start"], row["gpu_end"], row["ended"]) == (5, 9, 1)
    assert told.info["nccl"]["astray"] > 0 and told.info["nccl"]["collectives"] == 1


def test_in_a_forked_child_the_parents_collectives_are_nobodys(tmp_path):
    _, told = play(tmp_path, INIT, "coll 0 0 1 AllReduce 1 0 ncclInt8 1 RING LL", "fork", "stop 0", "kernel 0 0 0 5", "end 0 9")
    (row,) = rows_of(told)
    assert row["gpu_end"] == 9 and told.info["nccl"]["astray"] == 0


def test_nothing_is_asked_of_nccl_where_nothing_is_recorded_or_wanted(tmp_path):
    lines = (INIT, "coll 0 0 1 AllReduce 1 0 ncclInt8 1 RING LL", "stop 0", "wrong")
    for given in ({"ULLAGE_RECORD": ""}, {"ULLAGE_NCCL": "0"}):
        printed, told = play(tmp_path, *lines, **given)
        assert printed[1] == {"mask": 0, "context": 0} and told is None
    printed, told = play(tmp_path, *lines[:3], ULLAGE_NCCL="1")
    assert printed[1]["mask"] == COLL and rows_of(told)[0]["end"] > 0
    printed, told = play(tmp_path / "none", *lines[:3], ULLAGE_EVENTS="0")
    assert printed[1]["mask"] == COLL and told.info["nccl"]["counted"] == 1 and rows_of(told) == []


def test_another_profiler_plugin_stays_and_so_does_an_environment_without_any(tmp_path):
    given = RecorderSettings(tmp_path / "recorder.so", tmp_path)
    assert launched(given, {})[PLUGIN] == str(tmp_path / "recorder.so") == launched(given, launched(given, {}))[PLUGIN]
    assert launched(given, {PLUGIN: "inspector"})[PLUGIN] == "inspector"
    assert PLUGIN not in launched(given, {}, nccl="off") and launched(given, {}, nccl="off")["ULLAGE_NCCL"] == "0"
    assert [launched(given, {}, **asked)["ULLAGE_NCCL"] for asked in ({}, {"nccl": "calls"}, {"nccl": "gpu"})] == ["1", "1", "2"]


def test_a_path_that_nccl_would_cut_is_not_given_to_it():
    fits = Path("/" + "x" * (LONGEST_PLUGIN - 1))
    assert no_plugin(fits, {}) == "" and "longer than the 254 bytes" in no_plugin(Path(f"{fits}x"), {})


# --- two ranks under `ullage run` ---


def two_ranks(folder, *, late=60, nccl="gpu", **given):
    """Run two ranks of the double, of which rank 1 comes `late` ms later to all but the first of five collectives."""
    for rank in (0, 1):
        lines = ["push all", f"init 0 77 1 2 {rank} world"]
        for n in range(5):
            # a GPU that comes late is in the kernel for a shorter time: all leave at 10,000,000
            begin = 1_000_000 if n == 0 else 3_000_000 + 4_000_000 * rank
            lines += [f"at {{base}}{n:02}", f"coll {n} 0 {n} AllReduce 10 0 ncclFloat32 1 RING LL", f"stop {n}"]
            lines += [f"kernel {n} {n} 0 {begin + 10**12 * rank}", f"end {n} {10_000_000 + 10**12 * rank}"]
        (folder / f"rank-{rank}").write_text("\n".join([*lines, "pop", "finalize 0"]) + "\n")
    code = (
        "import pathlib, re, sys, time\n"
        "rank, late = int(sys.argv[2]), int(sys.argv[3])\n"
        "path = pathlib.Path(sys.argv[1]); base = int(sys.argv[4])\n"
        "at = lambda found: f'at {base + int(found[1]) * 120_000_000 + (rank and int(found[1]) > 0) * late * 1_000_000}'\n"
        "path.write_text(re.sub(r'at {base}(..)', at, path.read_text()))\n"
    )
    (folder / "set_times.py").write_text(code)
    script = (
        f"base=$({sys.executable} -c 'import time; print(time.monotonic_ns() + 700_000_000)'); "
        + "; ".join(f"{sys.executable} set_times.py rank-{rank} {rank} {late} $base" for rank in (0, 1))
        + "; "
        + " ".join(f"RANK={rank} WORLD_SIZE=2 LOCAL_RANK={rank} {double()} rank-{rank} > out-{rank} &" for rank in (0, 1))
        + " wait"
    )
    ran, said = ullage_run(
        folder, "--nccl", nccl, "--keep", folder / "kept", command=["sh", "-c", script], given=environment(folder, **given)
    )
    printed = [[json.loads(line) for line in (folder / f"out-{rank}").read_text().splitlines()] for rank in (0, 1)]
    return ran, said, printed


def test_a_late_rank_is_found_by_what_nccl_told(tmp_path):
    ran, said, printed = two_ranks(tmp_path)
    found = said["nccl"]
    assert ran.code == 0 and (found["collectives"], found["communicators"]) == (5, 1), ran.said
    late, early = found["processes"]
    assert (late["label"], early["label"]) == ("rank 1", "rank 0")
    # what the double's own clock says of each start bounds by how much the second rank came behind the first
    calls = [[one for one in rank if "sequence" in one] for rank in printed]
    least, most = ([b[one] - a[other] for a, b in zip(*calls, strict=True)] for one, other in (("before", "after"), ("after", "before")))
    certain = sum(one > 0 for one in least)
    assert 1 <= certain <= late["last"] <= sum(one > 0 for one in most) and late["compared"] == early["compared"] == 5
    assert min(least[1:]) <= late["behind"] <= max(most) and max(least) <= late["worst"] <= max(most)
    # of four collectives rank 1's GPU was in the kernel 4 ms shorter; the fifth took 9 ms on both
    assert (late["gpu_last"], late["gpu_lost"], late["gpu_waited"]) == (4, 16_000_000, 0)
    assert (early["gpu_last"], early["gpu_lost"], early["gpu_waited"]) == (0, 0, 16_000_000)
    told = ran.said[ran.said.index("NCCL's own numbers") :]
    first = next(line for line in told.splitlines() if line.startswith("rank "))
    assert "rank 1" in first and f"{late['last']} of 5" in first


@pytest.mark.full
def test_the_user_learns_why_nccl_tells_nothing(tmp_path):
    ran, said, printed = two_ranks(tmp_path, **{PLUGIN: "inspector"})
    assert printed[0] == [{"plugin": None}] and said.get("nccl") is None
    assert f"NCCL's own arrivals are not recorded: {PLUGIN} is set to inspector, which stays" in ran.notes


# --- NVIDIA's own code ---


def nvidia_nccl():
    """Return libnccl of NVIDIA's wheel; skips where it or nm is missing."""
    found = importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.nccl")
    places = [Path(place) / "lib" / "libnccl.so.2" for place in (found.submodule_search_locations or ())] if found else []
    there = [place for place in places if place.is_file()]
    return there[0] if there and shutil.which("nm") else pytest.skip("no nvidia-nccl wheel, or no nm")


DRIVES_NCCL = """
import ctypes as c, subprocess, sys
place, plugin = sys.argv[1:]
def symbols(*options):
    words = [line.split() for line in subprocess.run(["nm", *options, place], capture_output=True, text=True).stdout.splitlines()]
    return {w[2].split("@")[0]: int(w[0], 16) for w in words if len(w) == 3}
nccl, ours = c.CDLL(place), c.CDLL(plugin)
base = c.cast(nccl.ncclGetVersion, c.c_void_p).value - symbols("-D", "--defined-only")["ncclGetVersion"]
local = symbols()
if "_Z18getNcclProfiler_v4Pv" not in local: sys.exit(77)
class Profiler(c.Structure): _fields_ = [(name, c.c_void_p) for name in ("name", "init", "start", "stop", "state", "finalize")]
find = c.CFUNCTYPE(c.POINTER(Profiler), c.c_void_p)(base + local["_Z18getNcclProfiler_v4Pv"])
def function(name, *kinds): return c.CFUNCTYPE(c.c_int, *kinds)(getattr(find(ours._handle).contents, name))
context, mask, handle = c.c_void_p(), c.c_int(), c.c_void_p()
function("init", c.c_void_p, c.c_uint64, c.c_void_p, c.c_char_p, c.c_int, c.c_int, c.c_int, c.c_void_p)(
    c.byref(context), 77, c.byref(mask), b"world", 2, 16, 3, None)
assert mask.value == 66 and context.value
adapted = c.cast(c.pointer(find(ours._handle).contents), c.POINTER(Profiler)).contents
class Collective(c.Structure): _fields_ = [("type", c.c_uint64), ("parent", c.c_void_p), ("rank", c.c_int), ("sequence", c.c_uint64),
    ("function", c.c_char_p), ("send", c.c_void_p), ("receive", c.c_void_p), ("count", c.c_size_t), ("root", c.c_int),
    ("datatype", c.c_char_p), ("channels", c.c_uint8), ("warps", c.c_uint8), ("algorithm", c.c_char_p), ("protocol", c.c_char_p),
    ("group", c.c_void_p), ("more", c.c_uint64 * 32)]
class Kernel(c.Structure): _fields_ = [("type", c.c_uint64), ("parent", c.c_void_p), ("rank", c.c_int), ("channel", c.c_uint64),
    ("timer", c.c_uint64), ("more", c.c_uint64 * 32)]
start, stop = function("start", c.c_void_p, c.c_void_p, c.c_void_p), function("stop", c.c_void_p)
state = function("state", c.c_void_p, c.c_int, c.c_void_p)
told = Collective(2, None, 3, 41, b"AllReduce", None, None, 1000, 7, b"ncclFloat32", 1, 16, b"RING", b"SIMPLE", None)
start(context, c.byref(handle), c.byref(told)), stop(handle)
kernel = c.c_void_p()
start(context, c.byref(kernel), c.byref(Kernel(64, handle.value, 3, 0, 5000)))
state(kernel, 22, (c.c_uint64 * 8)(9000)), stop(kernel)
"""


def test_nvidias_own_adapter_to_version_4_hands_the_recorder_what_it_was_told(tmp_path):
    # no GPU is needed: what is called is the part of libnccl that turns its own descriptors into those of profiler_v4.h
    ran = recorded(tmp_path, [sys.executable, "-c", DRIVES_NCCL, nvidia_nccl(), library()], ULLAGE_NCCL="2")
    if ran.code == 77:
        pytest.skip("this libnccl hides its functions")
    assert ran.code == 0, ran.errors
    (row,) = rows_of(told_of(ran.only.path))
    expected = {
        "communicator": 77, "sequence": 41, "gpu_start": 5000, "gpu_end": 9000, "count": 1000, "name": "world", "function": "AllReduce",
        "datatype": "ncclFloat32", "algorithm": "RING", "protocol": "SIMPLE", "rank": 3, "ranks": 16, "root": 7, "nodes": 2,
    }  # fmt: skip
    assert {key: row[key] for key in expected} == expected
