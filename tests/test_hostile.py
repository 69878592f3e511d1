"""Ullage in hostile hands: broken files, lying exporters, dying servers, full disks. One clear error or a note each, never a traceback."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
import random
import resource
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Callable
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import ullage
from tests.command_line import ask
from tests.fleet.servers import say, scripted
from tests.seeds import examples
from ullage.asking.telemetry import TelemetryReading
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.render import fleet_document as as_json
from ullage.render.fleet import view
from ullage.reports.fleet.fleet import FleetReport
from ullage.sources.source import Options
from ullage.store.store import Store
from ullage.views.html import html
from ullage.views.json_text import json_text
from ullage.views.text import text

T = 1_786_320_000  # 2026-08-10T00:00:00Z
H100 = "NVIDIA H100 80GB HBM3"
TENSOR, SM, GR = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
CLOCK, UTIL = "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_UTIL"
CYCLES, ELAPSED = "DCGM_FI_PROF_MMA_CYCLES_ACTIVE_TOTAL", "DCGM_FI_PROF_SM_CYCLES_ELAPSED_TOTAL"
NORMAL = {TENSOR: "0.4", SM: "0.7", GR: "0.9", CLOCK: "1372.5", UTIL: "98"}
OFU = 0.4 * 1372.5 / 1830  # of NORMAL on an H100: 0.3

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # on a terminal it would be a line of noise
slow = settings(
    max_examples=examples(8, 25), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


# -- what every report must hold ----------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def harmless_text(written: str) -> None:
    assert all(c.isprintable() or c == "\n" for c in written), {c for c in written if not c.isprintable()}


def sound(report: FleetReport) -> FleetReport:
    """Check a report in all its forms, and return it."""
    harmless_text(text(view(report, top=50)))
    written = json_text(as_json.record(report))
    harmless_text(written)
    data = json.loads(written, parse_constant=refuse)
    page = html(view(report))
    harmless_text(page)
    seen = Tags()
    seen.feed(page)
    assert seen.tags.count("script") == 1 and not {"iframe", "img", "object", "embed", "link", "a", "base"} & set(seen.tags)
    assert not {name for name in seen.attributes if name.startswith("on")} | ({"src", "href"} & seen.attributes)
    rows = [data, *data["groups"], *data["models"], *data["course"]]
    ratios = [row.get(name) for row in rows for name in ("gpu_util", "tensor_active", "trusted_share")]
    assert all(value is None or 0 <= value <= 1.1 * (1 + 1e-6) for value in ratios), ratios  # 32 bits round
    # tensor activity at up to 1.1, times a clock of up to a quarter more than an H100's 1980 MHz over 1830
    assert all(row["ofu"] is None or 0 <= row["ofu"] <= 1.1 * 1.25 * 1980 / 1830 for row in rows)
    for tree in (row["tree"] for row in rows if "tree" in row and row["tree"]["ofu"]):  # of an OFU of 0, some factors are 0 / 0
        assert math.prod(factor["value"] for factor in tree["factors"]) == pytest.approx(tree["ofu"], rel=1e-6)
    parts = [hours for owner, hours in data["ledger"].items() if owner != "total"]
    assert min(parts) >= 0 and sum(parts) == pytest.approx(data["ledger"]["total"])
    assert sum(group["gpu_hours"] for group in data["groups"]) == pytest.approx(data["gpu_hours"])
    return report


def report_of(place: Path | str, **asked: object) -> FleetReport:
    return sound(ullage.fleet(str(place), **asked))  # type: ignore[arg-type]


def fleet_read_with(options: Options, place: str, **asked: object) -> FleetReport:
    """Ask about a fleet whose places are read in a way that no user asks for: without retries, by another clock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TelemetryReading, "reading_options", lambda *_: options)
        return ullage.fleet(place, **asked)  # type: ignore[arg-type]


def report_or_error(place: Path | str, **asked: object) -> FleetReport | None:
    """A sound report, or one error whose words are fit for a terminal; anything else fails the test."""
    try:
        return report_of(place, **asked)
    except UllageError as error:
        harmless_text(str(error))
        assert len(str(error)) < 3000
        return None


# -- pages ----------------------------------------------------------------------------------------------------------------


def page(when: object, gpus: int = 2, labels: str = "", readings: dict[str, str] | None = None, model: str = H100) -> str:
    """What a dcgm-exporter says at a time."""
    lines = [f"# time {when}"]
    for name, value in (NORMAL | (readings or {})).items():
        lines.append(f"# TYPE {name} gauge")
        for number in range(gpus):
            lines.append(f'{name}{{gpu="{number}",UUID="GPU-{number}",modelName="{model}",Hostname="n1"{labels}}} {value}')
    return "\n".join(lines) + "\n"


