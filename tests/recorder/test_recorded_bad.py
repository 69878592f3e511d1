"""Recordings that are cut, damaged, of an unknown CUPTI, hostile or something else: one clear error, or the good part and a count."""

from __future__ import annotations

import gzip
import json
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.recorder.recordings import CUPTI, KERNEL, Made, busy, call, host, kernel, of, record, rows
from ullage import read_trace
from ullage.cupti.chunks import HEADER, MAGIC, MARK, ChunkType, HostKind
from ullage.cupti.kinds import ActivityKind
from ullage.errors import UllageError
from ullage.simulate.traces.pils import load, pils
from ullage.simulate.traces.recording import write
from ullage.traces.trace import TraceOptions, recognised

ANY_FILE = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def busy_bytes(folder: Path) -> bytes:
    path = folder / "whole.ullage"
    path.unlink(missing_ok=True)
    return busy(path).read_bytes()


def test_a_recording_cut_at_any_byte_gives_what_came_before_or_one_clear_error(tmp_path: Path) -> None:
    whole = busy(tmp_path / "a.ullage").read_bytes()
    path = tmp_path / "cut.ullage"
    counts = []
    for length in range(len(MAGIC), len(whole), 3):
        path.write_bytes(whole[:length])
        try:
            found, recording, _ = rows(path)
        except UllageError as error:
            assert "holds no event" in error.problem
            counts.append(0)
            continue
        assert recording.cut
        counts.append(len(found))
    assert counts == sorted(counts)
    assert max(counts) == 7  # all of them, for only the end is missing


@ANY_FILE
@given(data=st.data())
def test_damage_anywhere_gives_intervals_that_can_be_or_one_clear_error(data: st.DataObject, tmp_path: Path) -> None:
    whole = bytearray(busy_bytes(tmp_path))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(len(MAGIC), len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.ullage"
    path.write_bytes(whole)
    try:
        found, _, _ = rows(path)
        read_trace(path).report()
    except UllageError:
        return
    assert all(row["start"] <= row["end"] for row in found)


@ANY_FILE
@given(payload=st.binary(max_size=300), kind=st.integers(0, 12), flags=st.integers(0, 3))
def test_a_chunk_of_any_bytes_harms_none_of_the_others(payload: bytes, kind: int, flags: int, tmp_path: Path) -> None:
    path = tmp_path / "a.ullage"
    path.unlink(missing_ok=True)
    made = Made(path).clocks(0).buffer(call(0, 1, tie=1), kernel(2, 8, tie=1)).clocks(10)
    made.add(kind, payload, flags).add(ChunkType.INFO, json.dumps({"cupti": 130001, "pid": 40, "host": "node-1"}).encode())  # type: ignore[arg-type]
    found, _, _ = rows(made.clocks(10).end())
    mine = [(row["start"], row["end"]) for row in of(found, "kernel")]
    assert (2, 8) in mine or kind == ChunkType.CLOCKS


def test_an_unknown_release_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage", version=None).info(cupti=990101).clocks(0).buffer(kernel(0, 1))
    with pytest.raises(
        UllageError, match=r"(?s)a.ullage can't be read: CUPTI says that it is version 990101.*12.0 \(18\).*13.5 \(130500\)"
    ):
        rows(made.end())


def test_buffers_of_nobody_knows_which_cupti_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UllageError, match="doesn't say which CUPTI wrote it"):
        rows(Made(tmp_path / "a.ullage", version=None).clocks(0).buffer(kernel(0, 1)).end())


