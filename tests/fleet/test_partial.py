"""What was read only in part says so: in the headline, in JSON, in the exit status; and `--strict` refuses it."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ullage
from tests.command_line import Said, ask
from tests.fleet.servers import say, scripted
from ullage.problems import Problems
from ullage.sources.http import Client, ServerError
from ullage.sources.source import Deadline, InOrder, Options, read_samples

T = 1_786_320_000  # 2026-08-10T00:00:00Z
HOURS = ("--since", "2026-08-10T00:00:00Z", "--until", "2026-08-10T04:00:00Z")
METRICS = {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.4, "DCGM_FI_DEV_SM_CLOCK": 1372.5}  # OFU 0.4 x 1372.5 / 1830 = 0.3
Answer = Callable[[BaseHTTPRequestHandler], None]


# --- a server ---------------------------------------------------------------------------------------------------------------


class Server:
    """A Prometheus with two H100s, a reading every 30 s, whose answers after the first `sound` queries for readings are `then`."""

    def __init__(self, sound: int, then: Answer) -> None:
        self.sound, self.then, self.asked = sound, then, 0
        self.dripping, self.done = threading.Event(), threading.Event()

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        path, query = urlsplit(handler.path).path, parse_qs(urlsplit(handler.path).query)
        if path.endswith("__name__/values"):
            say(handler, json.dumps({"status": "success", "data": [*METRICS]}))
        elif path.endswith("/buildinfo"):
            say(handler, '{"status":"success","data":{}}')
        elif path.endswith("/query"):
            self.asked += 1
            if self.asked > self.sound:
                self.then(handler)
            else:
                say(handler, readings(query["query"][0], float(query["time"][0])))
        else:
            say(handler, "404 page not found", 404, "text/plain")

    def drip(self, handler: BaseHTTPRequestHandler) -> None:
        """Say a byte every 20 ms for ever: no timeout of a socket ends it."""
        self.dripping.set()
        handler.send_response(200)
        handler.send_header("Content-Length", str(1 << 30))
        handler.end_headers()
        while not self.done.wait(0.02):
            handler.wfile.write(b" ")


def readings(query: str, end: float) -> str:
    """The readings of a metric in the last so many ms before `end`, as the API gives them."""
    name, length = query.split('"')[1], float(query.split("[")[1].removesuffix("ms]")) / 1000
    times = [t for t in range(T + 30, T + 4 * 3600 + 1, 30) if end - length < t <= end]
    series = [
        {
            "metric": {"__name__": name, "gpu": str(gpu), "UUID": f"GPU-{gpu}", "modelName": "NVIDIA H100 80GB HBM3", "Hostname": "n1"},
            "values": [[t, str(METRICS[name])] for t in times],
        }
        for gpu in range(2)
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series if times else []}})


def broken_off(handler: BaseHTTPRequestHandler) -> None:
    """Half an answer, and then nothing."""
    say(handler, '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__na', Content_Length="5000")
    handler.close_connection = True


def cut_clean(handler: BaseHTTPRequestHandler) -> None:
    """Half an answer that says it is whole."""
    say(handler, '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__na')


def refusing(handler: BaseHTTPRequestHandler) -> None:
    """What a proxy says in place of a server that died."""
    say(handler, "bad gateway", 502, "text/plain")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients wait for nothing between two attempts."""
    for module in ("prometheus", "exposition"):
        monkeypatch.setattr(f"ullage.sources.{module}.Client", lambda base, options: Client(base, options, sleep=lambda _: None))


@contextmanager
def served(sound: int, then: str | Answer = broken_off) -> Iterator[str]:
    server = Server(sound, broken_off)
    server.then = server.drip if then == "drip" else then  # type: ignore[assignment]
    with scripted(server) as url:
        try:
            yield f"prometheus+{url}"
        finally:
            server.done.set()


# the first chunk is 10 minutes long, those before the window, and asks two queries: one a metric. The next is of 80 minutes
@pytest.mark.parametrize("then", [broken_off, cut_clean, refusing], ids=["breaks off", "cuts", "dies behind a proxy"])
def test_a_server_that_dies_midway_gives_a_partial_report_and_status_3(then: Answer) -> None:
    with served(4, then) as url:
        said = ask("fleet", url, *HOURS, "--json")
    assert said.code == 3
    report = said.json
    assert (report["complete"], report["read_until"]) == (False, "2026-08-10T01:20:00Z")
    assert report["gpu_hours"] == pytest.approx(2 * 80 / 60) and report["ofu"] == pytest.approx(0.3)
    assert any("ended early, and what came before is reported" in note for note in report["notes"])


