"""The service as a running server: it listens, keeps its first page warm, and ends when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import uvicorn

from ullage.errors import UllageError
from ullage.service.application import Service, application
from ullage.service.connections import PromptProtocol
from ullage.service.guard import Guard
from ullage.service.logs import ServiceLog
from ullage.service.served import AskedQuestion
from ullage.service.workers import TooLongError

GRACE = 5  # s that requests have to end when the service does
LOOK = 5.0  # s between two looks whether the store has changed
SLOW_PAGES, PAUSES = 8, 10.0  # answers that are made ahead, and how many times as long as its making each of them stands
REPORTS = 3600.0  # s between two looks whether the report on a week is due
LONGEST_WAIT = 600.0  # s between two tries to count what could not be counted


M_ARENA_MAX, ARENAS = -8, 2  # malloc.h of the GNU C library


def few_arenas() -> bool:
    """Let all threads share two arenas of memory, and return whether the C library does so. Call it before there are threads.

    The GNU C library gives each thread an arena of its own, eight for each processor; what answers take and give back in one of many
    is then found free in another: a service grew by 2 MB an hour of its time, and with two arenas it doesn't (`tests/service/soak.py`).
    """
    try:
        return bool(ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS))
    except (AttributeError, OSError):  # musl, macOS
        return False


class _Uvicorn(uvicorn.Server):
    """A server that leaves signals to its command, and ends what would never end by itself before it waits for the rest."""

    def __init__(self, config: uvicorn.Config, end_streams: Callable[[], None]) -> None:
        super().__init__(config)
        self._end_streams = end_streams

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End."""
        self._end_streams()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Filler(Protocol):
    """What fills the store in a thread of its own."""

    def start(self) -> None:
        """Begin."""

    def stop(self, patience: float = 1.0) -> bool:
        """Begin nothing more, and return whether nothing is being done any more."""


@dataclass
class RunningService:
    """A service on a socket; `run` serves until `stop`."""

    service: Service
    log: ServiceLog
    filler: Filler | None = None
    server: uvicorn.Server = field(init=False)
    guard: Guard = field(init=False)

    def __post_init__(self) -> None:
        self.guard = Guard(application(self.service), self.service.access, self.log, self.service.statuses)
        config = uvicorn.Config(
            self.guard,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            date_header=True,
            limit_concurrency=512,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=GRACE,
            ws="none",
            http=PromptProtocol,
        )
        self.server = _Uvicorn(config, self.service.live.close)

    def run(self, listening: socket.socket) -> None:
        """Serve on a socket until `stop`; then requests that are being answered have `GRACE` seconds."""
        asyncio.run(self._serve(listening))

    def stop(self) -> None:
        """End the service; from any thread, and from a signal's handler."""
        self.server.should_exit = True

    def close(self, patience: float = 1.0) -> bool:
        """Let go of everything, and return whether nothing is at work any more."""
        filled = self.filler is None or self.filler.stop(patience)
        if self.service.uploads is not None:
            self.service.uploads.close()
        received = self.service.receiver is None or self.service.receiver.close(patience)
        answered = self.service.reading.close(patience) and self.service.book.close(patience)
        if self.service.state.keeps is not None:
            self.service.state.keeps.cleanup()
        return filled and answered and received

    async def _serve(self, listening: socket.socket) -> None:
        tasks = (self._keep_warm(), self._keep_counting(), self._keep_telling(), self._keep_alerting(), self._keep_reporting())
        kept_up = [*map(asyncio.create_task, tasks)]
        try:
            await self.server.serve(sockets=[listening])
        finally:
            for task in kept_up:
                task.cancel()

    async def _keep_warm(self) -> None:
        """Make the first page anew whenever the store has changed, before anybody asks for it."""
        seen = ""
        while True:
            version = self.service.state.store.version()
            if version != seen and not self.service.state.unready():
                seen = version
                try:
                    await self.service.make_first_page()
                    for request in self.service.book.slow_ones(SLOW_PAGES):
                        await self._make_ahead(request)
                except UllageError as error:
                    self.log("no answer", {"page": "/", "problem": error.problem})
                except TooLongError:  # it was somebody's question, which has less time
                    seen = ""
                except Exception as error:  # a bug of ours ends a question, not the service
                    self.log("failure", {"page": "/", "problem": repr(error)})
            await asyncio.sleep(LOOK)

    async def _make_ahead(self, request: AskedQuestion) -> None:
        """Make an answer anew that takes long and was asked for; no oftener than that it takes a tenth of a thread."""
        kept = self.service.book.kept(request)
        if kept is not None and time.time() - kept.made > PAUSES * kept.took:
            with contextlib.suppress(UllageError):  # who asks hears of it
                await self.service.book.make(request)

    async def _keep_alerting(self) -> None:
        """Look for problems again and again, where that is asked for; another instance that fills the store does so itself."""
        alerting, state = self.service.alerting, self.service.state
        while alerting is not None:
            leads = state.following is None or state.following.writes
            if leads and not state.unready():
                try:
                    await self.service.book.counting(alerting.turn)
                except Exception as error:  # a bug of ours ends a look, not the service
                    self.log("failure", {"page": "/alerts", "problem": repr(error)})
            await asyncio.sleep(alerting.every)

    async def _keep_reporting(self) -> None:
        """Write and send the report on each week, where that is asked for; another instance that fills the store does so itself."""
        weekly, state = self.service.weekly, self.service.state
        while weekly is not None:
            ready = not state.unready() and (state.following is None or state.following.writes)
            if ready:
                now, read = state.store.now_ms(), state.window_read()
                try:
                    await self.service.book.counting(functools.partial(weekly.look, now, read))
                except Exception as error:  # a bug of ours ends a look, not the service
                    self.log("failure", {"page": "the weekly report", "problem": repr(error)})
            await asyncio.sleep(REPORTS if ready else LOOK)

    async def _keep_telling(self) -> None:
        """Tell pages that stay open when the store or the state of its source has changed."""
        while True:
            self.service.live.look()
            await asyncio.sleep(LOOK)

    async def _keep_counting(self) -> None:
        """Count the hours that have passed whenever the store has changed; what could not be counted is tried again."""
        seen, wait = "", LOOK
        while True:
            version = self.service.state.store.version()
            if version != seen and not self.service.state.unready():
                try:
                    await self._count()
                    seen, wait = version, LOOK
                except Exception as error:  # whatever it is, the hours are still to be counted
                    wait = min(2 * wait, LONGEST_WAIT)
                    self.log("not counted", {"problem": error.problem if isinstance(error, UllageError) else repr(error)})
            await asyncio.sleep(wait)

    async def _count(self) -> None:
        state, totals = self.service.state, self.service.totals
        if totals is None:
            return
        if state.following is not None and not state.following.writes:
            totals.look()
            return
        await self.service.book.counting(lambda: totals.count(state.window_read()))


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 is any that is free. Raises UllageError where it can't be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)
    except (OSError, OverflowError) as error:
        made.close()
        reason = getattr(error, "strerror", None) or error
        raise UllageError(f"can't serve at {host}:{port}: {reason}", "choose another --port, or 0 for any that is free") from error
    return made
