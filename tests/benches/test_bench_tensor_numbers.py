"""Tensor-core benches: number formats, references, and where a kernel's fragments and descriptors point, by PTX's own formulas."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benches.accumulated_products import Rounding, lasting_round, nearest, products_in_turn, truncated
from ullage.benches import ptx_mma, ptx_tcgen05, ptx_wgmma
from ullage.benches.bench import Case, Target
from ullage.benches.operands import (
    BF16,
    FP8,
    FP8_E5M2,
    FP16,
    FP16_SUM,
    FP32,
    FP64,
    FP64_SUM,
    INT8,
    INT32,
    TF32,
    Operand,
    cancelling,
    expanded,
    metadata,
    product,
)
from ullage.benches.ptx_mma import BROAD, BROAD_FP64, CHAIN, Mma
from ullage.benches.ptx_wgmma import Wgmma
from ullage.benches.running.checking import wrong

OPERANDS = (FP16, BF16, TF32, FP8, FP8_E5M2, INT8, FP64)
TARGET = Target("sm_90a")


def random() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.mark.parametrize("operand", OPERANDS, ids=lambda operand: operand.name)
def test_random_operands_lie_between_minus_one_and_one_and_fill_their_significand(operand):
    matrix = operand.matrix(random(), "random", 128, 128)
    values = operand.decode(matrix)
    assert matrix.itemsize * 8 == operand.bits
    assert np.abs(values).max() <= (128 if operand is INT8 else 1)
    assert 0.45 < (values < 0).mean() < 0.55
    lowest = {TF32: 13, FP64: 6}.get(operand, 0)  # TF32 has the upper 19 bits of an FP32; a draw near 1 lacks the last of FP64
    bits = matrix.view({8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[operand.bits])
    assert 0.4 < (bits >> bits.dtype.type(lowest) & bits.dtype.type(1)).mean() < 0.6
    assert operand is FP64 or not (bits & bits.dtype.type((1 << lowest) - 1)).any()


@pytest.mark.parametrize("operand", OPERANDS, ids=lambda operand: operand.name)
def test_zero_operands_are_all_zero_bits(operand):
    assert not operand.matrix(random(), "zero", 8, 8).view(np.uint8).any()


@pytest.mark.parametrize(("operand", "dtype"), [(FP8, "float8_e4m3fn"), (FP8_E5M2, "float8_e5m2"), (BF16, "bfloat16")])
def test_codes_are_read_as_pytorch_reads_them(operand, dtype):
    torch = pytest.importorskip("torch")
    codes = np.arange(256, dtype=np.uint8) if operand.bits == 8 else np.arange(0x3C00, 0x4100, dtype=np.uint16)
    theirs = torch.from_numpy(codes.copy()).view(getattr(torch, dtype)).double().numpy()
    assert np.array_equal(operand.decode(codes), theirs, equal_nan=True)


@given(st.floats(-0.999, 0.999), st.sampled_from([FP8, FP8_E5M2]))
def test_an_8_bit_code_is_the_nearest(value, operand):
    every = operand.decode(np.arange(256, dtype=np.uint8))
    written = operand.decode(operand.encode(np.array([value])))[0]
    assert abs(written - value) == pytest.approx(np.nanmin(np.abs(every[np.isfinite(every)] - value)), abs=1e-12)


@given(st.floats(-0.999, 0.999), st.sampled_from([(FP16, 11), (BF16, 8), (TF32, 11), (FP64, 53)]))
def test_a_written_number_is_within_a_last_place(value, pair):
    operand, significand = pair
    written = operand.decode(operand.encode(np.array([value])))[0]
    assert abs(written - value) <= max(abs(value), 2.0**-14) * 2.0 ** (1 - significand)


def by_hand(a: np.ndarray, b: np.ndarray, word: int | None, bits: int, times: int) -> list[list[float]]:
    """A·Bᵀ in plain loops; with a word of metadata, A's elements go where PTX's sparse matrix storage says."""
    out = []
    for row in a.tolist():
        dense = row
        if word is not None and bits == 32:  # one of two: 0b0100 the first, 0b1110 the second
            dense = [x for kept in row for x in ((kept, 0.0) if word & 15 == 0b0100 else (0.0, kept))]
        elif word is not None:  # two of four, at the places of two 2-bit indices
            dense = []
            for first, second in zip(row[::2], row[1::2], strict=True):
                four = [0.0] * 4
                four[word & 3], four[word >> 2 & 3] = first, second
                dense += four
        out.append([times * sum(x * y for x, y in zip(dense, column, strict=True)) for column in b.tolist()])
    return out


@pytest.mark.parametrize("operand", OPERANDS, ids=lambda operand: operand.name)
def test_the_reference_is_the_product_in_plain_loops(operand):
    a, b = (operand.matrix(random(), "random", rows, 8) for rows in (3, 5))
    accumulator = INT32 if operand is INT8 else FP64_SUM
    (found,) = product(operand, accumulator, (a, b), 3)
    assert np.allclose(found, by_hand(operand.decode(a), operand.decode(b), None, operand.bits, 3), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("nibble", [0x4, 0x8, 0xC, 0x9, 0xD, 0xE])
def test_the_sparse_reference_puts_kept_elements_where_metadata_says(nibble):
    a, b = INT8.matrix(random(), "random", 3, 4), INT8.matrix(random(), "random", 5, 8)
    word = nibble * 0x11111111
    (found,) = product(INT8, INT32, (a, b, np.array([word], np.uint32)), 2)
    assert found.tolist() == by_hand(a.astype(int), b.astype(int), word, 8, 2)


@pytest.mark.parametrize("nibble", [0x4, 0xE])
def test_tf32_keeps_one_of_two(nibble):
    a, b = TF32.matrix(random(), "random", 3, 4), TF32.matrix(random(), "random", 5, 8)
    word = nibble * 0x11111111
    (found,) = product(TF32, FP64_SUM, (a, b, np.array([word], np.uint32)), 2)
    assert np.allclose(found, by_hand(TF32.decode(a), TF32.decode(b), word, 32, 2), rtol=1e-12, atol=1e-12)


@given(st.integers(0, 2**32 - 1), st.sampled_from([FP16, INT8, TF32]))
def test_metadata_keeps_half_of_each_chunk_in_ascending_order(seed, operand):
    (word,) = metadata(operand, np.random.default_rng(seed))
    kept = expanded(np.arange(1.0, 9.0).reshape(1, 8), int(word), operand.bits)
    assert kept.shape == (1, 16)
    assert kept[kept > 0].tolist() == list(range(1, 9))
    assert int(word) & 15 in (0x4, 0x8, 0xC, 0x9, 0xD, 0xE)
    assert len(set(f"{int(word):08x}")) == 1


def expression(source: str, pattern: str) -> Callable[..., int]:
    """An index expression of a kernel's source, as a function of its variables (whole numbers divide downwards in both languages)."""
    found = re.search(pattern, source)
    assert found, pattern
    code = compile(f"({found[1].replace('/', '//')})", "kernel", "eval")
    return lambda **variables: int(eval(code, {}, variables))


