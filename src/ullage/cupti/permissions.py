"""What stands between a program and its trace or its counters on this machine, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ullage.cupti.driver import cuda_version, dotted
from ullage.cupti.library import find
from ullage.cupti.surroundings import Surroundings, surroundings
from ullage.errors import UllageError, harmless

TRACING, COUNTERS = "tracing", "counters"
CAP_SYS_ADMIN, CAP_PERFMON = 21, 38
DCGM = ("nv-hostengine", "dcgm-exporter")
PROFILERS = {
    "libToolsInjection": "Nsight Systems (nsys)",
    "libcuda-injection": "Nsight Compute (ncu)",
    "libcudadebugger": "cuda-gdb",
    "libsanitizer-collection": "compute-sanitizer",
    "libkineto": "PyTorch's profiler",
    "libtorch_cpu": "PyTorch's profiler, if it is on",
}
VARIABLES = {
    "QUADD_INJECTION_PROXY": "Nsight Systems (nsys)",
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems (nsys)",
    "NV_NSIGHT_INJECTION_PORT_BASE": "Nsight Compute (ncu)",
    "KINETO_USE_DAEMON": "PyTorch's profiler, on demand of dynolog",
}
INJECTIONS = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")


@dataclass(frozen=True)
class PermissionFinding:
    """One thing that is so: `what`, the things it `stops` ("tracing", "counters"; () for a note), what to `do`.

    `surely` is False where it may be in the way and only trying tells.
    """

    what: str
    stops: tuple[str, ...]
    do: str
    surely: bool = True


def diagnose(found: Surroundings) -> list[PermissionFinding]:
    """Return what stands in the way, most serious first; [] where nothing is known to.

    >>> diagnose(Surroundings(driver=13000, cupti=13010, params="RmProfilingAdminOnly: 0"))[0].what
    'CUPTI is of CUDA 13.1, newer than the driver, which allows CUDA 13.0'
    """
    judges: tuple[Callable[[Surroundings], Iterator[PermissionFinding]], ...] = (
        _driver, _confidential, _virtual, _subsystem, _profilers, _administrator, _instances, _dcgm, _container,
    )  # fmt: skip
    return sorted((finding for judge in judges for finding in judge(found)), key=lambda finding: (-len(finding.stops), not finding.surely))


def report(
    path: str | None = None, *, mig: bool | None = None, virtual: bool | None = None, confidential: bool | None = None
) -> dict[str, Any]:
    """Return all that is known of this machine, ready for JSON; nothing is initialised and nothing raised.

    `library`, `cupti` and `driver` (None where there is none), `tracing` and `counters` ("yes", "no", "perhaps"), `findings` with `what`,
    `stops`, `do` and `surely` each. `mig`, `virtual` and `confidential` say what NVML knows of the GPU, where somebody asked it.
    """
    library, lacking = _library(path)
    driver = cuda_version()
    here = surroundings(driver=driver, cupti=library.get("cuda"))
    findings = lacking + diagnose(replace(here, mig=here.mig if mig is None else mig, virtual=virtual, confidential=confidential))
    return {
        "library": library.get("path"),
        "cupti": library.get("name"),
        "driver": None if driver is None else dotted(driver),
        TRACING: _possible(findings, TRACING),
        COUNTERS: _possible(findings, COUNTERS),
        "findings": [asdict(finding) | {"stops": list(finding.stops)} for finding in findings],
    }


def holders(found: Surroundings | None = None) -> list[str]:
    """Return who may hold CUPTI's one place for a subscriber in this process; [] where nobody shows."""
    here = found or surroundings()
    who = [f"{_base(here.environment[name])} (in {name})" for name in INJECTIONS if _foreign(here.environment.get(name, ""))]
    who += [name for variable, name in VARIABLES.items() if variable in here.environment]
    who += [name for library, name in PROFILERS.items() if f"/{library}" in here.maps]
    who += [f"the debugger with process id {here.traced_by}"] if here.traced_by else []
    return list(dict.fromkeys(who))


def _driver(found: Surroundings) -> Iterator[PermissionFinding]:
    if found.driver is None:
        installed = "proc/driver/nvidia/version" in found.files
        yield PermissionFinding(
            "the NVIDIA driver is installed, but this process can't reach it" if installed else "there is no NVIDIA driver here",
            (TRACING, COUNTERS),
            "start the container with `--gpus all` (Docker) or ask for nvidia.com/gpu (Kubernetes)" if found.container or installed
            else "run on a machine with an NVIDIA GPU; `nvidia-smi` must answer",
        )  # fmt: skip
    elif found.cupti is not None and found.cupti > found.driver:
        surely = found.cupti // 1000 > found.driver // 1000
        told = f"CUPTI is of CUDA {dotted(found.cupti)}, newer than the driver, which allows CUDA {dotted(found.driver)}"
        yield PermissionFinding(told, (TRACING, COUNTERS), "update the driver, or install an nvidia-cuda-cupti no newer than it", surely)


