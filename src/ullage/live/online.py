"""Trees of a running program every few seconds, handed to a function: for a progress line, a metrics server, a controller."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from ullage.errors import harmless
from ullage.live import session
from ullage.live.process_tree import ProcessTree

Told = Callable[[ProcessTree, ProcessTree], object]


@dataclass
class Every:
    """Calls a function with the trees of the last `seconds` and of the run so far, until `stop`. An exception in the function is
    counted in `errors` and told once; the program goes on."""

    seconds: float
    callback: Told
    errors: int = 0
    calls: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> Every:
        """Begin to call; a daemon thread does."""
        self._thread = threading.Thread(target=self._run, name="ullage-every", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Call no more. It may be asked for by the function itself."""
        self._over.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=60)

    def _run(self) -> None:
        while not self._over.wait(self.seconds):
            self.once()

    def once(self) -> None:
        """Call the function now."""
        if session.recorder is None:
            return
        self.calls += 1
        recent, whole = session.recent(int(self.seconds * 1e9))
        try:
            self.callback(recent, whole)
        except Exception as error:  # somebody else's function: the program must not fail because of it
            self.errors += 1
            if self.errors == 1:
                what = harmless(f"{type(error).__name__}: {error}")
                sys.stderr.write(f"ullage: the function of ullage.live.every({self.seconds:g}, …) failed ({what}); it is called on\n")


def every(seconds: float, callback: Told) -> Every:
    """Call `callback(recent, whole)` every so many seconds, from a thread of its own: the trees of these seconds, and of the run so far.

    Nothing is called while nothing records. Raises ValueError for a period under 10 ms.
    """
    if not seconds >= 0.01:
        raise ValueError(f"{seconds} s is no period: at least 0.01 s")
    return Every(seconds, callback).start()
