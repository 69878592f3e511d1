"""Recordings read by Ullage and worked out a second time without it: the same rows, the same sums to the nanosecond, the same trees."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from tests.cupti import wheel_headers
from tests.recorder import recording_structs as structs
from tests.recorder.drawn_recordings import BUFFER as BUFFERS
from tests.recorder.drawn_recordings import CLOCKS, END, EPOCH, INFO, NAMES, chunk, drawn, named, written
from tests.recorder.recording_brute_force import Recording, Row, read
from tests.recorder.recording_sums import Sums, regions, threads, worked_out
from ullage import read_trace
from ullage.cli._parts import question_or_group
from ullage.errors import UllageError
from ullage.live.following import Following
from ullage.live.trees import ProcessTree
from ullage.problems import Problems
from ullage.recording import Recording as Told
from ullage.reports.trace.part import RunPart
from ullage.reports.trace.trace import TraceReport
from ullage.traces.recorded.recorded import read as read_recording
from ullage.traces.trace import File, TraceOptions

FEW, MANY = 12, 1000  # seeds of the fast suite, and of the full one
ON_DEVICE = ("kernel", "collective", "memcpy", "memset", "graph", "lost")
MATCHED = ("transfer_efficiency", "arrival_efficiency")  # come from matching collectives across ranks, not from these sums


def in_parts(few: int, many: int, size: int = 25) -> list[pytest.ParameterSet]:
    """Ranges of seeds; those beyond the first few are for the full suite."""
    first = [pytest.param(range(few), id=f"to {few}")]
    rest = [range(at, min(at + size, many)) for at in range(few, many, size)]
    return first + [pytest.param(part, id=f"from {part.start}", marks=pytest.mark.full) for part in rest]


def rows_of(path: Path) -> tuple[list[Row], Told, Problems]:
    """The intervals of a recording as Ullage reads them."""
    told, problems = Told(str(path)), Problems()
    batches = list(read_recording(File(path), told, TraceOptions(), problems))
    return [as_row(row) for batch in batches for row in batch.to_pylist()], told, problems


def as_row(row: dict[str, object]) -> Row:
    plain = {name: row[name] for name in Row.__dataclass_fields__ if name != "submits"}
    return Row(**plain, submits=row["call"] in ("launch", "graph", "copy"))  # type: ignore[arg-type]


def assert_rows_agree(path: Path) -> Recording:
    """Compare a recording's rows, its devices, and what could not be used; return it worked out."""
    expected = read(path)
    rows, told, problems = rows_of(path)
    assert Counter(rows) == Counter(expected.rows)
    assert {n: plain(device.key) for n, device in told.devices.items()} == {n: plain(uuid) for n, uuid in expected.uuids.items()}
    bad = {
        key: problems.dropped.get(what, 0)
        for key, what in (("device", "device events with impossible times"), ("buffers", "ends of activity buffers"))
    }
    assert bad == {key: expected.bad[key] for key in bad}
    nowhere = sum(row.device is None and row.kind in ON_DEVICE for row in expected.rows)
    assert told.untimed == expected.bad["untimed"] + expected.bad["buffers"] + expected.dropped + nowhere
    return expected


def plain(uuid: str) -> str:
    return uuid.replace("-", "").lower()


def given(found: RunPart) -> Sums:
    """What Ullage says of a run, or of a part of it."""
    devices = sorted((part.kernel, part.collective, part.memory) for part in found.device_parts)
    return Sums(found.elapsed, devices, sorted((p.elapsed, p.useful, p.offload, p.communication) for p in found.host_parts))


def assert_sums_agree(report: TraceReport, recordings: list[Recording]) -> None:
    """Compare the whole run and each region: sums and trees."""
    whole = worked_out(recordings)
    assert given(report.whole) == whole
    assert {found.name: given(found) for found in report.regions} == {
        name: sums for name in regions(recordings) if (sums := worked_out(recordings, name)) is not None
    }
    for found in (report.whole, *report.regions):
        trees = worked_out(recordings, None if found is report.whole else found.name)
        assert trees is not None
        assert_tree_agrees(found, trees.trees(report.mode))


