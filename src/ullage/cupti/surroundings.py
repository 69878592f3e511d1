"""What a machine and a process tell of themselves that decides whether CUPTI works: files, environment, processes; read, not judged."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

MOST_PROCESSES = 100_000


@dataclass(frozen=True)
class Surroundings:
    """What was found; None and "" mean that it isn't known.

    `driver` and `cupti` are CUDA versions as the driver counts (13010 is 13.1). `params` is the driver's file of that name, `status`,
    `maps` and `cgroup` are this process's, `processes` the names of all that can be seen.
    """

    driver: int | None = None
    cupti: int | None = None
    params: str = ""
    status: str = ""
    maps: str = ""
    cgroup: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    processes: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()
    mig: bool | None = None
    virtual: bool | None = None
    confidential: bool | None = None

    @property
    def capabilities(self) -> int | None:
        """The effective capabilities of this process, as bits; None where they aren't known."""
        told = _line(self.status, "CapEff")
        return int(told, 16) if told else None

    @property
    def admin_only(self) -> bool | None:
        """Whether the driver keeps counters for the administrator (RmProfilingAdminOnly); None where it doesn't tell."""
        told = _line(self.params, "RmProfilingAdminOnly")
        return told != "0" if told else None

    @property
    def traced_by(self) -> int:
        """The process that traces this one (a debugger), 0 for none."""
        told = _line(self.status, "TracerPid")
        return int(told) if told.isdigit() else 0

    @property
    def kubernetes(self) -> bool:
        """Whether this is a Kubernetes pod."""
        return "KUBERNETES_SERVICE_HOST" in self.environment or "kubepods" in self.cgroup

    @property
    def container(self) -> bool:
        """Whether this is a container."""
        marks = ("docker", "containerd", "libpod", "lxc", "crio")
        return self.kubernetes or bool(self.files & {".dockerenv", "run/.containerenv"}) or any(mark in self.cgroup for mark in marks)


LOOKED_FOR = (".dockerenv", "run/.containerenv", "dev/dxg", "dev/nvidiactl", "proc/driver/nvidia/version")


def surroundings(
    root: Path = Path("/"), environment: Mapping[str, str] = os.environ, driver: int | None = None, cupti: int | None = None
) -> Surroundings:
    """Return what the files below `root` and the environment tell. What can't be read is left unknown; nothing is raised."""
    instances = list((root / "proc/driver/nvidia/capabilities").glob("gpu*/mig/gi*"))
    return Surroundings(
        driver=driver,
        cupti=cupti,
        params=_text(root / "proc/driver/nvidia/params"),
        status=_text(root / "proc/self/status"),
        maps=_text(root / "proc/self/maps"),
        cgroup=_text(root / "proc/self/cgroup"),
        environment=dict(environment),
        processes=tuple(sorted({name for name in map(_text, _processes(root)) if name})),
        files=frozenset(name for name in LOOKED_FOR if (root / name).exists()),
        mig=True if instances else None,
    )


def _processes(root: Path) -> list[Path]:
    try:
        return [folder / "comm" for folder in (root / "proc").iterdir() if folder.name.isdigit()][:MOST_PROCESSES]
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _line(text: str, name: str) -> str:
    """The value of `Name: value` in a file of lines; "" where it isn't there."""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
