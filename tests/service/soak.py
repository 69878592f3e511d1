"""A day of the service in a few minutes: whether its memory stays flat and nothing is lost, and what a day costs.

    python -m tests.service.soak [--gpus 100] [--hours 24] [--speed 300] [--filled 24]

`ullage serve` runs in a process of its own whose clock runs fast, and so does that of the database that it follows, each minute of its own
time. Pages are asked for all the while. In the end every sample of the database lies in the store once, and the counters and an answer
are those of a loop over the seconds. Memory is a line through the means of equal parts of the time, of which the first quarter is left
out; its slope comes with two standard errors.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.fleet.servers import scripted
from tests.service.killed_service import STEP_MS, T0, FastClock, RunningPrometheus, check_store, compare, page_of, serving
from ullage.units import HOUR_MS

PAGES = ("/", "/users", "/map", "/causes", "/metrics", "/api/v1/fleet?by=job&since=24h", "/job/job-0-0", "/watch")
PARTS = 16  # of the time, over which memory is a mean
MOST_COMPARED = 200  # GPUs whose seconds are added up in a loop: more take too long
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class MemoryLine:
    """A line through the memory of a process: MB at its end, MB an hour, two standard errors of that."""

    level: float
    slope: float
    error: float

    @property
    def flat(self) -> bool:
        """Whether it may be flat: within its error, or rising by less than 1 % of its level in a day."""
        return self.slope - self.error <= self.level * 0.01 / 24


@dataclass(frozen=True)
class SoakedDay:
    """What a service took: hours of data, processor seconds, memory (MB), bytes of its store, samples, pages, pulls."""

    gpus: int
    hours: float
    cpu_s: float
    memory: MemoryLine
    peak_mb: float
    store_bytes: int
    samples: int
    pages: int
    pulls: int

    def row(self) -> str:
        """Return a line of the table of costs."""
        memory, disk = self.memory, self.store_bytes * 24 / self.hours / 1e6
        return (
            f"| {self.gpus:,} | {self.hours:.0f} | {self.pulls:,} | {self.cpu_s:,.0f} s | {self.peak_mb:,.0f} MB | {memory.level:,.0f} MB "
            f"| {memory.slope:+.2f} ± {memory.error:.2f} MB | {disk:,.1f} MB |"
        )


def memory_line(hours: Sequence[float], megabytes: Sequence[float], parts: int = PARTS) -> MemoryLine:
    """Return the line through the means of equal parts of the time, without the first quarter.

    Means, for what a process takes from one moment to the next is no new measurement.
    """
    pairs = np.array([*zip(hours, megabytes, strict=True)])
    kept = pairs[pairs[:, 0] >= pairs[0, 0] + (pairs[-1, 0] - pairs[0, 0]) / 4]
    means = np.array([part.mean(axis=0) for part in np.array_split(kept, parts)])
    x, y = means[:, 0] - means[:, 0].mean(), means[:, 1]
    slope = float((x * y).sum() / (x * x).sum())
    rest = y - y.mean() - slope * x
    error = float(np.sqrt((rest * rest).sum() / (parts - 2) / (x * x).sum()))
    return MemoryLine(float(y.mean() + slope * x[-1]), slope, 2 * error)


def soak(folder: Path, gpus: int, hours: float, speed: float, filled: float = 24.0, say: Callable[[str], object] = print) -> SoakedDay:
    """Let a service live for some hours of its time, and compare what it has in the end with what there was.

    The database is `filled` with so many hours when the service begins: pages are of the last day, and grow until there is one.
    """
    clock = FastClock(time.time(), (T0 + filled * HOUR_MS) / 1000, speed)
    database = RunningPrometheus(T0, T0, gpus, STEP_MS, clock=clock.now_ms)
    seen, asked, until = list[tuple[float, float]](), 0, T0 + HOUR_MS * (filled + hours)
    with scripted(database.answer) as url:
        with serving(folder, url, clock, f"{60 / speed:.3f}s") as (process, said):
            port = int(said[0]["at"].rpartition(":")[2])
            while clock.now_ms() < until:
                assert process.poll() is None, said[-3:]
                page_of(port, PAGES[asked % len(PAGES)])
                asked += 1
                seen.append(((clock.now_ms() - T0) / HOUR_MS, _memory(process.pid)))
                time.sleep(0.25)
            pulls = sum(line["event"] == "pull" for line in said)
            cpu, peak = _processor(process.pid), max(megabytes for _, megabytes in seen)
            wrong = [line for line in said if line["event"] in ("failure", "traceback", "not counted")]
            assert not wrong, wrong[:3]
        standing = clock.standing()
        database.clock = standing.now_ms
        with serving(folder, url, standing) as (_, said):
            port = int(said[0]["at"].rpartition(":")[2])
            if gpus <= MOST_COMPARED:
                compare(folder, port, standing.now_ms(), say, gpus)
    samples = check_store(folder / "store", gpus)
    size = sum(file.stat().st_size for file in (folder / "store").rglob("*") if file.is_file())
    passed = (standing.now_ms() - T0) / HOUR_MS
    return SoakedDay(gpus, passed, cpu, memory_line(*zip(*seen, strict=True)), peak, size, samples, asked, pulls)


def _memory(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _processor(process: int) -> float:
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS


def main() -> None:
    """Soak, and print a row of the table of costs."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--gpus", type=int, default=100)
    options.add_argument("--hours", type=float, default=24.0)
    options.add_argument("--speed", type=float, default=300.0)
    options.add_argument("--filled", type=float, default=24.0)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = soak(Path(folder), asked.gpus, asked.hours, asked.speed, asked.filled)
    print(f"{found.samples:,} samples, {found.pages:,} pages; memory {found.memory}, {'flat' if found.memory.flat else 'NOT FLAT'}")
    print("| GPUs | hours of data | pulls | processor in all | memory, most | memory, end | memory an hour | disk a day |")
    print(found.row())


if __name__ == "__main__":
    main()
