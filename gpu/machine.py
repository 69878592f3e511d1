"""The machine that is measured: one GPU, the driver behind it, the libraries at hand, a clock and a load."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu.check import Findings
from gpu.load import Work, gemm
from ullage.errors import UllageError
from ullage.gpus.chip import Chip, find
from ullage.gpus.names import pseudonym

LIBRARIES = ("numpy", "pyarrow", "nvidia-ml-py", "cuda-bindings", "torch")
# CUDA cores of an SM by compute capability: `_ConvertSMVer2Cores` in helper_cuda.h of NVIDIA's CUDA samples. Other than these: 128.
FEWER_CORES = {"7.0": 64, "7.2": 64, "7.5": 64, "8.0": 64}
Load = Callable[..., AbstractContextManager[Work]]


@dataclass(frozen=True)
class Room:
    """What the runner gives a check: a folder for its recordings, and time.

    It may go on until `now()` is `until` (s since 1970); `say` takes a line of progress; `keep` writes down what was found so far, so
    that it stands whatever becomes of the process.
    """

    folder: Path
    until: float
    now: Callable[[], float] = time.time
    say: Callable[[str], None] = print
    keep: Callable[[Findings], None] = lambda findings: None  # noqa: ARG005

    @property
    def left(self) -> float:
        """Seconds that are left, not below 0."""
        return max(0.0, self.until - self.now())


@dataclass(frozen=True)
class Machine:
    """What a check may ask.

    `nvml` is the module pynvml; `load(size, ...)` is `gpu.load.gemm` without its first parameter, None without
    PyTorch; `clock` gives ms since 1970; `elsewhere` reads the cycle counters in another process, by GPU index; `room` is what a
    check has that goes on where it ended.
    """

    nvml: Any
    handle: Any
    index: int
    name: str
    uuid: str
    torch: Any = None
    load: Load | None = None
    clock: Callable[[], int] = lambda: round(time.time() * 1000)
    sleep: Callable[[float], None] = time.sleep
    elsewhere: Callable[[int], str] = lambda index: _elsewhere(index)
    room: Room | None = None

    def ask(self, function: str, *arguments: Any) -> Any:
        """Return what NVML answers to a question, or None where the driver or the library does not know it."""
        try:
            return getattr(self.nvml, function)(*arguments)
        except (AttributeError, self.nvml.NVMLError):
            return None

    @property
    def chip(self) -> Chip:
        """The GPU's entry in `ullage.gpus`; raises UllageError for a name that is not there."""
        return find(self.name)

    @property
    def compute_capability(self) -> str | None:
        """The compute capability as NVML tells it, "9.0"; None where it doesn't."""
        told = self.ask("nvmlDeviceGetCudaComputeCapability", self.handle)
        return None if told is None else ".".join(str(number) for number in told)

    @property
    def sms_by_nvml(self) -> int | None:
        """The number of SMs, from NVML's count of CUDA cores; None where it tells none."""
        cores, capability = self.ask("nvmlDeviceGetNumGpuCores", self.handle), self.compute_capability
        return None if cores is None or capability is None else int(cores) // FEWER_CORES.get(capability, 128)

    @property
    def sms_by_torch(self) -> int | None:
        """The number of SMs as CUDA tells it through PyTorch; None without PyTorch."""
        return None if self.torch is None else int(self.torch.cuda.get_device_properties(0).multi_processor_count)

    @property
    def sms(self) -> int | None:
        """The number of SMs by the machine's own account, never by our tables; None when nobody tells."""
        return self.sms_by_torch or self.sms_by_nvml

    @property
    def pseudonym(self) -> str:
        """The GPU's UUID in a form that may be published: the same for the same GPU, and the UUID can't be had from it."""
        return pseudonym(self.uuid)


def machine(nvml: Any = None, torch: Any = None) -> Machine:
    """Return this machine with the GPU that PyTorch calls 0, or NVML's first. Raises UllageError without driver or GPU."""
    if nvml is None:
        try:
            nvml, torch = importlib.import_module("pynvml"), torch or torch_or_none()
        except ImportError as error:
            raise UllageError("nvidia-ml-py is not installed") from error
    try:
        nvml.nvmlInit()
        if not nvml.nvmlDeviceGetCount():
            raise UllageError("NVML finds no GPU")
        handle, index = _chosen(nvml, torch)
        name, uuid = text(nvml.nvmlDeviceGetName(handle)), text(nvml.nvmlDeviceGetUUID(handle))
    except nvml.NVMLError as error:
        raise UllageError(f"the NVIDIA driver does not answer ({error})") from error
    return Machine(nvml, handle, index, name, uuid, torch, load_of(torch))


def _chosen(nvml: Any, torch: Any) -> tuple[Any, int]:
    """PyTorch and NVML number GPUs differently (CUDA_VISIBLE_DEVICES, fastest first): the UUID settles it."""
    wanted = str(getattr(torch.cuda.get_device_properties(0), "uuid", "")) if torch is not None else ""
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        if not wanted or text(nvml.nvmlDeviceGetUUID(handle)).removeprefix("GPU-") == wanted.removeprefix("GPU-"):
            return handle, index
    raise UllageError(f"PyTorch computes on a GPU that NVML does not list ({wanted})")


def load_of(torch: Any) -> Load | None:
    """Return the load generator, or None without PyTorch."""
    return None if torch is None else lambda *arguments, **options: gemm(torch, *arguments, **options)


def torch_or_none() -> Any:
    """Return the module torch where it is installed and sees a GPU, else None."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def installed(module: str) -> bool:
    """Return whether a module can be imported, without importing more than the packages above it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package above it
        return False


def text(name: str | bytes) -> str:
    """Return a name as text; older versions of nvidia-ml-py answer in bytes."""
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def versions() -> dict[str, str | None]:
    """Return the versions of Python, of Ullage and of the libraries; None for one that is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version(), "ullage": importlib.import_module("ullage").__version__}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def described(one: Machine) -> dict[str, str | float | int | None]:
    """Return what identifies the GPU and what shapes its numbers; the power limit in W, null where the driver is silent."""
    limit, cuda = one.ask("nvmlDeviceGetEnforcedPowerLimit", one.handle), one.ask("nvmlSystemGetCudaDriverVersion")
    others = one.ask("nvmlDeviceGetComputeRunningProcesses", one.handle)
    return {
        "gpu": one.name,
        "uuid_hash": one.pseudonym,
        "driver": text(one.ask("nvmlSystemGetDriverVersion") or "unknown"),
        "nvml": text(one.ask("nvmlSystemGetNVMLVersion") or "unknown"),
        "cuda": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        "power_limit": None if limit is None else limit / 1000,
        "processes": None if others is None else len(others),
    }


def _elsewhere(index: int) -> str:
    """Read the cycle counters in a process of its own; returns what it prints."""
    root = Path(__file__).resolve().parents[1]
    code = f"import sys; sys.path[:0] = [{str(root)!r}, {str(root / 'src')!r}]; from gpu.counters import main; main({index})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