# PTX ISA, matrix fragments: row and first column of register r of A, column of B's first element is k, its row n; elements a register
DOCUMENTED = [
    # m16n8k16 f16: a0,a1 | a2,a3 (row + 8) | a4,a5 (column + 8) | a6,a7 (both)
    (Mma(FP16, FP32, 16), 2, lambda g, t, r: (g + 8 * (r in (1, 3)), 2 * t + 8 * (r >= 2)), lambda g, t, r: (g, 2 * t + 8 * r)),
    (Mma(FP16, FP32, 8), 2, lambda g, t, r: (g + 8 * r, 2 * t), lambda g, t, r: (g, 2 * t)),
    # m16n8k32 s8: a0..a3 | a4..a7 (row + 8) | a8..a11 (column + 16) | a12..a15; b0..b3, b4..b7 (k + 16)
    (Mma(INT8, INT32, 32), 4, lambda g, t, r: (g + 8 * (r in (1, 3)), 4 * t + 16 * (r >= 2)), lambda g, t, r: (g, 4 * t + 16 * r)),
    # m16n8k8 tf32: a0 | a1 (row + 8) | a2 (column + 4) | a3; b0, b1 (k + 4)
    (Mma(TF32, FP32, 8), 1, lambda g, t, r: (g + 8 * (r in (1, 3)), t + 4 * (r >= 2)), lambda g, t, r: (g, t + 4 * r)),
    # m16n8k16 f64: row g for even i, column 2 i − 2 (i % 2) + t; b_i: k = t + 4 i
    (Mma(FP64, FP64_SUM, 16), 1, lambda g, t, r: (g + 8 * (r % 2), 2 * r - 2 * (r % 2) + t), lambda g, t, r: (g, t + 4 * r)),
    # m8n8k4 f64: one element each, row g, k = t
    (Mma(FP64, FP64_SUM, 4, m=8), 1, lambda g, t, r: (g, t), lambda g, t, r: (g, t)),
]