def test_a_server_that_answers_everything_gives_a_complete_report_and_status_0() -> None:
    with served(1000) as url:
        said = ask("fleet", url, *HOURS, "--json")
        text = ask("fleet", url, *HOURS, "--strict")
    assert said.code == 0 and (said.json["complete"], said.json["read_until"]) == (True, None)
    assert said.json["gpu_hours"] == pytest.approx(8.0)
    assert text.code == 0 and text.out.startswith("OFU 30.0 % of 8.00 GPU-hours (all of them trusted)")


def test_text_page_picture_table_and_data_agree_on_what_is_partial(tmp_path: Path) -> None:
    with served(4) as url:
        said = ask("fleet", url, *HOURS)
    assert said.code == 3
    headline = "partial, read until 2026-08-10 01:20:00 UTC: OFU 30.0 % of 2.67 GPU-hours"
    assert said.out.startswith(f"{headline} (all of them trusted)")
    for name in ("r.html", "r.svg", "r.txt", "r.json", "r.parquet"):
        with served(4) as url:
            wrote = ask("fleet", url, *HOURS, "--out", tmp_path / name)
        assert (wrote.code, wrote.out) == (3, "")
        assert wrote.err.startswith(f"wrote {tmp_path / name}, which is partial: ")
    page = (tmp_path / "r.html").read_text()
    assert (
        f"<title>{headline} – Ullage</title>" in page
        and "<h1>partial, read until 2026-08-10 01:20:00 UTC: <strong>OFU 30.0 %</strong>" in page
    )
    assert "partial, read until 2026-08-10 01:20:00 UTC" in (tmp_path / "r.svg").read_text()
    assert (tmp_path / "r.txt").read_text().startswith(headline)
    assert json.loads((tmp_path / "r.json").read_text())["complete"] is False
    facts = pq.read_schema(tmp_path / "r.parquet").metadata
    assert (facts[b"complete"], facts[b"read_until"]) == (b"false", b"2026-08-10T01:20:00Z")


def test_a_complete_report_says_nothing_of_it(tmp_path: Path) -> None:
    with served(1000) as url:
        wrote = [ask("fleet", url, *HOURS, "--out", tmp_path / name) for name in ("r.html", "r.svg", "r.txt")]
    assert [(one.code, one.err) for one in wrote] == [(0, f"wrote {tmp_path / name}\n") for name in ("r.html", "r.svg", "r.txt")]
    assert not any("partial" in (tmp_path / name).read_text() for name in ("r.html", "r.svg", "r.txt"))