def pages(count: int = 10, **more: object) -> str:
    return "".join(page(T + 30 * number, **more) for number in range(1, count + 1))  # type: ignore[arg-type]


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(content: str | bytes, name: str = "a.prom") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def test_the_page_that_is_broken_below_is_sound_when_whole(written):
    report = report_of(written(pages()))
    assert report.ofu == pytest.approx(OFU)
    assert report.gpu_hours == pytest.approx(2 * 10 * 30 / 3600)
    # what its exporter does not tell is said, and nothing was dropped
    jobs, memory = report.notes
    assert "no sample names a job" in jobs and "memory_clock" in memory


# -- "bad input", line by line -----------------------------------------------------------------------------------------------


def test_a_truncated_gzip_gives_what_came_before_and_a_note(written):
    dice = random.Random(1)
    whole = "".join(page(T + 30 * number, readings={TENSOR: f"{dice.random():.6f}"}) for number in range(1, 2000))
    packed = gzip.compress(whole.encode())
    report = report_of(written(packed[: len(packed) // 2], "a.prom.gz"))
    assert 1 < report.gpu_hours < 2 * 2000 * 30 / 3600
    assert any("a.prom.gz is damaged after" in note for note in report.notes)
    with pytest.raises(UllageError, match=r"a\.prom\.gz is damaged after 0 decompressed bytes"):
        ullage.fleet(str(written(packed[:12], "a.prom.gz")))


def test_a_gzip_whose_bits_are_wrong_is_damaged_and_no_traceback(written):
    packed = bytearray(gzip.compress(random.Random(2).randbytes(5000) + pages(50).encode()))
    packed[40] ^= 0xFF
    packed[41] = 0xFF
    assert report_or_error(written(bytes(packed), "a.prom.gz")) is None


def test_half_an_exposition_gives_its_half_and_says_where_it_ends(written):
    # ten pages; the last line of the sixth is cut in its value: 0.4 may have been 0.45
    cut = pages(6).rstrip("\n")[:-1]
    report = report_of(written(cut))
    assert report.ofu == pytest.approx(OFU)
    assert report.gpu_hours == pytest.approx(2 * 6 * 30 / 3600)
    assert any("1 last lines without an end left out (first: a.prom line" in note for note in report.notes)


def test_html_where_metrics_were_expected_is_told_from_a_file_and_from_a_url(written):
    login = "<!DOCTYPE html><html><head><title>Sign in \x1b[31m</title></head></html>"
    with pytest.raises(UllageError, match="HTML page"):
        ullage.fleet(str(written(login)))
    with scripted(lambda handler: say(handler, login, kind="text/html")) as url:
        for place in (f"{url}/metrics", url, f"prometheus+{url}"):
            with pytest.raises(UllageError, match="HTML page") as error:
                fleet_read_with(Options(retries=0), place)
            harmless_text(str(error.value))


def test_what_is_no_number_is_missing_and_counted(written):
    values = ["NaN", "+Inf", "-Inf", "0.4"]
    report = report_of(written("".join(page(T + 30 * n, readings={TENSOR: values[n % 4]}) for n in range(8))))
    assert report.ofu == pytest.approx(OFU)  # the mean of what is known, which is a quarter of the time
    # 2 GPUs x 8 readings: a quarter each is NaN, +Inf, -Inf and good
    assert any(note.startswith("4 readings that are not a number (NaN) left out") for note in report.notes)
    assert any(note.startswith("8 infinite readings left out") for note in report.notes)
    assert any("OFU is known for 25 %" in note for note in report.notes)


def test_a_label_of_ten_megabytes_is_cut_and_counted(written):
    report = report_of(written(pages(3, gpus=1, labels=f',hpc_job="{"j" * 10_000_000}"')))
    assert any("label values longer than 4,096 characters were cut" in note for note in report.notes)
    assert len(report.groups) == 1 and len(report.groups[0].key) <= 200


def test_bytes_that_are_not_utf8_are_replaced_and_counted(written):
    content = pages().encode().replace(b'Hostname="n1"', b'Hostname="n\xff\xfe1"')
    report = report_of(written(content), by="host")
    assert [group.key for group in report.groups] == ["n\ufffd\ufffd1"]
    assert any("not UTF-8" in note for note in report.notes)


def test_two_models_under_one_uuid_are_an_impossible_device(written):
    report = report_of(written("".join(page(T + 30 * n, model=H100 if n % 2 else "NVIDIA A100-SXM4-80GB") for n in range(10))))
    assert report.ofu is None
    assert report.verdicts.keys() == {"impossible"}
    assert {v.evidence for v in report.doubtful_series} == {"two models reported under one UUID"}


def test_an_empty_window_is_one_error(written):
    place = str(written(pages()))
    with pytest.raises(UllageError, match="there is no sample in the window"):
        ullage.fleet(place, since=(T + 86_400) * 1000, until=(T + 90_000) * 1000)
    with pytest.raises(UllageError, match="the window is empty: it begins at 2026-08-10T00:01:00Z and ends at 2026-08-10T00:01:00Z"):
        ullage.fleet(place, since=(T + 60) * 1000, until=(T + 60) * 1000)
    with pytest.raises(UllageError, match="not a time of the calendar"):
        ullage.fleet(place, since=10**18)


def test_a_job_that_ends_before_it_starts_is_left_out_with_a_note(written):
    jobs = written("job,host,start,end\n7,n1,2026-08-10T02:00:00Z,2026-08-10T01:00:00Z\n8,n1,2026-08-10T00:00:00Z,\n", "jobs.csv")
    report = report_of(written(pages()), jobs=[str(jobs)])
    assert {group.key for group in report.groups} == {"8"}
    assert any("1 jobs that end before they start left out (first: jobs.csv" in note for note in report.notes)


# -- a server that dies -------------------------------------------------------------------------------------------------------


class Dying:
    """A Prometheus that answers some questions about readings and then no more: it hangs, or breaks off."""

    def __init__(self, good: int, how: str) -> None:
        self.left, self.how, self.end = good, how, threading.Event()

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        path, _, query = handler.path.partition("?")
        asked = dict(urllib.parse.parse_qsl(query))
        if path.endswith("/buildinfo"):
            say(handler, '{"status":"success","data":{}}')
        elif path.endswith("/values"):
            say(handler, json.dumps({"status": "success", "data": [TENSOR, CLOCK]}))
        elif not path.endswith("/query"):
            say(handler, "not found", status=404)
        elif self.left > 0:
            self.left -= 1
            say(handler, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [self.series(asked)]}}))
        elif self.how == "hangs":
            self.end.wait(20)
        else:
            say(handler, '{"status":"success","data":{"resultType":"mat', Content_Length="100000")

    def series(self, asked: dict[str, str]) -> dict[str, object]:
        name, end = asked["query"].partition("{")[0], float(asked["time"])
        name = TENSOR if TENSOR in asked["query"] else CLOCK if CLOCK in asked["query"] else name
        labels = {"__name__": name, "gpu": "0", "UUID": "GPU-0", "modelName": H100, "Hostname": "n1"}
        length = int(asked["query"].rpartition("[")[2].removesuffix("ms]")) / 1000
        times = np.arange(end - length + 30, end + 1, 30)
        return {"metric": labels, "values": [[float(t), NORMAL[name]] for t in times]}


