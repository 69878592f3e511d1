"""Reading an Nsight Systems database into memory: rows a second, beside what `sqlite3` and pandas need for the bare rows.

The database has 2 million rows as an export of 2026 has them: half runtime calls, the rest kernels, copies, memsets and ranges. Ours
reads all of it, decodes names, classes and devices, and gathers it for the trees; the peers only fetch the same columns of the same
tables. Each runs in a process of its own, so that its memory can be told.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pyarrow

from measure import DATA, Figure, Figures, fresh, parser
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.simulate.traces.nsys_schema import columns, create
from ullage.sums.lanes.gather import gather
from ullage.traces.trace import TRACES, TraceOptions, recognised

PROMISED = 2e6  # rows a second
MACHINE = 1 << 48
NAMES = ["cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "cudaStreamSynchronize_v3020", "cuLaunchKernelEx", "cudaMemsetAsync_v3020"]
KERNELS = [f"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_{n}x128_tn_align8>(Params)" for n in range(300)]
_DEVICE = "start end deviceId streamId correlationId globalPid"
READ = {
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end globalTid correlationId nameId",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{_DEVICE} demangledName gridX gridY gridZ blockX blockY blockZ",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_DEVICE} bytes copyKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_DEVICE} bytes",
    "NVTX_EVENTS": "start end eventType globalTid textId domainId text",
}


def made(rows: int) -> Path:
    """Return the database, making it when it isn't there yet."""
    path = DATA / f"nsys_{rows}.sqlite"
    if not path.exists():
        DATA.mkdir(exist_ok=True)
        unfinished = path.with_suffix(".part")
        unfinished.unlink(missing_ok=True)
        with sqlite3.connect(unfinished) as connection:
            for table, tuples in tables(rows):
                names = columns("2026")[table]
                connection.execute(create(table, names))
                connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", tuples)
        connection.close()
        unfinished.rename(path)
    return path


def tables(rows: int) -> Iterator[tuple[str, Iterator[tuple[Any, ...]]]]:
    """Yield each table with its rows: two processes on two devices, a step of 12 µs."""
    launches = rows // 2

    def row(table: str, **values: Any) -> tuple[Any, ...]:
        return tuple(values.get(name) for name in columns("2026")[table])

    def call(n: int) -> tuple[Any, ...]:
        tid = MACHINE | (4000 + n % 2) << 24 | 4000 + n % 2
        start = 10**9 + n * 12_000
        # the columns in the order of the table: this is called a million times
        return start, start + 4_000, n % 5 == 3, tid, n, 1 + n % 5, 0, None

    def device(n: int, length: int) -> dict[str, Any]:
        start, pid = 10**9 + n * 12_000 + 5_000, MACHINE | (4000 + n % 2) << 24
        return {
            "start": start,
            "end": start + length,
            "deviceId": 0,
            "contextId": 1,
            "streamId": 7 + n % 3,
            "correlationId": n,
            "globalPid": pid,
        }

    def kernel(n: int) -> tuple[Any, ...]:
        name = 10 + n % 300
        shape = {"gridX": 1 + n % 700, "gridY": 1 + n % 9, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1}
        rest = dict.fromkeys(columns("2026")["CUPTI_ACTIVITY_KIND_KERNEL"], n % 97) | {"greenContextId": None, "graphNodeId": None}
        return row(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            **(rest | device(n, 9_000) | shape | {"demangledName": name, "shortName": name, "mangledName": name}),
        )

    def copy(table: str, n: int) -> tuple[Any, ...]:
        return row(table, **device(n, 3_000), bytes=4096 * (1 + n % 1000), copyKind=1 + n % 2, value=0)

    def span(n: int) -> tuple[Any, ...]:
        tid = MACHINE | (4000 + n % 2) << 24 | 4000 + n % 2
        return row(
            "NVTX_EVENTS", start=10**9 + n * 80_000, end=10**9 + n * 80_000 + 70_000, eventType=59, globalTid=tid, textId=400 + n % 20
        )

    words = {
        **{1 + n: w for n, w in enumerate(NAMES)},
        **{10 + n: w for n, w in enumerate(KERNELS)},
        **{400 + n: f"layer {n}" for n in range(20)},
    }
    yield "StringIds", iter(words.items())
    yield "CUPTI_ACTIVITY_KIND_RUNTIME", (call(n) for n in range(launches))
    yield "CUPTI_ACTIVITY_KIND_KERNEL", (kernel(n) for n in range(launches * 6 // 10))
    for table in ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"):
        yield table, (copy(table, n) for n in range(launches * 6 // 10, launches * 7 // 10))
    yield "NVTX_EVENTS", (span(n) for n in range(launches * 2 // 10))
    gpus = [{"gpuId": n, "cudaId": 0, "pid": 4000 + n, "uuid": f"{n:032x}1", "numMultiprocessors": 132} for n in (0, 1)]
    yield "TARGET_INFO_CUDA_DEVICE", (row("TARGET_INFO_CUDA_DEVICE", **gpu) for gpu in gpus)


def ours(path: Path) -> int:
    """Return how many rows our reader gathers."""
    trace, file = recognised(path)
    recording = Recording(file.name)
    assert trace.read is not None
    capture = gather(trace.read(file, recording, TraceOptions(), Problems()), recording)
    assert len(recording.devices) == 2
    return len(capture.device) + len(capture.calls) + len(capture.host)


def by_sqlite(path: Path) -> int:
    """Return how many rows `fetchall` gives, as tuples and no more."""
    with sqlite3.connect(path) as connection:
        return sum(
            len(connection.execute(f"SELECT {words.replace(' ', ', ')} FROM {table}").fetchall()) for table, words in quoted().items()
        )


def by_pandas(path: Path) -> int:
    """Return how many rows pandas gives, as frames and no more."""
    import pandas

    with sqlite3.connect(path) as connection:
        frames = [pandas.read_sql(f"SELECT {words.replace(' ', ', ')} FROM {table}", connection) for table, words in quoted().items()]
    return sum(len(frame) for frame in frames)


def quoted() -> dict[str, str]:
    """Return the columns by table, fit for SQL (`end` is a keyword)."""
    return {table: words.replace(" end ", ' "end" ') for table, words in READ.items()}


ASKED = {"ours": ours, "sqlite3": by_sqlite, "pandas": by_pandas}


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] in ASKED:
        if sys.argv[1] == "ours":
            TRACES.load()  # importing is not reading; and with its first array PyArrow imports pandas, where that is installed
            pyarrow.array(numpy.zeros(1))
        begin = time.perf_counter()
        answer = ASKED[sys.argv[1]](Path(sys.argv[2]))
        print(json.dumps({"answer": answer, "seconds": time.perf_counter() - begin}))
        return
    asked = parser(__doc__).parse_args()
    figures = Figures(asked.json)
    path = made(50_000 if asked.quick else 2_000_000)
    runs = {who: fresh(__file__, who, str(path), quick=asked.quick) for who in ASKED}
    rows = runs["ours"].answer
    assert {run.answer for run in runs.values()} == {rows}, "not everybody found the same rows"
    speeds = {who: rows / run.seconds for who, run in runs.items()}
    peaks = {who: run.peak / 1e6 for who, run in runs.items()}
    peers = ("sqlite3", "pandas")
    figures.add(
        Figure(
            "Nsight Systems database read and gathered",
            speeds["ours"],
            "rows/s",
            {p: speeds[p] for p in peers},
            None if asked.quick else PROMISED,
        ),
        Figure("memory at most", peaks["ours"], "MB", {p: peaks[p] for p in peers}),
    )


if __name__ == "__main__":
    main()