@pytest.mark.parametrize(("mma", "elements", "of_a", "of_b"), DOCUMENTED)
def test_fragments_of_mma_are_loaded_as_documented(mma, elements, of_a, of_b):
    source = ptx_mma.source(mma, CHAIN)
    load_a = expression(source, r"(?s)fa\[s\]\[i\]\[r\] = a\[(.*?)\];")
    load_b = expression(source, r"fb\[j\]\[r\] = b\[(.*)\];")
    store = expression(source, r"d\[(.*)\] =")
    a_cells, b_cells = (k // elements for k in (mma.k, mma.real_k))
    for lane in range(32):
        g, t = lane // 4, lane % 4
        for r in range(mma.registers[0]):
            row, column = of_a(g, t, r)
            for s in range(CHAIN.sets):  # in a row of A its sets lie one behind the other
                assert load_a(warp=0, i=0, s=s, group=g, place=t, r=r) == (row * CHAIN.sets + s) * a_cells + column // elements
        for r in range(mma.registers[1]):
            n, k = of_b(g, t, r)
            assert load_b(j=0, group=g, place=t, r=r) == n * b_cells + k // elements
        for r in range(mma.m * mma.n // 32):  # c0,c1 in row g, c2,c3 in row g + 8; columns 2 t, 2 t + 1
            row, column = g + 8 * (r // 2), 2 * t + r % 2
            assert store(row=row, column=column) == row * 8 + column


def test_each_warp_and_tile_has_its_own_rows_and_columns():
    source = ptx_mma.source(Mma(FP16, FP32, 16), BROAD)
    load = expression(source, r"(?s)fa\[s\]\[i\]\[r\] = a\[(.*?)\];")
    places = [
        load(warp=w, i=i, s=s, group=g, place=t, r=r)
        for w, i, s, g, t, r in itertools.product(range(8), range(2), range(4), range(8), range(4), range(4))
    ]
    assert sorted(places) == list(range(8 * 2 * 16 * 4 * 8))  # 256 rows of 4 sets of 8 words, each once


@pytest.mark.parametrize("mode", ["SS", "RS"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n", [8, 256])
def test_a_descriptor_finds_each_byte_in_the_canonical_layout(mode, sparse, n):
    # PTX ISA, K-major without swizzle, in units of 16 B: ((8, m), (1, 2 k)) : ((1, stride), (1, leading))
    groups = 2
    wgmma = Wgmma(FP16, FP32, n, mode, sparse)
    source = ptx_wgmma.source(wgmma, groups)
    lay = expression(source, r"to\[(word .*)\] = from")
    advance_b = int(re.findall(r"describes_b \+ slice \* (\d+)", source)[0])
    for row in (0, 1, 7, n - 1):
        for slice_, byte in ((0, 0), (1, 4), (1, 28), (0, 20)):
            where = 4 * lay(word=(slice_ * (64 if sparse else 32) + byte) // 4, rows=n, row=row)
            stride, leading = 128, 16 * n  # described(): stride 128, leading rows · 16
            documented = 16 * advance_b * slice_ + row % 8 * 16 + row // 8 * stride + byte % 16 + byte // 16 * leading
            assert where == documented
    assert f"described(tile_b, {n})" in source
    assert (f"describes_a + slice * {2 * 64 * groups})" in source) == (mode == "SS")
    assert "address | leading << 16 | stride << 32" in source  # bits 0, 16 and 32; no swizzle: bits 62 and 63 are 0


def test_a_warp_group_begins_64_rows_further():
    # 64 rows of 16 B, in words
    assert "tile_a + which * 64 * 4" in ptx_wgmma.source(Wgmma(FP16, FP32, 64), 2)


def test_sums_of_wgmma_are_stored_as_documented():
    # d[i]: row 16 · warp + g + 8 · (i / 2 % 2), column 8 · (i / 4) + 2 · t + i % 2
    store = expression(ptx_wgmma.source(Wgmma(FP16, FP32, 64), 1), r"d\[(\(row .*)\] =")
    seen = {store(row=16 * w + g, place=t, i=i) for w in range(4) for g in range(8) for t in range(4) for i in range(32)}
    assert seen == set(range(64 * 64))
    assert store(row=0, place=0, i=2) == 8 * 64  # third register: row + 8
    assert store(row=0, place=0, i=4) == 8  # fifth: next eight columns


def test_fragments_of_wgmma_are_loaded_as_documented():
    # a0: row g, bytes 4 t; a1: row g + 8; a2: row g, bytes 16 + 4 t; a3: both; a slice is 8 words of a row of 32
    load = expression(ptx_wgmma.source(Wgmma(FP16, FP32, 64, "RS"), 1), r"fa\[slice\]\[r\] = a\[(.*)\];")
    assert [load(row=3, place=2, slice=1, r=r) for r in range(4)] == [3 * 32 + 10, 11 * 32 + 10, 3 * 32 + 14, 11 * 32 + 14]


def test_a_descriptor_of_tcgen05_has_its_version_and_slices():
    source = ptx_tcgen05.source(ptx_tcgen05.Tcgen05(BF16, FP32, 64))
    assert "version = 1ull << 46" in source  # bits 46 to 48: 0b001
    assert "describes_a + slice * 2 * 128" in source  # 32 B of a row are two columns of core matrices, each 128 rows of 16 B
    assert "describes_b + slice * 2 * 64" in source


def tensor_like(case: Case, inputs: tuple[np.ndarray, ...], step: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """What a tensor core may give: the products added in as many steps as the kernel has, rounded by `step` after each."""
    (whole,) = case.reference(inputs, case.check_trips)
    steps = case.check_trips * case.steps
    total = np.zeros_like(whole, dtype=np.float64)
    for _ in range(steps):
        total = step(total + whole.astype(np.float64) / steps)
    return total.astype(whole.dtype)


CHAINS = [
    (ptx_mma.latency(Mma(FP16, FP16_SUM, 16), {}), 11),
    (ptx_mma.latency(Mma(FP8, FP32, 32), {}), 14),
    (ptx_mma.latency(Mma(TF32, FP32, 8), {}), 23),
    (ptx_wgmma.throughput(Wgmma(FP8, FP32, 256), {}, TARGET, "random"), 14),
    (ptx_wgmma.throughput(Wgmma(FP16, FP32, 8), {}, TARGET, "random"), 23),
]


@pytest.mark.parametrize(("case", "bits"), CHAINS)
def test_a_tolerance_admits_the_rounding_of_every_step_and_no_slip(case, bits):
    inputs = case.inputs(random(), "random")
    right = case.reference(inputs, case.check_trips)
    assert wrong([tensor_like(case, inputs, truncated(bits))], right, case.tolerance) is None
    swapped = (inputs[0][:, ::-1].copy(), *inputs[1:])  # k the wrong way round
    assert wrong(case.reference(swapped, case.check_trips), right, case.tolerance)
    (once_too_few,) = case.reference(inputs, case.check_trips - 1)
    assert wrong([once_too_few], right, case.tolerance)


@pytest.mark.parametrize("operand", [FP16, TF32, FP8])
def test_one_lost_element_of_k_is_seen(operand: Operand):
    case = ptx_wgmma.throughput(Wgmma(operand, FP32, 256), {}, TARGET, "random")
    a, b = case.inputs(random(), "random")
    lost = a.copy()
    lost[:, 5] = 0
    assert wrong(case.reference((lost, b), 2), case.reference((a, b), 2), case.tolerance)


def throughput(instruction: Mma | Wgmma) -> Case:
    if isinstance(instruction, Mma):
        return ptx_mma.throughput(instruction, {}, TARGET)
    return ptx_wgmma.throughput(instruction, {}, TARGET, "random")


def changed_shares(sums: list[np.ndarray]) -> list[float]:
    """How many of the sums each product of a round changes."""
    return [float((after != before).mean()) for before, after in itertools.pairwise(sums)]


TIMED = [
    *((one, nearest(one.accumulator)) for one in (
        Mma(FP16, FP16_SUM, 16), Mma(FP16, FP16_SUM, 8, sparse=True), Mma(FP16, FP32, 16), Mma(TF32, FP32, 8, sparse=True),
        Mma(INT8, INT32, 32), Mma(BF16, FP32, 16), Mma(FP64, FP64_SUM, 4, m=8),
        Wgmma(FP16, FP16_SUM, 64), Wgmma(FP16, FP16_SUM, 64, "RS", sparse=True),
        Wgmma(FP8, FP16_SUM, 64), Wgmma(FP8_E5M2, FP32, 64), Wgmma(INT8, INT32, 64, sparse=True),
    )),
    # as a tensor core would that truncates: sums in FP16 to 11 bits, those of FP8 products to 14
    (Mma(FP16, FP16_SUM, 16), truncated(11)), (Wgmma(FP8, FP32, 64), truncated(14)), (Wgmma(FP8, FP16_SUM, 64, sparse=True), truncated(11)),
]  # fmt: skip


@pytest.mark.parametrize(("instruction", "rounding"), TIMED)
def test_timed_accumulators_stay_small_and_change_with_every_product_however_long(instruction: Mma | Wgmma, rounding: Rounding):
    case = throughput(instruction)
    assert case.timed_inputs is not None
    a, b, *pattern = case.timed_inputs(case.inputs(random(), "random"))
    products = products_in_turn(instruction, (a[:16], b[:8], *pattern))
    sums = lasting_round(products, rounding)
    assert min(changed_shares(sums)) > 0.99
    # half of the products are added before the others are subtracted: no sum is larger than those, but for its own rounding
    assert (np.abs(np.array(sums, np.float64)) <= 1.01 * np.abs(products[: len(products) // 2]).sum(axis=0)).all()


@pytest.mark.parametrize("instruction", [Mma(FP16, FP16_SUM, 16), Wgmma(FP16, FP16_SUM, 64), Wgmma(FP8, FP16_SUM, 64)])
def test_many_fp16_accumulators_stand_still_where_the_products_do_not_cancel(instruction: Mma | Wgmma):
    a, b = throughput(instruction).inputs(random(), "random")
    sums = lasting_round(products_in_turn(instruction, (a[:16], b[:8])), nearest(FP16_SUM))
    assert max(changed_shares(sums)) < 0.6
    assert np.abs(sums).max() > 1000


@pytest.mark.parametrize("case", [throughput(one) for one, _ in TIMED[:12]])
def test_what_is_timed_cancels_to_the_reference_of_zero_and_has_the_numbers_that_were_checked(case: Case):
    inputs = case.inputs(random(), "random")
    assert case.timed_inputs is not None
    timed = case.timed_inputs(inputs)
    assert [(one.shape, one.dtype) for one in timed] == [(one.shape, one.dtype) for one in inputs]
    (largest,), (sums,) = (case.reference(arrays, 1000) for arrays in (inputs, timed))
    assert np.abs(sums).max() <= 1e-9 * np.abs(largest).max()
    assert np.array_equal(inputs[0][:, 0], timed[0][:, 0]) or inputs[0].dtype == np.int8  # of INT8, −128 is −127
    assert not np.array_equal(*case.reference(inputs, 1), *case.reference(timed, 1))


def test_products_of_tcgen05_cancel_too():
    case = ptx_tcgen05.throughput(ptx_tcgen05.Tcgen05(BF16, FP32, 64), {}, Target("sm_100a"), "random")
    assert case.timed_inputs is not None
    (sums,) = case.reference(case.timed_inputs(case.inputs(random(), "random")), 1000)
    assert np.abs(sums).max() < 1e-9


@pytest.mark.parametrize("operand", OPERANDS, ids=lambda operand: operand.name)
def test_what_was_added_is_subtracted_in_reverse_order_in_every_format(operand):
    a, b = (operand.matrix(random(), "random", rows, 32) for rows in (3, 5))
    opposed_a, mirrored_b = (operand.decode(one) for one in cancelling((a, b), 4))
    first, second, third, fourth = np.split(opposed_a, 4, axis=1)
    assert np.array_equal(first, np.maximum(operand.decode(a[:, :8]), -127))
    assert np.array_equal(third, -second) and np.array_equal(fourth, -first)
    assert np.array_equal(mirrored_b[:, 16:], np.hstack([mirrored_b[:, 8:16], mirrored_b[:, :8]]))


def test_integer_products_are_exact():
    for case in (ptx_mma.latency(Mma(INT8, INT32, 32), {}), ptx_wgmma.latency(Wgmma(INT8, INT32, 256), {})):
        assert case.tolerance == 0


def test_fp64_needs_fewer_sums_at_once():
    case = ptx_mma.throughput(Mma(FP64, FP64_SUM, 16), {}, TARGET)
    # 2 · 16 · 8 · 16 operations, 32 instructions a trip, 8 warps, 132 SMs
    assert BROAD_FP64.issues == 32
    assert case.flops == 4096 * 32 * 8 * 132 * case.trips
