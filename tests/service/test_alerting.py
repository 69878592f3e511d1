"""Alerts of a running service: what its answers tell of, kept once, told once, acknowledged and silenced over HTTP."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.fleet.servers import wait_for
from tests.service.running import service, small_store
from ullage.alerts.book import AlertBook
from ullage.alerts.problem import Problem
from ullage.errors import UllageError
from ullage.service.alerting import Alerting, alerts_document, alerts_view, attach_profile, outlet_of, read_outlets
from ullage.service.logs import ServiceLog
from ullage.service.settings import ServiceSettings, read_settings
from ullage.views.text import text

TOKEN = {"Authorization": "Bearer s3cret"}
FINDING = {
    "kind": "held_idle",
    "where": {"job": "7"},
    "owner": "ann",
    "gpu_hours": 3.0,
    "confidence": "high",
    "evidence": [],
    "advice": "end it",
}


class Asked:
    """Answers that say what they are told to; None: they can't be had."""

    def __init__(self) -> None:
        self.findings: list[dict[str, Any]] | None = []

        self.jobs: list[str] = []
        self.windows: list[tuple[Any, ...]] = []

    def __call__(self, name: str, **words: str) -> Mapping[str, Any]:
        if name == "job":
            self.jobs.append(words["id"])
            return {"devices": [{"host": "n1", "index": 3, "gpu": "GPU-3", "mig": None, "ofu": 0.1, "verdict": "trusted"}]}
        if name == "fleet" and words:
            self.windows.append((words["since"], words["until"], words["where"]))
            level = 0.2 if len(self.windows) % 2 else 0.3
            return {"groups": [{"key": f"2026-08-01 {hour:02}:00", "ofu": level, "gpu_hours": 8.0} for hour in range(24)]}
        if self.findings is None:
            raise UllageError("the store can't be read")
        return {"findings": self.findings, "command": "ullage fleet s"} if name == "fleet" else {}


def test_what_cannot_be_asked_says_nothing_of_any_problem(tmp_path: Path) -> None:
    asked, said, mails = Asked(), io.StringIO(), tmp_path / "mails"
    book = AlertBook(tmp_path / "a.sqlite")
    outlets = [outlet_of(f"mail_folder {mails}", 1, 60.0)]
    alerting = Alerting(book, outlets, asked, ServiceLog("json", said), clock=iter(range(0, 6000, 60)).__next__)
    asked.findings = [FINDING]
    alerting.turn()
    asked.findings = None
    for _ in range(5):
        alerting.turn()
    assert len(book.alerts("open")) == 1
    assert "the store can't be read" in said.getvalue()
    asked.findings = []
    for _ in range(3):
        alerting.turn()
    assert book.alerts("open") == []
    assert [file.name for file in sorted(mails.iterdir())] == ["00000001-opened.eml", "00000002-resolved.eml"]
    assert "ullage fleet s" in (mails / "00000001-opened.eml").read_text()


def test_a_job_is_asked_once_for_its_worst_gpu_and_a_profile_can_be_attached(tmp_path: Path) -> None:
    asked = Asked()
    asked.findings = [FINDING | {"kind": "straggler"}, FINDING | {"kind": "low_sm_fill"}, FINDING]
    alerting = Alerting(AlertBook(tmp_path / "a.sqlite"), [], asked, ServiceLog("json", io.StringIO()))
    alerting.turn()
    alerting.turn()
    assert asked.jobs == ["7"]
    told = {one["kind"]: one for one in alerts_document(alerting.book, 0.0)["alerts"]}
    assert (told["straggler"]["profile"]["host"], told["straggler"]["profile"]["index"], told["held_idle"]["profile"]) == ("n1", 3, None)
    body = {"key": "straggler/job=7", "profile": "/traces/rank 0.json", "by": "ann"}
    assert attach_profile(alerting.book, json.dumps(body).encode(), 5.0) == {"attached": "straggler/job=7"}
    told = {one["kind"]: one for one in alerts_document(alerting.book, 0.0)["alerts"]}
    assert told["straggler"]["profiles"][0]["next"] == "ullage open -- '/traces/rank 0.json'"
    assert "/traces/rank 0.json" in text(alerts_view(alerting.book, 0.0), whole=True)
    address = json.dumps(body | {"profile": "https://ann:pa55@host/t.json?sig=hunter2"}).encode()
    attach_profile(alerting.book, address, 6.0)
    kept = (tmp_path / "a.sqlite").read_bytes() + json.dumps(alerts_document(alerting.book, 0.0)).encode()
    assert b"host/t.json" in kept and b"pa55" not in kept and b"hunter2" not in kept
    with pytest.raises(UllageError, match="no path and no address"):
        attach_profile(alerting.book, json.dumps(body | {"profile": " "}).encode(), 5.0)


