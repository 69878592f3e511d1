"""Pages that stay open hear what is new, in bounded number, and are let go when the service ends."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.fleet.servers import wait_for
from tests.service.running import Client, hour, service, small_store
from ullage.service import server
from ullage.service.settings import ServiceSettings
from ullage.store.store import Store


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(server, "LOOK", 0.05)
    return small_store(tmp_path)


@contextmanager
def listening(client: Client, page: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=120)
    try:
        connection.request("GET", f"/events?page={quote(page, safe='')}")
        yield connection.getresponse()
    finally:
        connection.close()


def heard(stream: http.client.HTTPResponse, name: str) -> Any:
    """The next event of a name."""
    event = ""
    for line in stream:
        word, _, rest = line.decode().rstrip("\n").partition(": ")
        event = rest if word == "event" else event
        if word == "data" and event == name:
            return json.loads(rest)
    raise AssertionError("the stream ended")


def test_a_page_hears_its_new_headline_and_what_is_said_of_the_source(place: Path) -> None:
    with service(ServiceSettings(source=str(place), answer_limit="600s")) as client:
        client.running.service.live.every = 0.0
        with listening(client, "/?where=user=ann") as stream:
            assert stream.status == 200 and stream.getheader("content-type", "").startswith("text/event-stream")
            assert "Samples from 2026-08-10 00:00" in heard(stream, "state")["source"]
            first = heard(stream, "headline")
            page = client("/?where=user=ann").text
            assert f"<strong>{first['strong']}</strong>" in page and f'data-version="{first["version"]}"' in page
            Store.open(place).append([hour(start=120, tensor_active=0.7)])
            second = heard(stream, "headline")
            assert second["version"] == client.running.service.state.store.version() != first["version"]
            assert f"<strong>{second['strong']}</strong>" in client("/?where=user=ann").text != page
            assert second["strong"] != first["strong"]
        wait_for(lambda: client.running.service.live.open == 0)


def test_only_so_many_pages_are_told_and_a_wrong_one_is_none(place: Path) -> None:
    with service(ServiceSettings(source=str(place), answer_limit="600s")) as client:
        live = client.running.service.live
        live.most = 2
        with listening(client, "/") as first, listening(client, "/job/ml%2Ftrain-0") as second:
            heard(first, "state"), heard(second, "state")
            with listening(client, "/") as third:
                assert third.status == 503 and third.getheader("retry-after") == "60"
        wait_for(lambda: live.open == 0)
        for page in ("/hardware", "/nowhere", "//evil.example/", "/?by=nobody", "/?sources=/etc/passwd", f"/?where={'x' * 5000}"):
            with listening(client, page) as refused:
                assert refused.status == 400, page
        assert live.open == 0


def test_streams_end_whole_when_the_service_does(place: Path) -> None:
    with service(ServiceSettings(source=str(place), answer_limit="600s")) as client, listening(client, "/") as stream:
        heard(stream, "headline")
        client.running.stop()
        stream.read()  # an IncompleteRead where it was cut off


def test_a_page_without_a_store_behind_it_opens_no_stream(place: Path) -> None:
    with service(ServiceSettings(source=str(place), answer_limit="600s")) as client:
        assert "data-version=" not in client("/hardware").text
        policy = client("/").headers["content-security-policy"]
        assert "connect-src 'self'" in policy and policy.count("sha256-") == 3 and "unsafe" not in policy
