"""`ullage run` as its users call it, in a process of its own: what came of the program, of the report, and of the files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cupti import cupti_double
from tests.recorder.recorder_runs import library

ULLAGE = (sys.executable, "-m", "ullage")


@dataclass(frozen=True)
class Ran:
    """How `ullage run` ended: its exit code, both streams (bytes), and the folder for temporary files."""

    code: int
    out: bytes
    said: str
    temporary: Path

    @property
    def notes(self) -> list[str]:
        """Return the notes below the report."""
        return [line.removeprefix("note: ") for line in self.said.splitlines() if line.startswith("note: ")]

    @property
    def left(self) -> list[str]:
        """Return the folders of runs that were not removed."""
        return [path.name for path in self.temporary.glob("ullage-run-*")]


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return an environment with the doubles of the driver and of libcupti, the recorder built, and a folder for temporary files."""
    (folder / "tmp").mkdir(exist_ok=True)
    given = cupti_double.environment(ULLAGE_RECORDER=str(library()), TMPDIR=str(folder / "tmp"), NO_COLOR="1")
    ranks = ("OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_")
    return {name: value for name, value in given.items() if not name.startswith(ranks)} | more


def run(folder: Path, *options: object, command: Any = None, given: dict[str, str] | None = None, **more: Any) -> Ran:
    """Run a program under `ullage run`; `command` are its words, without any the fake CUDA program alone. Counters are not sampled."""
    words = [cupti_double.program()] if command is None else command
    full = [*ULLAGE, "run", "--no-counters", *map(str, options), "--", *map(str, words)]
    given = environment(folder) if given is None else given
    done = subprocess.run(full, env=given, capture_output=True, timeout=300, cwd=folder, **more)
    return Ran(done.returncode, done.stdout, done.stderr.decode(), folder / "tmp")


def record(folder: Path, *options: object, command: Any = None, **more: Any) -> tuple[Ran, dict[str, Any]]:
    """Run a program, and return the report as JSON too."""
    ran = run(folder, "--json", folder / "run.json", *options, command=command, **more)
    return ran, json.loads((folder / "run.json").read_text())


def mpirun(ranks: int) -> list[str]:
    """Return how Open MPI starts so many ranks; skips where it isn't installed."""
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun")
    root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    return ["mpirun", *root, "--oversubscribe", "-n", str(ranks)]
