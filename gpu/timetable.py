"""Every check with its cost and its worth, in one table, and how the time of a call is dealt out by it.

What comes first settles the most: the first minutes on a GPU may be the only ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

STAGES = {
    1: "identity, clocks and peaks",
    2: "OFU against the MFU of known products",
    3: "ceilings, burst and sustained",
    4: "adjusted OFU over random products",
    5: "traces of known loads, clock noise, training steps",
    6: "CUPTI: tracing, counters, sampling",
    7: "long sweeps",
}
CALL = 570.0  # seconds of one call, where nothing else is asked: a lent machine gives ten minutes
SLOWER = 2.0  # a check may take so many times its seconds on a slower machine
SPARE = 20.0  # seconds beyond that, or beyond its time, until a check counts as one that never ends


@dataclass(frozen=True)
class Entry:
    """A line of the table: a check's stage, its cost in seconds (waking the GPU and importing PyTorch included), and its worth.

    A check that can go on where it ended makes use of as few seconds as `least`; the others need all of theirs (None). `needs` are
    modules without which it can't begin, `always` that it runs at every start, `package` one whose members it measures.
    """

    name: str
    stage: int
    seconds: float
    worth: str
    least: float | None = None
    needs: tuple[str, ...] = ("numpy",)
    always: bool = False
    package: str = ""

    @property
    def fewest(self) -> float:
        """The seconds that are worth starting it with."""
        return self.seconds if self.least is None else self.least


TABLE: tuple[Entry, ...] = (
    Entry("peaks", 1, 4, "every share of a peak rests on it", needs=(), always=True),
    Entry("ofu_gemm", 2, 55, "the central claim: OFU is the MFU of known products"),
    Entry("cycle_counters", 2, 24, "whether OFU can be exact: what the cycle counters count"),
    Entry("sm_clock", 2, 40, "whether the clock that OFU rests on is the SMs' own"),
    Entry("tile_flops", 2, 50, "whether a kernel's name tells the FLOPs that the hardware counts", needs=("numpy", "torch")),
    Entry("ceilings", 3, 210, "what the GPU can really do, behind every share of a ceiling", least=45, package="ullage.benches"),
    Entry("gemm_ofu", 4, 240, "adjusted OFU against MFU over random products: the paper's Table II", least=60, needs=("numpy", "torch")),
    Entry("trace_trees", 5, 55, "whether trees of traces tell known loads", needs=("numpy", "torch", "msgspec", "pyarrow")),
    Entry("clock_noise", 5, 72, "what a scrape interval costs: the paper's Table I"),
    Entry("model_step", 5, 70, "whether the OFU of training is the HFU of the ledger", needs=("numpy", "torch")),
    Entry("nvml_recording", 5, 28, "the driver's own answers, for tests to replay", needs=("numpy", "pyarrow")),
    Entry("sampling_overhead", 5, 40, "whether sampling slows what it watches"),
    Entry("cupti_training", 6, 45, "whether a recording of training holds everything", needs=("numpy", "pyarrow", "torch")),
    Entry("cupti_overhead", 6, 180, "what recording costs a step", needs=("numpy", "pyarrow")),
    Entry("cupti_trees", 6, 60, "whether trees of recordings tell known loads", needs=("numpy", "pyarrow")),
    Entry("cupti_counters", 6, 50, "whether counters over ranges count what is executed", needs=("numpy", "pyarrow")),
    Entry("cupti_pm_sampling", 6, 45, "whether the device's counters say what NVML says", needs=("numpy", "pyarrow")),
    Entry("cupti_pc_sampling", 6, 40, "which order of calls and which counts PC sampling has", needs=("numpy", "pyarrow")),
    Entry("cupti_stalls", 6, 40, "whether an unmodified program's stalls can be sampled", needs=("numpy", "pyarrow")),
    Entry("cupti_flops", 6, 30, "whether the FLOPs of kernels can be counted by type, each run once", needs=("numpy", "pyarrow")),
    Entry("cupti_attach", 6, 60, "whether the recorder comes and goes at run time", needs=("numpy", "pyarrow")),
    Entry("cupti_nccl", 6, 45, "whether NCCL tells the recorder who arrives when", needs=("numpy", "pyarrow", "torch")),
    Entry("sanitizer", 7, 240, "whether our own kernels are free of races and stray accesses", least=60, package="ullage.benches"),
    Entry("benches", 7, 480, "every case of every microbenchmark, beside the papers' figures", least=60, package="ullage.benches"),
)


def entries(names: Sequence[str] = ()) -> list[Entry]:
    """Return the lines of the table with these names, in the table's order; all of them without names."""
    return [entry for entry in TABLE if not names or entry.name in names]


def next_entry(due: Sequence[Entry], left: float) -> tuple[Entry, float] | None:
    """Return the first of the checks that are due which fits into the seconds left, and how many of them it gets; None: none fits.

    One that watches the clock leaves a little of them, so that it comes to its own end.

    >>> short, long, resumable = Entry("a", 1, 10, ""), Entry("b", 2, 50, ""), Entry("c", 3, 300, "", least=20)
    >>> next_entry([long, short], left=30)[0].name, next_entry([long, resumable, short], left=45)[1]
    ('a', 25.0)
    >>> next_entry([long, resumable], left=39) is None
    True
    """
    for entry in due:
        seconds = left if entry.least is None else left - SPARE
        if entry.fewest <= seconds:
            return entry, min(entry.seconds, seconds)
    return None


def time_limit(entry: Entry, seconds: float, left: float) -> float:
    """Return after how many seconds a check that got `seconds` is ended, with `left` seconds left in the call.

    One that watches the clock gets a little grace; one that takes what it takes may be twice as slow as the table says.

    >>> time_limit(Entry("a", 1, 10, ""), 10, left=500), time_limit(Entry("c", 3, 300, "", least=20), 100, left=500)
    (40.0, 120.0)
    >>> time_limit(Entry("a", 1, 10, ""), 10, left=15)
    15
    """
    return min(left, (seconds if entry.least is not None else SLOWER * seconds) + SPARE)


def table_lines(chosen: Sequence[Entry]) -> list[str]:
    """Return the table as text, a line a check: stage, name, cost in seconds, worth."""
    lines = []
    for stage in sorted({entry.stage for entry in chosen}):
        lines.append(f"{stage}  {STAGES[stage]}")
        lines += [f"   {entry.name:<18} {cost(entry):>9} s  {entry.worth}" for entry in chosen if entry.stage == stage]
    least, most = (round(sum(getattr(entry, name) for entry in chosen)) for name in ("fewest", "seconds"))
    return [*lines, f"   {'together':<18} {f'{least} to {most}' if least < most else most:>9} s"]


def cost(entry: Entry) -> str:
    """Return a check's cost in seconds, as words: from the least that it makes use of."""
    return f"{entry.seconds:.0f}" if entry.least is None else f"{entry.least:.0f} to {entry.seconds:.0f}"
