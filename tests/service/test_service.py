"""`ullage serve` over a store: answers are the commands', no request names what is read, foreign names are harmless."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from jsonschema import Draft202012Validator

from tests.command_line import ask
from tests.fleet.servers import wait_for
from tests.service.running import Client, hour, service, small_store
from ullage.service.guard import LARGEST_BODY
from ullage.service.pages import PAGES
from ullage.service.served import SERVED
from ullage.service.settings import ServiceSettings
from ullage.sources.running_service import SAMPLES_PATH
from ullage.store.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_store(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def client(store: Path) -> Iterator[Client]:
    with service(ServiceSettings(source=str(store))) as asking:
        yield asking


CONTRACT = ("/", "/healthz", "/readyz", "/openapi.json", "/api/v1/fleet", "/api/v1/job/4711")


@pytest.mark.parametrize("path", CONTRACT)
def test_the_addresses_that_others_rely_on_answer(client: Client, path: str) -> None:
    heard = client(path)
    assert heard.status == 200 and heard.body
    assert heard.headers["content-type"].startswith("text/html" if path == "/" else "application/json")


def without_command(found: dict[str, Any]) -> dict[str, Any]:
    """An answer without the line that asked for it: --json is no part of a page's."""
    return {key: value for key, value in found.items() if key != "command"}


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("fleet", ["fleet", "STORE"]),
        ("fleet?by=user&price=1", ["fleet", "STORE", "--by", "user", "--price", "1"]),
        ("fleet?host=n1&host=n2", ["fleet", "STORE", "--host", "n1", "--host", "n2"]),
        ("fleet?since=30m", ["fleet", "STORE", "--since", "2026-08-10T00:30:00Z"]),
        ("job/4711", ["job", "4711", "STORE"]),
        ("job/ml/train-0", ["job", "ml/train-0", "STORE"]),
        ("gpus?name=H100%20SXM", ["gpus", "H100 SXM"]),
        ("metrics?fields=1", ["metrics", "--fields"]),
        ("doctor", ["doctor", "STORE"]),
        ("watch", ["watch", "STORE"]),
        ("store/info", ["store", "info", "STORE"]),
    ],
)
def test_an_answer_is_that_of_the_command_which_it_names(client: Client, store: Path, path: str, words: list[str]) -> None:
    heard = client("/api/v1/" + path)
    given = [str(store) if word == "STORE" else word for word in words]
    assert heard.status == 200, heard.text
    assert without_command(heard.json) == without_command(ask(*given, "--json").json)
    if "since" in path:  # the one whose command says more than the address
        again = ask(*shlex.split(heard.json["command"])[1:], "--json").json
        assert without_command(again) == without_command(heard.json)


def test_every_page_answers_and_shows_the_command_for_the_same(client: Client, store: Path) -> None:
    for page in PAGES:
        heard = client(page.path)
        assert heard.status == 200 and "<h1>" in heard.text, page.path
        assert f'<a href="{page.path}" aria-current="page">{page.title}</a>' in heard.text
        if page.name in ("fleet", "doctor"):
            assert f"<code>ullage {page.name} {store}" in heard.text


def test_names_lead_to_pages_which_exist(client: Client) -> None:
    seen, waiting = set(), ["/"]
    while waiting:
        path = waiting.pop()
        seen.add(path)
        heard = client(path)
        assert heard.status == 200, (path, heard.text[:500])
        if heard.headers["content-type"].startswith("text/html") and not path.startswith(("/equations", "/hardware")):
            found = {
                link.replace("&amp;", "&") for link in re.findall(r'href="(/[^"#]*)', heard.text)
            }  # a browser keeps "#where" for itself
            found = {link for link in found if "since=20" not in link}  # the same pages, of all of the store
            waiting += sorted(found - seen - set(waiting))
    assert {"/job/4711", "/job/ml%2Ftrain-0", "/?user=ann", "/?host=n2", "/api/v1/fleet?by=user&since=24h&form=csv"} <= seen