@pytest.mark.parametrize("how", ["hangs", "breaks off"])
def test_a_prometheus_that_stops_in_the_middle_gives_what_came_and_a_note(how):
    server = Dying(4, how)  # both metrics of the ten minutes before the window, and of its first chunk
    window = {"since": T * 1000, "until": (T + 86_400) * 1000}
    with scripted(server) as url:
        report = sound(fleet_read_with(Options(**window, timeout=0.3, retries=0), url, **window))
        server.end.set()
    assert report.ofu == pytest.approx(OFU)
    assert report.gpu_hours == pytest.approx(80 / 60)  # the first chunk is ten minutes long, the next one eight times that
    assert any("ended early, and what came before is reported" in note and "2026-08-10T01:20:00Z was read" in note for note in report.notes)
    # a day was asked for; of a GPU that nobody has seen later, nobody knows that it was there
    assert report.ledger["total"] == pytest.approx(80 / 60)


@pytest.mark.parametrize("how", ["hangs", "breaks off"])
def test_a_prometheus_that_never_answers_is_one_error(how):
    server = Dying(0, how)
    with scripted(server) as url, pytest.raises(UllageError, match=r"127\.0\.0\.1") as error:
        try:
            fleet_read_with(Options(timeout=0.3, retries=0), url)
        finally:
            server.end.set()
    harmless_text(str(error.value))


def test_an_exporter_that_dies_while_it_is_watched_costs_only_its_last_scrapes():
    served = iter(range(1, 3))

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if next(served, None) is None:
            say(handler, "gone", status=500)
        else:
            say(handler, pages(1).split("\n", 1)[1], kind="text/plain")

    clock = iter(range(T * 1000, T * 1000 + 10**9, 1000))
    with scripted(answer) as url:
        options = Options(watch=0.3, interval=0.1, retries=0, now=lambda: next(clock))
        report = sound(fleet_read_with(options, f"{url}/metrics"))
    assert report.ofu == pytest.approx(OFU)
    assert any("scrapes that failed left out" in note for note in report.notes)


# -- a full disk ----------------------------------------------------------------------------------------------------------------


