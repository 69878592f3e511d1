"""Samples that are sent: kept before the sender is told, stored like those that are read, refused as the protocol asks."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fleet.servers import prometheus, say, scripted, wait_for
from tests.service.running import T0, Client, service
from tests.service.test_follow import plain, rows_of
from tests.sources.test_remote_write import packed, written
from tests.store.test_store import records
from ullage.errors import UllageError
from ullage.intake import take
from ullage.problems import Problems
from ullage.service import remote_write
from ullage.service.follow import Follower, FollowPlan
from ullage.service.guard import REMOTE_WRITE
from ullage.service.logs import ServiceLog
from ullage.service.pseudonyms import Pseudonyms
from ullage.service.remote_write import LEFTOVER_AFTER_S, NoRoomError, ReceivedSamples, received_files, remove_received
from ullage.service.settings import ServiceSettings
from ullage.service.state import LATE_S
from ullage.sources.remote_write import LARGEST_PACKED, RemoteWriteError
from ullage.sources.source import Options
from ullage.store.store import Store

TOKEN = "0123456789abcdef"
ACT = {"Authorization": f"Bearer {TOKEN}"}
KIND = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy", "X-Prometheus-Remote-Write-Version": "0.1.0"}
FIELDS = ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_SM_CLOCK")


def request(first: int = 1, times: int = 4, gpus: int = 2, **labels: str) -> bytes:
    """Four fields of some GPUs every 30 s, and a metric that is no field."""
    series = []
    for name, value in zip((*FIELDS, "up"), (0.5, 0.8, 0.9, 1755.0, 1.0), strict=True):
        for gpu in range(gpus):
            words = {"__name__": name, "gpu": str(gpu), "UUID": f"GPU-{gpu}", "Hostname": "n1", "modelName": "NVIDIA H100 80GB HBM3"}
            series.append((words | labels, [(T0 + 30_000 * at, value) for at in range(first, first + times)]))
    return packed(written(series))


def follower_of(store: Path, **more: Any) -> Follower:
    return Follower(FollowPlan((), store, remote_write=True, **more), ServiceLog(stream=io.StringIO()), lambda _: None)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ULLAGE_SERVE_TOKEN", TOKEN)
    (tmp_path / "tokens").write_text("read 0123456789abcdef-read\n")
    settings = ServiceSettings(remote_write=True, store=str(tmp_path / "store"), every="0.5s", tokens_file=str(tmp_path / "tokens"))
    with service(settings) as asking:
        yield asking


def sent(client: Client, body: bytes, **headers: str) -> int:
    return client(REMOTE_WRITE, "POST", {**KIND, **ACT, **headers}, body).status


def fields_of(store: Path) -> set[float | None]:
    return {row[name] for row in rows_of(store) for name in ("tensor_active", "sm_active", "gr_active", "sm_clock")}


class Exporter:
    """A page of two GPUs whose numbers change with each scrape; after so many scrapes it is gone."""

    def __init__(self, scrapes: int) -> None:
        self.left = scrapes

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        if self.left <= 0:
            say(handler, "gone", 503)
            return
        self.left -= 1
        labels = [f'gpu="{gpu}",UUID="GPU-{gpu}",Hostname="n1",modelName="NVIDIA H100 80GB HBM3"' for gpu in range(2)]
        values = dict(zip(FIELDS, (0.1, 0.2, 0.3, 1700.0), strict=True))
        lines = [
            f"{name}{{{words}}} {value + 0.01 * self.left + 0.001 * gpu}"
            for name, value in values.items()
            for gpu, words in enumerate(labels)
        ]
        say(handler, "\n".join([*lines, "go_goroutines 8"]) + "\n", kind="text/plain; version=0.0.4")


def test_what_a_real_prometheus_sends_is_what_it_answers_to_who_asks(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, exporter = tmp_path / "store", Exporter(scrapes=8)
    monkeypatch.setattr(remote_write, "MOST_WAITING", 0)  # it must come again for a while
    address = f"http://127.0.0.1:{client.port}{REMOTE_WRITE}"
    queue = "queue_config: {batch_send_deadline: 200ms, min_backoff: 50ms, max_backoff: 200ms}"
    more = f"remote_write: [{{url: '{address}', authorization: {{credentials: {TOKEN}}}, {queue}}}]"
    with scripted(exporter.answer) as target, prometheus(tmp_path, [target.removeprefix("http://")], more=more) as url:
        wait_for(lambda: client.running.service.statuses.get(503, 0) > 1)
        monkeypatch.setattr(remote_write, "MOST_WAITING", 2**30)
        wait_for(lambda: exporter.left == 0 and len(rows_of(store)) == 2 * 8 and None not in fields_of(store))
        asked = Store.open(tmp_path / "asked", create=True)
        now = round(time.time() * 1000)
        take(asked, [url], None, options=Options(since=now - 600_000, until=now), problems=Problems())
        # the first sample of a GPU may be stored alone, when nobody knows yet how often it is read
        first = {(row["gpu"], min(one["time"] for one in rows_of(store))) for row in rows_of(store)}
        known = [
            [row | ({"span_ms": None} if (row["gpu"], row["time"]) in first else {}) for row in plain(rows_of(place))]
            for place in (store, asked.path)
        ]
        assert known[0] == known[1] and len(known[0]) == 2 * 8
    assert client("/readyz").status == 200 and client.running.service.statuses[204] > 0
    assert client("/api/v1/fleet", headers=ACT).json["gpus"] == 2
    assert "what Prometheus sends" in client("/", headers=ACT).text


def test_what_was_answered_is_kept_whatever_ends_the_service_and_counts_once(tmp_path: Path) -> None:
    body = request()
    Store.open(tmp_path / "store", create=True)
    assert ReceivedSamples(tmp_path / "store").keep(body) == 2 * 4
    kept = [(path.name, path.read_bytes()) for path in received_files(tmp_path / "store")]
    again = ReceivedSamples(tmp_path / "store")  # of another process
    again.keep(body)  # the sender heard nothing, and sends it once more
    again.keep(request(first=3))
    follower = follower_of(tmp_path / "store")
    follower.turn()
    assert (follower.state.problem, follower.state.rows) == ("", 2 * 6)
    assert received_files(tmp_path / "store") == []
    before = rows_of(tmp_path / "store")
    for name, content in kept:  # it was ended after they were stored, before they were removed
        (tmp_path / "store" / "received" / name).write_bytes(content)
    follower.turn()
    assert plain(rows_of(tmp_path / "store")) == plain(before) and follower.state.rows == 2 * 6
    assert [(row["tensor_active"], row["sm_clock"]) for row in before] == [(0.5, np.float32(1.755e9))] * 12


def test_fields_of_a_row_may_come_apart(tmp_path: Path) -> None:
    Store.open(tmp_path / "store", create=True)
    samples, follower = ReceivedSamples(tmp_path / "store", cluster="east"), follower_of(tmp_path / "store")
    for name, value in zip(FIELDS, (0.5, 0.8, 0.9, 1755.0), strict=True):
        words = {"__name__": name, "gpu": "0", "UUID": "GPU-0", "Hostname": "n1"}
        samples.keep(packed(written([(words, [(T0 + 30_000 * at, value) for at in range(1, 5)])])))
        follower.turn()
    rows = rows_of(tmp_path / "store")
    found = [(row["tensor_active"], round(row["gr_active"], 6), row["cluster"]) for row in rows]
    assert found == [(0.5, 0.9, "east")] * 4


def test_names_are_hidden_before_they_lie_on_the_disk(tmp_path: Path) -> None:
    hidden = Pseudonyms(TOKEN.encode(), ("job", "pod"))  # on Kubernetes a job is called by its pod
    Store.open(tmp_path / "store", create=True)
    ReceivedSamples(tmp_path / "store", pseudonyms=hidden).keep(request(pod="secret-pod", namespace="team"))
    follower = follower_of(tmp_path / "store", pseudonyms=hidden)
    assert all(b"secret-pod" not in path.read_bytes() for path in received_files(tmp_path / "store"))
    follower.turn()
    assert follower.state.problem == ""
    assert {(row["pod"], row["namespace"]) for row in rows_of(tmp_path / "store")} == {(hidden.of("pod", "secret-pod"), "team")}


def words_of(store: Path, *fields: str) -> set[tuple[str | None, ...]]:
    return {tuple(row[field] for field in fields) for row in rows_of(store)}


def test_samples_that_came_before_their_names_were_hidden_are_stored_without_them(tmp_path: Path) -> None:
    hidden = Pseudonyms(TOKEN.encode(), ("job", "pod"))
    Store.open(tmp_path / "store", create=True)
    ReceivedSamples(tmp_path / "store").keep(request(pod="secret-pod"))
    ReceivedSamples(tmp_path / "store", pseudonyms=hidden).keep(request(first=5, pod="secret-pod"))
    follower = follower_of(tmp_path / "store", pseudonyms=hidden)
    follower.turn()
    assert (follower.state.problem, follower.state.rows) == ("", 2 * 8)
    assert received_files(tmp_path / "store") == []
    assert words_of(tmp_path / "store", "pod") == {(hidden.of("pod", "secret-pod"),)}


def test_samples_of_a_job_whose_record_had_names_are_stored_without_them(tmp_path: Path) -> None:
    hidden = Pseudonyms(TOKEN.encode(), ("job", "user"))
    store = Store.open(tmp_path / "store", create=True)
    store.add_jobs(records({"job": "7", "user": "ann", "host": "n1", "start": 0}))
    ReceivedSamples(store.path).keep(request())
    follower = follower_of(store.path, pseudonyms=hidden)
    follower.turn()
    assert (follower.state.problem, follower.state.rows) == ("", 2 * 4)
    assert words_of(store.path, "job", "user") == {(hidden.of("job", "7"), hidden.of("user", "ann"))}
    assert [(row["job"], row["user"]) for row in store.jobs().to_pylist()] == [(hidden.of("job", "7"), hidden.of("user", "ann"))]


def test_a_file_that_is_damaged_keeps_no_others_waiting(tmp_path: Path) -> None:
    Store.open(tmp_path / "store", create=True)
    samples = ReceivedSamples(tmp_path / "store")
    for first in (1, 5, 9):
        samples.keep(request(first=first))
    _, broken, _ = received_files(tmp_path / "store")
    broken.write_bytes(broken.read_bytes()[:100])
    said = io.StringIO()
    follower = Follower(FollowPlan((), tmp_path / "store", remote_write=True), ServiceLog(stream=said), lambda _: None)
    follower.turn()
    assert (follower.state.problem, follower.state.rows) == ("", 2 * 8)
    assert broken.with_suffix(".damaged").exists() and "received samples can't be read" in said.getvalue()


def test_what_is_of_no_use_to_send_again_is_4xx_and_what_is_503(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    body = request()
    assert sent(client, b"nonsense") == 400
    assert sent(client, body, Authorization="") == 401
    assert sent(client, body, Authorization="Bearer 0123456789abcdef-read") == 403
    assert sent(client, b"x" * (LARGEST_PACKED + 1)) == 413
    assert sent(client, body, **{"Content-Encoding": "gzip"}) == 415
    assert sent(client, body, **{"Content-Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request"}) == 415
    assert sent(client, body, **{"Content-Type": "application/json"}) == 415
    assert sent(client, body, **{"Content-Type": "application/x-protobuf;proto=prometheus.WriteRequest"}) == 204
    assert sent(client, packed(b"")) == 204  # as Prometheus sends metadata
    for name, value in (("MOST_WAITING", 0), ("MOST_REQUESTS", 0)):
        with monkeypatch.context() as patch:
            patch.setattr(remote_write, name, value)
            heard = client(REMOTE_WRITE, "POST", {**KIND, **ACT}, body)
            assert heard.status == 503 and int(heard.headers["retry-after"]) > 0
    assert client.running.service.receiver is not None and client.running.service.receiver._receiving == 0
    assert "post" in client("/openapi.json", headers=ACT).json["paths"][REMOTE_WRITE]


def test_a_disk_that_refuses_is_told_to_come_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise UllageError("the disk is full")

    monkeypatch.setattr(remote_write, "write_whole", refuse)
    assert sent(client, request()) == 503


def test_so_much_waits_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = ReceivedSamples(tmp_path)
    samples.keep(request())
    (one,) = received_files(tmp_path)
    monkeypatch.setattr(remote_write, "MOST_WAITING", one.stat().st_size + 1)
    samples.keep(request())
    with pytest.raises(NoRoomError):
        samples.keep(request())
    with pytest.raises(RemoteWriteError):  # what is of no use is no use later either
        samples.keep(b"nonsense")
    remove_received(received_files(tmp_path), time.time())
    assert samples.keep(packed(written([({"__name__": "up"}, [(1, 1.0)])]))) == 0 and received_files(tmp_path) == []


@pytest.mark.parametrize(("age", "gone"), [(LEFTOVER_AFTER_S, False), (LEFTOVER_AFTER_S + 1, True)])
def test_what_a_killed_process_left_is_removed_after_an_hour(tmp_path: Path, age: float, gone: bool) -> None:
    ReceivedSamples(tmp_path).keep(request())
    half = tmp_path / "received" / ".7-7.tmp"
    half.write_bytes(b"half")
    remove_received(received_files(tmp_path), half.stat().st_mtime + age)
    assert received_files(tmp_path) == [] and half.exists() != gone


def test_labels_are_read_anew_after_so_many_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_write, "REQUESTS_PER_LABEL_CACHE", 2)
    samples, readings = ReceivedSamples(tmp_path), []
    for first in range(5):
        samples.keep(request(first=1 + 4 * first))
        readings.append(samples._readings)
    assert [one is readings[0] for one in readings] == [True, True, False, False, False]
    assert readings[2] is readings[3] is not readings[4]
    assert len(received_files(tmp_path)) == 5


@pytest.mark.parametrize(("silent", "said"), [(LATE_S, False), (LATE_S + 1, True)])
def test_a_sender_that_falls_silent_is_told_of(tmp_path: Path, silent: float, said: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("ullage.service.follow.time.monotonic", lambda: now[0])
    follower = follower_of(tmp_path / "store")
    ReceivedSamples(tmp_path / "store").keep(request())
    follower.turn()
    now[0] += silent
    follower.turn()
    assert follower.state.problem == ("no samples have come for 5 min; the log of the Prometheus that sends them says why" if said else "")


def test_samples_are_taken_where_that_is_said_and_a_token_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ULLAGE_SERVE_TOKEN", raising=False)
    with pytest.raises(UllageError, match="needs a token"), service(ServiceSettings(remote_write=True, store=str(tmp_path / "store"))):
        pass
    place = Store.open(tmp_path / "other", create=True).path
    monkeypatch.setenv("ULLAGE_SERVE_TOKEN", TOKEN)
    with pytest.raises(UllageError, match="takes no samples"), service(ServiceSettings(source=str(place), remote_write=True)):
        pass
    with service(ServiceSettings(source=str(place))) as client:
        assert sent(client, request()) == 404
        assert REMOTE_WRITE not in client("/openapi.json", headers=ACT).json["paths"]
