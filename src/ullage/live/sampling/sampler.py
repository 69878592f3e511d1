"""This machine's GPUs read at an interval, by every library that can, for as long as anybody wants.

Each kind of GPU is read in a thread of its own: a driver that stalls gives a gap in its own readings and holds up nobody,
neither the other kinds nor the end. Nothing is kept here: what nobody takes is dropped and counted.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ullage.errors import UllageError, harmless
from ullage.live.sampling.kinds import KINDS, GpuReader
from ullage.live.sampling.process_owners import ProcessOwners
from ullage.problems import Problems
from ullage.sources.machine import Device, DeviceProcess, GpuLibrary, Limits
from ullage.sources.source import Options

OPENING = 20.0  # seconds that a library may take to open
PARTING = 1.0  # seconds that drivers get to end what they are at
MOST_WAITING = 1000  # readings that nobody has taken yet

T = TypeVar("T")


@dataclass(frozen=True)
class Dated(Generic[T]):
    """What a driver told of a device, and when it was asked, ms since 1970: the time of the sample beside which it stands."""

    time: int
    value: T


@dataclass(frozen=True)
class _Message:
    """What a thread has to say: that it is open (`machine`), that it can't (`error`), or the reading of a turn, at `time`.

    Of what failed in a turn there is None: what was told of it before stands, and is older.
    """

    kind: GpuReader
    machine: GpuLibrary | None = None
    error: str = ""
    turn: int = 0
    time: int = 0
    batch: pa.RecordBatch | None = None
    processes: Mapping[Device, list[DeviceProcess]] | None = None
    health: Mapping[Device, Mapping[str, float]] | None = None


class Sampler:
    """The open GPUs of this machine; a context manager. `readings` yields what they tell, `stop` ends it from anywhere.

    `interval` and `patience` (how long an answer may be late) are seconds; `gpus` are numbers or UUIDs, none for all;
    `attach` adds whose processes compute on each; with `with_processes` each reading brings the processes on each device and its errors:
    `device_processes` and `health` have the last of them, each with its time. Entering raises UllageError, naming each library that was
    tried and why it failed, when no GPU can be read.
    """

    def __init__(
        self,
        interval: float,
        problems: Problems,
        *,
        gpus: Sequence[str] = (),
        attach: bool = False,
        with_processes: bool = False,
        kinds: Sequence[GpuReader] = KINDS,
        patience: float = 2.0,
        opening: float = OPENING,
        options: Options | None = None,
    ) -> None:
        self.interval, self.problems, self.gpus = interval, problems, tuple(gpus)
        self.limits: dict[str, Limits] = {}
        self.kinds: list[str] = []
        self.device_processes: dict[Device, Dated[list[DeviceProcess]]] = {}
        self.health: dict[Device, Dated[Mapping[str, float]]] = {}
        self._wanted, self._patience, self._opening, self._with_processes = kinds, patience, opening, with_processes
        self._options, self._host = options or Options(), socket.gethostname()
        self._owners = ProcessOwners() if attach else None
        self._messages: SimpleQueue[_Message | None] = SimpleQueue()
        self._stop, self._go = threading.Event(), threading.Event()
        self._begin = 0.0
        self._turn: dict[str, int] = {}  # the last turn that each kind told of
        self._late: set[str] = set()  # kinds that did not answer in time
        self._checked = False  # whether all of `gpus` were seen
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        failed: dict[str, str] = {}
        try:
            self._open(self._wanted, failed)
        except BaseException:  # Ctrl-C while a driver is asked
            self.stop()
            raise
        if not self.kinds and self._stop.is_set():
            raise KeyboardInterrupt
        if not self.kinds:
            names = [name for kind in self._wanted for name in (kind.name, kind.otherwise and kind.otherwise.name) if name in failed]
            raise UllageError(
                "no GPU of this machine can be read: " + "; ".join(f"{name}: {failed[name]}" for name in names),
                "run it on a GPU node; for NVIDIA: pip install 'ullage[gpu]', and `nvidia-smi` must work",
            )
        for kind in self._wanted:
            if kind.otherwise and kind.otherwise.name in self.kinds:
                self.problems.note(f"{kind.name} can't be read ({failed[kind.name]}), so {kind.otherwise.name} is")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for thread in self._threads:
            thread.join(PARTING / len(self._threads))

    def stop(self) -> None:
        """End the readings; fit for a signal handler and for another thread."""
        self._stop.set()
        self._go.set()
        self._messages.put(None)

    def _open(self, kinds: Sequence[GpuReader], failed: dict[str, str]) -> None:
        """Open kinds side by side, then those that stand in for the ones that fail."""
        for kind in kinds:
            self._threads.append(threading.Thread(target=self._work, args=(kind,), daemon=True, name=f"ullage {kind.name}"))
            self._threads[-1].start()
        end, waiting = time.monotonic() + self._opening, {kind.name for kind in kinds}
        while waiting and not self._stop.is_set():
            try:
                message = self._messages.get(timeout=max(0.0, end - time.monotonic()))
            except Empty:
                failed |= dict.fromkeys(sorted(waiting), f"it did not open within {self._opening:g} s")
                break
            if message is None or message.kind.name not in waiting:
                continue
            waiting.remove(message.kind.name)
            if message.machine is None:
                failed[message.kind.name] = message.error
            else:
                self.kinds.append(message.kind.name)
                self.limits |= message.machine.limits
        others = [kind.otherwise for kind in kinds if kind.otherwise and kind.name not in self.kinds]
        if others and not self._stop.is_set():
            self._open(others, failed)

    def readings(self, seconds: float | None = None) -> Iterator[list[pa.RecordBatch]]:
        """Yield what every kind told at each interval for `seconds` (None: until `stop`); the list is empty where nobody did.

        Each batch holds rows of `tables.SAMPLES`, stamped with the end of the interval. Raises UllageError when one of `gpus`
        is not there.
        """
        turns = None if seconds is None else max(1, int(seconds / self.interval + 1e-9))
        self._begin = time.monotonic()
        self._go.set()
        turn = 0
        while not self._stop.is_set() and (turns is None or turn < turns):
            turn += 1
            yield self._chosen(self._collect(turn))

    def _collect(self, turn: int) -> list[pa.RecordBatch]:
        """Return what came in until every kind has told of a turn, or is too late to be waited for: a kind that stalls is so once."""
        due, found = self._begin + turn * self.interval, list[pa.RecordBatch]()
        while missing := [kind for kind in self.kinds if self._turn.get(kind, 0) < turn]:
            end = due if self._late.issuperset(missing) else due + self._patience
            try:
                message = self._messages.get(timeout=max(0.0, end - time.monotonic()))
            except Empty:
                self._late.update(missing)
                for kind in missing:
                    self.problems.drop("intervals in which a driver did not answer", where=f"{kind}, interval {turn:,}")
                break
            if message is None:
                break
            self._late.discard(message.kind.name)
            self._turn[message.kind.name] = max(message.turn, self._turn.get(message.kind.name, 0))
            if message.kind.name in self.kinds:
                found += [] if message.batch is None else [message.batch]
                self.device_processes |= {device: Dated(message.time, value) for device, value in (message.processes or {}).items()}
                self.health |= {device: Dated(message.time, value) for device, value in (message.health or {}).items()}
        return found

    def _chosen(self, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Return the rows of the GPUs that were asked for."""
        if not self.gpus or not batches:
            return batches
        wanted, there = pa.array(self.gpus), set[str]()
        found = []
        for batch in batches:
            names = [batch[name].cast(pa.string()) for name in ("index", "gpu")]
            there |= {name for column in names for name in column.to_pylist()}
            found.append(batch.filter(pc.or_(*(pc.is_in(column, wanted) for column in names))))
        missing = [gpu for gpu in self.gpus if gpu not in there]
        if missing and not self._checked and len(batches) >= len(self.kinds):
            numbers = ", ".join(sorted((name for name in there if name.isdecimal()), key=int))
            raise UllageError(f"this machine has no GPU '{harmless(missing[0], 60)}'", f"it has {numbers}; give a number or a UUID")
        self._checked = self._checked or len(batches) >= len(self.kinds)
        return [batch for batch in found if batch.num_rows]

    # -- what a thread does -------------------------------------------------------------------------------------------

    def _work(self, kind: GpuReader) -> None:
        try:
            with self._opened(kind) as machine:
                self._messages.put(_Message(kind, machine=machine))
                self._go.wait()
                self._read(kind, machine)
        except UllageError as error:
            self._messages.put(_Message(kind, error=error.problem))
        except Exception as error:  # a library that breaks must not break the others
            self._messages.put(_Message(kind, error=harmless(repr(error), 160)))

    def _opened(self, kind: GpuReader) -> AbstractContextManager[GpuLibrary]:
        return kind.opened(self._options, self.problems, self._host)

    def _read(self, kind: GpuReader, machine: GpuLibrary) -> None:
        turn, last = 1, time.monotonic()
        while not self._stop.wait(max(0.0, max(self._begin + turn * self.interval, last + machine.shortest) - time.monotonic())):
            last, moment = time.monotonic(), round(time.time() * 1000)
            batch = self._batch(kind, machine, moment)
            processes = self._answer_or_none(kind, "processes", machine.device_processes) if self._with_processes else None
            health = self._answer_or_none(kind, "errors", machine.health) if self._with_processes else None
            if self._messages.qsize() < MOST_WAITING:
                self._messages.put(_Message(kind, turn=turn, time=moment, batch=batch, processes=processes, health=health))
            else:
                self.problems.drop("readings that nobody took in time", where=kind.name)
            turn = max(turn + 1, int((time.monotonic() - self._begin) / self.interval) + 1)  # what a stall swallowed is a gap

    def _batch(self, kind: GpuReader, machine: GpuLibrary, moment: int) -> pa.RecordBatch | None:
        try:
            batch = machine.read(moment)
            return self._owners.samples_with_owners(batch, machine.processes()) if self._owners else batch
        except UllageError as error:
            self.problems.drop("readings that failed", where=f"{kind.name}: {error.problem}")
        except Exception as error:
            self.problems.drop("readings that failed", where=f"{kind.name}: {harmless(repr(error), 160)}")
        return None

    def _answer_or_none(self, kind: GpuReader, what: str, ask: Callable[[], T]) -> T | None:
        """Return what a driver answers, None where it fails: the readings go on without it."""
        try:
            return ask()
        except Exception as error:
            self.problems.drop(f"readings of {what} that failed", where=f"{kind.name}: {harmless(repr(error), 160)}")
        return None
