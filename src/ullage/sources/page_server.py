"""Text behind HTTP, for a Prometheus to scrape: a small server in a thread of its own, of the standard library alone."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from ullage.errors import UllageError

EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
PLAIN = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"


@dataclass(frozen=True)
class HttpAnswer:
    """What is said to a request: the HTTP status, the kind of content, and the content."""

    status: int
    kind: str
    text: str


class PageServer(ThreadingHTTPServer):
    """A server that answers GET and HEAD by a function of path and query.

    `port` is the one it got; `serve_forever` blocks, `start` runs it beside; `stop` ends it.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], answer: Callable[[str, str], HttpAnswer]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)
        self.answer = answer

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    @property
    def local(self) -> bool:
        """Whether only this machine reaches it."""
        return ipaddress.ip_address(str(self.server_address[0]).partition("%")[0]).is_loopback

    def start(self) -> Self:
        """Serve in a thread of its own, and return the server."""
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def stop(self) -> None:
        """End a server that runs in another thread, and free the port."""
        self.shutdown()
        self.server_close()


@contextmanager
def bound(address: str, port: int) -> Iterator[None]:
    """Say it in one sentence when a server made in the body can't have its port."""
    try:
        yield
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UllageError(f"can't serve at {address}:{port}: {reason}", "choose another port, or 0 for any that is free") from error


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_GET(self) -> None:
        """Answer with a page, or what stands in for it."""
        path, _, query = self.path.partition("?")
        answer = self.server.answer(path, query)
        body = answer.text.encode()
        try:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_HEAD = do_GET  # noqa: N815 - the library's name

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a scrape every few seconds is no news."""