def test_a_page_of_which_no_time_was_said_shows_the_last_day_of_the_store_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    place = Store.open(tmp_path / "store", create=True)
    place.append([hour(), hour(start=48 * 120, host="n2", job="5")])  # two days later
    with service(ServiceSettings(source=str(tmp_path / "store"))) as asking:
        page = asking("/").text
        assert "This page shows the last 24 hours of that" in page and "/job/5" in page and "/job/4711" not in page
        whole = re.search(r'href="(/\?since=[^"]*)"', page)
        assert whole is not None
        for path in (whole[1], "/?until=2026-08-13"):
            assert "This page shows" not in asking(path).text and "/job/4711" in asking(path).text
        assert asking("/api/v1/fleet").json["gpus"] == 8
    with service(ServiceSettings(source=str(tmp_path / "store"), defaults={"since": "2026-08-09"})) as asking:
        assert "/job/4711" in asking("/").text


def test_an_idle_jobs_page_says_that_hardly_anything_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    gauges = {"tensor_active": 1e-4, "sm_active": 2e-4, "gr_active": 4e-4, "gpu_util": 0.0, "dram_active": 1e-4, "memory_clock": 2.6e9}
    Store.open(tmp_path / "store", create=True).append([hour(**gauges)])
    with service(ServiceSettings(source=str(tmp_path / "store"))) as asking:
        page = asking("/job/4711").text
        assert "None of" not in page and "no roof is near, since hardly anything ran" in page


def test_the_window_stays_when_one_goes_from_page_to_page(client: Client) -> None:
    heard = client("/jobs?since=30m&by=job").text
    assert 'href="/users?since=30m"' in heard and 'href="/job/4711?since=30m"' in heard
    assert '<input name="since" value="30m"' in heard


PLACES = (
    *("sources", "jobs", "reported", "inventory", "store", "ca", "folder", "cupti", "headers", "timeout", "insecure", "gap"),
    *("id", "command", "progress", "one_job"),
)


@pytest.mark.parametrize("word", PLACES)
@pytest.mark.parametrize("path", ["/api/v1/fleet", "/", "/api/v1/store/info"])
def test_no_request_says_what_is_read_or_how(client: Client, path: str, word: str) -> None:
    assert client(f"{path}?{word}=/etc/passwd").status == 400


@pytest.mark.parametrize(
    "other", ["/etc/passwd", "http://127.0.0.1:1", "prometheus+http://x", ".", "~", "store", "local", "7d/../x", "./7d", "0d", "1960-01-01"]
)
def test_only_a_span_or_a_time_stands_beside_a_report(client: Client, other: str) -> None:
    heard = client(f"/api/v1/fleet?against={quote(other, safe='')}")
    assert heard.status == 400 and "only a span" in heard.text


@pytest.mark.parametrize("word", ["30m", "2026-08-10T00:10:00Z", "1786320600"])
def test_a_file_of_the_servers_folder_that_is_called_like_a_span_or_a_time_is_not_read(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / word).write_text("a secret")
    heard = client(f"/api/v1/fleet?since=30m&by=host&against={word}")
    assert heard.status == 200 and heard.json["against"] is not None and "secret" not in heard.text


def test_a_report_stands_beside_an_earlier_one(client: Client, store: Path) -> None:
    heard = client("/api/v1/fleet?since=30m&against=30m")
    same = ask("fleet", store, "--since", "2026-08-10T00:30:00Z", "--against", "30m", "--json")
    assert heard.status == 200 and without_command(heard.json) == without_command(same.json)