def test_what_a_fix_brought_is_measured_once_a_day_and_shown(tmp_path: Path) -> None:
    asked, hour = Asked(), iter(range(0, 24 * 3600 * 1000, 6 * 3600))
    asked.findings = [FINDING | {"where": {"host": "n1"}}]
    alerting = Alerting(AlertBook(tmp_path / "a.sqlite"), [], asked, ServiceLog("json", io.StringIO()), clock=lambda: float(next(hour)))
    for _ in range(5):
        alerting.turn()
    asked.findings = []
    for _ in range(3):
        alerting.turn()  # over at 42 h; seen since 0 h, so it lasted from 0 h, or before, to 18 h
    assert alerts_document(alerting.book, 0.0)["alerts"][0]["fix"] is None
    for _ in range(6):
        alerting.turn()  # up to 78 h
    before = ("1970-01-01T00:00:00Z", "1970-01-01T18:00:00Z", "host=n1")
    assert asked.windows == [before, ("1970-01-02T18:00:00Z", "1970-01-03T12:00:00Z", "host=n1")]
    assert alerts_document(alerting.book, 0.0)["alerts"][0]["fix"]["gpu_hours_a_week"] == pytest.approx(134.4)
    assert "+134 ± 0, host n1: OFU 20 % → 30 %" in text(alerts_view(alerting.book, 0.0), whole=True, width=300)


def test_a_place_that_does_not_answer_is_logged_and_tried_again(tmp_path: Path) -> None:
    asked, said = Asked(), io.StringIO()
    asked.findings = [FINDING]
    outlets = [outlet_of("webhook http://127.0.0.1:9/secret", 1, 60.0), outlet_of("alertmanager http://127.0.0.1:9", 2, 60.0)]
    alerting = Alerting(AlertBook(tmp_path / "a.sqlite"), outlets, asked, ServiceLog("json", said))
    alerting.turn()
    assert said.getvalue().count("alert not sent") == 2
    assert len(alerting.book.waiting("webhook of line 1")) == 1
    assert outlets[0].name == "webhook of line 1"  # without its secret


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("webhook", "names no place"),
        ("webhook ftp://x", "must begin with http"),
        ("pigeon http://x", "'pigeon' is no way"),
        ("mail ann@example.org", "names no mail server"),
        ("mail ann via x:25", "not an e-mail address"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, says: str) -> None:
    (tmp_path / "places").write_text(f"# where alerts go\n\n{line}\n")
    with pytest.raises(UllageError, match=f"places line 3: .*{says}") as refused:
        read_outlets(tmp_path / "places", 60.0)
    assert refused.value.hint


def test_every_way_can_be_named(tmp_path: Path) -> None:
    lines = [
        "webhook https://a/b",
        "slack https://hooks/x",
        "alertmanager http://am:9093/",
        f"mail_folder {tmp_path}",
        "mail a@b.org via mx:2525",
    ]
    (tmp_path / "places").write_text("\n".join(lines))
    assert [one.name for one in read_outlets(tmp_path / "places", 60.0)] == [
        "webhook of line 1", "slack of line 2", "alertmanager of line 3", "mail_folder of line 4", "mail of line 5",
    ]  # fmt: skip
    with pytest.raises(UllageError, match="can't be read"):
        read_outlets(tmp_path / "nowhere", 60.0)


def test_a_wrong_span_of_the_setting_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "ullage.toml").write_text('alert_every = "often"\n')
    with pytest.raises(UllageError, match="line 1: alert_every"):
        read_settings(tmp_path / "ullage.toml")


