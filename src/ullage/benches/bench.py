"""What a microbenchmark is: cases, each a kernel with its host reference and its work, and the paper's figures beside it.

Begin here, then read any neighbour; every module with a function under `@bench` is one family. Adding one is one such file:
docs/adding-a-bench.md. The harness (`running/harness.py`) compiles, checks each kernel against its reference on fresh random data,
poisons outputs, warms up, times, repeats, and stamps every number. A kernel whose result is wrong yields no number.

Quantities are in SI units without prefixes (s, B/s, FLOP/s, W), latencies in SM cycles.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ullage.registry import Registry

if TYPE_CHECKING:
    from ullage.benches.result import CaseRow

Plain = str | float | int | bool | None
Labels = Mapping[str, Plain]
Data = Literal["random", "zero"]
Arrays = tuple[np.ndarray, ...]

# What can be told of a timed kernel; how each follows from time, cycles and declared work is in `quantities.py`.
Quantity = Literal[
    "latency",  # SM cycles of one dependent step
    "throughput",  # FLOP/s (integers: operations/s)
    "bandwidth",  # B/s
    "bytes_per_cycle",  # B per SM cycle, the whole GPU
    "bytes_per_cycle_sm",  # B per SM cycle and SM
    "results_per_cycle_sm",  # results of an instruction (items) per SM cycle and SM
    "time",  # s
    "rate",  # items/s: tokens, elements, launches
    "power",  # W
    "efficiency",  # FLOP/J
]


@dataclass(frozen=True)
class Target:
    """The device that cases are made for: what shapes a launch. Sizes in bytes.

    `name` is as in `ullage.gpus`; `architecture` is one of `ullage.kernels.compiling.ARCHITECTURES`.
    """

    architecture: str
    name: str = ""
    sms: int = 132
    l1: int = 128 * 1024
    l2: int = 50 * 2**20
    memory: int = 16 * 2**30
    shared_per_block: int = 227 * 1024
    shared_per_sm: int = 228 * 1024


@dataclass(frozen=True)
class Output:
    """An array that a kernel writes; poisoned before each launch that is checked."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class TensorMap:
    """How the TMA unit is to see input number `input`: a tensor of elements of 8 bytes without gaps, cut into boxes.

    `shape` and `box` are in elements, the innermost dimension first; `swizzle` is the span (0, 32, 64 or 128 bytes) within which chunks of
    16 bytes are interchanged in shared memory.
    """

    input: int
    shape: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0


@dataclass(frozen=True)
class Case:
    """One row: a CUDA C++ kernel, its launch, its data, what is right, and its work.

    The kernel is `extern "C" __global__ void <entry>(unsigned long long *clocks, <inputs…>, <outputs…>, <maps…>, int trips,
    <scalars…>)`; inputs, outputs and maps are pointers, in the order given, scalars are ints. It calls `ULLAGE_BEGIN` and
    `ULLAGE_END` of the preamble (`source.PREAMBLE`, put before every source) around its hot loop, which runs `trips` times and stands
    under `#pragma unroll 1`, so that what one trip issues can be counted in the machine code.

    `inputs(generator, data)` makes fresh arrays, `reference(inputs, trips)` what the outputs must be (within `tolerance`,
    relative to the largest magnitude; 0 is exact), checked with `check_trips`. Of random inputs that were checked, `timed_inputs` makes
    those that are timed: for sums that the many trips of a launch must not let grow. `flops` and `bytes` are those of a whole launch
    with `trips`; `steps` are the dependent steps of one trip (for latencies); `items` what rates count. `issues` are opcodes
    (by prefix) and how many of each one warp issues in a trip: counted in the SASS by the tests. `seconds` asks for a run of at least
    that length (power needs one), `settle` for as many seconds of load before it that don't count. A case without `architectures` runs
    on all that its bench names.
    """

    labels: Labels
    source: str
    entry: str
    grid: int | tuple[int, int, int]
    block: int | tuple[int, int, int]
    trips: int
    outputs: tuple[Output, ...]
    reference: Callable[[Arrays, int], Arrays]
    quantities: tuple[Quantity, ...]
    inputs: Callable[[np.random.Generator, Data], Arrays] = lambda generator, data: ()  # noqa: ARG005
    timed_inputs: Callable[[Arrays], Arrays] | None = None
    maps: tuple[TensorMap, ...] = ()
    scalars: tuple[int, ...] = ()
    cluster: int = 1
    shared: int = 0
    options: tuple[str, ...] = ()
    data: Data = "random"
    check_trips: int = 1
    tolerance: float = 0.0
    flops: int = 0
    bytes: int = 0
    steps: int = 1
    items: int = 0
    issues: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    settle: float = 0.0
    architectures: tuple[str, ...] = ()
    precision: str | None = None  # whose stated peak the throughput is compared with
    sparse: bool = False  # the stated peak is then twice the dense one


