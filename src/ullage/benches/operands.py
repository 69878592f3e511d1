"""Numbers as tensor cores take them: drawn at random, laid out in bits, read back; and the product that must come out.

Random operands fill their whole significand and are spread over (-1, 1), whole bytes for integers: what a tensor core draws in power
depends on how many bits flip, so a grid coarse enough to make every sum exact would flatter the power and the clock. Integer products are
checked exactly; for the others each accumulator's `tolerance` bounds the rounding of the few steps of a check.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ullage.benches.bench import Arrays, Data

Encode = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Operand:
    """A number format of A and B: its name in tables, in PTX and in `ullage.gpus`, its bits, and how it is written and read.

    `encode` takes float64 in (-1, 1), `decode` gives float64.
    """

    name: str
    ptx: str
    precision: str
    bits: int
    encode: Encode
    decode: Encode

    def matrix(self, generator: np.random.Generator, data: Data, rows: int, columns: int) -> np.ndarray:
        """Return a matrix [rows, columns] in this format's storage, filled as `data` says."""
        if data == "zero":
            return self.encode(np.zeros((rows, columns)))
        return self.encode(generator.uniform(-1, 1, (rows, columns)))


@dataclass(frozen=True)
class Accumulator:
    """A number format of C and D: its name in tables and in PTX; of its register the C type, the inline assembly letter, the numbers in it.

    Results leave the kernel as `output` (C type, NumPy type). `tolerance` is relative to the largest result, for some dozens of steps.
    """

    name: str
    ptx: str
    register: str
    letter: str
    packed: int
    output: tuple[str, str]
    tolerance: float


# A step of FP32 accumulation drops less than 2^-22 of the sum, one in FP16 2^-10; FP8 products are summed with 13 fraction bits on Hopper
# (DeepSeek-V3 technical report, 3.3.2): 520 terms of a check that each lose half of the last bit are 1.5 % off, hence `tolerance` below.
FP32 = Accumulator("FP32", "f32", "float", "f", 1, ("float", "float32"), 2.0**-13)
FP16_SUM = Accumulator("FP16", "f16", "u32", "r", 2, ("float", "float32"), 2.0**-5)
INT32 = Accumulator("INT32", "s32", "int", "r", 1, ("int", "int32"), 0.0)
FP64_SUM = Accumulator("FP64", "f64", "double", "d", 1, ("double", "float64"), 2.0**-40)
FP8_TOLERANCE = 2.0**-5


def tolerance(operand: Operand, accumulator: Accumulator) -> float:
    """Return how far a checked result may be from its reference, relative to the largest.

    >>> tolerance(INT8, INT32), tolerance(FP8, FP32) > tolerance(FP16, FP32)
    (0.0, True)
    """
    return max(accumulator.tolerance, FP8_TOLERANCE) if operand.precision == "fp8" else accumulator.tolerance


