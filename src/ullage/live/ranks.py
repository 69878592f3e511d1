"""Which rank of which job a process is: what MPI launchers, Slurm and torchrun put into the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class _Launcher(NamedTuple):
    """The variables by which a launcher tells a rank, of how many, its number on this host, of how many here, and what names the job."""

    rank: str
    ranks: str
    local: str
    here: str
    jobs: tuple[str, ...]


# The first of which a rank is there counts. A batch script of Slurm has a rank too, but is no step and has no tasks of one.
_LAUNCHERS = (
    _Launcher(
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    _Launcher(
        "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE", ("PMI_ID", "SLURM_JOB_ID"),
    ),
    _Launcher("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ("PMI_KVS", "HYDRA_JOBID", "SLURM_JOB_ID")),
    _Launcher("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", "", ("FLUX_JOB_ID",)),
    _Launcher("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_PORT")),
    _Launcher("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", ("SLURM_JOB_ID",)),
)  # fmt: skip
MOST_RANKS = 1 << 20


@dataclass(frozen=True)
class Place:
    """A process' place in its job: `rank` of `ranks`, `local` its number on this host, `here` how many are on this host (None: not told),
    `job` a word that all ranks have in common."""

    rank: int = 0
    ranks: int = 1
    local: int = 0
    job: str = ""
    here: int | None = None


def place(environment: Mapping[str, str]) -> Place | None:
    """Return a process' place by its environment, None where no launcher says that it is one of several.

    >>> place({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "PMIX_NAMESPACE": "prte-1@1"})
    Place(rank=3, ranks=4, local=1, job='prte-1-1', here=None)
    >>> place({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}), place({"RANK": "x", "WORLD_SIZE": "2"})
    (None, None)
    """
    for launcher in _LAUNCHERS:
        number, count = _number(environment.get(launcher.rank)), _number(environment.get(launcher.ranks))
        if number is not None and count is not None and 1 < count <= MOST_RANKS and number < count:
            local, here = _number(environment.get(launcher.local)) or 0, _number(environment.get(launcher.here))
            return Place(number, count, local, _job(environment, launcher.jobs), here if here and here <= count else None)
    return None


def _job(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    """Return what names the job, as a part of a file's name."""
    named = next((environment[name] for name in names if environment.get(name)), "")
    step = environment.get("SLURM_STEP_ID", "") if "SLURM_JOB_ID" in names else ""
    return re.sub(r"[^A-Za-z0-9.]+", "-", f"{named}-{step}" if step else named).strip("-.")[:80]


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None
