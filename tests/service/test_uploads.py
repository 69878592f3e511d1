"""Profiles that are sent to the service: a good one gives its report, any other one a reason; nothing is left, and nobody waits."""

from __future__ import annotations

import gzip
import http.client
import json
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import pytest

from tests.command_line import ask
from tests.fleet.servers import wait_for
from tests.service.running import Client, Heard, service, small_store
from ullage.errors import NoSuchNameError, UllageError
from ullage.service import guard, uploads
from ullage.service.settings import ServiceSettings
from ullage.service.uploads import AGE_S, UploadBook, UploadRefusedError, UploadReport, may_upload

KIND = {"Content-Type": "application/octet-stream"}
ACT = {"Authorization": "Bearer 0123456789abcdef-act"}


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A profile of one rank, as a PyTorch profiler writes it."""
    folder = tmp_path_factory.mktemp("profile")
    assert ask("simulate", "trace", "--ranks", "1", "--steps", "2", "--out", str(folder / "made")).code == 0
    (found,) = (folder / "made").glob("training*.json")
    return found.read_bytes()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    place = small_store(tmp_path_factory.mktemp("uploaded"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ULLAGE_SERVE_TOKEN", raising=False)
        patch.setenv("XDG_DATA_HOME", str(place.parent / "home"))
        patch.setenv("TMPDIR", str(place.parent))
        patch.setattr(tempfile, "tempdir", None)
        (place.parent / "tokens").write_text("act 0123456789abcdef-act\nread 0123456789abcdef-read\n")
        with service(ServiceSettings(source=str(place), tokens_file=str(place.parent / "tokens"), answer_limit="600s")) as asking:
            yield asking


def sent(client: Client, body: bytes, **headers: str) -> Heard:
    return client("/api/v1/uploads", "POST", {**KIND, **ACT, **headers}, body)


def left(folder: str) -> list[str]:
    return [one.name for one in Path(folder).iterdir() if one.name.startswith("ullage-upload")]


def file_of(body: bytes) -> IO[bytes]:
    made = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    made.write(body)
    made.flush()
    return made


def test_a_profile_gives_its_report_as_a_page_and_as_a_document(client: Client, profile: bytes) -> None:
    answer = sent(client, gzip.compress(profile))
    assert answer.status == 200, answer.text
    page, document = (client(answer.json[name], headers=ACT) for name in ("page", "document"))
    assert page.status == 200 and "parallel efficiency" in page.text and document.json["schema"].startswith("ullage.trace/")
    assert "/proc/" not in page.text and "/proc/" not in document.text and "the upload" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"] and 'href="/jobs"' in page.text
    assert left(tempfile.gettempdir()) == []


@pytest.mark.parametrize("form", ["nsys", "rocpd", "jax", "xplane", "rocprofv3", "talp"])
def test_a_profile_of_each_kind_gives_the_report_of_the_command(client: Client, form: str, tmp_path: Path) -> None:
    made = ask("simulate", "trace", "--ranks", "1", "--steps", "2", "--format", form, "--out", str(tmp_path / "made"))
    assert made.code == 0, made.err
    (file,) = (one for one in (tmp_path / "made").rglob("*") if one.is_file() and not one.name.startswith("."))
    answer = sent(client, file.read_bytes())
    assert answer.status == 200, answer.text
    found, expected = client(answer.json["document"], headers=ACT).json, ask("trace", str(file), "--json").json
    assert expected["elapsed_ns"] and all(found[one] == expected[one] for one in ("elapsed_ns", "host", "device", "bounds"))


def test_only_who_may_act_sends_and_only_as_no_other_site_could(client: Client, profile: bytes) -> None:
    assert sent(client, profile, Authorization="Bearer 0123456789abcdef-read").status == 403
    assert client("/api/v1/uploads", "POST", KIND, profile).status == 401
    for headers in (
        {"Content-Type": "text/plain"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert sent(client, profile, **headers).status == 415, headers
    assert client("/upload/nobody-knows", headers=ACT).status == 404 and client("/api/v1/uploads/x", headers=ACT).status == 404
    assert client("/upload/../../etc/passwd", headers=ACT).status == 404


@pytest.mark.parametrize(
    "body", [b"", b"no profile", b"\x1f\x8b\x08broken", b"PK\x03\x04", b"SQLite format 3\x00" + bytes(4096), b'{"traceEvents": [']
)
def test_what_is_no_profile_is_refused_with_a_reason(client: Client, body: bytes) -> None:
    answer = sent(client, body)
    assert answer.status in (200, 422), answer.text
    if answer.status == 422:
        assert answer.json["error"]["problem"] and "Traceback" not in answer.text and "/proc/" not in answer.text
    assert left(tempfile.gettempdir()) == []


def test_names_in_a_profile_stay_words(client: Client, profile: bytes) -> None:
    hostile = "<script>alert(1)</script><header></header>../../etc/passwd"
    made = json.loads(profile)
    for event in made["traceEvents"]:
        if event.get("cat") == "kernel":
            event["name"] = hostile
    answer = sent(client, json.dumps(made).encode())
    page = client(answer.json["page"], headers=ACT).text
    assert "<script>alert" not in page and page.count("<header></header>") == 0 and page.count('class="site"') == 1


def test_what_is_larger_than_may_be_is_refused_before_it_has_come(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "LARGEST_UPLOAD", 1000)
    assert sent(client, b"x" * 1001).status == 413 and sent(client, b"x" * 1000).status == 422
    assert client("/api/v1/reported", "POST", {**ACT}, b"x" * (guard.LARGEST_BODY + 1)).status == 413  # others may send no more than before
    assert in_parts(client, 1001) == 413 and in_parts(client, 1000) == 422  # without a word of how much it is


def in_parts(client: Client, size: int) -> int:
    """Send a profile in chunks, and return the status."""
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
    try:
        connection.request("POST", "/api/v1/uploads", iter([b"x" * 500, b"x" * (size - 500)]), {**ACT, **KIND}, encode_chunked=True)
        return connection.getresponse().status
    finally:
        connection.close()


def test_where_no_more_can_wait_nothing_is_received(client: Client) -> None:
    book = client.running.service.uploads
    assert book is not None
    with ExitStack() as places:
        for _ in range(uploads.WAITING + 1):
            places.enter_context(book.place())
        assert sent(client, b"x").status == 503
    assert sent(client, b"x").status == 422


def test_where_it_is_not_said_profiles_are_taken_on_this_machine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert may_upload("", "127.0.0.1") and may_upload("", "::1") and may_upload("on", "0.0.0.0")
    assert not may_upload("", "0.0.0.0") and not may_upload("off", "127.0.0.1")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ULLAGE_SERVE_TOKEN", raising=False)
    with service(ServiceSettings(source=str(small_store(tmp_path)), uploads="off")) as asking:
        assert asking("/upload").status == 404 and 'href="/upload"' not in asking("/doctor").text
        assert asking("/api/v1/uploads", "POST", KIND, b"x").status == 404
        assert "/api/v1/uploads" not in asking("/openapi.json").json["paths"]


def bomb(size: int) -> bytes:
    """A gzip file of one long JSON, most of it blanks, a hundredth of its size or less."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    parts = [packer.compress(b'{"traceEvents": [')]
    parts += [packer.compress(b" " * 2**20) for _ in range(size // 2**20)]
    return b"".join([*parts, packer.compress(b"]}"), packer.flush()])


def child_that(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str) -> None:
    """Let the process that reads do something else, within its limits."""
    real = uploads.subprocess.Popen
    words = f"from ullage.service import upload_child\nupload_child.limit_process()\n{code}"

    def begun(command: list[str], **more: Any) -> Any:
        return real([command[0], "-I", "-c", words], **more)

    monkeypatch.setattr(uploads.subprocess, "Popen", begun)


def test_what_hangs_is_ended_with_all_that_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "child"
    begin = f"import os, time\nif os.fork() == 0:\n    open({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(1000)"
    child_that(monkeypatch, tmp_path, begin)
    with pytest.raises(UllageError, match="takes longer"), file_of(b"x") as sent_file:
        UploadBook(parse_s=5.0).report_on(sent_file)
    if mark.exists():
        stat = Path(f"/proc/{mark.read_text()}/stat")
        wait_for(lambda: not stat.exists() or stat.read_text().split()[2] == "Z")


@pytest.mark.parametrize(
    "code",
    [
        "x = bytearray(8 * 2**30)",  # memory
        "import sys\nfor _ in range(64): sys.stdout.buffer.write(bytes(2**20))",  # a flood
        "import os\nos.kill(os.getpid(), 11)",  # a crash
        "print('no JSON')",
        "import resource, time\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",  # time
    ],
)
def test_what_goes_beyond_its_limits_is_ended_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    child_that(monkeypatch, tmp_path, code)
    with pytest.raises(UllageError, match="upload") as refused, file_of(b"x") as sent_file:
        UploadBook(parse_s=60.0).report_on(sent_file)
    assert "ullage trace FILE" in refused.value.hint


def test_the_process_that_reads_has_no_secret_of_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ULLAGE_SERVE_TOKEN", "s3cret-of-the-service")
    child_that(monkeypatch, tmp_path, "import os, json\nprint(json.dumps({'problem': str(dict(os.environ)) + ' upload'}))")
    with pytest.raises(UllageError) as refused, file_of(b"x") as sent_file:
        UploadBook().report_on(sent_file)
    assert "s3cret" not in refused.value.problem and "TMPDIR" in refused.value.problem


CONNECTS = """
import socket
try:
    socket.create_connection(("127.0.0.1", {port}), 5)
except OSError as error:
    print('{{"problem": "no upload: ' + type(error).__name__ + '"}}')
else:
    print('{{"problem": "this upload reaches the network"}}')
"""


def test_the_process_that_reads_reaches_no_network(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("unshare") is None or subprocess.run(["unshare", "--user", "--net", "true"], check=False).returncode:
        pytest.skip("this system lets nobody give up the network")
    child_that(monkeypatch, tmp_path, CONNECTS.format(port=client.port))
    with pytest.raises(UllageError, match="no upload: OSError"), file_of(b"x") as sent_file:
        UploadBook().report_on(sent_file)


@pytest.mark.full
def test_a_small_file_that_becomes_a_huge_one_is_ended() -> None:
    with pytest.raises(UllageError), file_of(bomb(6 * 2**30)) as sent_file:
        UploadBook().report_on(sent_file)


def test_reports_go_by_age_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    book = UploadBook(clock=lambda: now[0])
    first = book._keep(UploadReport("a", b"", now[0]))
    now[0] += AGE_S - 1
    assert book.report(first).page == "a"
    now[0] += 1
    with pytest.raises(NoSuchNameError):
        book.report(first)
    monkeypatch.setattr(uploads, "MOST_REPORTS", 2)
    names = [book._keep(UploadReport(page, b"", now[0])) for page in "abc"]
    assert len(set(names)) == 3 and all(len(name) >= 24 for name in names)
    assert [book.report(name).page for name in names[1:]] == ["b", "c"]
    with pytest.raises(NoSuchNameError):
        book.report(names[0])
    monkeypatch.setattr(uploads, "MOST_BYTES", 10)
    large = book._keep(UploadReport("x" * 9, b"", now[0]))
    assert book.report(large).size == 9
    with pytest.raises(NoSuchNameError):
        book.report(names[1])
    assert book.report(names[2]).page == "c"


def test_few_wait_for_their_turn_and_none_begins_at_the_end() -> None:
    book = UploadBook()
    with ExitStack() as places:
        for _ in range(uploads.WAITING + 1):
            places.enter_context(book.place())
        with pytest.raises(UploadRefusedError, match="wait for their turn"), book.place():
            pass
    with book.place():  # those that were held are free again
        book.close()
    with pytest.raises(UploadRefusedError, match="ends"), file_of(b"x") as sent_file:
        book.report_on(sent_file)
