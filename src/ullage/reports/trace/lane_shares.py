"""What each process and each device of a run spent its time on, as shares that add up: one answer for text, page and JSON."""

from __future__ import annotations

from ullage.recording import Mode
from ullage.sums.lanes.run import DevicePart, HostPart


def host_shares(part: HostPart, elapsed: int) -> dict[str, float]:
    """Return a process' times as shares of the run's elapsed time, on each of its threads, so that they are over processes what the
    efficiencies are; what they lack of 1 is time in which the process was not looked at. Empty where nothing lasts.

    >>> host_shares(HostPart(None, 50, 30, 20, 0), 100)
    {'useful': 0.3, 'offload': 0.2, 'communication': 0.0, 'parallel': 0.0, 'recorder': 0.0}
    """
    whole = part.threads * elapsed
    times = {name: getattr(part, name) for name in ("useful", "offload", "communication", "parallel", "recorder")}
    times |= {"off": part.off} if part.process is not None and part.process.off_known else {}
    return {name: ns / whole for name, ns in times.items()} if whole else {}


def device_times(part: DevicePart, mode: Mode) -> dict[str, int]:
    """Return a device's times in ns, which add up to the run's elapsed time; in `talp` mode a collective counts as a kernel."""
    kernel, collective = (part.kernel + part.collective, 0) if mode == "talp" else (part.kernel, part.collective)
    return {"kernel": kernel, "collective": collective, "memory": part.memory, "idle": part.idle}


def device_shares(part: DevicePart, elapsed: int, mode: Mode) -> dict[str, float]:
    """Return a device's times as shares of the run's elapsed time, and the part of its idle time that may have been work (`unknown`)."""
    times = device_times(part, mode) | {"unknown": part.unknown}
    return {name: ns / elapsed for name, ns in times.items()} if elapsed else {}
