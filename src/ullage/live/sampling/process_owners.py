"""Whose work runs on a GPU: from the processes that compute on it to a job of Slurm, PBS, LSF or Kubernetes, and a user.

A job id is in the name of the process's control group (`…/job_4711/…` under Slurm), which everybody may read, or in its
environment, which only its owner and root may.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from ullage.job_names import escaped_name, joined_names
from ullage.sources.machine import Device
from ullage.tables import SAMPLES

LONGEST = 200  # characters of a name that is kept
MOST = 1 << 20  # bytes of an environment that are read
KEPT = 10_000  # processes that are remembered
_GROUP = re.compile(r"/(?:slurmstepd\.scope|slurm[^/\n]*|uid_\d+)/(?:[^/\n]+/)*?job_(\d+)(?:[/\n]|$)")
_JOBS = ("SLURM_JOB_ID", "SLURM_JOBID", "PBS_JOBID", "LSB_JOBID")
_POD = ("POD_NAMESPACE", "POD_NAME")

JobAndUser = tuple[str | None, str | None]  # job, user


@dataclass
class ProcessOwners:
    """The jobs and users of processes, each looked up once: a number that lives on is the same process."""

    proc: Path = Path("/proc")
    known_owners: dict[tuple[int, int], JobAndUser] = field(default_factory=dict)

    def samples_with_owners(self, batch: pa.RecordBatch, processes: Mapping[Device, list[int]]) -> pa.RecordBatch:
        """Return the samples with `job` and `user`; several on one device are joined by `job_names.joined_names`."""
        devices = zip(batch["gpu"].to_pylist(), batch["mig"].to_pylist(), strict=True)
        owners = [self._joined_owners(processes.get(device, [])) for device in devices]
        columns = {name: batch[name] for name in SAMPLES.names}
        for place, name in enumerate(("job", "user")):
            columns[name] = pa.array([who[place] for who in owners], pa.string()).dictionary_encode()
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=SAMPLES)

    def _joined_owners(self, processes: list[int]) -> JobAndUser:
        found = [self.job_and_user(pid) for pid in processes]
        job, user = (joined_names(escaped_name(name) for who in found if (name := who[place])) or None for place in (0, 1))
        return job, user

    def job_and_user(self, pid: int) -> JobAndUser:
        """Return the job and the user of a process, None for what can't be found out."""
        folder = self.proc / str(pid)
        try:
            state = folder.stat()
        except OSError:  # of another process space, or gone
            return None, None
        key = (pid, state.st_ctime_ns)
        if key not in self.known_owners:
            if len(self.known_owners) >= KEPT:
                self.known_owners.clear()
            environment = _environment(folder)
            self.known_owners[key] = (_job(folder, environment), environment.get("SLURM_JOB_USER") or _name(state.st_uid))
        return self.known_owners[key]


def _job(folder: Path, environment: Mapping[str, str]) -> str | None:
    try:
        group = _GROUP.search((folder / "cgroup").read_text(errors="replace"))
    except OSError:
        group = None
    if group:
        return group[1]
    job = next((environment[name] for name in _JOBS if environment.get(name)), None)
    pod = [environment[name] for name in _POD if environment.get(name)]
    return job or ("/".join(pod) if len(pod) == len(_POD) else None)


def _environment(folder: Path) -> dict[str, str]:
    """Return the few words of a process's environment that name a job, none where it may not be read."""
    try:
        with (folder / "environ").open("rb") as file:
            told = file.read(MOST).split(b"\0")
    except OSError:
        return {}
    pairs = (line.decode(errors="replace").partition("=") for line in told)
    return {name: value[:LONGEST] for name, _, value in pairs if name in (*_JOBS, *_POD, "SLURM_JOB_USER")}


def _name(uid: int) -> str | None:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
