"""DPX: the dynamic-programming functions of CUDA (max, min and add in one), latency, throughput, and throughput over blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ullage.benches.bench import Arrays, Case, Data, Labels, Output, TableLayout, Target, bench

STEPS = 8  # calls one after the other, each with operands of its own: with the same, max and min would fold away
HARDWARE = ("sm_90a", "sm_100a", "sm_103a")
_DESIGNED = {"viadd": "VIADDMNMX", "vi3": "VIMNMX3", "vi": "VIMNMX"}

_KERNEL = r"""
extern "C" __global__ void __launch_bounds__(THREADS) ENTRY(u64 *clocks, const int *a, const int *b, const int *c, int *out, int trips) {
  int v[STEPS], w[STEPS], x[CHAINS], held = 0;
  for (int i = 0; i < STEPS; i++) { v[i] = b[i * 32 + threadIdx.x % 32]; w[i] = c[i * 32 + threadIdx.x % 32]; }
  for (int j = 0; j < CHAINS; j++) x[j] = a[j * blockDim.x + threadIdx.x];
  ULLAGE_BEGIN
  #pragma unroll 1
  for (int t = 0; t < trips; t++) {
    #pragma unroll
    for (int n = 0; n < CALLS; n++) {
      const int i = n % STEPS;
      #pragma unroll
      for (int j = 0; j < CHAINS; j++) { if (i % 2) { SECOND; } else { FIRST; } }
    }
  }
  ULLAGE_END
  for (int j = 0; j < CHAINS; j++) out[(j * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x] = x[j] ^ held;
}
"""


@dataclass(frozen=True)
class DpxCallPattern:
    """How a function is called: `chains` of a thread that do not depend on one another, and `calls` of each in a trip."""

    chains: int
    calls: int
    threads: int
    trips: int


# One chain waits for every result; 64 calls a trip, so that the loop's branch is a small part. Four chains of 1,024 threads wait for none.
LATENCY, THROUGHPUT = DpxCallPattern(1, 64, 32, 256), DpxCallPattern(4, STEPS, 1024, 4096)


@dataclass(frozen=True)
class DpxFunction:
    """One function: `form` "vi3" (max of three), "vi" (of two), "viadd" (of a sum and a third) or "vib" (of two, and which it was)."""

    form: str
    largest: bool
    type: str
    relu: bool

    @property
    def name(self) -> str:
        """The function as CUDA calls it.

        >>> DpxFunction("viadd", True, "s16x2", True).name, DpxFunction("vi3", False, "u32", False).name
        ('__viaddmax_s16x2_relu', '__vimin3_u32')
        """
        word = "max" if self.largest else "min"
        stem = f"vi{word}3" if self.form == "vi3" else f"{self.form}{word}"
        return f"__{stem}_{self.type}{'_relu' if self.relu else ''}"

    @property
    def call(self) -> str:
        """The statement that does one step of a chain."""
        if self.form == "vib" and "x2" in self.type:
            return f"{{ bool p, q; x[j] = {self.name}(x[j], v[i], &p, &q); held += p + 2 * q; }}"
        if self.form == "vib":
            return f"{{ bool p; x[j] = {self.name}(x[j], v[i], &p); held += p; }}"
        return f"x[j] = {self.name}(x[j], v[i]{'' if self.form == 'vi' else ', w[i]'})"

    @property
    def turned(self) -> DpxFunction:
        """What every second step calls: the opposite where two of a kind would fold into one instruction (max of two: VIMNMX3)."""
        return replace(self, largest=not self.largest) if self.form == "vi" else self

    @property
    def lanes(self) -> np.dtype[np.generic]:
        """The type of the numbers that a word holds: one of 32 bits, or two of 16."""
        return np.dtype({"s32": np.int32, "u32": np.uint32, "s16x2": np.int16, "u16x2": np.uint16}[self.type])

    def step(self, x: np.ndarray, v: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return a step's result and, for "vib", whether x was taken; arrays of `lanes`, which wrap around as the GPU's do."""
        choose = np.maximum if self.largest else np.minimum
        other = x + v if self.form == "viadd" else x
        found = choose(choose(other, v), w) if self.form == "vi3" else choose(other, w if self.form == "viadd" else v)
        taken = x >= v if self.largest else x <= v
        return (np.maximum(found, 0) if self.relu else found), taken


def functions() -> Iterator[DpxFunction]:
    """Yield every DPX function of CUDA (CUDA C++ Programming Guide, DPX)."""
    for kind in ("s32", "u32", "s16x2", "u16x2"):
        for form in ("vi3", "vi", "viadd", "vib"):
            for relu in (False, True):
                signed = kind.startswith("s")
                if (relu and signed) if form == "vi" else (not relu) if form == "vib" else (signed or not relu):
                    yield from (DpxFunction(form, largest, kind, relu) for largest in (True, False))


def entry(function: DpxFunction, way: DpxCallPattern) -> str:
    """Return the name of a function's kernel.

    >>> entry(DpxFunction("vi3", True, "u32", False), LATENCY)
    'vimax3_u32_1'
    """
    return f"{function.name.strip('_')}_{way.chains}"


def source(chosen: Iterable[DpxFunction], *ways: DpxCallPattern) -> str:
    """Return the kernels of some functions as one program, which compiles much quicker than one by one."""
    return "".join(_kernel(function, way) for function in chosen for way in ways)


def _kernel(function: DpxFunction, way: DpxCallPattern) -> str:
    words = {"ENTRY": entry(function, way), "SECOND": function.turned.call, "FIRST": function.call, "THREADS": way.threads}
    text = _KERNEL
    for word, meaning in {**words, "CALLS": way.calls, "CHAINS": way.chains, "STEPS": STEPS}.items():
        text = text.replace(word, str(meaning))
    return text


def _inputs(way: DpxCallPattern) -> Callable[[np.random.Generator, Data], Arrays]:
    def make(generator: np.random.Generator, data: Data) -> Arrays:
        sizes = (way.chains * way.threads, STEPS * 32, STEPS * 32)
        if data == "zero":
            return tuple(np.zeros(size, np.int32) for size in sizes)
        return tuple(generator.integers(-(2**31), 2**31, size, np.int64).astype(np.int32) for size in sizes)

    return make


def _reference(function: DpxFunction, way: DpxCallPattern, blocks: int) -> Callable[[Arrays, int], Arrays]:
    def right(inputs: Arrays, trips: int) -> Arrays:
        lane = np.arange(way.threads) % 32
        start, v, w = (array.view(function.lanes) for array in inputs)
        wide = start.size // (way.chains * way.threads)
        x = start.reshape(way.chains, way.threads, wide)
        held = np.zeros(way.threads, np.int32)
        for n in range(trips * way.calls):
            step = n % STEPS
            here = (step * 32 + lane)[:, None] * wide + np.arange(wide)
            x, taken = (function.turned if step % 2 else function).step(x, v[here], w[here])
            if function.form == "vib":
                held = held + (taken * (2 ** (1 - np.arange(wide)) if wide == 2 else 1)).sum(axis=(0, 2)).astype(np.int32)
        found = np.ascontiguousarray(x.astype(function.lanes)).view(np.int32).reshape(way.chains, way.threads) ^ held
        return (np.repeat(found[:, None, :], blocks, axis=1).reshape(-1).astype(np.int32),)

    return right


def _case(function: DpxFunction, way: DpxCallPattern, program: str, target: Target, blocks: int, labels: Labels) -> Case:
    opcode = _DESIGNED.get(function.form) if target.architecture in HARDWARE else None
    return Case(
        labels=labels,
        source=program,
        entry=entry(function, way),
        grid=blocks,
        block=way.threads,
        trips=way.trips,
        inputs=_inputs(way),
        outputs=(Output((way.chains * blocks * way.threads,), "int32"),),
        reference=_reference(function, way, blocks),
        check_trips=3,
        quantities=("latency",) if way.chains == 1 else ("rate",),
        steps=way.calls,
        items=way.trips * way.calls * way.chains * blocks * way.threads,
        issues={opcode: way.calls * way.chains} if opcode else {},
    )


@bench(
    "dpx",
    title="DPX functions: latency and throughput",
    source="Hopper paper, figures 6 and 7",
    layout=TableLayout(rows=("function",), across=("measure",)),
    seconds=15,
)
def dpx(target: Target, quick: bool) -> Iterable[Case]:
    """Latency (one warp, a dependent chain) and throughput (1024 threads an SM, four chains each) of every DPX function.

    A rate is calls by threads; a call on two 16-bit halves counts once. What a call becomes, by the machine code:

    - Hopper and the data-centre Blackwell: one instruction, VIADDMNMX, VIMNMX3 or VIMNMX.
    - GeForce Blackwell (sm_120): two, an addition and a VIMNMX, or two VIMNMX; VIMNMX alone knows halves and relu.
    - Ampere and Ada: IMNMX for each max, min and relu, and halves are taken apart and put together again.
      `__viaddmax_s32` is two instructions, `__viaddmax_s16x2_relu` 13: the paper finds Hopper "up to 13 times" faster.

    `__vimax_…_relu` and `__vimin_…_relu` take turns: two of one kind in a row become one VIMNMX3. `__vibmax` and `__vibmin` also
    say which of the two was taken; that is a comparison beside, and the kernel counts the answers, so that none is left out.
    The paper's figures are drawn only: there are no numbers to compare with.
    """
    quickly = ("__viaddmax_s32", "__viaddmax_s16x2_relu", "__vimax3_s32_relu")
    chosen = [function for function in functions() if not quick or function.name in quickly]
    program = source(chosen, LATENCY, THROUGHPUT)
    for function in chosen:
        yield _case(function, LATENCY, program, target, 1, {"function": function.name, "measure": "latency"})
        yield _case(function, THROUGHPUT, program, target, target.sms, {"function": function.name, "measure": "throughput"})


@bench(
    "dpx-blocks",
    title="DPX throughput over the number of blocks",
    source="Hopper paper, section IV-E: the sawtooth by which DPX units are placed in the SM",
    layout=TableLayout(rows=("blocks",), across=("function",), plot=("blocks", "rate", ("function",))),
    architectures=HARDWARE,
    seconds=8,
)
def dpx_blocks(target: Target, quick: bool) -> Iterable[Case]:
    """Throughput of one DPX function over the number of blocks, 1024 threads each.

    One block has enough calls under way to fill its SM. So the rate grows with the blocks up to one an SM; a block more shares an
    SM with another, and all wait for these two: half the rate, which then grows until every SM has had two. Behind k blocks an SM
    it falls to k / (k + 1). So the units are the SM's own; units that several SMs share would show other steps.
    """
    function, way = DpxFunction("viadd", True, "s32", False), replace(THROUGHPUT, trips=1024)
    sms, program = target.sms, source([function], way)
    wanted = {1, sms // 2, sms, sms + 1, 2 * sms, 2 * sms + 1, 3 * sms, 3 * sms + 1, 4 * sms}
    if not quick:
        wanted |= {round(sms * part / 8) for part in range(1, 33)}
    for blocks in sorted(wanted - {0}):
        yield _case(function, way, program, target, blocks, {"blocks": blocks, "function": function.name})
