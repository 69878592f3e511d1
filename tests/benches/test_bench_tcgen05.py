"""Products of tcgen05 with block scales and of pairs of SMs: formats, descriptors and references by hand, the kernels on a CPU."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tests.benches.emulated_gpu import emulated
from ullage.benches import ptx_tcgen05, tcgen05, tcgen05_pair, tcgen05_scaled
from ullage.benches.bench import BENCHES, Case, Target, cases_for
from ullage.benches.operands import BF16, FP8, FP16, FP32, INT8, INT32
from ullage.benches.ptx_tcgen05 import Tcgen05
from ullage.benches.tcgen05_scaled import FORMATS, MXFP4, MXFP8, NVFP4, ScaledFormat

emulates = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which builds the model")
FULL = pytest.mark.full
TARGET = Target("sm_100a", sms=2)
each = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)


# --- numbers ---


def small(code: int, exponent_bits: int, fraction_bits: int, bias: int) -> Fraction:
    """A floating-point number of so many bits, by its definition."""
    sign, exponent = code >> (exponent_bits + fraction_bits), code >> fraction_bits & (2**exponent_bits - 1)
    fraction = Fraction(code & (2**fraction_bits - 1), 2**fraction_bits)
    size = (1 + fraction) * Fraction(2) ** (exponent - bias) if exponent else fraction * Fraction(2) ** (1 - bias)
    return -size if sign else size


def element(form: ScaledFormat, stored: np.ndarray, row: int, k: int) -> Fraction:
    if form.bits == 8:
        return small(int(stored[row, k]), 4, 3, 7)
    return small(int(stored[row, k // 2]) >> k % 2 * 4 & 15, 2, 1, 1)


def scale(form: ScaledFormat, words: np.ndarray, row: int, k: int) -> Fraction:
    number = k // form.block
    code = int(words[number // 4, row]) >> number % 4 * 8 & 255
    return small(code, 4, 3, 7) if form.fractions else Fraction(2) ** (code - 127)


@each
def test_a_product_is_the_sum_of_scaled_elements_as_the_formats_define_them(form: ScaledFormat) -> None:
    case = tcgen05_scaled.latency(form, {})
    a, b, scales_a, scales_b = arrays = case.inputs(np.random.default_rng(1), "random")
    (found,) = case.reference(arrays, 3)
    for row, column in ((0, 0), (127, 255), (33, 200)):
        total = sum(
            element(form, a, row, k) * scale(form, scales_a, row, k) * element(form, b, column, k) * scale(form, scales_b, column, k)
            for k in range(2 * form.k)
        )
        assert found[row, column] == pytest.approx(float(3 * 4 * total), rel=1e-6)


@each
def test_scales_and_elements_are_drawn_from_more_than_one_value_and_never_nan(form: ScaledFormat) -> None:
    a, _, scales, _ = tcgen05_scaled.latency(form, {}).inputs(np.random.default_rng(2), "random")
    values, drawn = form.decoded(a), form.unpacked(scales)
    assert len(np.unique(values)) > 10 and np.isfinite(values).all()
    assert len(np.unique(drawn)) > 4 and 0.25 <= drawn.min() < drawn.max() <= 8


@each
def test_what_is_timed_comes_back_to_zero_after_each_round_and_keeps_all_bits_in_use(form: ScaledFormat) -> None:
    case = tcgen05_scaled.latency(form, {})
    assert case.timed_inputs is not None
    checked = case.inputs(np.random.default_rng(3), "random")
    timed = case.timed_inputs(checked)
    assert [one.shape for one in timed] == [one.shape for one in checked] and [one.dtype for one in timed] == [one.dtype for one in checked]
    assert (case.reference(timed, 5)[0] == 0).all()
    assert len(np.unique(form.decoded(timed[0]))) > 10 and (form.unpacked(timed[2])[:, :1] == form.unpacked(checked[2])[:, :1]).all()


def test_descriptors_name_types_shape_and_the_byte_of_the_first_scale() -> None:
    def fields(bits: int) -> list[int]:
        ends = ((4, 2), (7, 3), (10, 3), (17, 6), (23, 1), (24, 5), (29, 2))
        return [bits >> at & (1 << width) - 1 for at, width in ends]

    n, m = 256 >> 3, 128 >> 4
    assert [fields(MXFP8.descriptor(one)) for one in (0, 1)] == [[0, 0, 0, n, 1, m, 0], [1, 0, 0, n, 1, m, 1]]
    assert [fields(MXFP4.descriptor(one)) for one in (0, 1)] == [[0, 1, 1, n, 1, m, 0], [2, 1, 1, n, 1, m, 2]]
    assert [fields(NVFP4.descriptor(one)) for one in (0, 1)] == [[0, 1, 1, n, 0, m, 0]] * 2


def test_formats_are_those_of_the_specifications() -> None:
    assert [(form.block, form.k, form.words) for form in FORMATS] == [(32, 32, 1), (32, 64, 1), (16, 64, 2)]


def test_a_pair_counts_the_work_of_both_and_a_second_row_of_d_for_each() -> None:
    case = tcgen05_pair.throughput(Tcgen05(BF16, FP32), {}, replace(TARGET, sms=149), "random")
    assert (case.grid, case.cluster, case.outputs[0].shape) == (148, 2, (256, 256))
    assert case.flops == 74 * case.trips * 8 * 2 * 256 * 256 * 16


@pytest.mark.parametrize("name", ["tcgen05-pair", "tcgen05-scaled"])
def test_all_data_that_is_timed_is_measured_on_zeros_and_at_random(name: str) -> None:
    cases = [case for case in cases_for(BENCHES[name], TARGET) if "throughput" in case.quantities]
    assert {case.labels["data"] for case in cases} == {"zero", "random"}
    assert all(case.precision in ("fp16", "bf16", "tf32", "fp8", "fp4") for case in cases)


# --- the kernels on a CPU ---


def every() -> Iterator[object]:
    one = replace(TARGET, sms=1)
    for operand, accumulator, _ in tcgen05.PAIRS:
        for n in tcgen05.SIZES:
            case = ptx_tcgen05.throughput(Tcgen05(operand, accumulator, n), {}, one, "random")
            yield pytest.param(case, id=f"{operand.name}-{n}", marks=() if (operand, n) in ((BF16, 32), (INT8, 64)) else FULL)
    for operand in tcgen05_pair.OPERANDS:
        for n in tcgen05_pair.SIZES:
            case = tcgen05_pair.throughput(Tcgen05(operand, FP32, n), {}, TARGET, "random")
            yield pytest.param(case, id=f"pair-{operand.name}-{n}", marks=() if (operand, n) in ((FP16, 64), (FP8, 64)) else FULL)
    for form in FORMATS:
        yield pytest.param(tcgen05_scaled.throughput(form, {}, one, "random"), id=form.name)


@emulates
@pytest.mark.parametrize("case", list(every()))
def test_a_product_by_the_documented_descriptors_equals_its_reference(case: Case, emulation_folder: Path) -> None:
    assert emulated(case, emulation_folder) is None


def changed(case: Case, given: str, instead: str) -> Case:
    assert given in case.source, given
    return replace(case, source=case.source.replace(given, instead))


SCALED = [
    ("scales_a[32 * column + lane]", "scales_a[32 * column + (lane ^ 1)]", "result is wrong"),
    ("const int word = slice * 2 / 2;", "const int word = 0;", "result is wrong"),
    ("of_a + (warp << 21) + column", "of_a + column", "lanes of tensor memory that are not its own"),
    ("{138413184u, 138413184u}", "{146801792u, 146801792u}", "scales of mxf4nvf4"),
    ('asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");', "", "not waited for and fenced"),
    ("[%0], 512;", "[%0], 256;", "not allocated"),
    ('if (warp == 0) asm volatile("tcgen05.dealloc', 'if (warp == 4) asm volatile("tcgen05.dealloc', "not given back"),
]


@emulates
@pytest.mark.parametrize(("given", "instead", "why"), SCALED)
def test_scales_that_lie_otherwise_are_found_out(given: str, instead: str, why: str, emulation_folder: Path) -> None:
    case = tcgen05_scaled.throughput(NVFP4, {}, replace(TARGET, sms=1), "random")
    assert why in str(emulated(changed(case, given, instead), emulation_folder))


PAIRED = Tcgen05(BF16, FP32, 64)
PAIR = [
    ("b + rank * 32 *", "b + (1 - rank) * 32 *", "result is wrong"),
    ("rank == 0 &&", "rank == 1 &&", "the second block of a pair issues a product"),
    ("rank == 0 &&", "", "the second block of a pair issues a product"),
    (f'"r"({tcgen05_pair.descriptor(PAIRED)}u)', f'"r"({PAIRED.descriptor}u)', "m of a product"),
]


@emulates
@pytest.mark.parametrize(("given", "instead", "why"), PAIR)
def test_a_pair_that_is_laid_out_otherwise_is_found_out(given: str, instead: str, why: str, emulation_folder: Path) -> None:
    case = tcgen05_pair.throughput(PAIRED, {}, TARGET, "random")
    assert why in str(emulated(changed(case, given, instead), emulation_folder))


@emulates
def test_what_a_product_may_still_write_is_not_read(emulation_folder: Path) -> None:
    case = ptx_tcgen05.throughput(Tcgen05(INT8, INT32, 64), {}, replace(TARGET, sms=1), "random")
    last = "trip = trips < 2 ? 0 : trips - 2; trip < trips; ++trip) await"
    hasty = changed(case, last, "trip = 0; trip < 0; ++trip) await")
    assert emulated(hasty, emulation_folder) is not None