def assert_tree_agrees(found: RunPart, expected: dict[str, float]) -> None:
    nodes = [node for tree in (found.host, found.device) if tree is not None for _, node in tree.walk()]
    values = {node.metric: node.value for node in nodes if node.value is not None and node.metric not in MATCHED}
    assert values == pytest.approx({name: expected[name] for name in values}, rel=1e-12)
    for node in nodes:
        assert node.value is None or node.low - 1e-12 <= node.value <= node.high + 1e-12


# against NVIDIA's headers


def test_the_structs_written_by_hand_are_those_of_the_headers(tmp_path: Path) -> None:
    compiler = shutil.which("gcc") or pytest.skip("no gcc")
    for include, version in wheel_headers.headers():
        lines, expected = [], []
        for kind in structs.known_in(version):
            name = STRUCT[kind](version)
            lines += [f"sizeof({name})", *(f"offsetof({name}, {MEMBER.get((kind, f), f)})" for f in structs.offsets(kind, version))]
            expected += [structs.layout(kind, version)[0].size, *structs.offsets(kind, version).values()]
        (source := tmp_path / "sizes.c").write_text(
            "#include <stddef.h>\n#include <stdio.h>\n#include <cuda.h>\n#include <cupti_activity.h>\n"
            f"int main(void) {{ size_t all[] = {{{', '.join(lines)}}};\n"
            'for (size_t n = 0; n < sizeof all / sizeof *all; n++) printf("%zu ", all[n]); }\n'
        )
        folders = [word for folder in include for word in ("-I", str(folder))]
        subprocess.run([compiler, "-w", *folders, "-o", str(tmp_path / "sizes"), str(source)], check=True)
        printed = subprocess.run([tmp_path / "sizes"], capture_output=True, text=True, check=True).stdout
        assert [int(word) for word in printed.split()] == expected, version


def _since(*versions: tuple[int, str]):  # type: ignore[no-untyped-def]
    """The name of a struct that is another one from some versions on."""
    return lambda version: "CUpti_Activity" + [name for since, name in versions if since <= version][-1]


KERNELS = ((18, "Kernel9"), (130000, "Kernel10"), (130100, "Kernel11"), (130300, "Kernel12"), (130400, "Kernel13"))
STRUCT = {
    structs.COPY: _since((18, "Memcpy5"), (26, "Memcpy6"), (130400, "Memcpy7")),
    structs.MEMSET: _since((18, "Memset4"), (130400, "Memset5")),
    structs.KERNEL: _since(*KERNELS),
    structs.CONCURRENT: _since(*KERNELS),
    structs.DRIVER: _since((18, "API")),
    structs.RUNTIME: _since((18, "API")),
    structs.DEVICE: _since((18, "Device4"), (20, "Device5"), (130200, "Device6")),
    structs.CONTEXT: _since((18, "Context"), (22, "Context2"), (23, "Context3"), (130100, "Context4")),
    structs.MARKER: _since((18, "Marker2")),
    structs.MARKER_DATA: _since((18, "MarkerData"), (130000, "MarkerData2")),
    structs.OVERHEAD: _since((18, "Overhead"), (21, "Overhead2"), (22, "Overhead3")),
    structs.CHILD: _since((18, "CdpKernel")),
    structs.PEER_COPY: _since((18, "MemcpyPtoP4")),
    structs.PAGES: _since((18, "UnifiedMemoryCounter2"), (26, "UnifiedMemoryCounter3")),
    structs.WAIT: _since((18, "Synchronization"), (26, "Synchronization2")),
    structs.EXTERNAL: _since((18, "ExternalCorrelation")),
    structs.GRAPH: _since((18, "GraphTrace"), (21, "GraphTrace2")),
    structs.GRAPH_ON_DEVICE: _since((26, "DeviceGraphTrace")),
    structs.UNPACKED: _since((26, "MemDecompress")),
}
MEMBER = {(kind, f"{what}Id"): f"objectId.pt.{what}Id" for kind in (structs.MARKER, structs.OVERHEAD) for what in ("process", "thread")}


