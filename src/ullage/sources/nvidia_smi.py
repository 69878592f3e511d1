"""What `nvidia-smi --query-gpu=… --format=csv,noheader,nounits` says of this machine's GPUs: the last resort, where NVML can't be read.

It tells clocks, power, temperature, memory and "GPU utilization", and nothing of the tensor pipes: there is no OFU from
it alone. Columns: `nvidia-smi --help-query-gpu` of driver 580; the reasons for a low clock had another name before 535.
"""

from __future__ import annotations

import csv
import math
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.sources.machine import DeviceReading, GpuLibrary, Limits, rows
from ullage.sources.source import Options, Place, source

PATIENCE = 10.0  # seconds until a silent nvidia-smi is given up: on a sick driver it hangs for ever
WHO = ("index", "uuid", "name")
# column -> (field of `tables.FIELDS` or "limit_…", unit)
COLUMNS: dict[str, tuple[str, str]] = {
    "clocks.sm": ("sm_clock", "MHz"),
    "clocks.mem": ("memory_clock", "MHz"),
    "power.draw": ("power", "W"),
    "temperature.gpu": ("temperature", "C"),
    "memory.used": ("memory_used", "MiB"),
    "utilization.gpu": ("gpu_util", "%"),
    "clocks_event_reasons.active": ("throttle", "mask"),
    "power.limit": ("limit_power", "W"),
    "clocks.max.sm": ("limit_clock", "MHz"),
    "memory.total": ("limit_memory", "MiB"),
}
OLDER = {"clocks_event_reasons.active": "clocks_throttle_reasons.active"}  # a driver before 535 knows the second name
UNITS = {name: unit for name, unit in COLUMNS.values() if not name.startswith("limit_")}
_REFUSED = re.compile(r'Field "([^"]{1,80})" is not a valid field')

Ask = Callable[[Sequence[str]], str]  # the columns, to what nvidia-smi prints


def recognise(place: Place) -> int:
    """Return 2 for the place 'nvidia-smi', else 0."""
    return 2 if place.path is None and place.name == "nvidia-smi" else 0


@source("nvidia-smi", recognise=recognise, reads="this machine's NVIDIA GPUs by nvidia-smi, live (the place 'nvidia-smi'; no OFU)")
def read(place: Place, options: Options, problems: Problems) -> Iterator[pa.RecordBatch]:  # noqa: ARG001
    """Yield a batch every `options.interval` seconds for `options.watch` seconds, a row for each GPU. Raises UllageError without any."""
    import socket

    with opened(options, problems, socket.gethostname()) as machine:
        yield from machine.watched(options)


@contextmanager
def opened(options: Options, problems: Problems, host: str, ask: Ask | None = None) -> Iterator[GpuLibrary]:
    """Open the GPUs that nvidia-smi knows; `ask` runs it. Raises UllageError where it is not there, refuses, hangs or finds none."""
    ask = ask or asked
    columns = _accepted(ask)
    first = parsed(ask([*WHO, *columns]), columns, Problems())
    if not first:
        raise UllageError("nvidia-smi finds no GPU", "`nvidia-smi -L` lists what the driver sees")
    problems.note("nvidia-smi tells no activity of SMs and tensor pipes, so OFU is not known; NVML's GPM does, on Hopper and later")

    def now(moment: int) -> pa.RecordBatch:
        found = parsed(ask([*WHO, *columns]), columns, problems)
        return rows(moment, host, found, UNITS, options, problems)

    yield GpuLibrary(now, {reading.uuid: _limits(reading) for reading in first})


def _accepted(ask: Ask) -> list[str]:
    """Return the columns that this nvidia-smi knows: one that it refuses is asked for by its older name, then not at all."""
    columns = list(COLUMNS)
    for _ in range(len(COLUMNS) + len(OLDER)):
        refused = _REFUSED.search(ask([*WHO, *columns]))
        if refused is None:
            return columns
        older = OLDER.get(refused[1])
        columns = [older if name == refused[1] and older else name for name in columns if name != refused[1] or older]
    return columns


def _limits(reading: DeviceReading) -> Limits:
    told = reading.values
    clock, memory = told.get("limit_clock"), told.get("limit_memory")
    return Limits(told.get("limit_power"), None if clock is None else clock * 1e6, None if memory is None else memory * 2.0**20)


def asked(columns: Sequence[str], patience: float = PATIENCE) -> str:
    """Return what nvidia-smi prints for these columns. Raises UllageError where it is not installed, hangs, or fails without a word."""
    found = shutil.which("nvidia-smi")
    if found is None:
        raise UllageError("nvidia-smi is not installed", "it comes with NVIDIA's driver")
    command = [found, f"--query-gpu={','.join(columns)}", "--format=csv,noheader,nounits"]
    try:
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise UllageError(f"nvidia-smi can't be run: {error.strerror or error}") from error
    try:
        printed = running.communicate(timeout=patience)[0].decode(errors="replace")
    except subprocess.TimeoutExpired as error:
        running.kill()  # and not waited for: where the driver hangs, even that takes for ever
        raise UllageError(f"nvidia-smi did not answer within {patience:g} s", "the driver hangs; `dmesg` may say why") from error
    if running.returncode and not _REFUSED.search(printed) and not any(_numbered(line) for line in printed.splitlines()):
        words = harmless(" ".join(printed.split()), 160) or f"exit code {running.returncode}"
        raise UllageError(f"nvidia-smi fails ({words})", "`nvidia-smi` should work here")
    return printed


def _numbered(line: str) -> bool:
    return bool(re.match(r"\s*\d+\s*,", line))


@dataclass(frozen=True)
class _Cell:
    """A cell as a number: decimal, or hexadecimal for masks; None where there is no value."""

    text: str

    @property
    def number(self) -> float | None:
        try:
            value = float(int(self.text, 16)) if self.text.lower().startswith("0x") else float(self.text)
        except ValueError:  # [N/A], [Not Supported], [Unknown Error], [GPU requires reset], ERR!
            return None
        return value if math.isfinite(value) else None


def parsed(printed: str, columns: Sequence[str], problems: Problems) -> list[DeviceReading]:
    """Return a reading for each line that is one, in nvidia-smi's units; other lines are counted, "[N/A]" and its like are missing.

    >>> [reading] = parsed("0, GPU-1, NVIDIA L4, 1710, [N/A]", ["clocks.sm", "power.draw"], Problems())
    >>> reading.uuid, reading.model, reading.values
    ('GPU-1', 'NVIDIA L4', {'sm_clock': 1710.0})
    """
    meaning = {older: COLUMNS[name] for name, older in OLDER.items()} | COLUMNS
    found = []
    for line in printed.splitlines():
        if not line.strip():
            continue
        cells = [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]
        if len(cells) != len(WHO) + len(columns) or not cells[0].isdecimal() or len(cells[0]) > 4:
            problems.drop("lines of nvidia-smi that are not readings", where=f"'{line.strip()[:120]}'")
            continue
        told = {meaning[name][0]: _Cell(cell).number for name, cell in zip(columns, cells[len(WHO) :], strict=True)}
        values = {name: value for name, value in told.items() if value is not None}
        found.append(DeviceReading(cells[1], int(cells[0]), cells[2], values))
    return found
