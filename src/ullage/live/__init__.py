"""Collectors beside or inside a running program: `ullage run`, regions, this machine's counters.

    ullage.live.start("recordings/")                     record this process from here on; not needed under `ullage run`
    ullage.live.tree("forward"), ullage.live.recent(10**10)    trees of a region so far; of the last 10 s, and of the whole
    ullage.live.every(10, tell)                          tell(recent, whole) every 10 s, from a thread of its own
    ullage.live.stop(), ullage.live.detach()             pause, and `start` goes on; end, and CUPTI leaves the process

What each needs is loaded when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ullage.live.online import every as every
    from ullage.live.regions import region as region
    from ullage.live.session import detach as detach
    from ullage.live.session import path as path
    from ullage.live.session import recent as recent
    from ullage.live.session import start as start
    from ullage.live.session import stop as stop
    from ullage.live.session import tree as tree

__all__ = ["detach", "every", "path", "recent", "region", "start", "stop", "tree"]

_HOME = {"every": "online", "region": "regions"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ullage.live' has no attribute '{name}'")
    found = globals()[name] = getattr(import_module(f"ullage.live.{_HOME.get(name, 'session')}"), name)
    return found
