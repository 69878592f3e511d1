"""Recordings that are easy to read wrongly: clocks, names that change, marks across threads, hostile words, files cut at any byte."""

from __future__ import annotations

import json
import re
import struct
import xml.dom.minidom
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.recorder import recorder_runs
from tests.recorder import recording_structs as structs
from tests.recorder.drawn_recordings import BUFFER, CLOCKS, END, EPOCH, HOST, HOUR, INFO, NAMES, OPEN, REGION, UPTIME, chunk, named, written
from tests.recorder.recording_brute_force import read
from tests.recorder.recording_sums import worked_out
from tests.recorder.test_recording_brute_force import assert_rows_agree, given, rows_of
from ullage import read_trace
from ullage.cli._parts import question_or_group
from ullage.errors import UllageError
from ullage.live.following import Following

SECOND = 10**9
VERSION = 130001
SAID = {"cupti": VERSION, "pid": 40, "kinds": {"10": 0, "5": 0}}
FILES = (".html", ".svg", ".json", ".txt")
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2066-\u2069\ufeff]")


def info(**more: object) -> bytes:
    return chunk(INFO, json.dumps(SAID | more).encode())


def clocks(cupti: int, moment: int) -> bytes:
    return chunk(CLOCKS, struct.pack("<QQQ", cupti, EPOCH + moment, UPTIME + moment))


def buffer(*records: bytes) -> bytes:
    return chunk(BUFFER, bytes(16) + b"".join(records))


def kernel(start: int, end: int, name: int = 0, **more: int) -> bytes:
    return structs.packed(structs.CONCURRENT, VERSION, start=start, end=end, name=name, **more)


def mark(moment: int, flags: int, number: int, name: int = 0, thread: int = 1) -> bytes:
    told = {"timestamp": EPOCH + moment, "flags": flags, "id": number, "objectKind": 2, "threadId": thread, "name": name}
    return structs.packed(structs.MARKER, VERSION, **told)


def found_in(path: Path, *kinds: str) -> list[tuple[object, ...]]:
    """(name, start, end) of the rows of some kinds, by their moments; brute force agrees on them."""
    assert_rows_agree(path)
    return [(row.name, row.start - EPOCH, row.end - EPOCH) for row in rows_of(path)[0] if row.kind in kinds]


# clocks


def test_one_reading_of_the_clocks_is_enough(tmp_path: Path) -> None:
    # CUPTI counts from another day: what it calls 7,000 is moment 2,000
    path = written(tmp_path / "a.ullage", [info(), clocks(5_000, 0), buffer(kernel(7_000, 7_010)), chunk(END, b"{}")])
    assert found_in(path, "kernel") == [(None, 2_000, 2_010)]


def test_where_cuptis_clock_was_never_read_its_times_are_those_since_1970(tmp_path: Path) -> None:
    path = written(tmp_path / "a.ullage", [info(), clocks(0, 0), buffer(kernel(EPOCH + 5, EPOCH + 9)), clocks(0, 50), chunk(END, b"{}")])
    assert found_in(path, "kernel") == [(None, 5, 9)]


def test_where_no_clock_was_read_the_hosts_records_cant_be_laid_beside_cuptis(tmp_path: Path) -> None:
    # monotonic time is hours, CUPTI's is years: laid on one line the run would last for half a century
    region = struct.pack("<QQIIHHIQ", UPTIME, UPTIME + 50, 1, 0, REGION, 0, 1, 0)
    path = written(tmp_path / "a.ullage", [info(), buffer(kernel(EPOCH, EPOCH + 30)), chunk(HOST, region)])
    report = read_trace(path).report()
    assert report.whole.elapsed == 30
    assert any(note.startswith("1 host records on a clock that was never read left out") for note in report.notes)