def _bf16(values: np.ndarray) -> np.ndarray:
    return np.asarray(values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def _from_bf16(codes: np.ndarray) -> np.ndarray:
    return (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def _tf32(values: np.ndarray) -> np.ndarray:
    kept = values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    return np.asarray(kept.view(np.float32))


def _int8(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.floor(values * 128)).astype(np.int8)


def _wide(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64)


def _e4m3() -> np.ndarray:
    """Return the value of each of the 256 codes: bias 7, no infinities, NaN at S.1111.111 (OCP 8-bit floating point, table 1)."""
    codes = np.arange(256)
    exponent, fraction = codes >> 3 & 15, codes & 7
    values = np.where(exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0 ** (exponent - 10))
    values[codes & 127 == 127] = np.nan
    return np.asarray(np.where(codes < 128, values, -values))


def _e5m2() -> np.ndarray:
    """Return the value of each of the 256 codes: the upper half of an FP16."""
    return (np.arange(256, dtype=np.uint16) << 8).view(np.float16).astype(np.float64)


def _byte(table: np.ndarray) -> tuple[Encode, Encode]:
    """Return the encoder (to the nearest) and decoder of an 8-bit format."""
    magnitudes = table[:128][np.isfinite(table[:128])]  # of the codes 0, 1, 2, …, in ascending order
    borders = (magnitudes[1:] + magnitudes[:-1]) / 2

    def encode(values: np.ndarray) -> np.ndarray:
        return np.asarray(np.searchsorted(borders, np.abs(values)) + 128 * (values < 0)).astype(np.uint8)

    return encode, lambda codes: table[codes]


FP16 = Operand("FP16", "f16", "fp16", 16, lambda values: values.astype(np.float16), _wide)
BF16 = Operand("BF16", "bf16", "bf16", 16, _bf16, _from_bf16)
TF32 = Operand("TF32", "tf32", "tf32", 32, _tf32, _wide)
FP8 = Operand("FP8", "e4m3", "fp8", 8, *_byte(_e4m3()))
FP8_E5M2 = Operand("FP8 E5M2", "e5m2", "fp8", 8, *_byte(_e5m2()))
INT8 = Operand("INT8", "s8", "int8", 8, _int8, _wide)
FP64 = Operand("FP64", "f64", "fp64", 64, _wide, _wide)

# 2:4 sparsity: which two of four neighbours are kept, as a nibble of metadata; of TF32, one of two (PTX ISA, sparse matrix storage).
NIBBLES = (0x4, 0x8, 0xC, 0x9, 0xD, 0xE)
NIBBLES_TF32 = (0x4, 0xE)


def metadata(operand: Operand, generator: np.random.Generator) -> np.ndarray:
    """Return one 32-bit word of metadata whose eight nibbles are the same, drawn at random.

    Every thread gets this word, so the result does not depend on which thread the hardware asks for which chunk.
    """
    nibbles = NIBBLES_TF32 if operand.bits == 32 else NIBBLES
    return np.array([int(generator.choice(nibbles)) * 0x11111111], np.uint32)


def mirrored(matrix: np.ndarray, parts: int) -> np.ndarray:
    """Return a matrix [m, k] whose k consists of so many parts, an even number, with the second half of them the first in reverse order.

    >>> mirrored(np.array([[1, 2, 3, 4, 0, 0, 0, 0]]), 4)
    array([[1, 2, 3, 4, 3, 4, 1, 2]])
    """
    first = np.split(matrix, parts, axis=1)[: parts // 2]
    return np.hstack([*first, *reversed(first)])


def opposed(a: np.ndarray, parts: int) -> np.ndarray:
    """Return A `mirrored`, with the signs of the second half turned: what is added part by part is then subtracted, the last part first.

    A random product that is added again and again stops an FP16 accumulator after some thousands: it is below half of the sum's last
    place, and a sum that does not change draws less power. Products that are subtracted again leave a sum as large as a few of them,
    however long the kernel runs and whatever the accumulator, and each product changes it. Rounding does not add up: in this order
    rounding to nearest repeats the same sums, and truncation moves them until they lie evenly around 0. −128 has no opposite and
    becomes −127.

    >>> opposed(np.array([[1, -128]], np.int8), 2), opposed(np.array([[0.5, 9.0]], np.float16), 2)
    (array([[ 1, -1]], dtype=int8), array([[ 0.5, -0.5]], dtype=float16))
    """
    both = mirrored(np.maximum(a, -127) if a.dtype.kind == "i" else a, parts)
    first, second = np.hsplit(both, 2)
    if a.dtype.kind == "u":  # a code of BF16 or FP8: its highest bit is the sign
        return np.hstack([first, second ^ a.dtype.type(1 << (8 * a.itemsize - 1))])
    return np.hstack([first, -second])


def cancelling(inputs: Arrays, parts: int) -> Arrays:
    """Return A `opposed`, B `mirrored`, and what else there is: a kernel that goes through k part by part comes back to 0 each time."""
    a, b, *others = inputs
    return (opposed(a, parts), mirrored(b, parts), *others)


def expanded(kept: np.ndarray, word: int, bits: int) -> np.ndarray:
    """Return the sparse matrix [m, k] whose kept half [m, k/2] is given, with the word that `metadata` drew.

    >>> expanded(np.array([[1.0, 2.0]]), 0x99999999, 16), expanded(np.array([[1.0, 2.0]]), 0xEEEEEEEE, 32)
    (array([[0., 1., 2., 0.]]), array([[0., 1., 0., 2.]]))
    """
    rows, half = kept.shape
    nibble = word & 15
    whole = np.zeros((rows, half, 2))
    if bits == 32:
        whole[:, :, nibble >> 3] = kept
        return whole.reshape(rows, 2 * half)
    fours = whole.reshape(rows, half // 2, 4)
    fours[:, :, nibble & 3], fours[:, :, nibble >> 2] = kept[:, ::2], kept[:, 1::2]
    return fours.reshape(rows, 2 * half)


def product(operand: Operand, accumulator: Accumulator, inputs: Arrays, times: int) -> Arrays:
    """Return what D [m, n] must be after `times` additions of A·B: A [m, k] and B [n, k] are in the format's storage.

    A third input is metadata: A then holds the kept half of a sparse matrix.
    """
    a, b = operand.decode(inputs[0]), operand.decode(inputs[1])
    if len(inputs) == 3:
        a = expanded(a, int(inputs[2][0]), operand.bits)
    return ((times * (a @ b.T)).astype(accumulator.output[1]),)
