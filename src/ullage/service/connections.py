"""HTTP connections that end when they ask nothing: uvicorn by itself waits for ever for a first request, and serves so many and no more."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

IDLE_S = 30.0  # s between two looks at a connection; one that waits for the same request at both is closed


class PromptProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection on which no whole request comes for `IDLE_S` (twice that at most), the first or a further one."""

    _waiting_after: Any = ""  # the request after which it waited at the last look, None before the first; "" where it did not wait
    _next_look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to look at it."""
        super().connection_made(transport)
        self._next_look = self.loop.call_later(IDLE_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Look at it no more."""
        if self._next_look is not None:
            self._next_look.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        waits = self.cycle is None or self.cycle.response_complete
        if waits and self._waiting_after is self.cycle:
            self.transport.close()
        else:
            self._waiting_after = self.cycle if waits else ""
            self._next_look = self.loop.call_later(IDLE_S, self._look)
