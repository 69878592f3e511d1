"""Connections that ask nothing are closed, so that nobody keeps others out by opening many; those that are being answered stay."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.running import Client, service, small_store
from ullage.service import connections
from ullage.service.settings import ServiceSettings

ASKS = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HALF = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(connections, "IDLE_S", 0.2)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ULLAGE_SERVE_TOKEN", raising=False)
    with service(ServiceSettings(source=str(small_store(tmp_path)))) as asking:
        yield asking


def connected(client: Client, words: bytes) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", client.port), 60)
    made.sendall(words)
    return made


def heard_to_the_end(made: socket.socket) -> bytes:
    """What comes until the other side closes; raises TimeoutError where it never does."""
    with made:
        return b"".join(iter(lambda: made.recv(65536), b""))


@pytest.mark.parametrize(("words", "answered"), [(b"", False), (HALF, False), (ASKS, True), (ASKS + HALF, True)])
def test_a_connection_that_brings_no_whole_request_is_closed(client: Client, words: bytes, answered: bool) -> None:
    assert heard_to_the_end(connected(client, words)).startswith(b"HTTP/1.1 200") == answered


def test_a_page_that_stays_open_is_not_closed_and_who_asks_again_stays(client: Client) -> None:
    page = connected(client, ASKS.replace(b"/healthz", b"/events?page=/"))
    assert page.recv(12) == b"HTTP/1.1 200"
    for _ in range(3):  # each of them was looked at twice
        heard_to_the_end(connected(client, b""))
    page.setblocking(False)
    try:
        while part := page.recv(65536):
            pass
    except BlockingIOError:
        part = b"more may come"
    page.close()
    assert part


def test_many_that_ask_nothing_keep_others_out_for_a_while_alone(client: Client) -> None:
    many = [connected(client, HALF) for _ in range(client.running.server.config.limit_concurrency or 0)]
    for one in many:
        heard_to_the_end(one)
    assert client("/healthz").status == 200