def test_a_kernel_may_end_after_the_last_call_and_before_the_first_reading_of_the_clocks(tmp_path: Path) -> None:
    # looked at from 80 to 140: the kernels 80-90 and 120-140 are 30 of 60
    records = [kernel(EPOCH + 80, EPOCH + 90), kernel(EPOCH + 120, EPOCH + 140)]
    path = written(tmp_path / "a.ullage", [info(), clocks(EPOCH + 100, 100), buffer(*records), clocks(EPOCH + 110, 110), chunk(END, b"{}")])
    assert read_trace(path).report().whole.elapsed == 60
    assert read_trace(path).tree("talp")["device_parallel_efficiency"] == 0.5


@pytest.mark.parametrize("edges", [(0, 0), (EPOCH + 5, 0), (EPOCH + 9, EPOCH + 3), (EPOCH + 5, 2**64 - 1), (0, EPOCH + 5), (5, 9)])
def test_an_event_whose_time_cant_be_is_lost_and_never_idle_time(edges: tuple[int, int], tmp_path: Path) -> None:
    records = [kernel(EPOCH, EPOCH + 10), kernel(*edges)]
    path = written(tmp_path / "a.ullage", [info(), clocks(EPOCH, 0), buffer(*records), clocks(EPOCH + 100, 100), chunk(END, b"{}")])
    found = assert_rows_agree(path)
    device = read_trace(path).report().whole.device
    assert found.bad["device"] == 1
    assert device is not None and (device.low, device.high) == (0.1, 1.0)


@pytest.mark.parametrize("shift", [HOUR, 30 * SECOND, -HOUR])
def test_if_cuptis_clock_is_set_kernels_keep_their_lengths_and_places(shift: int, tmp_path: Path) -> None:
    # set at 30 s; hours apart nothing is both before and after
    readings = [clocks(EPOCH + at * SECOND + (shift if at > 30 else 0), at * SECOND) for at in (0, 20, 40, 60)]
    before, after = EPOCH + 10 * SECOND, EPOCH + 50 * SECOND + shift
    records = buffer(kernel(before, before + 7), kernel(after, after + 9))
    path = written(tmp_path / "a.ullage", [info(), *readings[:2], records, *readings[2:], chunk(END, b"{}")])
    assert found_in(path, "kernel") == [(None, 10 * SECOND, 10 * SECOND + 7), (None, 50 * SECOND, 50 * SECOND + 9)]


# names and marks


def test_an_address_means_what_was_last_said_before_the_buffer(tmp_path: Path) -> None:
    # a module is unloaded, and another one's kernel has its name at the same address
    parts = [info(), clocks(EPOCH, 0)]
    for number, word in enumerate((b"first", b"second", b"third")):
        parts += [chunk(NAMES, named({0x7000: word})), buffer(kernel(EPOCH + 10 * number, EPOCH + 10 * number + 5, 0x7000))]
    path = written(tmp_path / "a.ullage", [*parts, clocks(EPOCH + 40, 40), chunk(END, b"{}")])
    assert [name for name, *_ in found_in(path, "kernel")] == ["first", "second", "third"]


def test_ranges_of_one_name_nest_and_cross_on_several_threads(tmp_path: Path) -> None:
    # pushed and popped on thread 1: 10-90 with 20-80 in it; started on thread 1 and ended on thread 2: 30-95; one is never ended
    pushed = [mark(10, 2, 1, 0x10), mark(20, 2, 2, 0x10), mark(80, 4, 2), mark(90, 4, 1)]
    started = [mark(30, 2, 3, 0x20), mark(95, 4, 3, thread=2), mark(50, 2, 4, 0x10, thread=2), mark(60, 1, 5, 0x10), mark(7, 4, 6)]
    names = chunk(NAMES, named({0x10: b"step", 0x20: b"cross"}))
    external = structs.packed(structs.EXTERNAL, VERSION, externalKind=1, externalId=9, correlationId=1)
    parts = [
        info(),
        clocks(EPOCH, 0),
        names,
        buffer(*pushed[2:], external, *started[1:]),
        buffer(*pushed[:2], started[0]),
        clocks(EPOCH + 100, 100),
    ]
    path = written(tmp_path / "a.ullage", [*parts, chunk(END, b"{}")])
    assert sorted(found_in(path, "region")) == [("cross", 30, 95), ("step", 10, 90), ("step", 20, 80), ("step", 50, 100)]
    [step] = [found for found in read_trace(path).report().regions if found.name == "step"]
    assert step.elapsed == 90  # from 10 to 100, counted once


