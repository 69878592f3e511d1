"""A process that is killed, or that the disk refuses, at any moment of a change to the store.

Real child processes kill themselves with SIGKILL at each named point of a commit, one point each. Afterwards the store
is as it was before or as it would be after, never between; doing the same again gives what an undisturbed run gives.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pytest

from ullage.errors import UllageError
from ullage.store.durable import write_whole
from ullage.store.manifest import StoreFolder
from ullage.store.parts import read_part
from ullage.store.store import Store
from ullage.sums.windows import settle
from ullage.tables import JOBS, SETTLED, samples

ROOT = Path(__file__).parents[2]
DAY = 86_400_000
START = 20_000 * DAY
GPUS = ("a", "b")
ROWS = 120  # half of them on the day before, half after midnight

children = multiprocessing.get_context("forkserver")
children.set_forkserver_preload(["ullage.store.store", "pyarrow.parquet", "pyarrow.compute"])


def recording(last: int = ROWS) -> pa.Table:
    """Samples of two GPUs every 30 s across a midnight."""
    time = np.repeat(START + DAY + (np.arange(last // 2) - ROWS // 4) * 30_000, 2)
    reading = np.linspace(0.1, 0.9, last).astype(np.float32)
    return pa.Table.from_batches(
        [samples({"time": time, "gpu": list(GPUS) * (last // 2), "tensor_active": reading, "energy": pa.array(time // 7)})]
    )


def early() -> pa.Table:
    """Two thirds of the recording, so that the rest comes late and between."""
    return recording().filter(pa.array(np.arange(ROWS) % 6 < 4))


def jobs() -> pa.Table:
    return pa.Table.from_pylist([{"job": "1", "user": "ann"}, {"job": "2"}], JOBS)


# A change to a store, by name, so that a child process can be told which.
CHANGES: dict[str, Callable[[Store], object]] = {
    "append": lambda store: store.append(recording(), chunk_rows=70),
    "append late rows": lambda store: store.append(recording()),
    "compact": lambda store: store.compact(grace_ms=0),
    "retain": lambda store: store.retain(1, grace_ms=0),
    "add jobs": lambda store: store.add_jobs(jobs()),
    "create": lambda store: store.append(recording().slice(0, 10)),
}


def prepared(folder: Path, change: str) -> Path:
    """A store in the state in which the change finds it."""
    if change == "create":
        return folder
    store = Store.open(folder, create=True)
    if change == "append late rows":
        store.append(early())
    if change in ("compact", "retain"):
        for day in (0,) if change == "compact" else (0, 3):
            for part in range(3):
                rows = recording().slice(part * 40, 40)
                store.append(
                    rows.set_column(0, "time", pa.array(rows["time"].cast(pa.int64()).to_numpy() + day * DAY).cast(rows["time"].type))
                )
    return folder


def content(folder: Path) -> list[dict[str, Any]]:
    """All rows of a store, read without DuckDB, and its jobs."""
    store = Store.open(folder)
    tables = [read_part(StoreFolder(folder), p) for p in store.manifest().parts]
    rows = pa.concat_tables([SETTLED.empty_table(), *tables]).to_pylist()
    for row in rows:
        row["flags"] = 0  # whether a row came late depends on the order of arrival, which a second attempt changes
    return sorted(rows, key=lambda r: (r["gpu"], r["time"])) + store.jobs().to_pylist()


def killed(folder: Path, change: str, point: int) -> str | None:
    """Make the change in a child that kills itself at its n-th named point; the point's name, None when it got through."""
    receiver, sender = children.Pipe(duplex=False)
    child = children.Process(target=run_until, args=(str(folder), change, point, sender))
    child.start()
    sender.close()
    child.join()
    if child.exitcode == -signal.SIGKILL:
        return str(receiver.recv())
    assert child.exitcode == 0
    return None


def run_until(folder: str, change: str, point: int, sender: Any) -> None:
    seen = 0

    def hook(name: str) -> None:
        nonlocal seen
        if seen == point:
            sender.send(name)
            os.kill(os.getpid(), signal.SIGKILL)
        seen += 1

    CHANGES[change](Store.open(folder, create=True, hook=hook))


# to append to an empty store has the points of doing so late, and takes longest
@pytest.mark.parametrize("change", [pytest.param(name, marks=[pytest.mark.full] * (name == "append")) for name in CHANGES])
def test_a_process_killed_at_any_point_leaves_the_store_before_or_after(tmp_path: Path, change: str) -> None:
    template = prepared(tmp_path / "template", change)
    undisturbed = shutil.copytree(template, tmp_path / "undisturbed") if template.exists() else tmp_path / "undisturbed"
    states = states_of(undisturbed, change)
    names = []
    for point in range(100):
        folder = tmp_path / f"{point}"
        if template.exists():
            shutil.copytree(template, folder)
        name = killed(folder, change, point)
        if name is None:
            break
        names.append(name)
        if (folder / "manifest.json").exists():
            assert content(folder) in states, name
        CHANGES[change](Store.open(folder, create=True))
        assert content(folder) == states[-1], name
        Store.open(folder).compact(grace_ms=0)
        assert no_leftovers(folder), name
        assert content(folder) == states[-1], name
    else:
        pytest.fail("the change never came to its end")
    expected = {"jobs written"} if change == "add jobs" else {"manifest written", "manifest renamed"}
    assert expected <= set(names)
    if change in ("append", "append late rows"):
        assert {"part written", "part renamed", "tails written", "tails renamed"} <= set(names)
    if change in ("compact", "retain"):
        assert "old removed" in names


