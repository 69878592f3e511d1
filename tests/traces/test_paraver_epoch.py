"""EPOCH on 1 to 16 ranks, strong scaling, against the reference that comes with the traces.

The reference is pypop's `epoch_example_traces/precomputed.csv` and `modelfactors.csv` (numericalalgorithmsgroup/pypop), made by
BSC's tools. Useful time, instructions and cycles are sums over ranks, as printed there; the factors in six decimals. These tools count
MPI_Init and MPI_Finalize, TALP doesn't: so the clock of MPI is taken out here, and asked for by itself, against the file's own lines.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ullage import read_trace
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.run import host_parts, host_totals, merge
from ullage.traces.paraver import paraver
from ullage.traces.trace import TraceOptions, recognised

# ranks: runtime µs, useful µs (sum, maximum), instructions, cycles
TIMES = {
    1: (21898659.14, 21882362.82, 21882362.82, 84790848422, 45294421893),
    2: (11528373.56, 22913392.37, 11484151.34, 87640358419, 46855679955),
    4: (6082352.21, 23684668.07, 5999910.80, 88518412143, 47406198069),
    8: (3513565.33, 26902030.73, 3421581.67, 90063308642, 51191361663),
    16: (2339560.72, 35617915.65, 2242981.13, 93158874793, 60494538119),
}
# ranks: parallel efficiency, load balance, communication efficiency, computation, IPC, instruction and frequency scaling
FACTORS = {
    1: (0.99925583, 1.0, 0.99925583, 1.0, 1.0, 1.0, 1.0),
    2: (0.99378252, 0.99760930, 0.99616405, 0.95500319, 0.99916598, 0.96748633, 0.98792129),
    4: (0.97349953, 0.98687584, 0.98644580, 0.92390414, 0.99745711, 0.95788940, 0.96697961),
    8: (0.95707736, 0.98280683, 0.97382042, 0.81340933, 0.93982492, 0.94145829, 0.91930815),
    16: (0.95151184, 0.99248259, 0.95871892, 0.61436394, 0.82262861, 0.91017467, 0.82053509),
}


def measured(folder: Path, ranks: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, int, int, int]:
    trace, file = recognised(folder / "paraver" / f"epoch_{ranks}proc.prv.gz")
    assert trace.read is not None
    recording, problems = Recording(file.name), Problems()
    monkeypatch.setattr(paraver, "mpi_clock", lambda *_: {})
    run = merge([reduce(gather(trace.read(file, recording, TraceOptions(strict=True), problems), recording))])
    host = host_totals(host_parts(run), run.elapsed())
    assert host is not None
    assert host.max_busy_time is not None
    assert (host.processes, problems.lines(), recording.ranks) == (ranks, [], ranks)
    counts = [sum(c[name] for c in recording.counters.values()) for name in ("instructions", "cycles")]
    return host.elapsed, host.useful_time, host.max_busy_time, counts[0], counts[1]


@pytest.mark.parametrize("ranks", TIMES)
def test_times_and_counters_are_the_references(ranks: int, shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elapsed, useful, longest, instructions, cycles = measured(shared_data, ranks, monkeypatch)
    assert [t / 1000 for t in (elapsed, useful, longest)] == pytest.approx(TIMES[ranks][:3], abs=0.0051)
    assert (instructions, cycles) == TIMES[ranks][3:]


@pytest.mark.parametrize("ranks", [2, 16])
def test_factors_are_the_references_to_six_decimals(ranks: int, shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, useful_1, _, instructions_1, cycles_1 = measured(shared_data, 1, monkeypatch)
    elapsed, useful, longest, instructions, cycles = measured(shared_data, ranks, monkeypatch)
    factors = (
        useful / (ranks * elapsed),
        useful / (ranks * longest),
        longest / elapsed,
        useful_1 / useful,
        instructions / cycles / (instructions_1 / cycles_1),
        instructions_1 / instructions,
        cycles / useful / (cycles_1 / useful_1),
    )
    assert factors == pytest.approx(FACTORS[ranks], abs=1e-6)


@pytest.mark.parametrize("ranks", [2, pytest.param(16, marks=pytest.mark.full)])
def test_a_run_lasts_from_mpi_init_to_mpi_finalize_as_talp_counts(ranks: int, shared_data: Path) -> None:
    # line by line: state 1 is Running; of event 50000003, 31 is MPI_Init, 32 is MPI_Finalize, 0 the return of either
    path = shared_data / "paraver" / f"epoch_{ranks}proc.prv.gz"
    begin, end, inside = {}, {}, set()
    running: dict[str, list[tuple[int, int]]] = {}
    lines = [line.split(":") for line in gzip.decompress(path.read_bytes()).decode().splitlines()[1:] if line[:2] in ("1:", "2:")]
    for kind, _, _, task, _, *rest in lines:
        if kind == "1" and rest[2] == "1":
            running.setdefault(task, []).append((int(rest[0]), int(rest[1])))
        elif kind == "2":
            events = dict(zip(rest[1::2], rest[2::2], strict=True))
            if events.get("50000003") == "31":
                inside.add(task)
            elif events.get("50000003") == "0" and task in inside:
                inside.remove(task)
                begin[task] = int(rest[0])
            elif events.get("50000003") == "32":
                end[task] = int(rest[0])
    useful = sum(max(min(b, end[task]) - max(a, begin[task]), 0) for task, spans in running.items() for a, b in spans)
    run = read_trace(str(path)).report().run
    assert run is not None
    host = host_totals(host_parts(run), run.elapsed())
    assert host is not None
    assert (host.elapsed, host.useful_time) == (max(end[task] - begin[task] for task in end), useful)
    assert host.instructions is not None and 0 < TIMES[ranks][3] - host.instructions < 0.1 * TIMES[ranks][3]  # those before MPI_Init
