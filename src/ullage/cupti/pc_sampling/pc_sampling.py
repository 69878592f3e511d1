"""Where warps are and why they wait: program counters sampled by the hardware, for a range of a program, by CUPTI's PC sampling API."""

from __future__ import annotations

import atexit
import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from ullage.cupti.driver import current_context as current_context
from ullage.cupti.modules import Modules
from ullage.cupti.pc_sampling.configuration import Configuration
from ullage.cupti.pc_sampling.context import SampledContext
from ullage.cupti.pc_sampling.samples import Facts, PcSamples, gathered
from ullage.errors import UllageError

if TYPE_CHECKING:
    from ullage.cupti.library import Library

PATIENCE = 1.0  # seconds that a module or context that goes waits for a reading that is under way
_MANY = 1_000_000  # rows kept before counts of one place are added up


class PcSampling:
    """Samples contexts of this process from its beginning, or between `start` and `stop`, until it is closed; a context manager.

    Off by default and never in the fleet: it takes half a gigabyte of the GPU's memory unless told otherwise, changes what it measures
    (serialised mode runs one kernel at a time), excludes other profilers, and readings that met a module being unloaded are known to
    have crashed programs. It is a tool for one kernel at one desk. Volta and later; one context of a GPU at a time (guide, 2.10.7).

    `contexts` are CUcontext handles (`current_context()`). `every` seconds what was sampled is read, so that the hardware's buffer
    doesn't overflow; 0 leaves reading to `drain`, to `stop` and to `close`. In serialised mode call `drain` after each kernel has ended
    (guide, 2.10.4). With `cubins` the machine code of modules loaded meanwhile is kept. Raises CuptiError where CUPTI refuses to begin;
    what fails later is told in `result().facts.problems`.

        with PcSampling(find(), [current_context()]) as sampling:
            with sampling.range():
                step()
        sampling.result().write(Path("step.parquet"))
    """

    def __init__(
        self,
        library: Library,
        contexts: Sequence[int],
        configuration: Configuration | None = None,
        *,
        every: float = 0.1,
        cubins: bool = True,
        chip: str | None = None,
        clock: float | None = None,
    ) -> None:
        self.configuration = configuration or Configuration()
        self._library, self._chip, self._clock = library, chip, clock
        self._lock = threading.RLock()
        self._tables: list[pa.Table] = []
        self._problems: dict[str, None] = {}  # each once, however often it comes
        self._unread = 0
        self._running = not self.configuration.ranges
        self._open = True
        self._ended = threading.Event()
        _refuse_same_device(library, contexts)
        self._reader: threading.Thread | None = None
        self._modules = self._watched() if cubins else None
        self._contexts: list[SampledContext] = []
        self._gone: list[SampledContext] = []
        try:
            for number, context in enumerate(contexts):
                self._contexts.append(SampledContext(library, context, number, self.configuration))
        except BaseException:
            self.close()
            raise
        atexit.register(self.close)  # CUPTI must not call back into an interpreter that is gone
        if every:
            self._reader = threading.Thread(target=self._read_on, args=(every,), name="ullage-pc-sampling", daemon=True)
            self._reader.start()

    def start(self) -> None:
        """Begin a range in every context. Raises UllageError where the configuration has no ranges."""
        self._refuse_no_ranges()
        with self._lock:
            for one in self._contexts:
                one.start()
            self._running = True

    def stop(self) -> None:
        """End the range and read what it sampled, as CUPTI wants it (guide, 2.10.4)."""
        self._refuse_no_ranges()
        with self._lock:
            self._running = False
            for one in self._contexts:
                one.stop()
            self.drain()

    @contextmanager
    def range(self) -> Iterator[None]:
        """Sample what runs within."""
        self.start()
        try:
            yield
        finally:
            self.stop()

    def drain(self) -> None:
        """Read what CUPTI has ready; an error is noted, and not raised into the program that is measured."""
        with self._lock:
            for one in self._contexts if self._open else ():
                self._take(one.read)

    def close(self) -> None:
        """Switch sampling off and take what is left; a second call does nothing."""
        self._ended.set()
        atexit.unregister(self.close)
        if self._reader is not None:
            self._reader.join(timeout=60)
        with self._lock:
            if not self._open:
                return
            self.drain()
            self._open = False
            for one in self._contexts:
                self._take(one.close)
        if self._modules is not None:
            self._modules.close()

    def result(self) -> PcSamples:
        """Return everything sampled so far, the counts of one place and reason added up."""
        with self._lock:
            problems = [*self._problems, *(self._modules.problems if self._modules else [])]
            return PcSamples(gathered(self._tables), self._facts(problems), self._modules.cubins() if self._modules else {})

    def __enter__(self) -> PcSampling:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _facts(self, problems: list[str]) -> Facts:
        sampled = sorted([*self._contexts, *self._gone], key=lambda one: one.number)
        return Facts(
            chip=self._chip,
            release=self._library.release.name,
            mode=self.configuration.mode,
            cycles=sampled[0].cycles if sampled else None,
            clock=self._clock,
            total=sum(one.total for one in sampled),
            dropped=sum(one.dropped for one in sampled),
            other=sum(one.other for one in sampled),
            full=sum(one.full for one in sampled),
            unread=self._unread,
            reasons=self.configuration.reasons,
            problems=tuple(dict.fromkeys(problems)),
        )

    def _read_on(self, every: float) -> None:
        while not self._ended.wait(every):
            if self._running:
                self.drain()

    def _take(self, read: Callable[[], list[pa.Table]]) -> None:
        try:
            self._tables += [table for table in read() if table.num_rows]
            if sum(table.num_rows for table in self._tables) > _MANY:
                self._tables = [gathered(self._tables)]
        except Exception as error:  # the program that is measured goes on
            self._problems[error.problem if isinstance(error, UllageError) else f"{type(error).__name__}: {error}"] = None

    def _watched(self) -> Modules | None:
        try:
            return Modules(self._library, self._unloading, self._leaving)
        except UllageError as error:
            self._problems[f"machine code was not kept: {error.problem}"] = None
            return None

    def _unloading(self) -> None:
        """A module goes: read its samples first, for another may come to the same place. Never while a reading is under way."""
        with self._briefly() as free:
            if free:
                self.drain()
            else:
                self._unread += 1

    def _leaving(self, context: int) -> None:
        """A context is about to be destroyed, and CUPTI's sampling of it with it: read what it has, and don't touch it again."""
        with self._briefly() as free:
            for one in [one for one in self._contexts if one.context == context]:
                self._contexts.remove(one)
                self._gone.append(one)
                if free:
                    self._take(one.read)

    @contextmanager
    def _briefly(self) -> Iterator[bool]:
        """Whether no reading is under way: the program waits inside CUDA meanwhile, which a reading may need, so not for long."""
        free = self._lock.acquire(timeout=PATIENCE)
        try:
            yield free
        finally:
            if free:
                self._lock.release()

    def _refuse_no_ranges(self) -> None:
        if not self.configuration.ranges:
            raise UllageError("sampling goes on from beginning to end: it was configured without ranges", "Configuration(ranges=True)")


def _refuse_same_device(library: Library, contexts: Sequence[int]) -> None:
    if not contexts:
        raise UllageError("no CUDA context was named", "PcSampling(library, [current_context()])")
    devices = []
    for context in contexts:
        device = ctypes.c_uint32()
        if library.has("cuptiGetDeviceId") and library.ask("cuptiGetDeviceId", ctypes.c_void_p(context), ctypes.byref(device)) == 0:
            devices.append(device.value)
    twice = {one for one in devices if devices.count(one) > 1}
    if twice:
        raise UllageError(
            f"two contexts of GPU {min(twice)} can't be sampled at once",
            "close the first PcSampling before the next begins (guide, 2.10.7)",
        )
