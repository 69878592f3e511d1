"""The names beside a Paraver trace: states and event values (`.pcf`), threads and nodes (`.row`). Either may be missing."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from ullage.compressed import opened
from ullage.errors import UllageError
from ullage.problems import Problems

MOST_BYTES = 256 << 20

# Extrae's states, as its .pcf lists them.
STATES = {
    -1: "(not recorded)",
    0: "Idle",
    1: "Running",
    2: "Not created",
    3: "Waiting a message",
    4: "Blocking Send",
    5: "Synchronization",
    6: "Test/Probe",
    7: "Scheduling and Fork/Join",
    8: "Wait/WaitAll",
    9: "Blocked",
    10: "Immediate Send",
    11: "Immediate Receive",
    12: "I/O",
    13: "Group Communication",
    14: "Tracing Disabled",
    15: "Others",
    16: "Send Receive",
    17: "Memory transfer",
}


# What Extrae's types of MPI events are about, as its .pcf says it.
MPI_TYPES = {
    50000001: "MPI Point-to-point",
    50000002: "MPI Collective Comm",
    50000003: "MPI Other",
    50000004: "MPI One-sided",
    50000005: "MPI I/O",
}


@dataclass
class ParaverNames:
    """`states` by number, `types` (what an event is about) by event type, `values` by event type and value, rows by level."""

    states: dict[int, str] = field(default_factory=lambda: dict(STATES))
    types: dict[int, str] = field(default_factory=lambda: dict(MPI_TYPES))
    values: dict[int, dict[int, str]] = field(default_factory=dict)
    rows: dict[str, list[str]] = field(default_factory=dict)

    def value(self, kind: int, value: int) -> str:
        """Return what a value of an event type is called."""
        return self.values.get(kind, {}).get(value, f"{self.types.get(kind, f'event {kind}')} {value}")

    def about(self, pattern: str) -> list[int]:
        """Return the event types whose description matches a pattern."""
        return [kind for kind, text in self.types.items() if re.search(pattern, text)]


def names(trace: Path, problems: Problems) -> ParaverNames:
    """Return the names beside a trace; without the files, Extrae's usual states and numbers for the rest."""
    found, stem = ParaverNames(), _stem(trace)
    configuration = _text(trace.with_name(f"{stem}.pcf"), problems)
    _read_configuration(configuration, found)
    _read_rows(_text(trace.with_name(f"{stem}.row"), problems), found)
    if not configuration:
        problems.note(f"there is no {stem}.pcf beside the trace: events have numbers, not names")
    return found


def _stem(trace: Path) -> str:
    """Return a trace's name without its endings.

    >>> _stem(Path("run/epoch.prv.gz"))
    'epoch'
    """
    return re.sub(r"(\.prv)?(\.gz|\.bz2|\.xz)?$", "", trace.name)


def _text(path: Path, problems: Problems) -> str:
    if not path.is_file():
        return ""
    try:
        with opened(path) as file:
            return file.read(MOST_BYTES).decode("utf-8", "replace")
    except UllageError as error:
        problems.note(error.problem)
        return ""


def _read_configuration(text: str, found: ParaverNames) -> None:
    section = ""
    current: list[int] = []
    for line in text.splitlines():
        words = line.split(None, 2)
        if not words:
            section = ""
        elif line.startswith(("STATES", "EVENT_TYPE", "VALUES")) or not words[0].lstrip("-").isdigit():
            section, current = words[0], [] if words[0] == "EVENT_TYPE" else current
        elif section == "STATES" and len(words) > 1:
            found.states[int(words[0])] = " ".join(words[1:])
        elif section == "EVENT_TYPE" and len(words) == 3 and words[1].isdigit():
            current = [*current, int(words[1])]
            found.types[int(words[1])] = words[2]
        elif section == "VALUES" and len(words) > 1:
            for kind in current:
                found.values.setdefault(kind, {})[int(words[0])] = " ".join(words[1:])


def _read_rows(text: str, found: ParaverNames) -> None:
    level: list[str] = []
    for line in text.splitlines():
        head = re.match(r"LEVEL (\w+) SIZE", line)
        if head:
            level = found.rows.setdefault(head[1], [])
        elif line.strip():
            level.append(line.strip())
