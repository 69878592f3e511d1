"""`tcgen05.mma` with block scales: FP8 and FP4 elements, each block of 16 or 32 along k with a scale of its own, in tensor memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ullage.benches.bench import Arrays, Case, Data, Labels, Output, Quantity, TableLayout, Target, bench
from ullage.benches.operands import FP8, FP8_TOLERANCE, FP32
from ullage.benches.products import FP4_VALUES
from ullage.benches.ptx_mma import CYCLES
from ullage.benches.ptx_tcgen05 import COMMON, ROUNDS, ROWS, SLICES, THREADS
from ullage.benches.ptx_wgmma import STEP

ARCHITECTURES = ("sm_100a", "sm_103a")
COLUMNS = 256  # of D
LANES = 32  # of a warp: a column of scales holds those of so many rows
# UE8M0: powers of 2 about 1; UE4M3: the codes of 0.5 to 2 (OCP Microscaling Formats; PTX ISA, alternate floating-point formats)
EXPONENTS, FRACTIONS = (125, 130), (0x30, 0x40)


@dataclass(frozen=True)
class ScaledFormat:
    """A format of A and B with scales: its name, PTX's kind and how many scales a row has in an instruction, bits of an element.

    `fractions` says that scales are UE4M3, not UE8M0.
    """

    name: str
    kind: str
    scales: int
    bits: int
    precision: str
    fractions: bool = False

    @property
    def k(self) -> int:
        """The k of an instruction: 32 bytes of a row."""
        return 8 * STEP // self.bits

    @property
    def block(self) -> int:
        """Elements along k that share a scale."""
        return self.k // self.scales

    @property
    def shape(self) -> str:
        """The shape in PTX's manner."""
        return f"m{ROWS}n{COLUMNS}k{self.k}"

    @property
    def flops(self) -> int:
        """Operations of one issue, those on scales left out."""
        return 2 * ROWS * COLUMNS * self.k

    @property
    def opcode(self) -> str:
        """How its opcode begins in machine code."""
        return "UTCQMMA" if self.bits == 8 else "UTCOMMA"

    @property
    def words(self) -> int:
        """Words of four scales that a row has for all slices."""
        return SLICES * self.scales // 4 or 1

    def descriptor(self, slice_: int) -> int:
        """Return the instruction descriptor of a slice: PTX ISA, instruction descriptor of the kinds with block scales.

        >>> hex(MXFP8.descriptor(1)), hex(NVFP4.descriptor(1))
        ('0x28c00010', '0x8400480')
        """
        first = slice_ * self.scales % 4  # which byte of a word holds the slice's first scale
        element = 0 if self.bits == 8 else 1  # E4M3; E2M1
        scale = 0 if self.fractions else 1
        return first << 4 | element << 7 | element << 10 | (COLUMNS >> 3) << 17 | scale << 23 | (ROWS >> 4) << 24 | first << 29

    def elements(self, generator: np.random.Generator, data: Data, rows: int) -> np.ndarray:
        """Return a matrix as it is stored, rows × bytes of all slices; of two FP4 elements the first is the lower half of a byte."""
        width = SLICES * STEP
        if data == "zero":
            return np.zeros((rows, width), np.uint8)
        return FP8.matrix(generator, data, rows, width) if self.bits == 8 else generator.integers(0, 256, (rows, width), np.uint8)

    def decoded(self, stored: np.ndarray) -> np.ndarray:
        """Return the elements of a stored matrix.

        >>> MXFP4.decoded(np.array([[0x2F]], np.uint8)).tolist()
        [[-6.0, 1.0]]
        """
        if self.bits == 8:
            return FP8.decode(stored)
        codes = np.stack([stored & 15, stored >> 4], axis=-1).reshape(len(stored), -1)
        return np.asarray(np.where(codes & 8, -1.0, 1.0) * np.array(FP4_VALUES)[codes & 7])

    def drawn_scales(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        """Return the codes of random scales: rows × blocks of all slices."""
        low, high = FRACTIONS if self.fractions else EXPONENTS
        return generator.integers(low, high + 1, (rows, SLICES * self.scales), np.uint8)

    def packed(self, codes: np.ndarray) -> np.ndarray:
        """Return scales as tensor memory takes them: a word of four a row, the first in the lowest byte; words × rows.

        >>> MXFP8.packed(np.array([[127, 128]], np.uint8)).tolist() == [[127 + 128 * 256]]
        True
        """
        room = np.zeros((len(codes), 4 * self.words), np.uint8)
        room[:, : codes.shape[1]] = codes
        return np.ascontiguousarray(room.view("<u4").T)

    def unpacked(self, words: np.ndarray) -> np.ndarray:
        """Return the scales that words hold: rows × blocks of all slices."""
        codes = np.ascontiguousarray(words.T).view(np.uint8)[:, : SLICES * self.scales]
        return FP8.decode(codes) if self.fractions else np.exp2(codes.astype(np.float64) - 127)


MXFP8 = ScaledFormat("MXFP8", "mxf8f6f4", 1, 8, "fp8")
MXFP4 = ScaledFormat("MXFP4", "mxf4", 2, 4, "fp4")
NVFP4 = ScaledFormat("NVFP4", "mxf4nvf4", 4, 4, "fp4", fractions=True)
FORMATS = (MXFP8, MXFP4, NVFP4)

# As in `ptx_tcgen05`, but for the scales: each warp writes those of all rows into its own 32 lanes of tensor memory, for the tensor cores
# read every warp's lanes. A column holds a word of four scales for each of 32 rows; those of A come behind D, then those of B.
_KERNEL = r"""
extern "C" __global__ void __launch_bounds__({threads}, 1) tcgen05_scaled(
    u64 *clocks, const u32 *a, const u32 *b, const u32 *scales_a, const u32 *scales_b, float *d, int trips)
{{
    extern __shared__ __align__(128) u32 tile[];
    __shared__ __align__(16) u64 barriers[2];
    __shared__ u32 given;
    u32 *const tile_a = tile, *const tile_b = tile + {rows} * {words};
    const u32 barrier = ullage_shared(barriers);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    lay_out(tile_a, a, {rows}, {words});
    lay_out(tile_b, b, {n}, {words});
    if (warp == 0) {{
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 512;" :: "r"(ullage_shared(&given)) : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
    }}
    prepare_products(barrier);
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    const u32 sums = *(volatile u32 *)&given, of_a = sums + {n}, of_b = of_a + {scale_words} * {rows} / 32;
    for (int column = 0; column < {scale_words} * {rows} / 32; ++column)
        asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {{%1}};"
            :: "r"(of_a + (warp << 21) + column), "r"(scales_a[32 * column + lane]) : "memory");
    for (int column = 0; column < {scale_words} * {n} / 32; ++column)
        asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {{%1}};"
            :: "r"(of_b + (warp << 21) + column), "r"(scales_b[32 * column + lane]) : "memory");
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    const u64 version = 1ull << 46;
    const u64 describes_a = described(tile_a, {rows}) | version, describes_b = described(tile_b, {n}) | version;
    const u32 descriptors[{slices}] = {{{descriptors}}};
    ULLAGE_BEGIN
    if (__shfl_sync(0xffffffff, warp, 0) == 0 && elected()) {{
        #pragma unroll 1
        for (int trip = 0; trip < trips; ++trip) {{
            if (trip >= 2) await(barrier + trip % 2 * 8, (trip / 2 - 1) % 2);
            #pragma unroll
            for (int round = 0; round < {rounds}; ++round)
                #pragma unroll
                for (int slice = 0; slice < {slices}; ++slice) {{
                    const int word = slice * {scale_words} / {slices};
                    asm volatile("{{ .reg .pred p; setp.ne.u32 p, %6, 0;"
                        " tcgen05.mma.cta_group::1.kind::{kind}.block_scale.scale_vec::{scales}X [%0], %1, %2, %3, [%4], [%5], p; }}"
                        :: "r"(sums), "l"(describes_a + slice * 2 * {rows}), "l"(describes_b + slice * 2 * {n}), "r"(descriptors[slice]),
                           "r"(of_a + word * {rows} / 32), "r"(of_b + word * {n} / 32), "r"(round | slice ? 1 : trip) : "memory");
                }}
            asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
                :: "r"(barrier + trip % 2 * 8) : "memory");
        }}
        for (int trip = trips < 2 ? 0 : trips - 2; trip < trips; ++trip) await(barrier + trip % 2 * 8, trip / 2 % 2);
        asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    }}
    ULLAGE_END
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    if (blockIdx.x == 0) write_sums((u32 *)d, sums, {n});
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    if (warp == 0) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 512;" :: "r"(sums));
}}
"""


def source(form: ScaledFormat) -> str:
    """Return the kernel `tcgen05_scaled`: A [128, bytes] and B [256, bytes] row by row, their scales [words, rows], D [128, 256]."""
    return COMMON + _KERNEL.format(
        threads=THREADS, rows=ROWS, words=SLICES * STEP // 4, n=COLUMNS, rounds=ROUNDS, slices=SLICES, kind=form.kind, scales=form.scales,
        scale_words=form.words, descriptors=", ".join(f"{form.descriptor(one)}u" for one in range(SLICES)),
    )  # fmt: skip


@bench(
    "tcgen05-scaled",
    title="tcgen05.mma with block scales: zeros or random data",
    source="not in the Hopper paper; PTX ISA, tcgen05.mma with block_scale",
    layout=TableLayout(rows=("A/B", "scales", "instruction"), across=("data",)),
    architectures=ARCHITECTURES,
    seconds=5,
)
def tcgen05_scaled(target: Target, quick: bool) -> Iterator[Case]:
    """SM cycles of one m128n256 `tcgen05.mma` with block scales in a chain, and FLOP/s of the whole GPU on zeros and on random data.

    MXFP8 (E4M3) and MXFP4 (E2M1) have a power of two for each 32 elements along k, NVFP4 (E2M1) a UE4M3 for each 16. Elements lie in
    shared memory, scales in tensor memory, where they are written once: what moving them costs is not part of it. All scales differ, and
    the result is checked. Otherwise all is as in `tcgen05`: MXFP8 beside its FP8 shows what scales cost.
    """
    for form in FORMATS[::2] if quick else FORMATS:
        names = {"A/B": form.name, "scales": f"1 per {form.block}", "instruction": form.shape}
        yield latency(form, {**names, "data": "zero"})
        yield throughput(form, {**names, "data": "zero"}, target, "zero")
        yield throughput(form, {**names, "data": "random"}, target, "random")


def latency(form: ScaledFormat, labels: Labels) -> Case:
    """Return the case of one SM whose every product adds to the sum of the one before."""
    return _case(form, labels, 1, CYCLES // 8 // _PACE, ("latency",), "zero")


def throughput(form: ScaledFormat, labels: Labels, target: Target, data: Data) -> Case:
    """Return the case of the same on every SM."""
    return _case(form, labels, target.sms, CYCLES // _PACE, ("throughput",), data)


_PACE = SLICES * ROUNDS * COLUMNS // 2  # about how many cycles a trip takes


def _case(form: ScaledFormat, labels: Labels, grid: int, trips: int, quantities: tuple[Quantity, ...], data: Data) -> Case:
    def inputs(generator: np.random.Generator, filled: Data) -> Arrays:
        elements = [form.elements(generator, filled, rows) for rows in (ROWS, COLUMNS)]
        return (*elements, *(form.packed(form.drawn_scales(generator, rows)) for rows in (ROWS, COLUMNS)))

    return Case(
        labels=labels,
        source=source(form),
        entry="tcgen05_scaled",
        grid=grid,
        block=THREADS,
        trips=trips,
        inputs=inputs,
        timed_inputs=lambda arrays: cancelling(form, arrays),
        outputs=(Output((ROWS, COLUMNS), "float32"),),
        reference=lambda arrays, times: product(form, arrays, times * ROUNDS),
        quantities=quantities,
        shared=SLICES * STEP * (ROWS + COLUMNS),
        data=data,
        check_trips=5,  # more than the two trips that are in flight
        tolerance=max(FP32.tolerance, FP8_TOLERANCE) if form.bits == 8 else FP32.tolerance,
        flops=form.flops * SLICES * ROUNDS * trips * grid,
        steps=SLICES * ROUNDS,
        issues={form.opcode: SLICES * ROUNDS},
        precision=form.precision,
    )


def product(form: ScaledFormat, inputs: Arrays, times: int) -> Arrays:
    """Return what D [128, 256] must be after so many additions of the product of the scaled matrices."""
    elements, scales = inputs[:2], inputs[2:]
    a, b = (
        form.decoded(stored) * np.repeat(form.unpacked(words), form.block, axis=1) for stored, words in zip(elements, scales, strict=True)
    )
    return ((times * (a @ b.T)).astype(np.float32),)


def cancelling(form: ScaledFormat, inputs: Arrays) -> Arrays:
    """Return operands whose second slice subtracts what the first adds: the same elements of A with their signs turned, the same scales."""
    a, b, *scales = inputs
    first_a, first_b = a[:, :STEP], b[:, :STEP]
    signs = np.uint8(0x80 if form.bits == 8 else 0x88)
    codes = [np.ascontiguousarray(words.T).view(np.uint8)[:, : form.scales] for words in scales]
    return (
        np.hstack([first_a, first_a ^ signs]),
        np.hstack([first_b, first_b]),
        *(form.packed(np.hstack([one] * SLICES)) for one in codes),
    )