@pytest.mark.parametrize(
    "said", [b"{", b"[1, 2]", b"[" * 100_000, b'{"pid": NaN, "rank": -1, "ranks": 1e400, "cupti": "new"}', b"\xff\xfe"]
)
def test_info_that_makes_no_sense_is_passed_over(said: bytes, tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").clocks(0).buffer(call(1, 2)).add(ChunkType.INFO, said)
    made.info(pid=40, cupti=130001, devices=[3, {"index": "x"}, {"index": 0, "uuid": 7}], kinds=[1], problems={"a": 1}, program=[None])
    found, recording, _ = rows(made.clocks(10).end())
    assert len(found) == 1
    assert recording.rank is None


def test_a_chunk_that_claims_a_gigabyte_takes_none(tmp_path: Path) -> None:
    path = Made(tmp_path / "a.ullage").clocks(0).buffer(call(1, 2)).killed()
    path.write_bytes(path.read_bytes() + HEADER.pack(MARK, ChunkType.BUFFER, 0, 1 << 30) + bytes(10))
    assert rows(path)[1].cut.endswith("inside a chunk of 1,073,741,824 bytes")
    path.write_bytes(path.read_bytes()[: -10 - HEADER.size] + HEADER.pack(MARK, ChunkType.BUFFER, 0, 1 << 62) + bytes(10))
    assert rows(path)[1].cut.endswith("where no chunk begins")


def test_a_compressed_recording_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.ullage.gz"
    made = Made(tmp_path / "a.ullage").clocks(0).buffer(call(1, 2)).add(ChunkType.READING, bytes(10**7))
    path.write_bytes(gzip.compress(made.end().read_bytes()))
    assert len(rows(path)[0]) == 1
    with pytest.raises(UllageError, match="unpacks to more than 1,000,000 bytes"):
        rows(path, TraceOptions(limit=10**6))


def test_a_recording_with_nothing_in_it_says_so_and_why(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").info(problems=[{"what": "cuptiSubscribe", "code": 39}]).clocks(0)
    with pytest.raises(UllageError, match=r"holds no event of a GPU, of MPI or of regions \(cuptiSubscribe: another profiler"):
        rows(made.clocks(9).end())


def test_with_strict_a_recording_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    path = Made(tmp_path / "a.ullage").clocks(0).buffer(call(1, 2)).killed()
    with pytest.raises(UllageError, match="is not whole"):
        rows(path, TraceOptions(strict=True))


def test_a_file_that_is_no_recording_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "a.ullage"
    path.write_bytes(MAGIC[:-1] + b"?")
    with pytest.raises(UllageError, match="not a trace that Ullage reads"):
        recognised(path)


def test_a_kind_without_a_size_ends_its_buffer_and_is_counted(tmp_path: Path) -> None:
    unheard_of = struct.pack("<II", 4_000_000, 1) + bytes(56)
    made = Made(tmp_path / "a.ullage").clocks(0).buffer(kernel(1, 2), unheard_of, kernel(3, 4)).buffer(kernel(5, 6))
    found, recording, problems = rows(made.clocks(9).end())
    assert [row["start"] for row in found] == [1, 5]
    assert recording.untimed == 1
    assert problems.dropped["records of kind 4000000, which no header of this release has"] == 1
    assert problems.dropped["ends of activity buffers"] == 1


def test_times_that_cant_be_are_counted_and_not_taken(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").clocks(0)
    late = record(ActivityKind.RUNTIME, 2**64 - 5 - CUPTI, 2**64 - 1 - CUPTI, cbid=211)
    made.buffer(call(1, 2), call(9, 3), late, kernel(10**15, 10**15 + 1), record(ActivityKind.OVERHEAD, 5, 4))
    made.host(host(5, 4, 1), host(-(3 * 10**12), 5, 1), host(6, 7, 1))
    found, recording, problems = rows(made.clocks(20).end())
    assert [(row["kind"], row["start"], row["end"]) for row in found] == [("api", 1, 2), ("region", 6, 7)]
    assert recording.untimed == 1
    assert dict(problems.dropped) == {
        "host records with impossible times": 2, "calls of CUDA with impossible times": 2, "device events with impossible times": 1,
        "rows of CUPTI's overhead with impossible times": 1,
    }  # fmt: skip


def test_a_device_whose_number_cant_be_is_none(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").clocks(0).buffer(kernel(0, 5, device=2**32 - 1, gridX=2**31 - 1, gridY=2**31 - 1, gridZ=7))
    [row] = rows(made.clocks(9).end())[0]
    assert (row["device"], row["blocks"]) == (None, None)


def test_hostile_names_are_kept_but_never_printed_raw(tmp_path: Path) -> None:
    evil = "\x1b[31m\u202ered\nline" + "x" * 5000
    made = Made(tmp_path / "a.ullage").clocks(0).named({KERNEL: evil}).named({1: evil}, flags=1)
    made.host(host(0, 9, 1), host(1, 2, 99), host(2, 3, 1, HostKind.MPI, serial=2), host(3, 4, 1, 77, serial=3))  # type: ignore[arg-type]
    path = made.buffer(call(0, 1, tie=1), kernel(1, 9, tie=1)).clocks(10).end()
    printed = str(read_trace(path))
    assert "\x1b" not in printed
    assert "\u202e" not in printed
    assert rows(path)[2].dropped["host records of an unknown kind"] == 1


def test_a_hundred_settings_of_the_clock_and_impossible_readings_do_no_harm(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.ullage").clocks(0)
    for number in range(100):
        made.clocks(number, drift=(-1) ** number * 10**11)
    made.add(ChunkType.CLOCKS, struct.pack("<QQQ", 2**64 - 1, 2**64 - 1, 2**64 - 1)).add(ChunkType.CLOCKS, bytes(24)).add(
        ChunkType.CLOCKS, bytes(5)
    )
    found, _, problems = rows(made.clocks(100).buffer(call(1, 2)).end())
    assert len(found) == 1
    assert problems.dropped["chunks without sense"] == 1


def test_ranges_without_their_other_half_are_kept_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ullage.traces.recorded.ranges.MOST_OPEN", 3)
    marks = [record(ActivityKind.MARKER, timestamp=CUPTI + number, flags=2, id=number + 1, name=KERNEL) for number in range(5)]
    made = Made(tmp_path / "a.ullage").clocks(0).named({KERNEL: "range"}).buffer(*marks)
    found, _, problems = rows(made.clocks(9).end())
    assert len(of(found, "region")) == 3
    assert problems.dropped["marks of NVTX ranges without their other half"] == 2


def test_one_bad_recording_of_a_folder_is_left_out_and_said(tmp_path: Path) -> None:
    scenario = pils(load("three", cpu="100,200,300", gpu="500"))
    paths = write(scenario, tmp_path)
    Path(paths[1]).write_bytes(MAGIC)
    report = read_trace(tmp_path).report()
    assert len(report.whole.host_parts) == 2
    assert report.partial
    assert any("1 traces that can't be used left out" in note for note in report.notes)


def test_the_order_of_buffers_and_records_does_not_matter(tmp_path: Path) -> None:
    scenario = pils(load("rounds", cpu="300,10", gpu="500,20", rounds=3))
    trees = []
    for per_buffer in (1, 7, 10_000):
        (folder := tmp_path / str(per_buffer)).mkdir()
        write(scenario, folder, per_buffer=per_buffer)
        trees.append(dict(read_trace(folder).tree().items()))
    assert all(one == other for one, other in pairwise(trees))