def test_kernels_of_a_graph_and_a_graph_as_a_whole_are_time_that_the_device_worked(tmp_path: Path) -> None:
    # kernels of graph 4 run 0-10 and 20-30, graph 5 as a whole 50-90: K is 60 of 100, of which 40 may hold gaps
    nodes = [kernel(EPOCH, EPOCH + 10, graphId=4, graphNodeId=2**40), kernel(EPOCH + 20, EPOCH + 30, graphId=4, graphNodeId=2**40 + 1)]
    whole = structs.packed(structs.GRAPH, VERSION, start=EPOCH + 50, end=EPOCH + 90, graphId=5)
    path = written(tmp_path / "a.ullage", [info(), clocks(EPOCH, 0), buffer(*nodes, whole), clocks(EPOCH + 100, 100), chunk(END, b"{}")])
    report = read_trace(path).report("talp")
    assert given(report.whole) == worked_out([read(path)])
    device = report.whole.device
    assert device is not None and (device.low, device.high) == (0.2, 0.6)


def test_the_largest_grid_that_cuda_allows_has_its_blocks_counted(tmp_path: Path) -> None:
    # 2^31 - 1 by 65,535 by 65,535 is just below 2^63
    grids = [(2**31 - 1, 65_535, 65_535), (2**20, 2**13, 1), (7, 0, 9), (-1, 5, 5), (2**31 - 1, 2**31 - 1, 3)]
    records = [kernel(EPOCH + n, EPOCH + n, gridX=x, gridY=y, gridZ=z) for n, (x, y, z) in enumerate(grids)]
    path = written(tmp_path / "a.ullage", [info(), clocks(EPOCH, 0), buffer(*records), clocks(EPOCH + 9, 9), chunk(END, b"{}")])
    assert_rows_agree(path)
    assert [row.blocks for row in rows_of(path)[0]] == [9_223_090_559_730_712_575, 2**33, 0, None, None]


# hostile words

EVIL = (
    b'\x1b[31m\x1b]0;owned\x07</script><script>alert(1)</script>"\'&\x00\x08\r\n\xff\xfe\xc3(\xe2\x80\xae\xc2\x9b31m',
    b"ncclDevKernel_AllReduce\x1b[2J", b"A" * 4096, "\U0001f4a9".encode() * 1024, b"\xff" * 4096, b"", b"\n" * 50, b"..%s%n{0}{x}",
    "\u202e\u2066\u200b\ufeff\u2028".encode(),
)  # fmt: skip


def hostile(path: Path) -> Path:
    """A recording in which everybody's name is hostile: kernels, regions, ranges, the host, the program, devices, what failed."""
    word = EVIL[0].decode("utf-8", "replace")
    said = {"host": word, "program": [word], "library": word, "devices": [{"index": 0, "uuid": word, "name": word, "bus": word}]}
    failed = [{"what": word, "code": 3, "detail": word}, {"what": f"cupti{word}", "code": 39}]
    records = [kernel(EPOCH + 1000 * n, EPOCH + 1000 * n + 600, 0x1000 + n, correlationId=n + 1) for n in range(len(EVIL))]
    records += [mark(100 * n + 5000 * (flags == 4), flags, n + 1, 0x1000 + n) for n in range(len(EVIL)) for flags in (2, 4)]
    host = [
        struct.pack("<QQIIHHIQ", UPTIME + 10 * n, UPTIME + 9000, 1, n + 1, kind, 0, n + 1, 0)
        for n in range(len(EVIL))
        for kind in (OPEN, REGION, 1)
    ]
    names = chunk(NAMES, named({0x1000 + n: text for n, text in enumerate(EVIL)})) + chunk(NAMES, named(dict(enumerate(EVIL, 1))), flags=1)
    parts = [
        info(**said, problems=failed),
        clocks(EPOCH, 0),
        names,
        buffer(*records),
        chunk(HOST, b"".join(host)),
        clocks(EPOCH + 20_000, 20_000),
    ]
    return written(path, [*parts, chunk(END, b"{}")])


