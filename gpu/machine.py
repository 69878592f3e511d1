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
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu import BARE
from gpu.check import Findings
from gpu.load import Load, SustainedWork
from ullage.benches.running.driver import answer, bindings
from ullage.errors import UllageError
from ullage.gpus.chip import Chip, find
from ullage.gpus.names import pseudonym

if TYPE_CHECKING:
    from ullage.benches.running.board import Board

# Packages whose versions are told, and the module of each for which there is a stand-in.
LIBRARIES = {"numpy": "", "pyarrow": "", "msgspec": "", "nvidia-ml-py": "pynvml", "cuda-bindings": "cuda.bindings", "torch": ""}
WITHOUT_LOAD = "under load: not measured, no CUDA driver answers"
# CUDA cores of an SM by compute capability: `_ConvertSMVer2Cores` in helper_cuda.h of NVIDIA's CUDA samples. Other than these: 128.
FEWER_CORES = {"7.0": 64, "7.2": 64, "7.5": 64, "8.0": 64}


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

    `nvml` is the module pynvml or its stand-in; `find_torch` gives PyTorch where it sees the GPU, else None; `load(size, ...)` is
    `gpu.load.gemm` without its first parameter, by whatever there is, None where no CUDA driver answers; `clock` gives ms since 1970;
    `elsewhere` reads the cycle counters in another process, by GPU index; `room` is what a check has that goes on where it ended;
    `board` is the GPU as the CUDA driver describes it, None where that does not answer.
    """

    nvml: Any
    handle: Any
    index: int
    name: str
    uuid: str
    find_torch: Callable[[], Any] = lambda: None
    load: Callable[..., AbstractContextManager[SustainedWork]] | None = None
    clock: Callable[[], int] = lambda: round(time.time() * 1000)
    sleep: Callable[[float], None] = time.sleep
    elsewhere: Callable[[int], str] = lambda index: _elsewhere(index)
    room: Room | None = None
    board: Board | None = None

    @cached_property
    def torch(self) -> Any:
        """PyTorch, None where it is missing or sees no GPU. It takes seconds to import, and is only when this is first asked."""
        return self.find_torch()

    @property
    def load_name(self) -> str | None:
        """What makes the load ("PyTorch 2.11.0"), None without one."""
        return None if self.load is None else str(getattr(self.load, "name", "unnamed"))

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
    def sms_by_cuda(self) -> int | None:
        """The number of SMs as the CUDA driver tells it; None where that does not answer."""
        return None if self.board is None else self.board.attribute("MULTIPROCESSOR_COUNT")

    @property
    def sms(self) -> int | None:
        """The number of SMs by the machine's own account, never by our tables; None when nobody tells."""
        return self.sms_by_cuda or self.sms_by_nvml

    @property
    def pseudonym(self) -> str:
        """The GPU's UUID in a form that may be published: the same for the same GPU, and the UUID can't be had from it."""
        return pseudonym(self.uuid)


def machine(nvml: Any = None, torch: Any = None, *, find_board: Callable[[], Board | None] | None = None) -> Machine:
    """Return this machine with the GPU that CUDA counts as 0, or NVML's first where the CUDA driver does not answer.

    By default NVML is nvidia-ml-py's or its stand-in, and PyTorch is looked for when a check first asks for it. Raises UllageError
    without driver or GPU.
    """
    nvml = importlib.import_module("pynvml") if nvml is None else nvml
    try:
        nvml.nvmlInit()
        if not nvml.nvmlDeviceGetCount():
            raise UllageError("NVML finds no GPU")
        board = (find_board or cuda_board)()
        handle, index = _chosen(nvml, "" if board is None else board.uuid)
        name, uuid = text(nvml.nvmlDeviceGetName(handle)), text(nvml.nvmlDeviceGetUUID(handle))
    except nvml.NVMLError as error:
        raise UllageError(f"the NVIDIA driver does not answer ({error})") from error
    find_torch = torch_or_none if torch is None else lambda: torch
    load = None if board is None and torch is None else Load(find_torch)
    return Machine(nvml, handle, index, name, uuid, find_torch, load, board=board)


def cuda_board() -> Board | None:
    """Return the GPU that CUDA counts as 0, as CUDA_VISIBLE_DEVICES has it; None where the CUDA driver does not answer or shows none."""
    try:
        from ullage.benches.running.board import Board

        driver = bindings()
        return Board(driver, 0, answer(driver, driver.cuDeviceGet(0), "GPU 0"))
    except (UllageError, ImportError):  # ImportError: no NumPy
        return None


def _chosen(nvml: Any, wanted: str) -> tuple[Any, int]:
    """CUDA and NVML number GPUs differently (CUDA_VISIBLE_DEVICES, fastest first): the UUID settles it."""
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        if not wanted or text(nvml.nvmlDeviceGetUUID(handle)) == wanted:
            return handle, index
    raise UllageError(f"CUDA computes on a GPU that NVML does not list ({wanted})")


@cache
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
    """Return the versions of Python, of Ullage and of the libraries; "stand-in" for one that ours stands in for, None for a missing one."""
    found: dict[str, str | None] = {"python": platform.python_version(), "ullage": importlib.import_module("ullage").__version__}
    for name, module in LIBRARIES.items():
        try:
            found[name] = "stand-in" if module and stands_in(module) else importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def stands_in(module: str) -> bool:
    """Return whether a module, imported already or not, is one of ours in place of a library that is not installed."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # of a package above it
        return False
    return found is not None and found.origin is not None and Path(found.origin).is_relative_to(BARE)


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
