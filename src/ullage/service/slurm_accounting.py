"""Job records asked of Slurm's accounting: `sacct` is run from time to time, for what changed since it last answered."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.sources.jobs.job import read_jobs

COMMAND = "sacct"
FIELDS = "JobID,JobIDRaw,User,Cluster,JobName,NodeList,AllocTRES,Submit,Eligible,Start,End,State,AdminComment"
LIMIT_S = 60.0  # s that it may take
AGAIN_S = 300.0  # s between two times that it is asked
BEFORE_S = 3600.0  # s before its last answer from which on it is asked again: records come late, and ends change


@dataclass
class SlurmAccounting:
    """Asks `sacct` for the jobs that ran since it last answered, at first for those of the last `first_s` seconds.

    `now` is the time of day (s), `passed` a clock that only runs forward.
    """

    first_s: float
    now: Callable[[], float]
    passed: Callable[[], float]
    answered: float | None = None  # by `now`
    _asked: float | None = field(default=None, repr=False)  # by `passed`

    def records(self, problems: Problems) -> pa.Table | None:
        """Return the job records (`JOBS`), None where it is too soon to ask. Raises UllageError where sacct can't be asked."""
        if self._asked is not None and self.passed() - self._asked < AGAIN_S:
            return None
        self._asked, now = self.passed(), self.now()
        since = now - self.first_s if self.answered is None else min(self.answered, now) - BEFORE_S
        text = _output(since)
        with tempfile.TemporaryDirectory(prefix="ullage-sacct-") as folder:
            file = Path(folder) / COMMAND
            file.write_text(text, encoding="utf-8")
            found = read_jobs(str(file), problems, ZoneInfo("UTC"))
        self.answered = now
        return found


def _output(since: float) -> str:
    start = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    words = [COMMAND, "--allusers", "--allocations", "--duplicates", "--parsable2", f"--starttime={start}", f"--format={FIELDS}"]
    try:
        done = subprocess.run(
            words, capture_output=True, timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL, env={**os.environ, "TZ": "UTC"}
        )
    except subprocess.TimeoutExpired:
        raise UllageError(f"sacct had not answered after {LIMIT_S:g} s", "is Slurm's accounting database at work?") from None
    except OSError as error:
        raise UllageError(f"sacct can't be run: {error.strerror or error}", "put it on the PATH of the service") from None
    if done.returncode:
        said = harmless(done.stderr.decode("utf-8", "replace").strip(), 200)
        raise UllageError(f"sacct ended with {done.returncode}: {said}", "may the service's user ask for all jobs?")
    return done.stdout.decode("utf-8", "replace")
