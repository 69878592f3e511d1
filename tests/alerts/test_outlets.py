"""What is sent where, held against those who take it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.alerts.test_book import problem
from ullage.alerts.book import AlertBook, Notice
from ullage.alerts.outlets import alertmanager_body, mail_into, mail_of, post_json, slack_body, webhook_body
from ullage.alerts.problem import problems_of_fleet, problems_of_watch
from ullage.errors import UllageError

NOW = 1_786_320_000.0


def notice(what: Any = "opened", **words: object) -> Notice:
    return Notice(3, what, NOW, "x", problem(**words))  # type: ignore[arg-type]


def test_a_webhook_hears_all_that_is_known() -> None:
    said = json.loads(webhook_body(notice(since="2026-08-10T00:00:00Z")))
    assert (said["what"], said["at"], said["key"]) == ("opened", "2026-08-10T00:00:00.000Z", "straggler/job=7")
    assert said["problem"]["gpu_hours"] == 2.0
    assert said["problem"]["where"] == {"job": "7"}


def test_a_chat_sees_no_mark_up_of_others() -> None:
    text = json.loads(slack_body(notice(owner="<!channel>", evidence="a & b", advice="drain it", command="ullage job 7 store")))["text"]
    assert "&lt;!channel&gt;" in text
    assert "a &amp; b" in text
    assert "do: drain it\n`ullage job 7 store`" in text
    assert "do:" not in json.loads(slack_body(notice("resolved")))["text"]


def test_an_e_mail_is_written_once_under_its_number(tmp_path: Path) -> None:
    one = notice(command="ullage job 7 store", evidence="a\r\nBcc: eve@example.org")
    mail_into(tmp_path / "mails")(mail_of(one, "ullage@example.org", ["ann@example.org"]), one)
    read = message_from_bytes((tmp_path / "mails" / "00000003-opened.eml").read_bytes())
    assert (read["Subject"], read["To"], read["Bcc"]) == ("[Ullage] straggler: job 7", "ann@example.org", None)
    assert "more: ullage job 7 store" in read.get_payload()


@pytest.fixture
def listening() -> Iterator[tuple[str, list[bytes]]]:
    heard: list[bytes] = []

    class Takes(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204 if self.path == "/good" else 500)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Takes)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", heard
    server.shutdown()
    server.server_close()


def test_what_is_posted_is_taken_or_refused(listening: tuple[str, list[bytes]]) -> None:
    address, heard = listening
    post_json(f"{address}/good", b"{}")
    assert heard == [b"{}"]
    with pytest.raises(UllageError, match="it answers 500"):
        post_json(f"{address}/bad?token=7", b"{}")
    with pytest.raises(UllageError, match="takes no alert") as refused:
        post_json("http://127.0.0.1:9/?token=secret", b"{}")
    assert "secret" not in refused.value.problem


def test_problems_come_from_the_documents_of_answers() -> None:
    evidence = [{"name": "idle", "value": 0.91234, "unit": "ratio"}]
    finding = {"kind": "held_idle", "where": {"job": "7"}, "owner": "ann", "gpu_hours": 3.0, "confidence": "high", "advice": "end it"}
    document = {"findings": [{**finding, "evidence": evidence}]}
    (one,) = problems_of_fleet(document, "ullage fleet s")
    assert (one.key, one.evidence, one.command) == ("held_idle/job=7", "idle 91 %", "ullage fleet s")
    change = {"scope": "job", "measure": "ofu", "where": {"job": "7"}, "owner": "ann", "gpu_hours": 1.0, "confidence": "high",
              "before": 0.4, "after": 0.2, "beside": ["hosts: now b"],
              "advice": "see", "command": "ullage job 7", "start": "2026-08-10T00:00:00Z",
              "worse": True, "goes_on": True}  # fmt: skip
    straggler = {"cluster": None, "job": "8", "host": "n1", "gpus": ["GPU-1"], "start": "2026-08-10T00:00:00Z", "end": None,
                 "sign": "clock", "longer": 1.6}  # fmt: skip
    found = [*problems_of_watch({"changes": [change, {**change, "goes_on": False}, {**change, "worse": False}], "stragglers": [straggler]})]
    assert [one.key for one in found] == ["change_job_ofu/job=7", "straggler_now/job=8/host=n1/gpu=GPU-1"]
    assert found[0].evidence == "ofu 0.4 → 0.2; hosts: now b"
    assert [*problems_of_watch({"stragglers": [{**straggler, "end": "2026-08-10T00:01:00Z"}]})] == []


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[str]:
    program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if program is None:
        pytest.skip("prometheus-alertmanager is not installed")
    (tmp_path / "am.yml").write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    port = free_port()
    words = [f"--config.file={tmp_path / 'am.yml'}", f"--storage.path={tmp_path}", f"--web.listen-address=127.0.0.1:{port}"]
    with subprocess.Popen([program, *words, "--cluster.listen-address="], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        address = f"http://127.0.0.1:{port}"
        for _ in range(200):
            try:
                with urlopen(f"{address}/-/ready", timeout=5):
                    break
            except OSError:
                time.sleep(0.05)
        yield address
        process.terminate()


def test_an_alertmanager_takes_what_is_open_and_what_is_over(alertmanager: str, tmp_path: Path) -> None:
    book, now = AlertBook(tmp_path / "a.sqlite"), time.time() - 10  # what is over is over before it is told
    book.look([problem("7"), problem("8", owner="eve", command="ullage job 8")], now, ())
    post_json(f"{alertmanager}/api/v2/alerts", alertmanager_body(book.alerts("open"), now, 300))

    def active() -> dict[str, Any]:
        with urlopen(f"{alertmanager}/api/v2/alerts?active=true", timeout=10) as answer:
            return {one["labels"]["job"]: one for one in json.load(answer)}

    taken = active()
    assert set(taken) == {"7", "8"}
    assert taken["8"]["labels"] == {"alertname": "ullage_straggler", "owner": "eve", "severity": "critical", "job": "8"}
    assert taken["8"]["annotations"]["command"] == "ullage job 8"
    for look in range(3):
        book.look([problem("7")], now + look + 1, ())
    post_json(f"{alertmanager}/api/v2/alerts", alertmanager_body(book.alerts("open", "resolved"), now, 300))
    later = active()
    assert "8" not in later or later["8"]["endsAt"] < taken["8"]["endsAt"]
    assert "7" in later
