"""A service that is killed at random moments while it follows a database, and what it must have counted, second by second.

    python -m tests.service.killed_service [--moments 100] [--seed 0]

`ullage serve` runs in a process of its own whose clock runs `SPEED` times as fast as ours, and so does the clock of the database, whose
readings are known at any time. Killed with SIGKILL, the service leaves a store in which every reading that it says to have read lies once,
as it was; started once more, it comes to the sums that a loop over the seconds comes to.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from tests.fleet.servers import scripted
from tests.service.fake_prometheus import FakePrometheus
from ullage.service.watermarks import read_watermarks
from ullage.store.manifest import NAME, StoreFolder
from ullage.store.parts import read_part
from ullage.store.rollups import place_of
from ullage.store.store import Store
from ullage.tables import SETTLED
from ullage.units import HOUR_MS

OUR_TIME = time.time  # a process that lives by another clock replaces the name
T0 = 1_786_320_000_000  # 2026-08-10T00:00:00Z
STEP_MS = 30_000
SPEED = 300  # an hour in twelve seconds
GPUS = 6
JOB_STEPS = 400  # steps after which a GPU's job ends and the next begins
TENSOR_CLOCK = 1.83e9  # Hz; the H100 SXM's
LONGEST_S = 4.0  # s that a service lives before it is killed
FAST_CLOCK = """
import sys, time
began, at, speed = (float(word) for word in sys.argv[1:4])
real = time.time
time.time = lambda: at + (real() - began) * speed
time.time_ns = lambda: round(time.time() * 1e9)
"""
SERVE = FAST_CLOCK + (
    "from ullage.service import follow, server\n"
    "follow.MANY_PARTS, follow.STRIDE_MS, server.LOOK = 12, 7_200_000, 0.2\n"  # often, so that kills meet them
    "sys.argv[1:4] = []\n"
    "from ullage.__main__ import main\n"
    "main()\n"
)


# --- what the database holds, and what that comes to ---


def tensor_active(gpu: int, step: int) -> float:
    """What a GPU's tensor pipe did up to a step's end."""
    return 0.1 + 0.8 * ((step * 37 + gpu * 101) % 89) / 89


def sm_clock_mhz(gpu: int, step: int) -> int:
    """The SM clock of a GPU at a step's end."""
    return 1830 - 15 * ((step // 7 + gpu) % 23)


def job_of(gpu: int, step: int) -> str:
    """The job that a GPU works on: two GPUs share each."""
    return f"job-{gpu // 2}-{(step - 1) // JOB_STEPS}"


@dataclass
class RunningPrometheus(FakePrometheus):
    """A Prometheus whose readings go on by a clock (ms)."""

    clock: Callable[[], int] = field(default=lambda: T0)

    def answer(self, handler: Any) -> None:
        """Answer a request with what there is now."""
        self.now_ms = self.clock()
        super().answer(handler)

    def _matrix(self, metric: str, start: int, end: int) -> dict[str, Any]:
        first = max(start, self.start_ms) // STEP_MS + 1
        found: dict[tuple[int, str], list[list[Any]]] = {}
        for step in range(first, min(end, self.now_ms) // STEP_MS + 1):
            for gpu in range(self.gpus):
                value = self._reading(metric, gpu, step - T0 // STEP_MS)
                found.setdefault((gpu, job_of(gpu, step - T0 // STEP_MS)), []).append([step * STEP_MS / 1000, repr(value)])
        result = [{"metric": self._labels(gpu, metric) | {"hpc_job": job}, "values": values} for (gpu, job), values in found.items()]
        return {"resultType": "matrix", "result": result}

    @staticmethod
    def _reading(metric: str, gpu: int, step: int) -> float:
        if metric == "DCGM_FI_DEV_SM_CLOCK":
            return sm_clock_mhz(gpu, step)
        return tensor_active(gpu, step) if "TENSOR" in metric else 0.95


@dataclass
class SecondsOfTruth:
    """GPU-seconds and those at the peak by job, added up second by second."""

    seconds: Counter[str] = field(default_factory=Counter)
    at_peak: Counter[str] = field(default_factory=Counter)


def second_by_second(gpus: int, since: int, until: int) -> SecondsOfTruth:
    """Return what GPUs did in a window (ms): each second belongs to the reading that comes at its end or after it."""
    truth = SecondsOfTruth()
    for second in range((since - T0) // 1000, (until - T0) // 1000):
        step = second * 1000 // STEP_MS + 1
        for gpu in range(gpus):
            job = job_of(gpu, step)
            truth.seconds[job] += 1
            truth.at_peak[job] += tensor_active(gpu, step) * sm_clock_mhz(gpu, step) * 1e6 / TENSOR_CLOCK
    return truth


def check_store(folder: Path, gpus: int) -> int:
    """Return how many samples lie in a store; fails where one is not as it was, lies there twice, or is missing though it was read."""
    store = Store.open(folder)
    store.verify()
    place = StoreFolder(folder)
    rows = pa.concat_tables([SETTLED.empty_table(), *(read_part(place, part) for part in store.manifest().parts)])
    times = rows["time"].cast("int64").to_numpy()
    assert (times % STEP_MS == 0).all()
    steps = ((times - T0) // STEP_MS).tolist()
    names = rows["gpu"].cast("string").to_pylist()
    pairs = [(int(name.removeprefix("GPU-")), step) for name, step in zip(names, steps, strict=True)]
    assert np.array_equal(rows["tensor_active"].to_numpy(), np.array([tensor_active(*pair) for pair in pairs], np.float32))
    assert np.allclose(rows["sm_clock"].to_numpy(), np.array([sm_clock_mhz(*pair) for pair in pairs]) * 1e6)
    assert rows["job"].cast("string").to_pylist() == [job_of(*pair) for pair in pairs]
    keys = set(pairs)
    assert len(keys) == len(names), "a sample lies there twice"
    for mark in read_watermarks(folder).values():
        known = {(gpu, step) for gpu in range(gpus) for step in range(1, (mark.read_until - T0) // STEP_MS + 1)}
        assert known <= keys, "a sample that was read is missing"
    return len(keys)


def left_behind(folder: Path) -> list[str]:
    """Return in the middle of what a service was killed, as its store shows it."""
    if not (folder / NAME).exists():
        return ["before there was a store"]
    parts = Store.open(folder).manifest()
    files = {str(path.relative_to(folder)) for path in (folder / "samples").rglob("*.parquet")}
    known = {part.file for part in parts.parts} | {dead.file for dead in parts.dead}
    rolled = [all((folder / place_of(part, name)).exists() for name in ("states", "gauges", "course")) for part in parts.parts]
    marks = read_watermarks(folder)
    last = max((part.last for part in parts.parts), default=0)
    found = {
        "a file half written": any(folder.rglob(".*.tmp")),
        "a part written and not committed": bool(files - known),
        "a part without its roll-up": not all(rolled),
        "samples stored, and not how far was read": bool(parts.parts) and last > max((m.read_until for m in marks.values()), default=0),
        "parts replaced": bool(parts.dead),
    }
    return [name for name, is_so in found.items() if is_so] or ["at rest"]


# --- processes to kill ---


@dataclass(frozen=True)
class FastClock:
    """A clock that ran `at` (s) when ours said `began`, and runs `speed` times as fast; 0: it stands."""

    began: float
    at: float
    speed: float = SPEED

    def now_ms(self) -> int:
        """The time, in ms."""
        return round((self.at + (OUR_TIME() - self.began) * self.speed) * 1000)

    def standing(self) -> FastClock:
        """Return the clock as it stands now."""
        return FastClock(self.began, self.now_ms() / 1000, 0.0)


@contextmanager
def serving(folder: Path, url: str, clock: FastClock, every: str = "0.1s") -> Iterator[tuple[subprocess.Popen[str], list[dict[str, Any]]]]:
    """Run `ullage serve` by a clock; give its process and the lines that it logs. It is killed in the end."""
    settings = folder / "ullage.toml"
    settings.write_text(f'source = "{url}"\nstore = "{folder / "store"}"\nevery = "{every}"\nfirst = "72h"\nport = 0\nlog = "json"\n')
    words = [sys.executable, "-c", SERVE, f"{clock.began!r}", f"{clock.at!r}", f"{clock.speed!r}", "serve", "--config", str(settings)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={**os.environ, "XDG_DATA_HOME": str(folder / "home")})
    assert process.stderr is not None
    said: list[dict[str, Any]] = []
    began = threading.Event()
    listener = threading.Thread(target=_listen, args=(process.stderr, said, began), daemon=True)
    listener.start()
    try:
        began.wait(60)
        yield process, said
    finally:
        process.kill()
        process.wait(60)
        listener.join(60)
        process.stderr.close()


def _listen(lines: IO[str], said: list[dict[str, Any]], began: threading.Event) -> None:
    for line in lines:
        said.append(json.loads(line) if line.startswith("{") else {"event": "traceback", "line": line})
        began.set()
    began.set()


def follow(folder: str, url: str, began: float, at: float) -> None:
    """Follow a database until this process is killed: intake, compaction and roll-up, and no pages."""
    clock = FastClock(began, at)
    time.time, time.time_ns = (lambda: clock.now_ms() / 1000), (lambda: clock.now_ms() * 1_000_000)
    from ullage.service import follow as following
    from ullage.service.logs import ServiceLog

    following.MANY_PARTS = 3
    plan = following.FollowPlan((url,), Path(folder), first_ms=24 * HOUR_MS)
    follower = following.Follower(plan, ServiceLog(stream=io.StringIO()), lambda _: None, clock=lambda: clock.now_ms() / 1000)
    while True:
        follower.turn()


def killed_followers(folder: Path, moments: int, rng: random.Random, longest_s: float = 1.0) -> Counter[str]:
    """Kill what follows a database into the folder's store at random moments; returns in the middle of what it was."""
    children = multiprocessing.get_context("forkserver")
    children.set_forkserver_preload(["ullage.service.follow", "ullage.store.store", "pyarrow.parquet", "pyarrow.compute", "duckdb"])
    clock, met = FastClock(time.time(), (T0 + 2 * HOUR_MS) / 1000), Counter[str]()
    with _database(clock) as url:
        for _ in range(moments):
            child = children.Process(target=follow, args=(str(folder / "store"), url, clock.began, clock.at))
            child.start()
            child.join(rng.uniform(0.1, longest_s))
            assert child.exitcode is None, "it ended by itself"
            child.kill()
            child.join()
            met.update(left_behind(folder / "store"))
            if (folder / "store" / NAME).exists():
                check_store(folder / "store", GPUS)
    return met


@contextmanager
def _database(clock: FastClock) -> Iterator[str]:
    with scripted(RunningPrometheus(T0, T0, GPUS, STEP_MS, clock=clock.now_ms).answer) as url:
        yield url


def killed_services(folder: Path, moments: int, rng: random.Random, say: Callable[[str], object] = print) -> Counter[str]:
    """Kill `ullage serve` at random moments, let it catch up, and compare its answer and its counters with the seconds."""
    clock, met = FastClock(time.time(), (T0 + 2 * HOUR_MS) / 1000), Counter[str]()
    database = RunningPrometheus(T0, T0, GPUS, STEP_MS, clock=clock.now_ms)
    with scripted(database.answer) as url:
        for moment in range(moments):
            with serving(folder, url, clock) as (process, said):
                lives = rng.uniform(0, LONGEST_S)
                try:
                    process.wait(lives)
                    raise AssertionError(f"it ended by itself: {said}")
                except subprocess.TimeoutExpired:
                    os.kill(process.pid, signal.SIGKILL)
            met.update(left_behind(folder / "store"))
            met.update(f"log: {line['event']}" for line in said if line["event"] not in ("pull", "request", "serving"))
            rows = check_store(folder / "store", GPUS) if (folder / "store" / NAME).exists() else 0
            say(f"{moment + 1}: killed after {lives:.1f} s; {rows:,} samples are there")
        standing = clock.standing()
        database.clock = standing.now_ms
        with serving(folder, url, standing) as (process, said):
            compare(folder, int(said[0]["at"].rpartition(":")[2]), standing.now_ms(), say)
    return met


def compare(folder: Path, port: int, now: int, say: Callable[[str], object], gpus: int = GPUS) -> None:
    """Compare what a service answers once it has caught up with the sums of the seconds."""
    last = now // STEP_MS * STEP_MS
    counted_until = (last - 600_000) // HOUR_MS * HOUR_MS
    _until(lambda: json.loads(page_of(port, "/readyz"))["samples_until"] == _iso(last))
    _until(lambda: f"ullage_counted_until_timestamp_seconds {counted_until / 1000}" in page_of(port, "/metrics"))
    check_store(folder / "store", gpus)
    assert Store.open(folder / "store").info().rows == gpus * (last - T0) // STEP_MS
    since = T0 + HOUR_MS
    answer = json.loads(page_of(port, f"/api/v1/fleet?by=job&since={_iso(since)}&until={_iso(last)}"))
    truth = second_by_second(gpus, since, last)
    found = {row["key"]: (row["gpu_hours"] * 3600, row["ofu"]) for row in answer["groups"]}
    assert found.keys() == truth.seconds.keys()
    for job, (seconds, ofu) in found.items():
        assert abs(seconds - truth.seconds[job]) < 1e-6 * truth.seconds[job], (job, seconds, truth.seconds[job])
        assert abs(ofu - truth.at_peak[job] / truth.seconds[job]) < 1e-6, (job, ofu, truth.at_peak[job] / truth.seconds[job])
    counted = second_by_second(gpus, T0, counted_until)
    lines = dict(line.rsplit(" ", 1) for line in page_of(port, "/metrics").splitlines() if not line.startswith("#"))
    owned = sum(float(value) for name, value in lines.items() if name.startswith("ullage_gpu_seconds_total{"))
    lost = sum(float(value) for name, value in lines.items() if name.startswith("ullage_loss_gpu_seconds_total{"))
    gained = sum(float(value) for name, value in lines.items() if name.startswith("ullage_gain_gpu_seconds_total{"))
    exists, full = sum(counted.seconds.values()), sum(counted.at_peak.values())
    assert abs(owned - exists) < 1e-6 * exists, (owned, exists)
    assert abs(lost - gained - (exists - full)) < 1e-6 * exists, (lost - gained, exists - full)
    say(f"{sum(truth.seconds.values()):,} GPU-seconds of {len(found)} jobs, and {exists:,} counted ones: equal to the seconds")


def _iso(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000))


def page_of(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=120) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode())


def _until(holds: Callable[[], bool], limit_s: float = 900.0) -> None:
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, "it never came to it"
        time.sleep(0.2)


def main() -> None:
    """Kill, compare, and say what was met."""
    import tempfile

    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--moments", type=int, default=100)
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, times in killed_services(Path(folder), asked.moments, random.Random(asked.seed)).most_common():
            print(f"{times:4} × {name}")


if __name__ == "__main__":
    main()
