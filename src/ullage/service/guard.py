"""What every request passes: who may ask, how much may be sent, which headers an answer has, and a line in the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ullage.service.access import ROLE, Access
from ullage.service.live_script import LIVE_SCRIPT
from ullage.service.uploads import LARGEST_UPLOAD, TooLargeError
from ullage.sources.remote_write import LARGEST_PACKED
from ullage.views.json_text import json_text
from ullage.views.page import site_policy

LARGEST_BODY = 64 * 1024  # bytes that a request may send
OPEN = ("/healthz", "/readyz")  # an orchestrator asks these, and has no token
UPLOADS = "/api/v1/uploads"  # where profiles are sent
REMOTE_WRITE = "/api/v1/write"  # where a Prometheus sends samples

_PAGES_MAY = site_policy(LIVE_SCRIPT)

Log = Callable[[str, Mapping[str, object]], None]


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
            await (refusal or self.inner)(scope, _bounded(receive, largest_body(scope["path"])), sending)
        finally:
            self.counts[status] = self.counts.get(status, 0) + 1
            took = round((self.clock() - started) * 1000, 1)
            self.log("request", {"method": scope["method"], "path": scope["path"], "status": status, "ms": took, "bytes": size})

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self.access.names(headers.get("host", "")):
            return _refused(421, "this service does not answer to that host name", "add the name to the setting `hosts`, or use 127.0.0.1")
        scope[ROLE] = self.access.role_of(headers)
        if scope["path"] not in OPEN and scope[ROLE] is None:
            return _refused(
                401, "this service wants its token", "send 'Authorization: Bearer TOKEN', or TOKEN as a password", challenge=True
            )
        length, most = headers.get("content-length", "0"), largest_body(scope["path"])
        if not length.isdigit() or int(length) > most:
            return _refused(413, f"a request may send {most:,} bytes", "send less")
        return None


def largest_body(path: str) -> int:
    """Return how many bytes a request to an address may send."""
    return {UPLOADS: LARGEST_UPLOAD, REMOTE_WRITE: LARGEST_PACKED}.get(path, LARGEST_BODY)


def _bounded(receive: Receive, most: int) -> Receive:
    seen = 0

    async def bounded() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
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