def states_of(folder: Path, change: str) -> list[list[dict[str, Any]]]:
    """What may be seen while the change goes on: the content after each of its commits; the last is the end."""
    seen: list[list[dict[str, Any]]] = []

    def hook(name: str) -> None:
        if name in ("manifest renamed", "jobs renamed"):
            seen.append(content(folder))

    before = [content(folder)] if folder.exists() else []
    CHANGES[change](Store.open(folder, create=True, hook=hook))
    return [*before, *seen, content(folder)]


def no_leftovers(folder: Path) -> bool:
    parts = Store.open(folder).manifest().parts
    live = {name for p in parts for name in (p.file, p.tail)}
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()} - {"manifest.json", "lock", "jobs.parquet"} == live


def test_a_killed_writer_does_not_keep_the_next_one_out(tmp_path: Path) -> None:
    assert killed(prepared(tmp_path / "store", "append"), "append", 0) == "part written"
    store = Store.open(tmp_path / "store", wait_s=0.0)
    assert store.append(recording()).rows_new == ROWS


def test_two_threads_that_write_into_one_folder_write_two_files(tmp_path: Path) -> None:
    # what counts and what follows a source do so in the folder of a store, and only the latter holds its lock
    def first(file: IO[bytes]) -> None:
        file.write(b"first")
        other = threading.Thread(target=write_whole, args=(tmp_path, "b", lambda into: into.write(b"second, and longer")))
        other.start()
        other.join()
        file.write(b" and its end")

    write_whole(tmp_path, "a", first)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"first and its end", "b": b"second, and longer"}


def test_upkeep_leaves_what_another_thread_is_writing(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", create=True)
    store.append(early())

    def write(file: IO[bytes]) -> None:
        file.write(b"{}")
        store.compact()

    write_whole(store.path, "counted.json", write)
    assert (store.path / "counted.json").read_bytes() == b"{}" and not list(store.path.glob(".*.tmp"))


# --- a disk that is full ---


def append_within(folder: str, limit: int, sender: Any) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # Python ignores SIGXFSZ, so a longer file is EFBIG
    try:
        Store.open(folder).append(recording())
    except UllageError as error:
        sender.send((error.problem, error.hint))
    else:
        sender.send(None)


@pytest.mark.parametrize("limit", [0, 1_000, 3_000])
def test_a_file_that_may_not_grow_is_one_clear_error_and_loses_nothing(tmp_path: Path, limit: int) -> None:
    folder = tmp_path / "store"
    Store.open(folder, create=True).append(early())
    before = content(folder)
    receiver, sender = children.Pipe(duplex=False)
    child = children.Process(target=append_within, args=(str(folder), limit, sender))
    child.start()
    child.join()
    problem, hint = receiver.recv()
    assert problem.startswith("nothing more can be stored in") and "larger than is allowed" in problem
    assert "nothing that was stored is lost" in hint
    assert not list(folder.rglob("*.tmp"))
    assert content(folder) == before
    Store.open(folder).append(recording())
    settled = settle(recording()).to_pylist()
    assert content(folder) == [row | {"flags": 0} for row in settled]


# In a mount namespace of its own: nothing of it is seen outside, and nothing stays.
ON_A_SMALL_DISK = """
import subprocess, sys
disk = sys.argv[1]
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "ullage-test", disk]).returncode:
    raise SystemExit(77)
sys.path.insert(0, sys.argv[2])
from tests.store.test_store_crash import fill
from pathlib import Path
fill(Path(disk))
"""


def fill(disk: Path) -> None:
    store = Store.open(disk / "store", create=True)
    store.append(recording())
    before = content(disk / "store")
    noise = np.random.default_rng(1).random(200_000).astype(np.float32)  # 0.7 MB, whatever compresses it
    rows = samples({"time": START + np.arange(200_000) * 1000, "gpu": ["c"] * 200_000, "tensor_active": noise})
    with pytest.raises(UllageError, match="the disk is full"):
        store.append(rows)
    assert content(disk / "store") == before
    assert not list(disk.rglob("*.tmp"))


def test_a_disk_that_is_really_full_is_one_clear_error(tmp_path: Path) -> None:
    command = ["unshare", "--mount", "--map-root-user", sys.executable, "-c", ON_A_SMALL_DISK, str(tmp_path), str(ROOT)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("needs the command unshare")
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip("a small file system can't be mounted here")
    assert done.returncode == 0, done.stderr
