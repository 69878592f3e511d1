"""Which rank of which job a process is: what MPI launchers, Slurm and torchrun put into the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32


class Launcher(NamedTuple):
    """The variables by which a launcher tells a rank, of how many, its number on this host, of how many here, and what names this launch
    of it: words that all ranks have in common, on all hosts."""

    rank: str
    ranks: str
    local: str
    here: str
    words: tuple[str, ...]


# The first of which a rank is there counts. A batch script of Slurm has a rank too, but is no step and has no tasks of one. MVAPICH's
# PMI_ID is no word: it is the rank. settings.c has the first three columns.
LAUNCHERS = (
    Launcher(
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    Launcher(
        "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE", ("PMI_JOBID",),
    ),
    Launcher("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ("PMI_JOBID", "PMI_KVS", "HYDRA_JOBID", "PALS_APID")),
    Launcher("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", "", ("FLUX_JOB_ID",)),
    Launcher(
        "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
        ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"),
    ),
    Launcher("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", ()),
)  # fmt: skip
# What is said without naming a launch: torchrun's "none" is what it calls each run that was given no name, and each is its first attempt.
_SAYS_NOTHING = {("TORCHELASTIC_RUN_ID", "none"), ("TORCHELASTIC_RESTART_COUNT", "0"), ("SLURM_RESTART_COUNT", "0")}
_ALONE_TELLS_NOTHING = {"MASTER_ADDR", "TORCHELASTIC_RESTART_COUNT"}
MOST_RANKS = 1 << 20
LONGEST = 80  # letters of a job's name


@dataclass(frozen=True)
class RankPlace:
    """A process' place in its job: `rank` of `ranks`, `local` its number on this host, `here` how many are on this host (None: not told),
    `job` a word that all ranks have in common. `unique`: it names this launch, and not all that a batch job starts."""

    rank: int = 0
    ranks: int = 1
    local: int = 0
    job: str = ""
    here: int | None = None
    unique: bool = False


def place(environment: Mapping[str, str]) -> RankPlace | None:
    """Return a process' place by its environment, None where no launcher says that it is one of several.

    >>> place({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "PMIX_NAMESPACE": "prte-1@1"})
    RankPlace(rank=3, ranks=4, local=1, job='prte-1-1', here=None, unique=True)
    >>> place({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}), place({"RANK": "x", "WORLD_SIZE": "2"})
    (None, None)
    """
    for launcher in LAUNCHERS:
        number, count = _number(environment.get(launcher.rank)), _number(environment.get(launcher.ranks))
        if number is not None and count is not None and 1 < count <= MOST_RANKS and number < count:
            local, here = _number(environment.get(launcher.local)) or 0, _number(environment.get(launcher.here))
            job, unique = _job(environment, launcher.words, count)
            return RankPlace(number, count, local, job, here if here and here <= count else None, unique)
    return None


def _job(environment: Mapping[str, str], names: tuple[str, ...], count: int) -> tuple[str, bool]:
    """Return what names the job, as a part of a file's name, and whether it names this launch of so many ranks.

    Slurm's step does where Slurm itself started the ranks: it has as many tasks. Elsewhere it started whatever starts them, host by host.
    """
    said = _said(environment, names)
    step = _said(environment, ("SLURM_STEP_ID",)) if _number(environment.get("SLURM_STEP_NUM_TASKS")) == count else {}
    wide = _said(environment, ("SLURM_JOB_ID", "SLURM_RESTART_COUNT"))
    unique = bool(said.keys() - _ALONE_TELLS_NOTHING) or (bool(step) and "SLURM_JOB_ID" in wide)
    return _as_name("-".join([*wide.values(), *step.values(), *said.values()])), unique


def _said(environment: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: environment[name] for name in names if environment.get(name) and (name, environment[name]) not in _SAYS_NOTHING}


def _as_name(text: str) -> str:
    """Return a text as a part of a file's name; a long one is cut, and stays apart from others that begin alike.

    >>> _as_name("prte-1@1"), len(_as_name("a" * 500))
    ('prte-1-1', 80)
    """
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 9]}-{crc32(plain.encode()):08x}"


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None
