"""What JAX's profiler writes into one folder: the same profile several times over, and a folder for each time that it ran.

`LOGS/plugins/profile/DATE/` holds `HOST.xplane.pb` with all events of a host, `HOST.trace.json.gz` with a million of them at most, and
sometimes `perfetto_trace.json.gz`, which is one of the latter by another name.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

_WHOLE, _VIEWED = (".xplane.pb",), (".trace.json.gz", ".trace.json")
_PERFETTO = ("perfetto_trace.json.gz", "perfetto_trace.json")


def repeats(path: Path, others: Collection[Path]) -> bool:
    """Return whether another file of the same folder tells what this one does, and more.

    >>> found = [Path("d/a.xplane.pb"), Path("d/a.trace.json.gz"), Path("d/b.trace.json.gz"), Path("d/perfetto_trace.json.gz")]
    >>> [path.name for path in found if not repeats(path, found)]
    ['a.xplane.pb', 'b.trace.json.gz']
    """
    if path.name in _PERFETTO:
        return any(
            other.parent == path.parent and other.name.endswith(_WHOLE + _VIEWED) and other.name not in _PERFETTO for other in others
        )
    host = next((path.name.removesuffix(end) for end in _VIEWED if path.name.endswith(end)), None)
    return host is not None and any(path.with_name(host + end) in others for end in _WHOLE)


def session(path: Path) -> Path | None:
    """Return the folder of one time that the profiler ran, None for a file that lies elsewhere.

    >>> session(Path("logs/plugins/profile/2026_08_10_12_00_00/a.xplane.pb")), session(Path("a.xplane.pb"))
    (PosixPath('logs/plugins/profile/2026_08_10_12_00_00'), None)
    """
    return path.parent if path.parts[-4:-2] == ("plugins", "profile") else None