def test_a_running_service_raises_keeps_and_shows_alerts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ULLAGE_SERVE_TOKEN", "s3cret")
    (tmp_path / "places").write_text(f"mail_folder {tmp_path / 'mails'}\n")
    settings = ServiceSettings(source=str(small_store(tmp_path)), alert_every="1h", alert_file=str(tmp_path / "places"))
    with service(settings) as client:
        alerting = client.running.service.alerting
        assert alerting is not None
        wait_for(lambda: alerting.turns > 0)  # its own look sees no such problem

        def alerts() -> Any:
            return client("/api/v1/alerts", headers=TOKEN).json

        problem = Problem(kind="x", title="a <b>problem</b>", where={"job": "4711"}, owner="ann", gpu_hours=2.0, confidence="high",
                          evidence="", advice="see", command="ullage job 4711")  # fmt: skip
        alerting.book.look([problem], 1.0, ["nobody"])
        (one,) = [one for one in alerts()["alerts"] if one["kind"] == "x"]
        assert (one["key"], one["state"], one["acknowledged_by"], one["silenced"]) == ("x/job=4711", "open", None, False)
        page = client("/alerts", headers=TOKEN)
        assert page.status == 200
        assert "A &lt;b&gt;problem&lt;/b&gt;" in page.text or "a &lt;b&gt;problem&lt;/b&gt;" in page.text
        assert all(words in page.text for words in ("do: see", "see: ullage job 4711", "key: x/job=4711", 'href="/alerts"'))

        def post(path: str, said: object, **headers: str) -> int:
            return client(path, "POST", {**TOKEN, **headers}, json.dumps(said).encode()).status

        assert post("/api/v1/alerts/acknowledge", {"key": one["key"], "by": "bob"}) == 200
        assert post("/api/v1/alerts/acknowledge", {"key": "y", "by": "bob"}) == 404
        assert post("/api/v1/alerts/acknowledge", {"who": "bob"}) == 400
        assert post("/api/v1/silences", {"owner": "ann", "span": "8h", "by": "bob"}) == 200
        assert post("/api/v1/silences", {"span": "8h", "by": "bob"}) == 400
        assert post("/api/v1/silences", {"owner": "ann", "span": "soon", "by": "bob"}) == 400
        (one,) = [one for one in alerts()["alerts"] if one["kind"] == "x"]
        assert (one["acknowledged_by"], one["silenced"]) == ("bob", True)
        assert [silence["owner"] for silence in alerts()["silences"]] == ["ann"]
        assert client("/api/v1/watch", headers=TOKEN).json["schema"].startswith("ullage.watch/")
        # and the document says so
        document = client("/openapi.json", headers=TOKEN).json
        shape = {"$ref": "#/components/schemas/Alerts", "components": document["components"]}
        assert [error.message for error in Draft202012Validator(shape).iter_errors(alerts())] == []
        for path, name in (("alerts/acknowledge", "Acknowledged"), ("silences", "Silenced")):
            operation = document["paths"][f"/api/v1/{path}"]["post"]
            assert operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith(f"/{name}")
            assert {"400", "403"} <= operation["responses"].keys() and name in document["components"]["schemas"]


def test_without_the_setting_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    with service(ServiceSettings(source=str(small_store(tmp_path)))) as client:
        assert client("/api/v1/alerts").status == 404
        assert client("/alerts").status == 404
        assert 'href="/alerts"' not in client("/doctor").text
        assert not any("alerts" in path or "silences" in path for path in client("/openapi.json").json["paths"])
        assert client("/api/v1/silences", "POST", {}, b"{}").status == 403


def test_who_sees_a_part_of_the_fleet_sees_no_alerts_and_changes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ULLAGE_SERVE_TOKEN", raising=False)
    (tmp_path / "tokens").write_text("read 0123456789abcdef-part user=ann\nread 0123456789abcdef-all\n")
    settings = ServiceSettings(source=str(small_store(tmp_path)), alert_every="1h", tokens_file=str(tmp_path / "tokens"))
    with service(settings) as client:
        part, whole = ({"Authorization": f"Bearer 0123456789abcdef-{name}"} for name in ("part", "all"))
        assert [client(path, headers=part).status for path in ("/alerts", "/api/v1/alerts", "/api/v1/watch")] == [403, 403, 403]
        assert [client(path, headers=whole).status for path in ("/alerts", "/api/v1/alerts")] == [200, 200]
        for path in ("/api/v1/silences", "/api/v1/alerts/acknowledge"):
            assert [client(path, "POST", headers, b"{}").status for headers in (part, whole)] == [403, 403]