def test_what_names_a_place_is_local_in_every_question_that_is_served() -> None:
    # whoever adds an option that names a file must say so: its `metavar` does, and so does what `read_places` reads
    places = re.compile(r"FILE|FOLDER|PATH|SOURCE|LOG|CONFIG|URL|DIR|PLACE")
    for served in SERVED.values():
        open_to_all = {field.name for field in served.fields}
        for field in served.question.fields:
            if places.search(field.metavar or "") or field.name == served.place:
                assert field.name not in open_to_all or field.name in served.times, (served.name, field.name)


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/api/v1/fleet?by=nobody", 400, "can't group by 'nobody'"),
        ("/api/v1/fleet?bye=job", 400, "did you mean"),
        ("/api/v1/fleet?since=x", 400, "is not a time"),
        ("/api/v1/fleet?since=1h&since=2h", 400, "said 2 times"),
        ("/api/v1/fleet?noise=perhaps", 400, "true or false"),
        ("/api/v1/fleet?form=poem", 400, "form must be one of"),
        ("/api/v1/fleet?form=json&only=groups", 400, "JSON and pages hold every table"),
        ("/api/v1/fleet?form=csv&only=nothing", 422, "nothing"),
        ("/api/v1/fleet?where=" + "x" * 5000, 400, "at most 4,000"),
        ("/api/v1/fleet?since=2026-08-11", 422, "no sample in the window"),
        ("/api/v1/fleet?by=sample", 422, "too long to print"),
        ("/api/v1/job/none", 404, "is of a job 'none'"),
        ("/api/v1/job/4711?setup=slurm", 400, "one of the two"),
        ("/api/v1/trace", 404, "nothing at"),
        ("/nowhere", 404, "no page /nowhere"),
        ("/job/%3Cscript%3Ealert(1)%3C%2Fscript%3E", 404, "&lt;script&gt;"),
    ],
)
def test_what_can_not_be_answered_says_why(client: Client, path: str, status: int, said: str) -> None:
    heard = client(path)
    assert heard.status == status and said in heard.text, heard.text[-500:]


def test_other_forms_are_those_of_the_command(client: Client, store: Path, tmp_path: Path) -> None:
    for form, ending in (("csv", "csv"), ("markdown", "md"), ("text", "txt")):
        assert ask("fleet", store, "--out", tmp_path / f"a.{ending}").code == 0
        same = (tmp_path / f"a.{ending}").read_bytes().decode()
        heard = client(f"/api/v1/fleet?form={form}").text
        cut = f" --out {tmp_path}/a.{ending}"
        assert heard == same.replace(cut, "")
    assert client("/api/v1/fleet?form=csv&only=ledger").text.startswith("whose GPU-hours,")


def test_only_reading_is_of_use(client: Client) -> None:
    for path in ("/", "/api/v1/fleet", "/healthz"):
        assert [client(path, method).status for method in ("POST", "PUT", "DELETE")] == [405, 405, 405]
    assert client("/", "HEAD").body == b""