@dataclass(frozen=True)
class Prepared:
    """A library call ready to be timed: `run` queues it on the current stream, `wrong` says what is wrong with its result (None: right)."""

    run: Callable[[], object]
    wrong: Callable[[], str | None]


@dataclass(frozen=True)
class LibraryCase:
    """One row that PyTorch (or a library on it) runs, not a kernel of ours: `prepare(torch, data)` sets it up on the GPU.

    `needs` are modules beside torch, `gpus` how many GPUs PyTorch must see; without them the row has no number and says so. The rest is
    as for `Case`.
    """

    labels: Labels
    prepare: Callable[[Any, Data], Prepared]
    quantities: tuple[Quantity, ...]
    needs: tuple[str, ...] = ()
    gpus: int = 1
    data: Data = "random"
    flops: int = 0
    bytes: int = 0
    items: int = 0
    seconds: float = 0.0
    settle: float = 0.0
    precision: str | None = None
    sparse: bool = False


@dataclass(frozen=True)
class IdleCase:
    """One row of a GPU that runs nothing for so many `seconds`, after `settle` seconds that don't count. The rest is as for no work."""

    labels: Labels
    seconds: float
    settle: float = 0.0
    quantities: tuple[Quantity, ...] = ("power",)
    data: Literal["none"] = "none"
    precision: str | None = None
    sparse: bool = False
    flops: int = 0
    bytes: int = 0
    items: int = 0


AnyCase = Case | LibraryCase | IdleCase


@dataclass(frozen=True)
class Figure:
    """A published figure: of which GPU (a name in `ullage.gpus`), for the case with these labels, in SI units (latency: cycles)."""

    gpu: str
    labels: Labels
    quantity: Quantity
    value: float


@dataclass(frozen=True)
class TableLayout:
    """How a bench's table stands: labels that name a row, labels that spread over columns; and a plot, if one helps.

    `plot` is (label or quantity on the x axis, quantity, labels of the series). With `conditions` each row says under what it was measured.
    """

    rows: tuple[str, ...]
    across: tuple[str, ...] = ()
    plot: tuple[str, Quantity, tuple[str, ...]] | None = None
    conditions: bool = False


Cases = Callable[[Target, bool], Iterable[AnyCase]]
Findings = Callable[[Sequence["CaseRow"]], tuple[str, ...]]


@dataclass(frozen=True)
class Bench:
    """A family of cases: `cases(target, quick)` yields them; `quick` asks for the few that matter most."""

    name: str
    title: str
    source: str
    architectures: tuple[str, ...]
    layout: TableLayout
    figures: tuple[Figure, ...]
    cases: Cases
    needs: Literal["cuda", "torch"]
    seconds: float
    drift: bool
    findings: Findings | None = None

    @property
    def page(self) -> str:
        """The whole docstring: what is measured, how, and how to read it."""
        return inspect.getdoc(self.cases) or ""

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return self.page.split("\n", 1)[0]


BENCHES: Registry[Bench] = Registry("microbenchmark", package="ullage.benches", command="ullage bench --list")


def bench(
    name: str,
    *,
    title: str,
    source: str,
    layout: TableLayout,
    architectures: tuple[str, ...] = (),
    figures: Iterable[Figure] = (),
    needs: Literal["cuda", "torch"] = "cuda",
    seconds: float = 20.0,
    drift: bool = False,
    findings: Findings | None = None,
) -> Callable[[Cases], Cases]:
    """Register the decorated function as the cases of a bench, and return it unchanged.

    `source` names the table or figure of the paper, or the vendor's document; `architectures` (none: all) where the kernels
    compile; `seconds` about how long the whole takes; `drift` says that its quick cases belong to the drift check;
    `findings` tells in sentences what the measured rows show together: they become notes of the result.
    """

    def register(cases: Cases) -> Cases:
        from ullage.kernels.compiling import ARCHITECTURES

        where = architectures or ARCHITECTURES
        BENCHES.add(name, Bench(name, title, source, where, layout, tuple(figures), cases, needs, seconds, drift, findings))
        return cases

    return register


def cases_for(member: Bench, target: Target, quick: bool = False) -> list[AnyCase]:
    """Return a bench's cases that run on a target, in order; none where its architecture is not among them."""
    if member.needs == "cuda" and target.architecture not in member.architectures:
        return []
    return [case for case in member.cases(target, quick) if _runs(case, member, target)]


def _runs(case: AnyCase, member: Bench, target: Target) -> bool:
    return not isinstance(case, Case) or target.architecture in (case.architectures or member.architectures)
