"""Traces in hostile hands: what is no trace, what is damaged, what lies, what is far too large. A report or one clear error each."""

from __future__ import annotations

import gc
import gzip
import json
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.traces.kineto_events import BASE, call, kernel, on_host
from tests.traces.nsys_runs import MPI
from tests.traces.trace_command import EVENTS, ask, profile, refused
from tests.traces.trace_damage import NASTY, answer, each_spoilt, flipped, spoil_database, spoilt, torn, with_value
from ullage.errors import UllageError
from ullage.simulate.traces import kineto, nsys, talp
from ullage.simulate.traces.pils import USE_CASES, pils
from ullage.simulate.traces.training import TrainingPlan, training

GENERATIONS = ("2020", "2022", "2024", "2026", "newest")
BUSY = 100_000  # ns that `EVENTS` have the device busy


def whole(*events: dict[str, Any], **metadata: Any) -> str:
    return json.dumps({"schemaVersion": 1, **metadata, "traceEvents": [*EVENTS, *events]})


def kernel_time(path: Path) -> int:
    """The time of the only device's kernels."""
    totals: dict[str, int] = ask(path, "--json").json["device_totals"]
    return totals["kernel_time"]


# -- what is no trace ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"12", "is of an unknown format"),
        (b'{"name": "x", "version": 1}', "is of an unknown format"),
        (b"[1, 2, 3]", "is of an unknown format"),
        (b"<!DOCTYPE html><html>", "is an HTML page"),
        (b"\0" * 10_000, "is of an unknown format"),
        (whole().encode("utf-16"), "is of an unknown format"),
        (b"\x1f\x8b", "damaged"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"SQLite format 3\0" + b"\xff" * 5000, "damaged SQLite"),
        (b'{"schemaVersion": 1, "traceEvents": {}}', "has no list of events"),
        (b'{"schemaVersion": 1, "traceEvents": null}', "has no list of events"),
        (b'{"schemaVersion": 1, "traceEvents": []}', "holds nothing that lasts"),
        (b'{"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 0, "dur": 5}]}', "holds nothing that lasts of a GPU"),
        (b'{"schemaVersion": 1, "traceEvents": [{"ph": "M", "name": "process_name", "pid": 1}]}', "holds nothing that lasts"),
        (json.dumps({"schemaVersion": 1, "traceEvents": [kernel(5, 0), call(5, 0)]}).encode(), "holds nothing that lasts"),
    ],
)
def test_what_is_no_trace_or_an_empty_one_is_one_clear_error(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(content)
    assert says in refused(tmp_path / "trace.json")


@pytest.mark.parametrize("name", ["a.nsys-rep", "a.qdrep", "it's mine.nsys-rep", "no-ending"])
def test_a_report_of_nvidias_own_form_is_told_how_to_be_exported(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"NVIDIA Tegra Profiler Report\0\1\2")
    said = refused(tmp_path / name)
    command = said.splitlines()[1].partition("sqlite ")[2]
    printed = subprocess.run(["bash", "-c", f"printf %s {command}"], capture_output=True, text=True, check=True).stdout
    assert printed == str(tmp_path / name)  # as a shell reads it


def test_databases_of_others_empty_and_compressed_ones_are_told_apart(tmp_path: Path) -> None:
    for name, table in (("other", "people (name)"), ("empty", "CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId)")):
        with sqlite3.connect(tmp_path / f"{name}.sqlite") as connection:
            connection.execute(f"CREATE TABLE {table}")
    assert "without the tables of Nsight Systems" in refused(tmp_path / "other.sqlite")
    assert "holds no event" in refused(tmp_path / "empty.sqlite")
    (tmp_path / "packed.sqlite.gz").write_bytes(gzip.compress((tmp_path / "empty.sqlite").read_bytes()))
    assert "unpack it first" in refused(tmp_path / "packed.sqlite.gz")


# -- files that can't be had --------------------------------------------------------------------------------------------

AS_NOBODY = """
import os, sys
from ullage.cli import main
words = sys.argv[1:]
def run():
    sys.argv = ["ullage", "trace", *words]
    try:
        main()
    except SystemExit as end:
        return end.code or 0
    return 0
silent, kept = os.open(os.devnull, os.O_WRONLY), os.dup(1)
os.dup2(silent, 1); run(); sys.stdout.flush(); os.dup2(kept, 1)  # everything is loaded now
if os.geteuid() == 0:
    os.setgroups([]); os.setegid(65534); os.seteuid(65534)
sys.exit(run())
"""


def as_nobody(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command as somebody whom permissions bind."""
    return subprocess.run([sys.executable, "-c", AS_NOBODY, *map(str, words)], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("suffix", ["", ".html", ".json", ".txt", ".svg", ".pftrace"])
def test_half_a_surrogate_pair_in_a_name_costs_neither_its_event_nor_the_report(suffix: str, tmp_path: Path) -> None:
    half = "\ud800"  # as Python writes a byte of a file's name that is not UTF-8
    events = [
        on_host(0, 100, f"part{half}"),
        call(1.0, 2.0),
        kernel(4.0, 40.0, name=f"gemm{half}b \U0001f600"),
        kernel(50.0, 5.0, name="last"),
    ]
    about = {"deviceProperties": [{"id": 0, "name": f"G{half}"}], "distributedInfo": {"rank": 3, "world_size": 8}, "host_name": f"{half}n"}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(about | {"traceEvents": events}))
    out = tmp_path / f"o{suffix}"
    said = ask(path, *(("--out", out) if suffix else ()))
    assert said.code == 0 and "left out" not in said.out
    shown = (out.read_bytes() if suffix else said.out.encode()).decode("utf-8", "replace" if suffix == ".pftrace" else "strict")
    assert "\ud800" not in shown and "\\ud800" not in shown
    assert suffix in (".svg", ".pftrace") or "gemm\ufffdb" in shown or "gemm\\ufffdb" in shown


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that anybody may look into, all the way down to it."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    if not all(parent.stat().st_mode & 0o005 == 0o005 for parent in folder.parents):
        pytest.skip("nobody else may look into this system's folder for temporary files")
    yield folder
    shutil.rmtree(folder)


def test_a_file_that_may_not_be_read_is_one_clear_error_and_one_of_many_is_left_out(open_folder: Path) -> None:
    kept = profile(open_folder, "a.json", rank=0)
    kept.chmod(0o644)
    profile(open_folder, "b.json", rank=1).chmod(0)
    alone = as_nobody(open_folder / "b.json")
    assert alone.returncode == 1 and "Permission denied" in alone.stderr and "Traceback" not in alone.stderr
    together = as_nobody(open_folder)
    assert (
        together.returncode == 3 and together.stdout.startswith("partial: ") and "1 traces that can't be used left out" in together.stdout
    )


def test_a_folder_that_may_not_be_looked_into_is_one_clear_error(open_folder: Path) -> None:
    profile(open_folder, "in/a.json")
    (open_folder / "in").chmod(0)
    try:
        for place in ("in", "in/a.json", "in/*.json"):
            said = as_nobody(open_folder / place)
            assert said.returncode == 1 and said.stderr.startswith("ullage: ") and "Traceback" not in said.stderr
    finally:
        (open_folder / "in").chmod(0o755)


def test_a_read_only_file_in_a_read_only_folder_is_read_and_an_answer_there_is_refused(open_folder: Path) -> None:
    folder = open_folder / "read-only"
    folder.mkdir()
    nsys.write(MPI, folder / "a.sqlite", generation="2026").chmod(0o444)
    folder.chmod(0o555)
    try:
        assert as_nobody(folder / "a.sqlite").returncode == 0
        said = as_nobody(folder / "a.sqlite", "--out", folder / "x.svg")
        assert said.returncode == 1 and "can't be written: Permission denied" in said.stderr
    finally:
        folder.chmod(0o755)


def test_a_database_that_another_program_holds_is_read(tmp_path: Path) -> None:
    path = nsys.write(MPI, tmp_path / "a.sqlite", generation="2026")
    before = ask(path).out
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    assert ask(path).out == before != ""
    connection.close()


def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    words = [sys.executable, "-m", "ullage", "trace", str(profile(tmp_path))]
    with Path("/dev/full").open("w") as full:
        said = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert said.returncode == 1 and "No space left" in said.stderr and "Traceback" not in said.stderr


# -- lies about times and numbers ---------------------------------------------------------------------------------------

VALUES = (
    "0",
    "-1",
    "-0.0",
    "7443832261000000",
    "1e30",
    "1e400",
    "NaN",
    "-Infinity",
    '"5"',
    '"x"',
    "null",
    "true",
    "[]",
    str(2**63),
    str(10**30),
)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("key", ["ts", "dur"])
def test_a_time_that_can_not_be_costs_its_own_event_alone(key: str, value: str, tmp_path: Path) -> None:
    bad = json.dumps(kernel(150, 30)).replace(f'"{key}": {150 if key == "ts" else 30}', f'"{key}": {value}')
    path = tmp_path / "trace.json"
    path.write_text(f"{whole()[:-2]}, {bad}]}}")
    said, data = ask(path).out, ask(path, "--json").json
    busy = data["device_totals"]["kernel_time"]
    believed = {("ts", "0"): 120_000, ("ts", "-0.0"): 120_000, ("ts", "-1"): 121_000, ("ts", '"5"'): 115_000, ("dur", '"5"'): 105_000}
    assert busy == believed.get((key, value), BUSY)  # the one that is good runs from 20 to 120 us
    if (key, value) not in believed:
        assert data["status"] == "partial" and "left out" in said


@pytest.mark.parametrize("base", ["0", "-5", "1e400", "null", '"x"', str(2**63 - 1), str(2**62), str(10**30), "[]", "NaN"])
def test_a_base_time_that_can_not_be_is_none(base: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(f'{{"schemaVersion": 1, "baseTimeNanoseconds": {base}, "traceEvents": {json.dumps(list(EVENTS))}}}')
    assert kernel_time(path) == BUSY


@pytest.mark.parametrize("value", [v for v in NASTY if v not in (0, 1)], ids=lambda v: str(v)[:12])
@pytest.mark.parametrize("key", ["pid", "tid", "name", "cat", "args"])
def test_an_odd_value_in_an_event_spares_the_others(key: str, value: Any, tmp_path: Path) -> None:
    path = profile(tmp_path, events=(*EVENTS, kernel(150, 30) | {key: value}))
    assert kernel_time(path) in (BUSY, BUSY + 30_000)


@pytest.mark.parametrize(
    "metadata",
    [
        {"distributedInfo": {"rank": -5}},
        {"distributedInfo": {"rank": 10**30}},
        {"distributedInfo": [1]},
        {"deviceProperties": {"a": 1}},
        {"deviceProperties": [None, 1, {"id": "x"}, {"id": -1}, {"id": 10**30, "name": 5, "numSms": -1}]},
        {"host_name": "<b>\x1b[31m"},
    ],
)
def test_odd_metadata_costs_nothing_else(metadata: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(whole(**metadata))
    assert kernel_time(path) == BUSY


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"gemm"', '"ge\nm\x01m\x00"'),
        lambda text: text.replace('"gemm"', '"C:\\Users\\x"'),
        lambda text: text.replace('"correlation": 1', '"correlation": 1, "x": ' + "[" * 100_000 + "]" * 100_000, 1),
        lambda text: text + "\0" * 100_000,
        lambda text: text + "garbage",
        lambda text: text[:-2] + ", " + "[" * 200_000,
        lambda text: text[:-2] + ", " + '{"a":' * 200_000,
        lambda text: "\ufeff" + text,
        lambda text: text.replace('"dur": 100', '"dur": 7, "dur": 100'),
        lambda text: text.replace("{", '{"\udcff\udcfe": 1, ', 1),
        lambda text: text.replace("[{", "[null, 5, [], {}, {", 1),
    ],
    ids=["control", "backslash", "deep", "nul", "garbage", "brackets", "objects", "bom", "twice", "utf-8", "no events"],
)
def test_damage_beside_a_kernel_leaves_it_its_time(damage: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(
        damage(json.dumps({"schemaVersion": 1, "traceEvents": [EVENTS[0], EVENTS[2], EVENTS[1]]})).encode("utf-8", "surrogateescape")
    )
    assert kernel_time(path) == BUSY


# -- hostile names ------------------------------------------------------------------------------------------------------

EVIL = (
    *("\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b31m", "\u202egnp.exe", "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'),
    *("../../etc/passwd", "'; DROP TABLE x;--", "&amp;&#0;", "a\nb\rc\td", "\0nul", "", " ", "]]>", "%s%n", "=cmd|' /C calc'!A0"),
    *("x" * 1_000_000, "nvshmem" * 60_000, "nccl" * 60_000, "hip" * 60_000, "(" * 100_000, "void f<a<b<c<" * 3000, "\U0001f600" * 50),
)


class Tags(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernels, calls, regions, steps, devices and a host with hostile names."""
    events = [call(0, 5), on_host(0, 10 * len(EVIL), "aten::mm", cat="cpu_op")]
    for number, name in enumerate(EVIL):
        at = 10 * number
        events += [kernel(at, 5, name=name), call(at + 5, 2, name=name), on_host(at, 9, name), on_host(at, 9, f"ProfilerStep#{name}")]
        events.append(kernel(at + 5, 1, name=f"nccl{name}", **{"Collective name": name, "Process Group Name": name, "dtype": name}))
    devices = [{"id": 0, "name": "<b>\x1b[31mH100", "uuid": "\x1b" * 9}]
    path = tmp_path_factory.mktemp("evil") / "<b>\x1b[31m.json"
    whole = {"schemaVersion": 1, "baseTimeNanoseconds": BASE, "deviceProperties": devices, "host_name": "\x1b<b>", "traceEvents": events}
    path.write_text(json.dumps(whole))
    return path


def test_hostile_names_reach_no_terminal(evil: Path) -> None:
    for words in ((), ("--by", "region", "--top", "99"), ("--by", "step", "--top", "99"), ("--region", EVIL[0]), ("--json",)):
        said = ask(evil, *words)
        assert said.code == 0 and all(sign.isprintable() or sign == "\n" for sign in said.out + said.err)


def test_hostile_names_are_text_in_pages_and_pictures(evil: Path, tmp_path: Path) -> None:
    harmless = Tags()
    plain = profile(tmp_path, events=(*EVENTS, on_host(0, 9, "a"), on_host(0, 9, "ProfilerStep#1"), kernel(130, 5, name="ncclDevKernel")))
    for path, tags in ((plain, harmless), (evil, Tags())):
        assert ask(path, "--out", tmp_path / "x.html").code == 0 == ask(path, "--out", tmp_path / "x.svg").code
        page = (tmp_path / "x.html").read_text()
        tags.feed(page)
        assert "\x1b" not in page and "\u202e" not in page and "<script>alert" not in page and "onerror" not in str(tags.attributes)
        assert "img" not in tags.tags
        ElementTree.parse(tmp_path / "x.svg")
        assert len(page) < 3_000_000  # names of a megabyte are cut


@pytest.mark.parametrize("suffix", ["pftrace", "parquet", "txt", "json"])
def test_hostile_names_do_not_stop_a_file_from_being_written(suffix: str, evil: Path, tmp_path: Path) -> None:
    assert ask(evil, "--out", tmp_path / f"x.{suffix}").code == 0
    assert list(tmp_path.iterdir()) == [tmp_path / f"x.{suffix}"]  # no name became a path


# -- far too large ------------------------------------------------------------------------------------------------------


def bomb(path: Path, head: bytes, body: bytes, mebibytes: int) -> Path:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    piece = (body * (1 + (1 << 20) // len(body)))[: (1 << 20) // len(body) * len(body)]
    with path.open("wb") as file:
        file.write(packer.compress(head))
        for _ in range(mebibytes):
            file.write(packer.compress(piece))
        file.write(packer.flush())
    return path


def peak(*words: object) -> tuple[str, float]:
    """What a command says in a process of its own, and the most memory that it took, in GiB."""
    script = "import resource, subprocess, sys; p = subprocess.run(sys.argv[1:], capture_output=True, text=True, timeout=300);"
    script += "print(p.stderr + p.stdout[:200]); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    command = [sys.executable, "-c", script, sys.executable, "-m", "ullage", "trace", *map(str, words)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout.rstrip()
    text, _, kibibytes = said.rpartition("\n")
    return text, int(kibibytes) / 2**20


HEAD = b'{"schemaVersion":1,"traceEvents":['
EVENT = json.dumps(EVENTS[1]).encode() + b","


@pytest.mark.parametrize(
    ("head", "body", "says"),
    [
        (HEAD, b" ", "unpacks to more than"),
        (HEAD + b'{"name":"', b"a", "unpacks to more than"),
        (HEAD, EVENT, "unpacks to more than"),
        (b"", b" ", "unknown format"),
    ],
    ids=["spaces", "a string", "events", "nothing"],
)
def test_a_zip_bomb_is_refused(head: bytes, body: bytes, says: str, tmp_path: Path) -> None:
    path = bomb(tmp_path / "bomb.json.gz", head, body, 12)
    assert path.stat().st_size < 1 << 20
    assert says in refused(path, "--limit", 10 / 1024)


@pytest.mark.full
@pytest.mark.parametrize("body", [b" ", b"a", EVENT, b"[{", b'"},{"ph":'], ids=["spaces", "letters", "events", "brackets", "events torn"])
def test_a_bomb_of_gigabytes_ends_in_bounded_time_and_memory(body: bytes, tmp_path: Path) -> None:
    path = bomb(tmp_path / "bomb.json.gz", HEAD, body, 3000)
    text, most = peak(path, "--limit", 0.5)
    assert text.startswith("ullage: ") and "Traceback" not in text and most < 1


def test_a_talp_file_and_a_paraver_trace_are_capped_too(tmp_path: Path) -> None:
    for head, body in (
        (b'{"dlbVersion": "3.7", "x": "', b"a"),
        (b"#Paraver (01/01/2026 at 00:00):1000_ns:1(1):1:1(1:1)\n", b"1:1:1:1:1:0:10:1\n"),
    ):
        path = bomb(tmp_path / "bomb.gz", head, body, 12)
        assert "than 10,485,760 bytes" in refused(path, "--limit", 10 / 1024)


@pytest.mark.full
def test_a_million_names_take_sane_time_and_memory(tmp_path: Path) -> None:
    events = ",".join(json.dumps(kernel(2.0 * n, 1.0, name=f"kernel_{n}_of_a_million")) for n in range(10**6))
    path = tmp_path / "names.json"
    path.write_text(f'{{"schemaVersion":1,"traceEvents":[{json.dumps(call(0, 5))},{events}]}}')
    text, most = peak(path)
    assert text.startswith("Device parallel efficiency 50 %") and most < 1.5


def test_strings_that_nothing_uses_are_not_loaded(tmp_path: Path) -> None:
    path = nsys.write(MPI, tmp_path / "a.sqlite", generation="2026")
    before = ask(path).out
    _add_strings(path, 10**5)
    assert ask(path).out == before != ""


@pytest.mark.full
def test_a_million_strings_in_a_database_take_sane_memory(tmp_path: Path) -> None:
    path = nsys.write(MPI, tmp_path / "a.sqlite", generation="2026")
    _add_strings(path, 10**6)
    text, most = peak(path)
    assert text.startswith("Device parallel efficiency") and most < 0.3


def _add_strings(path: Path, count: int) -> None:
    with sqlite3.connect(path) as connection:
        strings = ((10**7 + n, f"a kernel's name, number {n}") for n in range(count))
        connection.executemany("INSERT INTO StringIds (id, value) VALUES (?, ?)", strings)


@pytest.mark.parametrize(("name", "limit"), [("r", 20_000), ("ProfilerStep#", 10_000)])
def test_of_too_many_regions_or_steps_the_first_or_longest_are_taken_and_the_report_says_so(name: str, limit: int, tmp_path: Path) -> None:
    many = (on_host(2 * n, 1, f"{name}{n}") for n in range(limit + 5))
    said = ask(profile(tmp_path, events=(*EVENTS, on_host(0, 2 * limit + 20, "x", cat="cpu_op"), *many)))
    assert said.code == 0 and (f"those {limit:,} names" in said.out or "5 more steps; the first 10,000" in said.out)


# -- fuzz ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One good file of each source; of Nsight Systems one of each generation."""
    folder = tmp_path_factory.mktemp("samples")
    scenario = training(TrainingPlan(ranks=1, steps=2))
    found = {"kineto": next(iter(kineto.write(scenario, folder))), "talp": talp.write(pils(USE_CASES["4"].load), folder / "talp.json")}
    for generation in GENERATIONS:
        found[generation] = nsys.write(pils(USE_CASES["4"].load), folder / f"{generation}.sqlite", generation=generation)  # type: ignore[arg-type]
    return found


def test_a_profile_cut_at_any_place_is_partial_or_one_clear_error(samples: dict[str, Path], tmp_path: Path) -> None:
    _cut(samples["kineto"].read_bytes(), 40, tmp_path)


@pytest.mark.full
def test_a_profile_cut_at_many_places_is_partial_or_one_clear_error(samples: dict[str, Path], tmp_path: Path) -> None:
    _cut(samples["kineto"].read_bytes(), 2000, tmp_path)


def _cut(data: bytes, times: int, folder: Path) -> None:
    draw, packed = random.Random(0), gzip.compress(data, 1)
    end = data.rindex(b"]") - 1  # from here on all events are there, and the file may lack only its last words
    for number in range(times):
        path = folder / ("trace.json.gz" if number % 4 == 0 else "trace.json")
        at = draw.randrange(end)
        path.write_bytes(packed[: at * len(packed) // len(data)] if number % 4 == 0 else data[:at])
        found = answer(path)
        assert isinstance(found, UllageError) or found.partial, f"cut at {at:,}"


@pytest.mark.parametrize("times", [40, pytest.param(3000, marks=pytest.mark.full)])
def test_a_torn_profile_is_a_report_or_one_clear_error(times: int, samples: dict[str, Path], tmp_path: Path) -> None:
    data, draw = samples["kineto"].read_bytes(), random.Random(1)
    for number in range(times):
        (tmp_path / "trace.json").write_bytes(torn(gzip.compress(data, 1) if number % 4 == 0 else data, draw))
        answer(tmp_path / "trace.json")


@pytest.mark.parametrize("times", [30, pytest.param(2000, marks=pytest.mark.full)])
def test_a_profile_of_nasty_values_is_a_report_or_one_clear_error(times: int, samples: dict[str, Path], tmp_path: Path) -> None:
    data, draw = json.loads(samples["kineto"].read_text()), random.Random(2)
    for _ in range(times):
        share = draw.choice((0.001, 0.01, 0.1, 0.5))
        events = spoilt(draw.sample(data["traceEvents"], 200), share, draw)
        rest = {key: spoilt(value, share, draw) for key, value in data.items() if key != "traceEvents"}
        (tmp_path / "trace.json").write_text(json.dumps(rest | {"traceEvents": events}))
        answer(tmp_path / "trace.json")


@pytest.mark.parametrize("times", [30, pytest.param(2000, marks=pytest.mark.full)])
def test_a_database_with_changed_bytes_is_a_report_or_one_clear_error(times: int, samples: dict[str, Path], tmp_path: Path) -> None:
    draw, path = random.Random(3), tmp_path / "a.sqlite"
    for number in range(times):
        data = samples[GENERATIONS[number % 5]].read_bytes()
        if number % 3 == 0:
            path.write_bytes(data[: draw.randrange(len(data))])
        else:
            path.write_bytes(flipped(data, draw.choice((1, 3, 30, 300)), draw, 16, None if number % 3 == 1 else 4096))
        answer(path)


@pytest.mark.parametrize("times", [30, pytest.param(2000, marks=pytest.mark.full)])
def test_a_database_of_other_columns_and_cells_is_a_report_or_one_error(times: int, samples: dict[str, Path], tmp_path: Path) -> None:
    draw, path = random.Random(4), tmp_path / "a.sqlite"
    for number in range(times):
        shutil.copy(samples[GENERATIONS[number % 5]], path)
        spoil_database(path, draw)
        answer(path)


@pytest.mark.full
def test_every_value_of_talps_results_replaced_by_every_nasty_one(samples: dict[str, Path], tmp_path: Path) -> None:
    data = json.loads(samples["talp"].read_text())
    for place, _ in list(each_spoilt(data)):
        for value in NASTY:
            (tmp_path / "talp.json").write_text(json.dumps(with_value(data, place, value)))
            answer(tmp_path / "talp.json")


@pytest.mark.parametrize("times", [100, pytest.param(5000, marks=pytest.mark.full)])
def test_damaged_talp_results_are_a_report_or_one_clear_error(times: int, samples: dict[str, Path], tmp_path: Path) -> None:
    text, draw, path = samples["talp"].read_bytes(), random.Random(5), tmp_path / "talp.json"
    for number in range(times):
        path.write_bytes(
            torn(text, draw) if number % 2 else json.dumps(spoilt(json.loads(text), draw.choice((0.01, 0.1, 0.4)), draw)).encode()
        )
        answer(path)


PARAVER = b"#Paraver (01/01/2026 at 00:00):1000_ns:1(2):1:2(1:1,1:1)\n" + b"".join(
    b"1:%d:1:%d:1:%d:%d:%d\n2:%d:1:%d:1:%d:50000002:%d\n" % (t, t, 100 * n, 100 * n + 90, n % 3, t, t, 100 * n, 8 * (n % 2))
    for n in range(10)
    for t in (1, 2)
)
FIELDS = (b"", b"-1", b"9" * 30, b"x", b"1.5", str(2**63 - 1).encode(), b"0", b"1\0", b"\xff")


@pytest.mark.parametrize("times", [100, pytest.param(5000, marks=pytest.mark.full)])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_damaged_paraver_trace_is_a_report_or_one_clear_error(times: int, tmp_path: Path) -> None:
    draw, path = random.Random(6), tmp_path / "a.prv"
    for number in range(times):
        lines = PARAVER.split(b"\n")
        for _ in range(draw.choice((1, 5, 20))):
            at = draw.randrange(len(lines)) if number % 4 == 0 else draw.randrange(1, len(lines))
            parts = re.split(rb"([:,()])", lines[at])
            parts[draw.randrange(len(parts))] = draw.choice(FIELDS)
            lines[at] = b"".join(parts)
        path.write_bytes(torn(PARAVER, draw) if number % 3 == 0 else b"\n".join(lines))
        answer(path)


def _open_files() -> int:
    gc.collect()  # an error holds what it was raised in
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_reader_leaves_a_file_open(samples: dict[str, Path], tmp_path: Path) -> None:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("this system doesn't list a process' open files")
    answer(samples["kineto"])
    before = _open_files()
    for path in samples.values():
        answer(path)
        (tmp_path / path.name).write_bytes(path.read_bytes()[:700])
        answer(tmp_path / path.name)
    assert _open_files() == before
