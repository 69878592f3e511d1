"""A session on one GPU: the device, PyTorch and NVML on the same board, what the machine is, and a suite of benches on it."""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from ullage.benches.bench import BENCHES, Bench, Plain, Target
from ullage.benches.result import BenchResult
from ullage.benches.running.device import BenchDevice, open_device
from ullage.benches.running.harness import Progress, run, silent
from ullage.benches.running.monitor import Monitor
from ullage.errors import UllageError
from ullage.gpus.names import pseudonym
from ullage.kernels.compiling import compiler_version

DRIFT = 60.0  # seconds that the drift check may take
Today = Callable[[], datetime]


@dataclass(eq=False)
class Session:
    """What benches run on; `find_torch` gives PyTorch on the same GPU or None, and is asked when first needed; `seed` makes the data."""

    device: BenchDevice
    target: Target
    machine: dict[str, Plain]
    monitor: Monitor = field(default_factory=Monitor)
    find_torch: Callable[[], Any] = lambda: None
    today: Today = lambda: datetime.now(UTC)
    now: Callable[[], float] = time.monotonic
    seed: int = field(default_factory=lambda: secrets.randbits(32))

    @cached_property
    def torch(self) -> Any:
        """PyTorch, set to the same GPU; None where it is missing, sees no GPU, or lost its context."""
        return self.find_torch()

    @property
    def date(self) -> str:
        """The time of day, UTC, ISO."""
        return self.today().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def give_back(self) -> None:
        """Free what a case held on the device, PyTorch's cache included."""
        self.device.release()
        torch = self.__dict__.get("torch")
        if torch is not None and not self.device.lost:
            with suppress(Exception):  # the next case's own error says more
                gc.collect()
                torch.cuda.empty_cache()

    def recover(self) -> None:
        """Open another context after a kernel spoilt this one; PyTorch can't follow. Raises UllageError where that doesn't help."""
        self.__dict__["torch"] = None
        self.device.reopen()

    def close(self) -> None:
        """Give the device back."""
        self.device.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def opened(index: int = 0, *, driver: Any = None, nvml: Any = None, torch: Any = None, today: Today | None = None) -> Session:
    """Return a session on the GPU that CUDA counts as `index`; close it, or use it in a `with`.

    The modules are found by default: `driver` is cuda.bindings.driver, `nvml` pynvml, `torch` PyTorch. A missing pynvml or PyTorch
    leaves gaps; a missing driver raises UllageError, and so does a compiler that is newer than the driver.
    """
    device = open_device(index, driver)
    try:
        refuse_newer_compiler(device)
        monitor = monitor_of(device, nvml)
        machine = described(device, monitor)
        return Session(device, device.target(), machine, monitor, lambda: seeing_torch(index, torch), today or (lambda: datetime.now(UTC)))
    except BaseException:
        device.close()
        raise


def suite(
    names: Sequence[str],
    session: Session,
    *,
    quick: bool = False,
    progress: Progress = silent,
    budget: float | None = None,
    drift: bool = False,
) -> Iterator[BenchResult]:
    """Yield the results of benches, one after the other; without `names` of all.

    `budget` is in seconds: past it no case begins, and the rest say that the time was up. `drift` takes the benches of the drift
    check, their quick cases, and at most `DRIFT` seconds. Raises UllageError for an unknown name, before anything runs.
    """
    seconds = allowed(budget, drift)
    until = None if seconds is None else session.now() + seconds
    for bench in chosen(names, drift):
        yield run(bench, session, quick=quick or drift, progress=progress, until=until)


def allowed(budget: float | None, drift: bool) -> float | None:
    """Return the seconds that a suite may take; None: as many as it needs."""
    return min(DRIFT if budget is None else budget, DRIFT) if drift else budget


def chosen(names: Sequence[str], drift: bool = False) -> list[Bench]:
    """Return benches by name, or all; only those of the drift check if asked. Raises UllageError for an unknown name."""
    found = [BENCHES[name] for name in names] or BENCHES.values()
    return [bench for bench in found if bench.drift or not drift]


def refuse_newer_compiler(device: BenchDevice) -> None:
    """Raise UllageError where the kernels would be made for a newer CUDA than the driver knows: it would refuse them."""
    major, minor = device.cuda
    compiler = compiler_version()
    if compiler.partition(".")[0].isdigit() and int(compiler.partition(".")[0]) > major:
        raise UllageError(
            f"the driver knows CUDA {major}.{minor}, the compiler makes kernels for CUDA {compiler}",
            f"update the driver, or install an older compiler: pip install 'nvidia-cuda-nvrtc-cu{major}'",
        )


def monitor_of(device: BenchDevice, nvml: Any = None) -> Monitor:
    """Return a monitor of the same board, found by UUID, then by its place on the bus; one that sees nothing without NVML."""
    with suppress(Exception):  # no pynvml, no permission, an old driver: the stamp has gaps then
        library = nvml or importlib.import_module("pynvml")
        library.nvmlInit()
        monitor = Monitor(library)
        handle = monitor.ask("nvmlDeviceGetHandleByUUID", device.uuid) or monitor.ask("nvmlDeviceGetHandleByPciBusId", device.pci)
        return Monitor(library, handle)
    return Monitor()


def seeing_torch(index: int, torch: Any = None) -> Any:
    """Return PyTorch set to the same GPU, None where it is missing or sees none."""
    with suppress(Exception):  # a broken installation fails in many ways, and none of them concerns our own kernels
        library = torch or importlib.import_module("torch")
        if library.cuda.is_available():
            library.cuda.set_device(index)
            return library
    return None


def described(device: BenchDevice, monitor: Monitor) -> dict[str, Plain]:
    """Return what identifies the GPU and what shapes its numbers; None where nobody tells. The power limit is in W."""
    limit = monitor.ask("nvmlDeviceGetEnforcedPowerLimit", monitor.handle)
    others = monitor.ask("nvmlDeviceGetComputeRunningProcesses", monitor.handle)
    told = monitor.ask("nvmlSystemGetDriverVersion")
    return {
        "gpu": device.name,
        "uuid_hash": pseudonym(device.uuid),
        "driver": told.decode() if isinstance(told, bytes) else told,
        "cuda": "{}.{}".format(*device.cuda),
        "compiler": compiler_version(),
        "power_limit": None if limit is None else limit / 1000,
        "sms": device.attribute("MULTIPROCESSOR_COUNT"),
        "ecc": bool(device.attribute("ECC_ENABLED")),
        "torch": installed("torch"),
        "cuda_bindings": installed("cuda-bindings"),
        "processes": None if others is None else len(others),
    }


def installed(library: str) -> str | None:
    """Return the version of an installed library, None where it is missing."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None