def _confidential(found: Surroundings) -> Iterator[PermissionFinding]:
    if found.confidential:
        yield PermissionFinding(
            "confidential computing is on", (TRACING, COUNTERS), "measure on a machine without it, or take NVML's figures"
        )


def _virtual(found: Surroundings) -> Iterator[PermissionFinding]:
    if found.virtual:
        do = "the provider must allow profiling for this virtual GPU (vGPU's enable_profiling), or pass the whole GPU through"
        yield PermissionFinding("this is a virtual GPU (vGPU)", (COUNTERS,), do, surely=False)


def _subsystem(found: Surroundings) -> Iterator[PermissionFinding]:
    if "dev/dxg" in found.files:
        do = "allow the counters for all users in Windows' NVIDIA Control Panel (Developer), or measure on Linux itself"
        yield PermissionFinding("this is Linux inside Windows (WSL)", (COUNTERS,), do, surely=False)


def _profilers(found: Surroundings) -> Iterator[PermissionFinding]:
    if who := holders(found):
        do = "one profiler at a time: start the program without the other"
        yield PermissionFinding(f"another profiler may hold this process: {', '.join(who)}", (TRACING, COUNTERS), do, surely=False)


def _administrator(found: Surroundings) -> Iterator[PermissionFinding]:
    """The driver's own lock on counters. Tracing needs none of this."""
    capabilities = found.capabilities
    may = capabilities is not None and bool(capabilities & (1 << CAP_SYS_ADMIN | 1 << CAP_PERFMON))
    if found.admin_only and not may:
        yield PermissionFinding(
            "the driver keeps counters for the administrator (RmProfilingAdminOnly: 1)", (COUNTERS,), _ask_for_rights(found)
        )


def _ask_for_rights(found: Surroundings) -> str:
    if found.kubernetes:
        first = "give the pod securityContext.capabilities.add: [SYS_ADMIN] and run as root"
    elif found.container:
        first = "start the container with `--cap-add SYS_ADMIN`, as root"
    else:
        first = "run as root"
    return first + ", or load the driver with `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in /etc/modprobe.d"


def _instances(found: Surroundings) -> Iterator[PermissionFinding]:
    if found.mig:
        do = "measure on a whole GPU, or take DCGM's figures, which know the instances"
        yield PermissionFinding("this GPU is split by MIG: counters that instances share are forbidden", (COUNTERS,), do, surely=False)


def _dcgm(found: Surroundings) -> Iterator[PermissionFinding]:
    if running := [name for name in DCGM if any(process.startswith(name[:15]) for process in found.processes)]:  # comm has 15 bytes
        do = "`dcgmi profile --pause` lets go of them, `dcgmi profile --resume` takes them again"
        yield PermissionFinding(f"DCGM may hold the GPU's counters ({' and '.join(running)} runs)", (COUNTERS,), do, surely=False)


def _container(found: Surroundings) -> Iterator[PermissionFinding]:
    if found.container:
        what = "this is a pod" if found.kubernetes else "this is a container"
        do = "if counters are busy, look for DCGM on the host: `dcgmi profile --pause`"
        yield PermissionFinding(f"{what}: what runs on the host beside it can't be seen from here", (), do)


def _library(path: str | None) -> tuple[dict[str, Any], list[PermissionFinding]]:
    try:
        library = find(path)
    except UllageError as error:
        return {}, [PermissionFinding(error.problem, (TRACING, COUNTERS), error.hint)]
    known = {"path": str(library.path)}
    try:
        return known | {"name": library.release.name, "cuda": library.cuda}, []
    except UllageError as error:
        return known, [PermissionFinding(error.problem, (TRACING, COUNTERS), error.hint, surely=library.version is not None)]


def _possible(findings: list[PermissionFinding], what: str) -> str:
    against = [finding for finding in findings if what in finding.stops]
    return "no" if any(finding.surely for finding in against) else "perhaps" if against else "yes"


def _foreign(path: str) -> bool:
    """Whether an injected library is somebody else's: ours has our name, or lies in our cache. PyTorch takes "none" for unset."""
    return bool(path) and path != "none" and "ullage" not in "/".join(Path(path).parts[-2:])


def _base(path: str) -> str:
    return harmless(Path(path).name)