def test_the_document_describes_every_address_and_answers_follow_it(client: Client) -> None:
    document = client("/openapi.json").json
    assert document["openapi"].startswith("3.1")
    assert {path for path in document["paths"] if path.startswith("/api/v1")} >= {
        f"/api/v1/{one.path}" + ("/{id}" if one.name == "job" else "") for one in SERVED.values()
    }
    for path, of in document["paths"].items():
        if "{id}" in path or not path.startswith("/api/v1") or "get" not in of:
            continue
        if path == SAMPLES_PATH:  # a file: tests/service/test_top_of_service.py reads it
            assert client(path).headers["content-type"] in of["get"]["responses"]["200"]["content"]
            continue
        schema = of["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        whole = {**schema, "components": document["components"]}
        Draft202012Validator.check_schema(whole)
        assert [error.message for error in Draft202012Validator(whole).iter_errors(client(path).json)] == []


def test_every_answer_forbids_what_pages_have_no_use_for(client: Client) -> None:
    for path in ("/", "/nowhere", "/api/v1/fleet", "/healthz"):
        headers = client(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers
    page = client("/").text
    said = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert said is not None
    policy = said[1].replace("&#x27;", "'")
    assert client("/").headers["content-security-policy"] == f"{policy}; frame-ancestors 'none'"


def test_foreign_names_stay_words(tmp_path: Path) -> None:
    hostile = "\"><script>document.title='x'</script>\x1b[31m/../..'"
    Store.open(tmp_path / "store", create=True).append([hour(job=hostile, user="javascript:alert(1)", host="<b>n1</b>")])
    with service(ServiceSettings(source=str(tmp_path / "store"))) as client:
        for path in ("/", "/jobs", "/users", "/hosts", f"/job/{quote(hostile, safe='')}"):
            heard = client(path)
            assert heard.status == 200, heard.text
            assert "<script>document" not in heard.text and "<b>n1" not in heard.text and "\x1b" not in heard.text
            assert not re.search(r'href="(?!/|#|https://)', heard.text)


def test_a_page_of_another_site_can_not_ask_by_a_name_of_its_own(client: Client) -> None:
    assert client("/healthz", headers={"Host": "evil.example"}).status == 421
    for name in ("localhost", "127.0.0.1", "127.0.0.1:9748", "[::1]:80", "LOCALHOST:1"):
        assert client("/healthz", headers={"Host": name}).status == 200, name


def test_a_request_sends_no_more_than_it_may(client: Client) -> None:
    assert client("/api/v1/fleet", "GET", body=b"x" * (LARGEST_BODY + 1)).status == 413
    assert client("/api/v1/fleet", "GET", body=b"x" * 100).status == 200
    assert client("/?" + "x" * 100_000).status in (400, 414, 431)


def test_an_answer_is_made_once_until_the_store_grows(tmp_path: Path) -> None:
    place = small_store(tmp_path)
    with service(ServiceSettings(source=str(place))) as client:
        first = client("/api/v1/fleet?by=host")
        assert client("/api/v1/fleet?by=host").headers["etag"] == first.headers["etag"]
        Store.open(place).append([hour(start=120, minutes=30)])
        wait_for(lambda: client("/api/v1/fleet?by=host").headers["ullage-current"] == "true")
        second = client("/api/v1/fleet?by=host")
        assert second.headers["etag"] != first.headers["etag"]
        assert second.json["gpu_hours"] == pytest.approx(first.json["gpu_hours"] + 4 * 0.5, abs=0.01)


def test_there_is_nothing_to_show_before_there_is_a_store(tmp_path: Path) -> None:
    place = small_store(tmp_path)
    with service(ServiceSettings(source=str(place))) as client:
        manifest = (place / "manifest.json").read_bytes()
        (place / "manifest.json").unlink()
        heard = client("/readyz")
        assert heard.status == 503 and "there is no store" in heard.json["because"]
        assert client("/").status == 503 and "nothing to show yet" in client("/").text
        refused = client("/api/v1/fleet")
        assert refused.status == 503 and refused.headers["retry-after"] == "10"
        assert "there is nothing to show yet: there is no store" in refused.json["error"]["problem"]
        assert refused.json["error"]["hint"] == "/readyz says when there is an answer"
        assert client("/healthz").status == 200 and client("/hardware").status == 200
        (place / "manifest.json").write_bytes(manifest)
        assert client("/readyz").status == 200 and client("/").status == 200


def test_a_token_is_asked_for_in_both_ways_and_told_nobody(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ULLAGE_SERVE_TOKEN", "s3cret")
    with service(ServiceSettings(source=str(store))) as client:
        refused = client("/api/v1/fleet")
        assert refused.status == 401 and refused.headers["www-authenticate"].startswith("Basic")
        for said in ("Bearer s3cre", "Bearer ", "Basic x", "Basic YTpi", "s3cret", "Bearer s3cret x"):
            assert client("/", headers={"Authorization": said}).status == 401, said
        for said in ("Bearer s3cret", "bearer s3cret", "Basic YW5uOnMzY3JldA=="):  # ann:s3cret
            assert client("/", headers={"Authorization": said}).status == 200, said
        assert client("/healthz").status == client("/readyz").status == 200
        assert client("/healthz", headers={"Host": "fleet.example"}).status == 200
        assert "s3cret" not in client.log.getvalue()


def test_nobody_else_reaches_a_service_without_a_token(store: Path) -> None:
    said = ask("serve", store, "--host", "0.0.0.0", "--port", "0")
    assert said.code == 1 and "no token says who may ask" in said.err and "ULLAGE_SERVE_TOKEN" in said.err


def test_a_port_that_is_taken_is_one_error(client: Client, store: Path) -> None:
    said = ask("serve", store, "--port", client.port)
    assert said.code == 1 and f"can't serve at 127.0.0.1:{client.port}" in said.err


def test_without_its_libraries_one_error_names_the_extra(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    said = ask("serve", store)
    assert said.code == 1 and "pip install 'ullage[serve]'" in said.err


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_signal_ends_the_service_well(store: Path, number: int, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ullage", "serve", str(store), "--port", "0", "--log", "json"],
            stderr=log,
            env=os.environ | {"HOME": str(tmp_path)},
        )
        try:
            wait_for(lambda: b'"serving"' in (tmp_path / "log").read_bytes(), tmp_path / "log")
            process.send_signal(number)
            assert process.wait(30) == 0
        finally:
            process.kill()
    events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
    assert events[0] == "serving" and events[-1] == "ended"


BUSY = """
import sys, threading
import duckdb
from ullage.cli import cli
from ullage.service.server import RunningService

closed, began = RunningService.close, threading.Event()

def busy():
    connection = duckdb.connect()
    while True:
        connection.sql("select sum(i) from range(2000) t(i)").fetchall()
        began.set()

def close(running, patience=1.0):
    ended = closed(running, 60.0)
    for _ in range(3):
        threading.Thread(target=busy, daemon=True).start()
    began.wait()
    return ended

RunningService.close = close
cli(sys.argv[1:])
"""


def test_a_thread_that_is_still_in_the_engine_does_not_abort_the_end(store: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as said:
        words = [sys.executable, "-c", BUSY, "serve", str(store), "--port", "0", "--log", "json"]
        process = subprocess.Popen(words, stderr=said, env=os.environ | {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)})
        try:
            wait_for(lambda: b'"serving"' in log.read_bytes(), log)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert json.loads(log.read_text().splitlines()[-1])["event"] == "ended" and [*tmp_path.glob("ullage-*")] == []


def test_a_line_of_the_log_is_an_event_for_programs(client: Client) -> None:
    client("/healthz?token=x", "HEAD")
    wait_for(lambda: '"HEAD", "path": "/healthz"' in client.log.getvalue())
    lines = [json.loads(line) for line in client.log.getvalue().splitlines()]
    last = [line for line in lines if line.get("path") == "/healthz"][-1]
    assert last["status"] == 200 and last["event"] == "request" and last["method"] == "HEAD" and {"time", "ms", "bytes"} <= set(last)


def test_fields_of_the_served_are_those_of_the_commands() -> None:
    for served in SERVED.values():
        names = {field.name for field in dataclasses.fields(served.question.asked)}
        assert {field.name for field in served.fields} <= names


ARENAS = """
import ctypes, sys, threading
from ullage.service.server import few_arenas
few = few_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.fopen.restype, libc.fopen.argtypes, libc.fclose.argtypes = ctypes.c_void_p, [ctypes.c_char_p] * 2, [ctypes.c_void_p]
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
together = threading.Barrier(17)
def work(): libc.malloc(100_000); together.wait()
for _ in range(16): threading.Thread(target=work, daemon=True).start()
together.wait()
stream = libc.fopen(sys.argv[1].encode(), b"w")
libc.malloc_info(0, stream)
libc.fclose(stream)
print(few, open(sys.argv[1]).read().count("<heap nr="))
"""


def test_threads_share_two_arenas_of_memory_where_the_c_library_can(tmp_path: Path) -> None:
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("another C library than GNU's")
    done = subprocess.run([sys.executable, "-c", ARENAS, str(tmp_path / "heaps")], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["True", "2"]