def ullage_command(*words: str, largest: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, which may write files of at most `largest` bytes."""
    limit = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))) if largest else None
    command = [sys.executable, "-m", "ullage", *words]
    return subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, timeout=120, check=False)


def test_a_full_disk_is_one_error_and_loses_nothing_that_was_stored(written, tmp_path):
    dice = np.random.default_rng(3)
    first = written(pages(20), "first.prom")
    second = written("".join(page(T + 86_400 + 30 * n, readings={TENSOR: f"{dice.random():.6f}"}) for n in range(1000)), "second.prom")
    store = tmp_path / "store"
    before = json.loads(ullage_command("fleet", str(first), "--store", str(store), "--json").stdout)
    full = ullage_command("fleet", str(second), "--store", str(store), "--json", largest=2_500)
    assert (full.returncode, full.stdout) == (1, "")
    assert full.stderr.startswith(f"ullage: nothing more can be stored in {store}")
    assert "nothing that was stored is lost" in full.stderr and len(full.stderr.splitlines()) == 2
    Store.open(store).verify()
    again = json.loads(ullage_command("fleet", str(store), "--json").stdout)
    assert {key: again[key] for key in ("ofu", "gpu_hours", "ledger")} == {key: before[key] for key in ("ofu", "gpu_hours", "ledger")}
    # with space again, the same command goes on
    assert ullage_command("fleet", str(second), "--store", str(store)).returncode == 0
    assert Store.open(store).info().rows == 2 * 1020


def test_a_report_that_does_not_fit_on_the_disk_leaves_the_old_one(written, tmp_path):
    source, out = written(pages(5)), tmp_path / "report.html"
    out.write_text("the old report")
    full = ullage_command("fleet", str(source), "--out", str(out), largest=20_000)
    assert full.returncode == 1 and "report.html can't be written" in full.stderr and "Traceback" not in full.stderr
    assert out.read_text() == "the old report"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


# -- damaged at rest ------------------------------------------------------------------------------------------------------------


def flipped(content: bytes, dice: random.Random, *, keep_length: bool = False) -> bytes:
    """Some bytes changed, inserted, cut out, repeated, or replaced by what parsers trip over."""
    broken = bytearray(content)
    words = [b"NaN", b"1e999", b"-1", b'"', b"\\", b"{", b"}", b",", b"\n", b"\0", b"9" * 25, b"\xff\xfe", b"null", b"-Inf", b"[]", b"\r"]
    for _ in range(dice.choice([1, 1, 2, 5, 20])):
        at = dice.randrange(len(broken) + 1)
        match dice.randrange(2 if keep_length else 7):
            case 0 if at < len(broken):
                broken[at] ^= 1 << dice.randrange(8)
            case 1 if at < len(broken):
                broken[at] = dice.randrange(256)
            case 2:
                del broken[at : at + dice.randrange(1, 50)]
            case 3:
                broken[at:at] = dice.randbytes(dice.randrange(1, 30))
            case 4:
                broken[at:at] = broken[at // 2 : at // 2 + dice.randrange(1, 500)]
            case 5:
                broken[at : at + dice.randrange(6)] = dice.choice(words)
            case 6:
                del broken[max(at, 1) :]
    return bytes(broken)


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Files of every format, as the simulator writes them, a store, and the job records."""
    folder = tmp_path_factory.mktemp("valid")
    found: dict[str, list[Path]] = {}
    for form in ("parquet", "csv", "exposition", "prometheus", "dmon"):
        words = ["simulate", "--gpus", "4", "--hours", "0.1", "--faults", "none", "--format", form, "--out", str(folder / form)]
        assert CliRunner().invoke(cli, words).exit_code == 0
        found[form] = sorted(p for p in (folder / form / "samples").rglob("*") if p.is_file())[:3]
    (folder / "sacct.txt").write_text(
        "JobID|User|NodeList|Start|End|AllocTRES\n"
        "7|ada|node[0001-0002]|2026-08-10T00:00:00|2026-08-10T01:00:00|gres/gpu=8\n7.batch|ada|node0001|Unknown|Unknown|\n"
    )
    one = {"job_id": 7, "user": "ada", "nodes": "node0001", "time": {"start": T, "end": {"set": True, "number": T + 900}}}
    (folder / "sacct.json").write_text(json.dumps({"jobs": [one, one | {"job_id": 8, "gres_detail": ["gpu:h100:2(IDX:0-1)"]}]}))
    found["jobs"] = [folder / "csv" / "jobs.csv", folder / "sacct.txt", folder / "sacct.json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert CliRunner().invoke(cli, ["fleet", "csv/samples", "--store", "store"]).exit_code == 0
    found["store"] = [folder / "store"]
    return found


def damaged(valid: dict[str, list[Path]], tmp_path: Path, seed: int) -> FleetReport | None:
    """Break one file, perhaps compress it before, and ask for its report."""
    dice = random.Random(seed)
    form = dice.choice([name for name in valid if name != "store"])
    source = dice.choice(valid[form])
    content, name = source.read_bytes(), source.name
    pack = dice.choice([None, None, None, gzip.compress, bz2.compress, lzma.compress])
    place = tmp_path / name
    place.write_bytes(flipped(pack(content) if pack else content, dice))
    if form == "jobs":
        return report_or_error(valid["parquet"][0], jobs=[str(place)])
    return report_or_error(place, gpu="H100")


@slow
@given(st.integers(0, 2**32))
def test_a_damaged_file_is_a_report_or_one_error(valid, tmp_path, seed):
    damaged(valid, tmp_path, seed)


@pytest.mark.full
@pytest.mark.parametrize("block", range(10))
def test_many_damaged_files_are_a_report_or_one_error(valid, tmp_path, block):
    for seed in range(100 * block, 100 * block + 100):
        damaged(valid, tmp_path, seed)


def damaged_store(valid: dict[str, list[Path]], folder: Path, seed: int) -> None:
    """Break one file of a store, ask it, and try to store more."""
    dice = random.Random(seed)
    [store] = valid["store"]
    place = folder / f"store-{seed}"
    subprocess.run(["cp", "-r", str(store), str(place)], check=True)
    broken = dice.choice(sorted(p for p in place.rglob("*") if p.is_file() and p.name != "lock"))
    broken.write_bytes(flipped(broken.read_bytes(), dice, keep_length=dice.random() < 0.7))
    report_or_error(place)
    report_or_error(place, by="hour")
    if broken.suffix == ".parquet":
        report_or_error(broken)  # a part is a file of settled samples too
    outcome = CliRunner().invoke(cli, ["fleet", str(valid["dmon"][0]), "--gpu", "H100", "--store", str(place)])
    assert outcome.exception is None or isinstance(outcome.exception, UllageError | SystemExit), outcome.exception


@settings(slow, max_examples=examples(4, 12))
@given(seed=st.integers(0, 2**32))
@example(seed=95421)  # a column's name is damaged in one of the two places where a footer holds it
def test_a_damaged_store_is_a_report_or_one_error(valid, tmp_path_factory, seed):
    damaged_store(valid, tmp_path_factory.mktemp("damaged"), seed)


@pytest.mark.full
def test_many_damaged_stores_are_a_report_or_one_error(valid, tmp_path):
    for seed in range(200):
        damaged_store(valid, tmp_path, seed)


@settings(slow, max_examples=examples(25, 100))
@given(
    st.binary(max_size=3000),
    st.sampled_from(["a.prom", "a.csv", "a.json", "a.parquet", "a.gz", "a"]),
    st.sampled_from(
        [b"", b"PAR1", b"\x1f\x8b", b'{"status":"success"', b"# TYPE DCGM_FI_DEV_SM_CLOCK gauge\n", b"time,gpu,sm_clock\n", b"# gpu pwr\n"]
    ),
)
def test_random_bytes_are_one_error(tmp_path, content, name, start):
    place = tmp_path / name
    place.write_bytes(start + content)
    report_or_error(place, gpu="H100")


# -- generated expositions ------------------------------------------------------------------------------------------------------

EVIL = (
    "\x1b[31mred\x1b[0m",
    "\x9b31mred",
    "<script>alert(1)</script>",
    "</style></svg><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "&lt;&amp;{{7*7}}",
    "\u202egnp.exe",
    "\u2066\u2069\u200b\ufeff",
    "\x00\x07\x08\r\x7f",
    "a,b",
    ",",
    ",,a,",
    "=cmd|' /C calc'!A0",
    "no job",
    "null",
    " ",
    "\u0663\u0664 \u5b66\u7fd2 \U0001f600",
    "x" * 5000,
)
NUMBERS = (
    *("0", "-0", "1", "1.1", "2", "100", "-1", "0.4", "NaN", "+Inf", "-Inf", "1e308", "-1e308", "1e-320", "9" * 40),
    *("9223372036854775807", "9223372036854775808", "9223372036854775794", "140737488355328", "2147483632", "4294967295"),
    *("1980", "1.98e9", "99", "0x10", "1_000", "", "abc", "1e999", "4.94e-324"),
)
METRICS = (TENSOR, SM, GR, CLOCK, UTIL, CYCLES, ELAPSED, "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "go_goroutines")
MODELS = (H100, "NVIDIA A100-SXM4-80GB", "NVIDIA H1000", "", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "AMD_Instinct_MI300X_OAM")

words = st.sampled_from(EVIL) | st.text(max_size=20)
readings = st.sampled_from(NUMBERS) | st.floats().map(repr) | st.integers(-(2**65), 2**65).map(str) | st.floats(0, 1).map(repr)
moments = st.integers(0, 20).map(lambda n: str(T + 30 * n)) | st.sampled_from(
    ["0", "-1", "1e400", "9" * 20, "253402300800", "NaN", str(T * 1000)]
)


def quoted(word: str, escape: bool) -> str:
    """A label's value; dcgm-exporter escapes nothing."""
    return word.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") if escape else word.replace("\n", " ")


@st.composite
def lines(draw: st.DrawFn) -> str:
    """One line of an exposition, more or less."""
    if draw(st.integers(0, 12)) == 0:
        return draw(st.sampled_from(["# time ", "# TYPE ", "# EOF", "{}", "{", "}", '{__name__="x"} 1']) | words) + draw(moments)
    escape = draw(st.booleans())
    labels = {"gpu": str(draw(st.integers(0, 2))), "UUID": f"GPU-{draw(st.integers(0, 2))}", "modelName": draw(st.sampled_from(MODELS))}
    for name in draw(
        st.lists(st.sampled_from(["Hostname", "hpc_job", "pod", "namespace", "GPU_I_PROFILE", "GPU_I_ID", "UUID", "user"]), max_size=4)
    ):
        labels[name] = draw(words | st.sampled_from(["1g.10gb", "3g.40gb", "7g.80gb", "cpx", "0"]))
    written = ",".join(f'{name}="{quoted(word, escape)}"' for name, word in labels.items())
    when = " " + draw(moments) if draw(st.booleans()) else ""
    return f"{draw(st.sampled_from(METRICS))}{{{written}}} {draw(readings)}{when}"


@st.composite
def expositions(draw: st.DrawFn) -> bytes:
    """Scrapes at any times and in any order, good lines among bad ones."""
    scrapes = [f"# time {draw(moments)}"]
    for _ in range(draw(st.integers(1, 4))):
        scrapes.append(page(draw(moments), gpus=draw(st.integers(0, 2)), readings={draw(st.sampled_from(METRICS)): draw(readings)}))
        scrapes += draw(st.lists(lines(), max_size=6))
    content = "\n".join(scrapes).encode("utf-8", "surrogatepass")
    return content if draw(st.booleans()) else content + b"\n"


@settings(slow, max_examples=examples(5, 10))
@given(expositions(), st.sampled_from(["job", "user", "host", "model", "gpu", "hour", "namespace", "cluster", None]), st.booleans())
def test_any_exposition_is_a_sound_report_or_one_error(tmp_path, content, by, named):
    place = tmp_path / "a.prom"
    place.write_bytes(content)
    report_or_error(place, by=by, gpu="H100" if named else None, prices={"": 2.5})


def test_a_counter_of_a_sliced_gpu_may_grow_beyond_what_a_double_counts(tmp_path):
    slice_of = ',modelName="NVIDIA H100 80GB HBM3",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"'
    lines = []
    for time, cycles in ((1786320000, 2), (1786320030, 2**53 + 3), (1786320060, 2**54 + 6)):
        lines.append(f"# time {time}")
        for name, value in (
            ("PROF_SM_ACTIVE", 0.5),
            ("PROF_SM_CYCLES_ELAPSED_TOTAL", cycles),
            ("PROF_MMA_CYCLES_ACTIVE_TOTAL", cycles // 4),
        ):
            lines.append(f'DCGM_FI_{name}{{gpu="0",UUID="GPU-0",Hostname="n1"{slice_of}}} {value}')
    (tmp_path / "a.prom").write_text("\n".join(lines) + "\n")
    report_or_error(tmp_path / "a.prom")


@pytest.mark.full
@settings(slow, max_examples=1500)
@given(expositions(), st.sampled_from(["job", "user", "host", "model", "gpu", "hour", None]))
def test_any_of_many_expositions_is_a_sound_report_or_one_error(tmp_path, content, by):
    place = tmp_path / "a.prom"
    place.write_bytes(content)
    report_or_error(place, by=by)


def test_jobs_of_any_names_keep_their_figures_side_by_side(written):
    jobs = [
        pages(3, labels=f',hpc_job="{quoted(name, escape=True)}"').replace("GPU-", f"GPU-{number}-") for number, name in enumerate(EVIL)
    ]
    report = report_of(written("".join(jobs)))
    assert sum(group.gpus for group in report.groups) == 2 * len(EVIL) and len(report.groups) > len(EVIL) / 2
    for group in report.groups:
        assert group.ofu == pytest.approx(OFU)
        harmless_text(group.key)


@pytest.mark.full
@pytest.mark.parametrize("name", EVIL, ids=range(len(EVIL)))
def test_a_job_of_any_name_keeps_its_figures_and_does_no_harm(written, name):
    report = report_of(written(pages(3, labels=f',hpc_job="{quoted(name, escape=True)}"')))
    [group] = report.groups
    assert group.ofu == pytest.approx(OFU)
    assert group.gpus == 2
    harmless_text(group.key)


def test_jobs_whose_names_look_alike_stay_apart(written):
    # shown, both are cut after 200 characters; they are two jobs all the same
    one, other = ("x" * 300 + end for end in "ab")
    report = report_of(
        written(pages(3, gpus=1, labels=f',hpc_job="{one}"') + pages(3, gpus=1, labels=f',hpc_job="{other}"').replace("GPU-0", "GPU-9"))
    )
    assert len(report.groups) == 2


def test_evil_names_come_out_harmless_of_every_writer(written, tmp_path):
    content = "".join(
        pages(3, gpus=1, labels=f',hpc_job="{quoted(n, True)}",user="{quoted(n, True)}"').replace("GPU-0", f"GPU-{i}")
        for i, n in enumerate(EVIL)
    )
    source = written(content)
    records = "job,host,mfu\n" + "".join(f'"{name}",n1,0.5\n' for name in EVIL if '"' not in name and not set(name) & set("\r\n\0"))
    jobs = written(records.encode("utf-8", "surrogatepass"), "jobs.csv")
    for name in ("r.html", "r.json", "r.txt", "r.svg", "r.parquet"):
        outcome = CliRunner().invoke(cli, ["fleet", str(source), "--jobs", str(jobs), "--by", "job", "--out", str(tmp_path / name)])
        assert outcome.exit_code == 0, outcome.output
        if name != "r.parquet":
            harmless_text((tmp_path / name).read_text())
    keys = pq.read_table(tmp_path / "r.parquet")["key"].to_pylist()
    for key in keys:
        harmless_text(key)
    assert "<script>alert" not in (tmp_path / "r.html").read_text() and "<img" not in (tmp_path / "r.html").read_text()


# -- extremes -------------------------------------------------------------------------------------------------------------------------


def counted(start: int, step: int, elapsed: int) -> str:
    """Ten pages with cycle counters that begin at `start`."""
    more = [{CYCLES: str(start + step * n), ELAPSED: str(start + elapsed * n), TENSOR: "NaN"} for n in range(1, 11)]
    return "".join(page(T + 30 * n, readings=reading) for n, reading in enumerate(more, 1))


def test_counters_that_start_high_give_the_same_exact_ofu(written):
    # 30 s at 1.5 GHz, tensor pipes active in 1 of 4 cycles: 0.25 * 1.5 / 1.83. Text is read as doubles: near 2^62 a step of 1024 is lost.
    cycles, elapsed = 45 * 10**9 // 4, 45 * 10**9
    for start in (0, 2**53, 2**62):
        report = report_of(written(counted(start, cycles, elapsed)))
        assert report.method == "exact"
        assert report.ofu == pytest.approx(0.25 * 1.5 / 1.83, rel=1e-5), start


def test_counters_beyond_what_fits_are_impossible_and_not_wrapped_around(written):
    report = report_of(written(counted(2**63 - 20 * 10**9, 45 * 10**9 // 4, 45 * 10**9)))
    assert report.ofu is None
    assert set(report.verdicts) == {"impossible"}


def test_a_clock_of_zero_is_impossible_under_load_and_an_ofu_of_zero_at_rest(written):
    busy = report_of(written(pages(readings={CLOCK: "0"})))
    assert busy.ofu is None and set(busy.verdicts) == {"impossible"}
    asleep = report_of(written(pages(readings=dict.fromkeys((TENSOR, SM, GR, UTIL), "0") | {CLOCK: "0"})))
    assert asleep.ofu == 0


def test_one_sample_stands_for_one_interval(written):
    report = report_of(written(pages(1, gpus=1)))
    assert report.ofu == pytest.approx(OFU)
    assert report.gpu_hours == pytest.approx(30 / 3600)


def test_time_that_runs_backwards_changes_nothing(written):
    forwards = report_of(written(pages(20)))
    backwards = report_of(written("".join(reversed([page(T + 30 * n) for n in range(1, 21)]))))
    assert (backwards.ofu, backwards.gpu_hours, backwards.ledger) == (forwards.ofu, forwards.gpu_hours, forwards.ledger)


def table_of(tmp_path: Path, times: np.ndarray) -> Path:
    """A Parquet file of one H100 at these times (ms)."""
    count = len(times)
    columns = {
        "time": pa.array(times.astype(np.int64), pa.timestamp("ms", "UTC")),
        "gpu": pa.array(["GPU-0"]).take(pa.array(np.zeros(count, np.int64))),
        "model": pa.array([H100]).take(pa.array(np.zeros(count, np.int64))),
        "tensor_active": np.full(count, 0.4, np.float32),
        "sm_clock": np.full(count, 1.3725e9, np.float32),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def test_a_million_readings_of_one_moment_are_one_sample(tmp_path):
    report = report_of(table_of(tmp_path, np.full(1_000_000, T * 1000)))
    assert report.ofu == pytest.approx(0.3, rel=1e-6)
    assert report.gpu_hours == pytest.approx(30 / 3600)
    assert set(report.verdicts) == {"duplicated"}


def test_times_that_no_calendar_has_are_left_out(tmp_path):
    times = np.array([T * 1000, (T + 30) * 1000, -1, 2**62, -(2**62), 253_402_300_800_000])
    report = report_of(table_of(tmp_path, times))
    assert report.gpu_hours == pytest.approx(60 / 3600)
    assert any("whose time can't be read" in note or "before 1970" in note for note in report.notes)


def test_a_fleet_of_which_nothing_is_known_is_a_report_without_figures(written):
    report = report_of(written("".join(page(T + 30 * n, readings=dict.fromkeys(NORMAL, "NaN")) for n in range(1, 11))))
    assert report.ofu is None and report.gpu_util is None and report.ullage is None
    assert report.gpu_hours == pytest.approx(2 * 300 / 3600)
    assert report.ledger["unknown"] == pytest.approx(report.gpu_hours)


def test_instances_of_a_gpu_count_their_share_and_unknown_ones_are_told(written):
    def slices(*mig: str) -> str:
        one = [pages(4, gpus=1, labels=f',GPU_I_PROFILE="{profile}",GPU_I_ID="{number}"') for number, profile in enumerate(mig)]
        return "".join(one)

    # 1/7 and 3/7 of an H100 for two minutes, and 3/7 that nobody sliced
    report = report_of(written(slices("1g.10gb", "3g.40gb")))
    assert report.gpus == 1 and report.gpu_hours == pytest.approx(120 / 3600)
    assert report.ledger["not_sliced"] == pytest.approx(3 / 7 * 120 / 3600)
    # of instances of no known share nobody knows what they leave: the rest is unknown
    strange = report_of(written(slices("1g.10gb", "3g.40gb", "99g.1gb", "cpx", "<b>")))
    assert strange.gpus == 1 and strange.gpu_hours == pytest.approx(4 / 7 * 120 / 3600)
    assert strange.ledger["not_sliced"] == 0 and strange.ledger["total"] == pytest.approx(120 / 3600)
    assert any("it is not known what share of the GPU they are" in note for note in strange.notes)
    with pytest.raises(UllageError, match="no sample in the window"):
        ullage.fleet(str(written(slices("cpx"))))


def test_a_thousand_jobs_on_one_gpu_share_it(written):
    line = '{name}{{gpu="0",UUID="GPU-0",modelName="{model}",Hostname="n1",hpc_job="job-{job}"}} {value}\n'
    scrape = "".join(line.format(name=name, model=H100, job=job, value=value) for name, value in NORMAL.items() for job in range(1000))
    report = report_of(written("".join(f"# time {T + 30 * n}\n{scrape}" for n in range(1, 5))))
    assert report.gpu_hours == pytest.approx(120 / 3600)
    assert report.ledger["shared"] == pytest.approx(report.gpu_hours)


def test_the_json_of_the_command_is_json_whatever_comes_in(written):
    for content in (
        pages(readings=dict.fromkeys(NORMAL, "NaN")),
        pages(readings={CLOCK: "+Inf"}),
        pages(labels=',hpc_job="\x9b31m\u202e"'),
    ):
        outcome = CliRunner().invoke(cli, ["fleet", str(written(content)), "--json", "--price", "2.5", "--noise"])
        assert outcome.exit_code == 0, outcome.output
        json.loads(outcome.stdout, parse_constant=refuse)
        harmless_text(outcome.stdout)


@pytest.mark.parametrize(
    "words",
    [
        "fleet ~/x", "fleet . --prices ~/x", "fleet . --jobs ~/x", "fleet . --reported ~/x=7",
        "fleet . --against ~/x", "fleet . --inventory ~/x", "audit mfu --reported ~/x --ofu 3",
        "audit mfu --reported ~/x=7 --telemetry .", "audit peaks ~/x", "watch ~/x", "open ~/x",
        "doctor ~/x", "waterfall ~/x", "job 7 ~/x", "top --once --source ~/x", "store compact ~/x",
        "serve --config ~/x", "trace ~/x", "sass ~/x", "flops ~/x",
    ],
)  # fmt: skip
def test_the_home_of_a_user_who_is_not_there_is_one_clear_error(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = ask(*words.replace("~", "~nobody-is-called-so").split())
    assert said.code in (1, 2) and said.err.startswith(("ullage: ", "Usage: ")) and "Traceback" not in said.err
    assert not [*tmp_path.iterdir()]