# against chance


@pytest.mark.parametrize("seeds", in_parts(FEW, MANY))
def test_recordings_drawn_by_chance_give_the_rows_and_the_sums_that_brute_force_gives(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        (folder := tmp_path / str(seed)).mkdir()
        recordings = [assert_rows_agree(path) for path in drawn(seed, folder)]
        assert_sums_agree(read_trace(folder).report(), recordings)


@pytest.mark.parametrize("seeds", in_parts(FEW, MANY))
def test_threads_of_openmp_drawn_by_chance_lose_what_brute_force_says(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        (folder := tmp_path / str(seed)).mkdir()
        paths = drawn(seed, folder, openmp=True)
        recordings = {str(path): assert_rows_agree(path) for path in paths}
        report = read_trace(folder).report()
        for found in (report.whole, *report.regions):
            for p in found.host_parts:
                named = None if found is report.whole else found.name
                told = (p.elapsed, p.useful, p.offload, p.communication, p.threads, p.imbalance, p.scheduling, p.serialisation)
                assert told == threads(recordings[p.process.key[0]], named)


@pytest.mark.parametrize("seeds", in_parts(FEW, MANY))
def test_reading_while_it_grows_gives_the_sums_that_brute_force_gives(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        for path in drawn(seed, tmp_path):
            recording, following = read(path), Following(path)
            following.advance()
            if not recording.pauses[0]:  # while it is stopped, nobody looks
                for name in (None, *regions([recording])):
                    assert_live_agrees(following.tree(name), worked_out([recording], name))


def assert_live_agrees(tree: ProcessTree, expected: Sums | None) -> None:
    """Compare a tree of one process with its sums."""
    assert (tree.host_totals is None) == (expected is None)
    if expected is None or tree.host_totals is None:
        return
    [(elapsed, useful, offload, _)] = expected.processes
    host = tree.host_totals
    assert (tree.elapsed, host.useful_time, host.offload_time) == (elapsed, useful, offload)
    assert host.max_busy_time == useful + offload
    wanted = expected.trees(tree.mode)
    found = {name: value for name, value in tree.items() if value is not None}
    assert found == pytest.approx({name: wanted[name] for name in found}, rel=1e-12)


@pytest.mark.parametrize("seed", [3, 5, 7])
def test_the_command_prints_the_sums_that_brute_force_gives(seed: int, tmp_path: Path) -> None:
    expected = worked_out([read(path) for path in drawn(seed, tmp_path)])
    assert expected is not None
    result = CliRunner().invoke(question_or_group("trace"), [str(tmp_path), "--json", "--mode", "ai"])
    found = json.loads(result.output)
    assert found["elapsed_ns"] == expected.elapsed
    lanes = sorted(
        tuple(round(p[f"{what}_s"] * 1e9) for what in ("elapsed", "useful", "offload", "communication")) for p in found["processes"]
    )
    assert lanes == expected.processes
    parts = sorted(tuple(round(d[f"{what}_s"] * 1e9) for what in ("kernel", "collective", "memory")) for d in found["devices"])
    assert parts == expected.devices
    assert found["device_totals"]["kernel_time"] == sum(kernel for kernel, _, _ in expected.devices)


# against every release, with every field at any value

POINTERS = (0, 8, 0x7FFF12345678, 2**63, 2**64 - 1)


def any_value(chance: Random, code: str) -> object:
    """A value of a field, of the whole range that it has room for."""
    if code.endswith("s"):
        return chance.randbytes(int(code[:-1]))
    bits = 8 * struct.calcsize("<" + code[-1])
    return chance.getrandbits(bits) - (1 << (bits - 1) if code[-1] in "iq" else 0)


def any_record(chance: Random, kind: int, version: int) -> bytes:
    values = {name: any_value(chance, code) for name, code in structs.layout(kind, version)[1] if name != "kind"}
    start = EPOCH + chance.randrange(10**9)
    told = {"start": start, "timestamp": start, "end": start + chance.randrange(10**9), "name": chance.choice(POINTERS)}
    told |= {"type": chance.randrange(6), "counterKind": chance.randrange(9), "copyKind": chance.randrange(14), "overheadKind": 1 << 16}
    told |= {"cbid": chance.choice(list(structs.CALLS[kind]))} if kind in structs.CALLS else {}
    told |= {"flags": chance.choice([2, 4])} if kind == structs.MARKER else {}
    return structs.packed(kind, version, **values | {name: value for name, value in told.items() if name in values})


@pytest.mark.parametrize("version", structs.VERSIONS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 20))])
def test_every_field_of_every_release_is_read_where_the_headers_have_it(version: int, seed: int, tmp_path: Path) -> None:
    chance = Random(seed * 10**6 + version)
    records = [any_record(chance, kind, version) for kind in structs.known_in(version) for _ in range(8)]
    chance.shuffle(records)
    info = {"cupti": version, "pid": 5, "kinds": chance.choice([{}, {"10": 0}])}
    texts = named({pointer: f"name {pointer}".encode() for pointer in POINTERS if pointer})
    parts = [(INFO, json.dumps(info).encode()), (CLOCKS, struct.pack("<QQQ", EPOCH, EPOCH, 5)), (NAMES, texts)]
    parts += [(BUFFERS, bytes(16) + b"".join(records)), (END, b"{}")]
    found = assert_rows_agree(written(tmp_path / "a.ullage", [chunk(*part) for part in parts]))
    assert {row.kind for row in found.rows} >= {"kernel", "memcpy", "memset", "api", "graph", "overhead"}


