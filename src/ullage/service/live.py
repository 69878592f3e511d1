"""Pages that stay open hear what is new, as server-sent events: their headline, and what is said of the source.

A page opens one stream. It is told at once how things stand, and again whenever the store or the state of its source has changed; tables
and pictures stay as they are, and the page says that there are newer ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ullage.errors import UllageError
from ullage.service.access import GivenRole
from ullage.service.answers import AnswerBook, BusyError
from ullage.service.served import AskedQuestion
from ullage.service.state import ServiceState

MOST = 128  # pages that hear what is new; a further one stays as it is
SILENCE = 15.0  # s after which a stream says that it is still there: who has gone is noticed so
AGAIN_MS = 10_000  # ms after which a page that lost its stream opens another one
SHORTEST = 0.5  # s between two looks whether an answer that is being made is there
EVERY = 30.0  # s between two answers for one page, however often the store changes


@dataclass
class LivePages:
    """The streams to pages that stay open, of one event loop."""

    book: AnswerBook
    state: ServiceState
    most: int = MOST
    every: float = EVERY
    open: int = 0
    _closed: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _seen: object = None

    def look(self) -> None:
        """Wake the streams where the store or the state of its source has changed."""
        seen = (self.state.store.version(), self._said_of_source())
        if seen != self._seen:
            self._seen = seen
            self._wake()

    def close(self) -> None:
        """End every stream: pages open another one once the service runs again."""
        self._closed = True
        self._wake()

    def stream(self, request: AskedQuestion, role: GivenRole) -> StreamingResponse:
        """Return the response that tells a page what is new, as far as who reads it may see it."""
        return _CountedStream(self, self._events(request, role))

    @property
    def full(self) -> bool:
        """Whether no further page can be told."""
        return self.open >= self.most

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _said_of_source(self) -> tuple[str, tuple[str, ...]]:
        said = self.state.page_state()
        return " ".join(said.words), tuple(said.doubts)

    async def _events(self, request: AskedQuestion, role: GivenRole) -> AsyncIterator[bytes]:
        yield f"retry: {AGAIN_MS}\n\n".encode()
        told, version, answered = None, "", -self.every
        loop = asyncio.get_running_loop()
        while not self._closed:
            changed, source = self._changed, self._said_of_source()
            if source != told:
                told = source
                yield _event("state", {"source": source[0], "doubts": source[1]})
            if self.state.store.version() != version and answered + self.every <= loop.time():
                answered, headline = loop.time(), await self._headline(request, role)
                if headline is not None and headline["version"] != version:
                    version = headline["version"]
                    yield _event("headline", headline)
            wait = SILENCE  # where the answer is still that of before, it is asked for again
            if self.state.store.version() != version:
                wait = min(SILENCE, max(SHORTEST, answered + self.every - loop.time()))
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), wait)
                continue
            yield b":\n\n"

    async def _headline(self, request: AskedQuestion, role: GivenRole) -> Mapping[str, str] | None:
        if self.state.unready():
            return None
        try:
            answer = await self.book.get(request)
            if request.name == "job" and role.part is not None and not role.sees_job(answer.data()):
                return None
        except (UllageError, BusyError):
            return None  # the page stays as it is, and says of when that was
        view, line = answer.view, answer.view.headline
        eyebrow = ", ".join(filter(None, (view.subject, view.window)))
        parts = {"before": line.before, "strong": line.strong, "rest": line.rest, "aside": line.aside}
        return parts | {"eyebrow": eyebrow, "version": answer.version}


class _CountedStream(StreamingResponse):
    """A stream that counts as open while it is."""

    def __init__(self, pages: LivePages, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no", "Cache-Control": "no-store"})
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._pages.open += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pages.open -= 1


def _event(name: str, data: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"  # JSON has no line feeds
