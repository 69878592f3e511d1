"""EPOCH on 1 to 16 ranks, strong scaling, against the reference that comes with the traces.

The reference is pypop's `epoch_example_traces/precomputed.csv` and `modelfactors.csv` (numericalalgorithmsgroup/pypop), made by
BSC's tools. Useful time, instructions and cycles are sums over ranks, as printed there; the factors in six decimals.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ullage.problems import Problems
from ullage.recording import Recording
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.run import host_parts, host_totals, merge
from ullage.traces.trace import Options, recognised

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


def measured(folder: Path, ranks: int) -> tuple[int, int, int, int, int]:
    trace, file = recognised(folder / "paraver" / f"epoch_{ranks}proc.prv.gz")
    assert trace.read is not None
    recording, problems = Recording(file.name), Problems()
    run = merge([reduce(gather(trace.read(file, recording, Options(strict=True), problems), recording))])
    host = host_totals(host_parts(run), run.elapsed())
    assert host is not None
    assert host.max_busy_time is not None
    assert (host.processes, problems.lines(), recording.ranks) == (ranks, [], ranks)
    counts = [sum(c[name] for c in recording.counters.values()) for name in ("instructions", "cycles")]
    return host.elapsed, host.useful_time, host.max_busy_time, counts[0], counts[1]


@pytest.mark.parametrize("ranks", TIMES)
def test_times_and_counters_are_the_references(ranks: int, shared_data: Path) -> None:
    elapsed, useful, longest, instructions, cycles = measured(shared_data, ranks)
    assert [t / 1000 for t in (elapsed, useful, longest)] == pytest.approx(TIMES[ranks][:3], abs=0.0051)
    assert (instructions, cycles) == TIMES[ranks][3:]


@pytest.mark.parametrize("ranks", [2, 16])
def test_factors_are_the_references_to_six_decimals(ranks: int, shared_data: Path) -> None:
    _, useful_1, _, instructions_1, cycles_1 = measured(shared_data, 1)
    elapsed, useful, longest, instructions, cycles = measured(shared_data, ranks)
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