# with damage


def damaged(chance: Random, whole: bytes) -> bytes:
    """The bytes of a recording after some of them were changed, lost, repeated, or cut off."""
    data = bytearray(whole)
    for _ in range(chance.choice([1, 1, 2, 5, 30])):
        at = chance.randrange(8, max(len(data), 9))
        size = chance.choice([1, 8, 16, 100])
        edit = chance.choice([*(["byte"] * 5), "word", "lost", "more", "again", "cut"])
        if edit == "byte":
            data[at : at + 1] = bytes([chance.choice([0, 1, 128, 255, chance.randrange(256)])])
        elif edit == "word":
            data[at : at + 8] = chance.choice([bytes(8), b"\xff" * 8, bytes(7) + b"\x80", chance.randbytes(8)])
        elif edit == "more":
            data[at:at] = chance.randbytes(size)
        elif edit == "again":
            data[at:at] = data[at // 2 : at // 2 + size]
        else:
            del data[at : None if edit == "cut" else at + size]
    return bytes(data)


@pytest.mark.parametrize("seeds", in_parts(40, 6_000, 596))
def test_damage_gives_sums_that_can_be_or_one_clear_error(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        for path in drawn(seed % 50, tmp_path):
            path.write_bytes(damaged(Random(seed), path.read_bytes()))
        try:
            report = read_trace(tmp_path).report()
        except UllageError:
            continue
        finally:
            for path in tmp_path.iterdir():
                path.unlink()
        for part in report.whole.device_parts:
            times = (part.kernel, part.collective, part.memory, part.idle)
            assert min(times) >= 0 and sum(times) == report.whole.elapsed, seed
        for lane in report.whole.host_parts:
            times = (lane.useful, lane.offload, lane.communication, lane.recorder)
            assert min(times) >= 0 and sum(times) == lane.elapsed, seed
