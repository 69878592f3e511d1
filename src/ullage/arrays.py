"""NumPy arrays into Arrow arrays and back, by their memory.

`pa.array` looks whether it was given an object of pandas', and imports pandas for that: half a second, in which most traces are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Number = TypeVar("Number", bound=np.generic)

_SHARED = 1 << 17  # rows of nulls that share their memory


def numbers(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return an Arrow array of integers, floats or booleans, null where `missing`; integers share their memory.

    >>> numbers(np.array([1, 2]), np.array([True, False])).to_pylist()
    [None, 2]
    """
    valid = None if missing is None or not missing.any() else _bits(~missing)
    if values.dtype == bool:
        return pa.Array.from_buffers(pa.bool_(), len(values), [valid, _bits(values)])
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [valid, pa.py_buffer(np.ascontiguousarray(values))])


def texts(values: Sequence[str | None]) -> pa.StringArray:
    """Return an Arrow array of strings, null for None. Raises ValueError for more than 2 GiB of them.

    >>> texts(["a", None, "bc"]).to_pylist()
    ['a', None, 'bc']
    """
    encoded = [b"" if value is None else value.encode("utf-8", "replace") for value in values]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(value) for value in encoded], out=offsets[1:])
    if offsets[-1] >= 2**31:
        raise ValueError("more than 2 GiB of strings in one array")
    valid = _bits(np.array([value is not None for value in values], bool)) if None in values else None
    return pa.Array.from_buffers(
        pa.string(), len(encoded), [valid, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(encoded))]
    )


def coded(codes: npt.NDArray[Any], words: Sequence[str | None]) -> pa.DictionaryArray:
    """Return a column of words from their codes, null where a code is negative.

    >>> coded(np.array([1, -1, 0], np.int8), ["a", "b"]).to_pylist()
    ['b', None, 'a']
    """
    return pa.DictionaryArray.from_arrays(numbers(codes, codes < 0), texts(words))


def plain(values: pa.Array, missing: int) -> npt.NDArray[Any]:
    """Return an Arrow array of integers as NumPy array of their type, with `missing` for null.

    >>> plain(numbers(np.array([7, 8]), np.array([False, True])), -1).tolist()
    [7, -1]
    """
    kind = np.dtype(values.type.to_pandas_dtype())
    valid, held = values.buffers()
    if held is None or not len(values):
        return np.full(len(values), missing, kind)
    found = np.frombuffer(held, kind, len(values), values.offset * kind.itemsize)
    if not values.null_count:
        return found
    bits = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")[values.offset : values.offset + len(values)]
    return np.where(bits.astype(bool), found, kind.type(missing))


def nulls(length: int, kind: pa.DataType) -> pa.Array:
    """Return an array of nothing but nulls; those of moderate length share their memory.

    >>> nulls(2, pa.int64()).to_pylist()
    [None, None]
    """
    return _nulls(kind).slice(0, length) if length <= _SHARED else pa.nulls(length, kind)


@lru_cache(maxsize=64)
def _nulls(kind: pa.DataType) -> pa.Array:
    return pa.nulls(_SHARED, kind)


def _bits(mask: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(mask, bitorder="little"))


def one_view(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Return a column whose values are all the same as a view of one of them: a profile of one process and one device has several."""
    return np.broadcast_to(values[0], values.shape) if len(values) and (values == values[0]).all() else values


def compact(values: npt.NDArray[np.signedinteger[Any]]) -> npt.NDArray[np.signedinteger[Any]]:
    """Return whole numbers in the memory that they need: one again and again as a view of one, others in 32 bits where they fit.

    >>> compact(np.array([7, 7])).strides, compact(np.array([7, 8])).dtype, compact(np.array([7, 2**31])).dtype
    ((0,), dtype('int32'), dtype('int64'))
    """
    if not len(values) or values.dtype.itemsize <= 4:
        return one_view(values)
    least, most = values.min(), values.max()
    if least == most:
        return np.broadcast_to(least, values.shape)
    return values.astype(np.int32) if least >= -(2**31) and most < 2**31 else values


def chosen(values: npt.NDArray[Number], mask: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> npt.NDArray[Number]:
    """Return the values where `mask` (or those at positions), without a copy where that is all of them, or one value again and again."""
    if mask.dtype == np.bool_ and mask.all():
        return values
    if len(values) and values.strides == (0,):
        count = int(np.count_nonzero(mask)) if mask.dtype == np.bool_ else len(mask)
        return np.broadcast_to(values[0], (count,))
    return values[mask]
