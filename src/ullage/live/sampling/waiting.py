"""Waiting between readings for as long as something runs, and one more reading when it has ended."""

from __future__ import annotations

import threading
import time


class Ended(BaseException):
    """What was watched has ended, and its last moments have been read."""


class Until:
    """Sleeps between readings until `ended` is set: then it wakes, for one reading more, and raises `Ended` when asked to sleep again.

    Two readings closer together than `shortest` seconds are not valid, so the last one may come that much later.
    """

    def __init__(self, ended: threading.Event, shortest: float = 0.1) -> None:
        self.ended, self.shortest = ended, shortest
        self._over = False

    def sleep(self, seconds: float) -> None:
        """Sleep, no longer than it lasts."""
        if self._over:
            raise Ended
        since = time.monotonic()
        if self.ended.wait(seconds):
            self._over = True
            time.sleep(max(0.0, self.shortest - (time.monotonic() - since)))