@pytest.mark.parametrize("words", [[], ["--json"], ["--out", "r.html"], ["--by", "sample", "--out", "r.parquet"]])
def test_strict_refuses_what_is_partial_with_nothing_on_stdout(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with served(4) as url:
        said = ask("fleet", url, *HOURS, "--strict", *words)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("ullage: only a part could be read: ") and "leave out --strict" in said.err and said.err.count("\n") == 2
    assert list(tmp_path.iterdir()) == []


def test_a_table_of_samples_from_a_part_is_3_too(tmp_path: Path) -> None:
    with served(4) as url:
        said = ask("fleet", url, *HOURS, "--by", "sample", "--out", tmp_path / "s.parquet")
    assert said.code == 3 and "which is partial" in said.err
    assert pq.read_metadata(tmp_path / "s.parquet").num_rows == 2 * 160


def test_a_server_that_gives_nothing_at_all_is_an_error_and_no_partial_answer() -> None:
    with served(0) as url:
        said = ask("fleet", url, *HOURS)
    assert (said.code, said.out) == (1, "") and "broke off" in said.err


def test_python_is_told_what_the_command_says() -> None:
    with served(4) as url:
        report = ullage.fleet(url, since=T * 1000, until=(T + 4 * 3600) * 1000)
    assert (report.complete, report.read_until) == (False, (T + 4800) * 1000)


@pytest.mark.parametrize(
    ("beside", "complete"),
    [({"warnings": ["store 1 is down"]}, False), ({"isPartial": True}, False), ({"isPartial": False}, True), ({"infos": ["a hint"]}, True)],
)
def test_a_server_that_says_that_its_own_answer_is_partial_is_believed(beside: dict[str, Any], complete: bool) -> None:
    server = Server(1000, broken_off)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        query = parse_qs(urlsplit(handler.path).query)
        if "[" in query.get("query", [""])[0]:
            say(handler, json.dumps(json.loads(readings(query["query"][0], float(query["time"][0]))) | beside))
        else:
            server(handler)

    with scripted(answer) as url:
        said = ask("fleet", f"prometheus+{url}", *HOURS, "--json")
    assert said.code == (0 if complete else 3)
    assert said.json["complete"] is complete and said.json["read_until"] is None
    assert said.json["gpu_hours"] == pytest.approx(8.0)


# --- a deadline ---------------------------------------------------------------------------------------------------------------


def test_a_server_that_drips_is_left_at_the_deadline_and_what_came_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    # the server would go on for ever, and never be silent for as long as the timeout; the clock stands until it begins to drip
    server = Server(4, broken_off)
    server.then = server.drip
    clock = lambda: 60.0 if server.dripping.is_set() else 0.0  # noqa: E731
    monkeypatch.setattr(Deadline, "after", lambda seconds: Deadline(seconds, clock))
    with scripted(server) as url:
        try:
            said = ask("fleet", f"prometheus+{url}", *HOURS, "--timeout", "30s", "--deadline", "0.5s", "--json")
        finally:
            server.done.set()
    assert said.code == 3
    assert (said.json["complete"], said.json["read_until"]) == (False, "2026-08-10T01:20:00Z")
    assert any("had not answered when the deadline passed" in note for note in said.json["notes"])


def test_a_server_that_drips_from_the_first_is_an_error_at_the_deadline() -> None:
    with served(0, "drip") as url:
        said = ask("fleet", url, *HOURS, "--deadline", "0.3s")
    assert (said.code, said.out) == (1, "")
    assert "had not answered when the deadline passed\n  give a longer --deadline, or ask for less\n" in said.err


def test_what_came_of_one_place_is_reported_when_the_deadline_keeps_another_out(tmp_path: Path) -> None:
    path = as_csv(tmp_path, table(400))
    with served(0, "drip") as url:
        said = ask("fleet", path, url, *HOURS, "--deadline", "1s", "--json")
    assert said.code == 3 and said.json["complete"] is False
    assert any("had not answered when the deadline passed" in note for note in said.json["notes"])
    assert ask("fleet", path, tmp_path / "nowhere", "--deadline", "0.001s").code == 1  # a wrong name is never a matter of time


def test_a_server_that_drips_its_headers_is_left_too() -> None:
    done = threading.Event()

    def headers(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.0 200 OK\r\nX-Slow: ")
        while not done.wait(0.02):
            handler.wfile.write(b"a")

    with scripted(headers) as url:
        try:
            with pytest.raises(ServerError, match="had not answered when the deadline passed"):
                Client(url, Options(deadline=Deadline.after(0.3))).get("/")
        finally:
            done.set()


def test_a_plain_url_that_drips_when_it_is_looked_at_is_no_prometheus() -> None:
    done = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not done.wait(0.02):
            handler.wfile.write(b" ")

    with scripted(drip) as url:
        try:
            said = ask("fleet", url, "--deadline", "0.1s")
        finally:
            done.set()
    assert said.code == 1 and "had not answered when the deadline passed" in said.err


def test_no_attempt_is_begun_after_the_deadline_and_no_pause_outlasts_it() -> None:
    asked, waits = [], []
    clock = [0.0]

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds

    def busy(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        say(handler, "busy", 503, "text/plain")

    with scripted(busy) as url, pytest.raises(ServerError, match="refused: HTTP status 503"):
        # pauses of 0.5, 1, 2 and 4 s; after 3.5 s there is no room for the last one
        Client(url, Options(deadline=Deadline(6.0, lambda: clock[0])), sleep, chance=lambda: 0.0).get("/")
    assert waits == [0.5, 1.0, 2.0] and len(asked) == 4


@pytest.mark.parametrize(("now", "left"), [(0.0, 5.0), (4.5, 0.5), (5.0, 0.0), (9.0, 0.0)])
def test_what_is_left_of_a_deadline(now: float, left: float) -> None:
    clock = [0.0]
    deadline = Deadline.after(5, lambda: clock[0])
    clock[0] = now
    assert deadline.left == left


def test_without_a_deadline_there_is_always_time() -> None:
    assert Options().deadline.left == float("inf")


def test_a_file_is_read_up_to_the_deadline(tmp_path: Path) -> None:
    clock = [0.0]
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.csv").write_text(f"time,gpu,power\n{T},{name},300\n")
    batches = read_samples(str(tmp_path), Options(deadline=Deadline(5.0, lambda: clock[0])))
    assert next(batches)["gpu"].to_pylist() == ["a"]
    clock[0] = 5.0
    with pytest.raises(ullage.UllageError, match="the deadline passed before"):
        next(batches)


@pytest.mark.parametrize(("text", "told"), [("0", "--deadline 0 is too short"), ("soon", "'soon' is not a span of time")])
def test_what_is_no_deadline_is_told_before_anything_is_read(text: str, told: str) -> None:
    assert told in ask("fleet", "nowhere", "--deadline", text).err


# --- an exporter that is watched ---------------------------------------------------------------------------------------------------


def page(gpus: int = 2) -> str:
    labels = 'gpu="{0}",UUID="GPU-{0}",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"'
    return "".join(f"{name}{{{labels.format(gpu)}}} {value}\n" for name, value in METRICS.items() for gpu in range(gpus))


def watched(*answers: bool, deadline: float | None = None) -> tuple[Problems, int]:
    """Watch an exporter whose pages come or don't, a second apart; give the problems, and the rows that came."""
    from ullage.sources.exposition import watch

    clock, left = [T * 1000], list(answers)

    def fetch() -> Any:
        import io

        if not left.pop(0):
            raise ServerError("it is down")
        return io.BytesIO(page().encode())

    def sleep(seconds: float) -> None:
        clock[0] += round(seconds * 1000)

    problems = Problems()
    until = Deadline() if deadline is None else Deadline(deadline, lambda: clock[0] / 1000 - T)
    options = Options(watch=len(answers) - 1, interval=1.0, deadline=until)
    rows = sum(batch.num_rows for batch in watch("http://n1/metrics", fetch, options, problems, clock=lambda: clock[0], sleep=sleep))
    return problems, rows


def test_an_exporter_that_dies_under_watch_was_read_until_its_last_page() -> None:
    problems, rows = watched(True, True, False, False)
    assert (problems.complete, problems.read_until, rows) == (False, (T + 1) * 1000, 4)
    assert problems.lines() == ["2 scrapes that failed left out (first: it is down)"]


def test_a_page_that_fails_between_others_is_a_gap_and_not_the_end() -> None:
    problems, rows = watched(True, False, True)
    assert (problems.complete, problems.read_until, rows) == (True, None, 4)


def test_a_watch_ends_at_the_deadline() -> None:
    problems, rows = watched(*[True] * 10, deadline=2.5)
    assert (problems.complete, problems.read_until, rows) == (False, (T + 2) * 1000, 6)
    assert watched(*[True] * 3, deadline=2.5)[0].complete


# --- files ------------------------------------------------------------------------------------------------------------------------


def told(*words: object) -> Said:
    said = ask("fleet", *words, "--json")
    assert said.code in (0, 3), said
    assert said.json["complete"] is (said.code == 0)
    return said


def scrapes(folder: Path, times: range = range(30, 301, 30)) -> list[Path]:
    """A folder of scrapes, gzipped, the time of each in its name."""
    folder.mkdir()
    paths = [folder / f"{T + seconds}.prom.gz" for seconds in times]
    for path in paths:
        path.write_bytes(gzip.compress(page(200).encode(), mtime=0))
    return paths


def truncated(path: Path, share: float = 0.6) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def test_a_scrape_cut_off_in_the_middle_of_a_folder_makes_the_report_partial_from_there(tmp_path: Path) -> None:
    paths = scrapes(tmp_path / "scrapes")
    assert told(tmp_path / "scrapes").code == 0
    truncated(paths[4])
    said = told(tmp_path / "scrapes")
    assert said.code == 3 and said.json["read_until"] == "2026-08-10T00:02:00Z"  # the fourth is the last whole one before it
    strict = ask("fleet", tmp_path / "scrapes", "--strict")
    assert (strict.code, strict.out) == (1, "") and paths[4].name in strict.err


def test_a_file_of_which_nothing_can_be_read_makes_the_report_partial(tmp_path: Path) -> None:
    paths = scrapes(tmp_path / "scrapes")
    paths[4].write_bytes(paths[4].read_bytes()[:10] + b"\xff" * 40)
    said = told(tmp_path / "scrapes")
    assert said.code == 3 and any("could not be read to the end" in note for note in said.json["notes"])


def test_a_folder_with_files_that_are_no_telemetry_is_complete(tmp_path: Path) -> None:
    scrapes(tmp_path / "scrapes")
    (tmp_path / "scrapes" / "README.md").write_text("# scrapes of n1\n")
    (tmp_path / "scrapes" / "jobs.csv").write_text("job,user,gpus\n7,ann,2\n")
    (tmp_path / "scrapes" / "empty.prom").write_text("")
    assert told(tmp_path / "scrapes").code == 0


def test_scrapes_in_one_file_that_is_cut_off_were_read_until_the_last_whole_one(tmp_path: Path) -> None:
    text = "".join(f"# time {T + seconds}\n{page()}" for seconds in range(30, 301, 30))
    path = tmp_path / "history.prom"
    path.write_text(text)
    assert told(path).code == 0
    path.write_text(text[:-20])  # within the last scrape, within a line
    said = told(path)
    assert said.code == 3 and said.json["read_until"] == "2026-08-10T00:04:30Z"


def table(rows: int = 4000, gpus: int = 4) -> pa.Table:
    """Samples of some GPUs in the order of time, 30 s apart."""
    step, gpu = np.divmod(np.arange(rows), gpus)
    activity = 0.4 + 0.001 * np.random.default_rng(7).random(rows)
    return pa.table(
        {
            "time": pa.array((T + 30 * (step + 1)) * 1000).cast(pa.timestamp("ms", "UTC")),
            "gpu": [f"GPU-{n}" for n in gpu],
            "model": ["NVIDIA H100 80GB HBM3"] * rows,
            "tensor_active": activity,
            "sm_clock": np.full(rows, 1.3725e9),
        }
    )


def as_csv(folder: Path, samples: pa.Table) -> Path:
    import pyarrow.csv

    path = folder / "samples.csv.gz"
    with gzip.open(path, "wb") as file:
        pyarrow.csv.write_csv(samples, file)
    return path


def test_a_truncated_table_in_the_order_of_time_was_read_until_the_time_before_its_last(tmp_path: Path) -> None:
    path = as_csv(tmp_path, table())
    assert told(path).code == 0
    truncated(path, 0.5)
    said = told(path)
    # rows up to some time came, of which the last may lack GPUs
    assert said.code == 3 and said.json["read_until"] is not None
    last = pq_times(path)
    assert said.json["read_until"] == last
    assert ask("fleet", path, "--strict").code == 1


def pq_times(path: Path) -> str:
    """The time before the last one of what can be unpacked of a truncated table."""
    import zlib

    lines = zlib.decompressobj(31).decompress(path.read_bytes()).decode().split("\n")[1:-1]
    times = sorted({line.split(",")[0].strip('"') for line in lines})
    return times[-2].replace(" ", "T").replace(".000", "")


def test_a_truncated_table_by_device_was_read_until_nobody_knows_when(tmp_path: Path) -> None:
    path = as_csv(tmp_path, table().sort_by([("gpu", "ascending"), ("time", "ascending")]))
    truncated(path, 0.5)
    said = told(path)
    assert said.code == 3 and said.json["read_until"] is None
    assert ask("fleet", path).out.startswith("partial: OFU ")


def test_a_damaged_parquet_file_among_good_ones_makes_the_report_partial(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        pq.write_table(table(400), tmp_path / f"{name}.parquet")
    assert told(tmp_path).code == 0
    truncated(tmp_path / "b.parquet")
    assert told(tmp_path).code == 3


def test_a_log_that_still_grows_is_not_partial_and_one_that_is_damaged_is(tmp_path: Path) -> None:
    lines = ["#Date Time gpu pclk mmaact"]
    lines += [f" 20260810 00:{minute:02}:{second:02} {gpu} 1372 40" for minute in range(30) for second in (0, 30) for gpu in range(2)]
    text = "\n".join(lines) + "\n"
    log = tmp_path / "n1.dmon"
    log.write_text(text[:-10])  # the last line is being written
    assert told(log, "--gpu", "H100").code == 0
    log.write_bytes(gzip.compress(text.encode(), mtime=0))
    assert told(log, "--gpu", "H100").code == 0
    truncated(log, 0.5)
    said = told(log, "--gpu", "H100")
    assert said.code == 3 and said.json["read_until"] is not None


def test_a_saved_answer_that_is_cut_off_makes_the_report_partial(tmp_path: Path) -> None:
    for name in METRICS:
        (tmp_path / f"{name}.json").write_text(readings(f'"{name}"[3600000ms]', T + 3600))
    assert told(tmp_path).code == 0
    path = tmp_path / "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE.json"
    path.write_text(path.read_text()[:-200])
    said = told(tmp_path)
    assert said.code == 3 and said.json["read_until"] is None


def test_what_of_a_trainers_log_was_read_only_in_part_counts_too(tmp_path: Path) -> None:
    scrapes(tmp_path / "scrapes")
    log = tmp_path / "train.jsonl.gz"
    steps = "".join(json.dumps({"step": n, "mfu": 0.41, "loss": 1 / (n + 1)}) + "\n" for n in range(6_000))
    log.write_bytes(gzip.compress(steps.encode(), mtime=0))
    assert told(tmp_path / "scrapes", "--reported", f"{log}=7").code == 0
    truncated(log)
    assert told(tmp_path / "scrapes", "--reported", f"{log}=7").code == 3


# --- what the tally says ----------------------------------------------------------------------------------------------------------


def test_everything_was_read_up_to_the_earliest_cut() -> None:
    problems = Problems()
    assert problems.complete and problems.read_until is None
    problems.cut("a ended early", 2000)
    problems.cut("b ended early", 1000)
    assert (problems.complete, problems.read_until) == (False, 1000)
    problems.cut("nobody knows how far c was read")
    assert problems.read_until is None


@pytest.mark.parametrize(
    ("batches", "until"),
    [
        ([], None),
        ([[1, 1]], None),  # of the first time some rows may be missing
        ([[1, 2]], 1),
        ([[1, 1, 2, 2, 3]], 2),
        ([[1, 2], [2, 2], [3]], 2),
        ([[1, 2], [5, 6]], 5),
        ([[1, 2], [2]], 1),
        ([[2, 1]], None),
        ([[1, 5], [3, 6]], None),
    ],
)
def test_rows_in_order_are_whole_up_to_the_time_before_the_last(batches: list[list[int]], until: int | None) -> None:
    order = InOrder()
    for batch in batches:
        order.add(np.array(batch, np.int64))
    assert order.read_until == until


def test_the_other_questions_about_telemetry_say_it_too(tmp_path: Path) -> None:
    path = as_csv(tmp_path, table())
    truncated(path, 0.5)
    waterfall = ask("waterfall", path, "--json")
    assert waterfall.code == 3 and waterfall.json["complete"] is False and waterfall.json["answer"].startswith("partial, read until ")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "7.json").write_text('{"model_type": "llama"}')
    (tmp_path / "jobs.csv").write_text("job,gpus,mfu\n7,GPU-0,0.3\n")
    audit = ask("audit", "mfu", "--fleet", path, "--jobs", tmp_path / "jobs.csv", "--configs", tmp_path / "configs", "--json")
    assert audit.code == 3 and audit.json["complete"] is False
    truncated(scrapes(tmp_path / "scrapes")[4])
    assert ask("top", "--source", tmp_path / "scrapes", "--once").code == 3


def test_no_sleep_is_left_behind_by_a_drip() -> None:
    before = threading.active_count()
    with served(4, "drip") as url:
        ask("fleet", url, *HOURS, "--deadline", "0.5s")
    for _ in range(100):
        if threading.active_count() <= before:
            break
        time.sleep(0.05)
    assert threading.active_count() <= before  # whoever waited ends with the server's answer
