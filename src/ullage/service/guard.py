"""What every request passes: who may ask, how much may be sent, which headers an answer has, and a line in the log."""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ullage.service.live_script import LIVE_SCRIPT
from ullage.views.json_text import json_text
from ullage.views.page import site_policy

LARGEST_BODY = 64 * 1024  # bytes that a request may send
OPEN = ("/healthz", "/readyz")  # an orchestrator asks these, and has no token
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

_PAGES_MAY = site_policy(LIVE_SCRIPT)

Log = Callable[[str, Mapping[str, object]], None]


@dataclass(frozen=True)
class Access:
    """Who may ask: whoever has the `token` ("": everybody who reaches the port), by one of the names `hosts` of this service."""

    token: str = ""
    hosts: tuple[str, ...] = LOOPBACK

    def allows(self, headers: Headers) -> bool:
        """Return whether a request has the token: as a bearer token, or as the password of a browser's dialog."""
        return not self.token or self.has_token(headers)

    def has_token(self, headers: Headers) -> bool:
        """Return whether a request has the token that there is."""
        kind, _, said = headers.get("authorization", "").partition(" ")
        given = said.strip() if kind.lower() == "bearer" else _password(said) if kind.lower() == "basic" else ""
        return bool(self.token) and hmac.compare_digest(given.encode(), self.token.encode())

    def names(self, host: str) -> bool:
        """Return whether a request is for this service by name: a page of another site can't ask it by a name of its own."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
        return bool(self.token) or name.lower() in self.hosts


def _password(said: str) -> str:
    try:
        return base64.b64decode(said, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""


@dataclass
class Guard:
    """An ASGI application around another: it refuses what may not be asked, and adds the headers that every answer has."""

    inner: ASGIApp
    access: Access
    log: Log
    counts: dict[int, int] = field(default_factory=dict)  # answers by status
    clock: Callable[[], float] = time.perf_counter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.inner(scope, receive, send)
            return
        started, status, size = self.clock(), 500, 0

        async def sending(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                _add_headers(MutableHeaders(scope=message))
            size += len(message.get("body", b""))
            await send(message)

        try:
            refusal = self._refusal(scope)
            await (refusal or self.inner)(scope, _bounded(receive), sending)
        finally:
            self.counts[status] = self.counts.get(status, 0) + 1
            took = round((self.clock() - started) * 1000, 1)
            self.log("request", {"method": scope["method"], "path": scope["path"], "status": status, "ms": took, "bytes": size})

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self.access.names(headers.get("host", "")):
            return _refused(421, "this service does not answer to that host name", "add the name to the setting `hosts`, or use 127.0.0.1")
        if scope["path"] not in OPEN and not self.access.allows(headers):
            return _refused(
                401, "this service wants its token", "send 'Authorization: Bearer TOKEN', or TOKEN as a password", challenge=True
            )
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > LARGEST_BODY:
            return _refused(413, f"a request may send {LARGEST_BODY:,} bytes", "send less")
        return None


class TooLargeError(Exception):
    """A request sends more than it may, and did not say so."""


def _bounded(receive: Receive) -> Receive:
    seen = 0

    async def bounded() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > LARGEST_BODY:
            raise TooLargeError
        return message

    return bounded


def _add_headers(headers: MutableHeaders) -> None:
    html = headers.get("content-type", "").startswith("text/html")
    headers["Content-Security-Policy"] = _PAGES_MAY if html else "default-src 'none'; frame-ancestors 'none'"
    headers["X-Content-Type-Options"] = "nosniff"
    headers["X-Frame-Options"] = "DENY"
    headers["Referrer-Policy"] = "no-referrer"
    headers["Cross-Origin-Resource-Policy"] = "same-origin"
    headers["Cross-Origin-Opener-Policy"] = "same-origin"
    headers.setdefault("Cache-Control", "no-cache")


def _refused(status: int, problem: str, hint: str, *, challenge: bool = False) -> Response:
    more = {"WWW-Authenticate": 'Basic realm="ullage", charset="UTF-8"'} if challenge else {}
    return Response(json_text({"error": {"problem": problem, "hint": hint}}), status, headers=more, media_type="application/json")
