"""What the GPUs' own counters say while a program runs: samples taken beside it, by another process, into a Parquet file.

NVML's GPM (Hopper and later) needs no permission and disturbs nothing. PM sampling is for those who ask for it: it needs what all
counters need, excludes DCGM's, may hold the clock still, and has been reported to keep CUPTI from recording kernels. Where it is refused,
GPM; without either, NVML's clocks and a note that says why.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from ullage.cupti.driver import cuda_version
from ullage.errors import UllageError
from ullage.live.sampling.pm_apart import LONGEST, Apart
from ullage.live.sampling.readings_file import ParquetFile
from ullage.live.sampling.waiting import Ended, Until
from ullage.problems import Problems
from ullage.sources.machine import Device
from ullage.sources.nvml import SHORTEST, opened
from ullage.sources.source import Options

INTERVAL = 0.5  # seconds between samples: both kinds are exact over any interval from 0.1 s on
FILE, TOLD = "telemetry-{host}.parquet", "telemetry-{host}.json"
GPM, PM = "NVML's GPM", "PM sampling"
HELD = "the counters were read by PM sampling, which may hold the GPUs' clocks still: without it kernels may take other times"
ASK = "PM sampling may tell it: --counters pm"
Counters = Literal["gpm", "pm"]


@dataclass
class SampledBeside:
    """What was sampled: `by` what ("" for nothing that tells of tensor work), every how many seconds, `notes` on what was left out.

    `instances` has the GPU's UUID and the instance of each MIG device, by its own UUID.
    """

    by: str = ""
    interval: float = INTERVAL
    notes: list[str] = field(default_factory=list)
    instances: dict[str, Device] = field(default_factory=dict)


class Beside:
    """Samples this machine's GPUs in a thread from `start` to `stop`, and keeps them in `folder`; `told` says what became of it.

    `counters` is what is to be read: NVML's GPM, or PM sampling (GPM where that is refused) by the library `cupti`. With `everything`
    PM sampling takes GPUs that are hidden from this process too: those of other ranks.
    """

    def __init__(
        self,
        folder: Path,
        counters: Counters = "gpm",
        *,
        interval: float = INTERVAL,
        cupti: Path | None = None,
        everything: bool = False,
        nvml: Callable[[], Any] | None = None,
        apart: Callable[[], Apart] | None = None,
    ) -> None:
        host = socket.gethostname()[:80].replace("/", "-")
        self.path, self.told = folder / FILE.format(host=host), SampledBeside(interval=interval)
        self._said = folder / TOLD.format(host=host)
        self._counters, self._interval, self._nvml = counters, interval, nvml or _pynvml
        self._begin_apart = apart or (lambda: _apart(interval, cupti, everything))
        self._apart: Apart | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ullage telemetry", daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def stop(self, patience: float = 5.0) -> None:
        """Sample once more, and end; a driver that does not answer is not waited for longer than `patience` seconds."""
        self._ended.set()
        if (apart := self._apart) is not None:
            apart.end()
        self._thread.join(patience)
        if self._thread.is_alive():
            self.told.notes.append(f"the driver did not answer for {patience:g} s; the last samples are not there")
            if apart is not None:
                apart.kill()
        self._say()

    def _run(self) -> None:
        try:
            self._keep(self._batches())
        except UllageError as error:
            self.told.notes.append(error.problem)
        except Exception as error:  # beside a program nothing of ours may become its failure
            self.told.notes.append(f"sampling the GPUs ended: {type(error).__name__}: {error}")

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Yield readings by the first way that works."""
        if self._counters == "pm":
            try:
                yield from self._by_sampling()
                return
            except UllageError as error:
                self.told.notes.append(f"PM sampling is not possible here: {error.problem}")
        yield from self._by_nvml()

    def _by_sampling(self) -> Iterator[pa.RecordBatch]:
        self._apart = apart = self._begin_apart()
        if self._ended.is_set():  # before anybody could know of it
            apart.end()
        for batch in apart.batches():
            self.told.by = PM
            yield batch
        self.told.notes += apart.notes
        self.told.notes.append(HELD)

    def _by_nvml(self) -> Iterator[pa.RecordBatch]:
        until, problems = Until(self._ended, SHORTEST), Problems()
        with opened(self._nvml(), Options(), problems, socket.gethostname()) as machine:
            self.told.instances = dict(machine.instances)
            with suppress(Ended):
                for batch in machine.watched(Options(watch=LONGEST, interval=self._interval), sleep=until.sleep):
                    if batch["tensor_active"].null_count < batch.num_rows:
                        self.told.by = GPM
                    yield batch
        self.told.notes += [*problems.lines(), *([ASK] if self._counters == "gpm" else [])] if not self.told.by else []

    def _keep(self, batches: Iterator[pa.RecordBatch]) -> None:
        file = ParquetFile(self.path)
        try:
            for batch in batches:
                file.add([batch])
        finally:
            file.close()

    def _say(self) -> None:
        with suppress(OSError):  # what can't be said is not worth a failure
            self._said.write_text(json.dumps(asdict(self.told)))


def _apart(interval: float, cupti: Path | None, everything: bool) -> Apart:
    if cuda_version() is None:
        raise UllageError("there is no NVIDIA driver on this machine")
    return Apart(interval, cupti=cupti, everything=everything)


def _pynvml() -> Any:
    try:
        import pynvml
    except ImportError as error:
        raise UllageError("the GPUs' counters are not read: nvidia-ml-py is not installed", "pip install 'ullage[gpu]'") from error
    return pynvml
