"""The first page is there at once: as it was before the service started again, or with the word that it is being computed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fleet.servers import wait_for
from tests.service.running import Client, hour, service, small_store
from ullage.service import answers, application, server
from ullage.service.kept_page import KeptPage
from ullage.service.settings import ServiceSettings
from ullage.store.store import Store


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(server, "LOOK", 0.05)
    monkeypatch.setattr(application, "SLOW", 0.0)  # an answer that is made in no time is not worth a file
    return small_store(tmp_path)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """What lets answers be made: closed at first."""
    opened, real = threading.Event(), answers.answer_to

    def made(*words: Any) -> Any:
        assert opened.wait(120)
        return real(*words)

    monkeypatch.setattr(answers, "answer_to", made)
    yield opened
    opened.set()


def kept_file(tmp_path: Path) -> Path | None:
    return next(iter((tmp_path / "home").rglob("first-page.msgpack")), None)


def headline(client: Client, path: str = "/") -> str:
    return client(path).text.partition("<strong>")[2].partition("</strong>")[0]


def test_a_service_that_starts_again_shows_its_first_page_as_it_was(tmp_path: Path, place: Path, gate: threading.Event) -> None:
    settings = ServiceSettings(source=str(place), answer_limit="600s")
    gate.set()
    with service(settings) as client:
        before, trust = headline(client), client("/trust").text
        wait_for(lambda: kept_file(tmp_path) is not None)
    gate.clear()
    with service(settings) as client:
        client.running.service.patience = 0.0
        page = client("/")
        assert page.status == 200 and headline(client) == before and page.headers["ullage-current"] == "true"
        assert client("/trust").text.partition("<main")[2] == trust.partition("<main")[2]
        assert client("/hosts").status == 503  # which was not kept
        Store.open(place).append([hour(start=120, tensor_active=0.7)])
        page = client("/")
        assert page.headers["ullage-current"] == "false" and "a newer one is being computed" in page.text and headline(client) == before
        gate.set()
        client.running.service.patience = 600.0
        wait_for(lambda: headline(client) != before)
        assert "a newer one is being computed" not in client("/").text and client("/api/v1/fleet?since=24h").status == 200


def test_a_page_that_is_being_computed_says_so_and_looks_again(place: Path, gate: threading.Event) -> None:
    with service(ServiceSettings(source=str(place), answer_limit="600s")) as client:
        client.running.service.patience = 0.0
        assert client("/healthz").status == 200
        page = client("/")
        assert (page.status, page.headers["refresh"], page.headers["retry-after"]) == (503, "2", "2")
        assert "this page is being computed, for 0 s so far" in page.text
        gate.set()
        wait_for(lambda: client("/").status == 200)
        assert "refresh" not in client("/").headers


@pytest.mark.parametrize("change", ["another release", "other words", "damaged", "not there"])
def test_a_page_that_is_not_of_this_service_is_not_shown(tmp_path: Path, place: Path, gate: threading.Event, change: str) -> None:
    settings = ServiceSettings(source=str(place), answer_limit="600s")
    gate.set()
    with service(settings) as client:
        headline(client)
        wait_for(lambda: kept_file(tmp_path) is not None)
    gate.clear()
    file = kept_file(tmp_path)
    assert file is not None
    kept = msgspec.msgpack.decode(file.read_bytes(), type=KeptPage)
    if change == "another release":
        file.write_bytes(msgspec.msgpack.encode(msgspec.structs.replace(kept, made_by="x")))
    if change == "damaged":
        file.write_bytes(file.read_bytes()[:-9])
    if change == "not there":
        file.unlink()
    if change == "other words":
        settings = msgspec.structs.replace(settings, defaults={"price": ["H100=2.50"]})
    with service(settings) as client:
        client.running.service.patience = 0.0
        assert client("/").status == 503
        gate.set()