@pytest.mark.parametrize("asked", [[], ["--by", "region"], ["--by", "device"], ["--by", "rank"], ["--json"]])
def test_no_hostile_word_reaches_the_terminal_as_it_is(asked: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(question_or_group("trace"), [str(hostile(tmp_path / "a.ullage")), *asked])
    assert result.exit_code == 0, result.output
    assert UNSEEN.findall(result.output) == []


@pytest.mark.parametrize("ending", FILES)
def test_no_hostile_word_gets_into_a_file_as_it_is(ending: str, tmp_path: Path) -> None:
    out = tmp_path / f"out{ending}"
    result = CliRunner().invoke(question_or_group("trace"), [str(hostile(tmp_path / "a.ullage")), "--out", str(out)])
    assert result.exit_code == 0, result.output
    text = out.read_text(encoding="utf-8")
    assert UNSEEN.findall(text) == []
    assert ending in (".json", ".txt") or "<script>alert" not in text
    check = {".svg": xml.dom.minidom.parseString, ".json": json.loads}.get(ending)
    assert check is None or check(text)


# files that end early


def program(folder: Path) -> Path:
    """A small recording of a program, by the recorder itself."""
    return recorder_runs.run_cuda(folder, "--kernels", "3", "--names", "2").only.path


def small(folder: Path) -> Path:
    region = struct.pack("<QQIIHHIQ", UPTIME + 2, UPTIME + 50, 1, 1, REGION, 0, 1, 0)
    names = chunk(NAMES, named({0x10: b"gemm"})) + chunk(NAMES, named({1: b"step"}), flags=1)
    call = structs.packed(structs.RUNTIME, VERSION, start=EPOCH, end=EPOCH + 5, cbid=211, threadId=1, correlationId=1)
    parts = [info(), clocks(EPOCH, 0), names, buffer(call, kernel(EPOCH + 5, EPOCH + 40, 0x10, correlationId=1)), chunk(HOST, region)]
    return written(folder / "whole.ullage", [*parts, clocks(EPOCH + 60, 60), chunk(END, b"{}")])


ALL = ((small, 1), (program, 1))


@pytest.mark.parametrize(("made", "step"), [(small, 3), (program, 40), *(pytest.param(*one, marks=pytest.mark.full) for one in ALL)])
def test_a_recording_cut_at_any_byte_gives_its_good_part_and_says_so(made: Callable[[Path], Path], step: int, tmp_path: Path) -> None:
    whole = made(tmp_path).read_bytes()
    elapsed = read_trace(tmp_path if made is small else next(tmp_path.glob("rec/*"))).report().whole.elapsed
    cut, rows = tmp_path / "cut.ullage", []
    for length in range(0, len(whole), step):
        cut.write_bytes(whole[:length])
        try:
            report = read_trace(cut).report()
        except UllageError as error:
            assert rows == [], length  # once there is something, it stays
            assert error.problem.startswith(str(cut))
            continue
        finally:
            followed(cut)
        assert report.partial
        assert sum("ends early" in note and str(cut) in note for note in report.notes) == 1
        assert report.whole.elapsed <= elapsed
        rows.append(sum(part.device.launches for part in report.whole.device_parts))
    assert rows == sorted(rows)
    assert rows[-1] == (1 if made is small else 3)


def followed(path: Path) -> None:
    """Read a recording as it is read while it grows: the same must not end it."""
    try:
        following = Following(path)
        following.advance()
        following.tree("step")
    except UllageError:
        pass
