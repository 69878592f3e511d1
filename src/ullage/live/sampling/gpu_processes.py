"""The processes that work on a GPU, as somebody at this machine sees them: whose, since when, how much of the host they use."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from ullage.command_lines import public_command
from ullage.live.sampling.process_owners import ProcessOwners
from ullage.sources.machine import Device, DeviceProcess

DEEPEST = 32  # ancestors of a process that are followed
LONGEST_COMMAND = 400  # characters of a command line that are kept
MOST_READ = 4096  # bytes of a command line that are read


@dataclass(frozen=True)
class GpuProcess:
    """A process on a device; what can't be found out is None. Times in s, memory in B, `cpu` in CPUs' worth since the look before.

    `command` has nothing secret (`command_lines.public_command`). `parents` are the commands and numbers of its ancestors, the nearest
    first, without the first process of the machine.
    """

    device: Device
    pid: int
    kind: str = ""
    gpu_memory: float | None = None
    sm_share: float | None = None
    user: str | None = None
    job: str | None = None
    command: str | None = None
    cpu: float | None = None
    host_memory: float | None = None
    running: float | None = None
    parents: tuple[tuple[int, str], ...] = ()


@lru_cache(maxsize=4096)  # it is the same at every look
def _shown_command(data: bytes) -> str:
    """Return a command line as /proc has it, its words ended by zeros, as it may be shown."""
    return public_command(data.rstrip(b"\0").decode(errors="replace").split("\0"))[:LONGEST_COMMAND]


@dataclass
class ProcessFacts:
    """What /proc says of processes; CPU time is compared with that of the look before."""

    proc: Path = Path("/proc")
    owners: ProcessOwners | None = None
    ticks: float = float(os.sysconf("SC_CLK_TCK"))
    page: int = os.sysconf("SC_PAGE_SIZE")
    _before: dict[int, tuple[float, float]] = field(default_factory=dict)

    def gpu_processes(self, devices: Mapping[Device, Iterable[DeviceProcess]], now: float) -> list[GpuProcess]:
        """Return the processes of each device at a time `now` (s, of a clock that only goes forward)."""
        self.owners = self.owners or ProcessOwners(self.proc)
        seen = dict[int, tuple[float, float]]()
        found = [self._described(device, one, now, seen) for device, processes in devices.items() for one in processes]
        self._before = seen
        return found

    def _described(self, device: Device, one: DeviceProcess, now: float, seen: dict[int, tuple[float, float]]) -> GpuProcess:
        """Return what is known of a process, and note in `seen` its CPU time (s) and when that was."""
        assert self.owners is not None
        stat, (job, user) = self._stat(one.pid), self.owners.job_and_user(one.pid)
        cpu = memory = running = None
        if stat is not None:
            used, uptime = (float(stat[11]) + float(stat[12])) / self.ticks, self._uptime()
            since, before = self._before.get(one.pid, (now, used))
            seen[one.pid] = (now, used)
            cpu = max(0.0, used - before) / (now - since) if now > since else None
            memory = float(stat[21]) * self.page
            running = None if uptime is None else uptime - float(stat[19]) / self.ticks
        command, parents = self._command(one.pid), self._parents(stat)
        return GpuProcess(device, one.pid, one.kind, one.memory, one.sm_share, user, job, command, cpu, memory, running, parents)

    def _stat(self, pid: int) -> list[str] | None:
        """Return the fields of a process from its state on, None for one that is not here."""
        try:
            words = (self.proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        return words if len(words) > 21 else None

    def _uptime(self) -> float | None:
        try:
            return float((self.proc / "uptime").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None

    def _command(self, pid: int) -> str | None:
        try:
            with (self.proc / str(pid) / "cmdline").open("rb") as file:
                shown = _shown_command(file.read(MOST_READ))
            return shown or f"[{(self.proc / str(pid) / 'comm').read_text(errors='replace').strip()}]"
        except OSError:
            return None

    def _parents(self, stat: list[str] | None) -> tuple[tuple[int, str], ...]:
        found: list[tuple[int, str]] = []
        while stat is not None and len(found) < DEEPEST and (parent := int(stat[1])) > 1:
            found.append((parent, self._command(parent) or "?"))
            stat = self._stat(parent)
        return tuple(found)
