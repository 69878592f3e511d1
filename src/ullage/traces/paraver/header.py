"""The first line of a Paraver trace: how long it is, in which unit, and which threads of which processes run where.

Source: Paraver trace format (Barcelona Supercomputing Center, "Paraver: trace generation"), and traces of Extrae and nsys2prv.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ullage.errors import UllageError

_UNITS = {"ns": 1, "us": 1000, "ms": 1_000_000, "": 1000}  # without a unit it is microseconds
_LINE = re.compile(r"#Paraver \((?P<date>[^)]*)\):(?P<length>\d{1,18})(?:_(?P<unit>ns|us|ms))?:(?P<nodes>\d+)(?:\([^)]*\))?:(?P<rest>.*)")
_APPLICATION = re.compile(r"(\d+):?\(([^)]*)\)")
_LONGEST = 10 * 365 * 86_400 * 10**9  # ns
MOST_THREADS = 10_000_000


@dataclass(frozen=True)
class Header:
    """`length` of the trace and `unit` of its times in ns; `threads` and `nodes` (from 1) of each process, over all applications.

    `offsets` has, for each application, how many processes the ones before it have.
    """

    length: int
    unit: int
    threads: tuple[int, ...]
    nodes: tuple[int, ...]
    offsets: tuple[int, ...]


def header(line: str, place: str) -> Header:
    """Return what the first line says. Raises UllageError for a line that is none of Paraver's.

    >>> header("#Paraver (09/10/2019 at 16:09):11528_ns:1(2):1:2(1:1,1:1),3", "a.prv")
    Header(length=11528, unit=1, threads=(1, 1), nodes=(1, 1), offsets=(0,))
    """
    found = _LINE.match(line)
    applications = _APPLICATION.findall(found["rest"].split(":", 1)[-1]) if found else []
    threads: list[int] = []
    nodes: list[int] = []
    offsets: list[int] = []
    for _, listed in applications:
        offsets.append(len(threads))
        for task in re.findall(r"(\d{1,7})(?::(\d{1,7}))?", listed):
            threads.append(int(task[0]))
            nodes.append(int(task[1] or 1))
    if found is None or not threads or sum(threads) > MOST_THREADS:
        raise UllageError(f"{place} does not begin as a Paraver trace", "the first line must name the trace's length, nodes and processes")
    unit = _UNITS[found["unit"] or ""]
    if int(found["length"]) > _LONGEST // unit:
        raise UllageError(f"{place} tells of an impossible length", "the first line must name the trace's length")
    return Header(int(found["length"]) * unit, unit, tuple(threads), tuple(nodes), tuple(offsets))
