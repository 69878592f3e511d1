"""The room into which CUPTI writes sampled program counters, and what it wrote as columns."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ullage.cupti.pc_sampling.structures import COUNT, Data, record, sized

if TYPE_CHECKING:
    from ullage.cupti.releases import Release

LONGEST = 1 << 16  # characters of a kernel's name: what is longer is damage


class Buffer:
    """Room for `pcs` program counters with `reasons` counts each. `data` is the structure that CUPTI gets.

    CUPTI writes into memory that we own, so a buffer must live as long as CUPTI knows its address. The names of functions are
    CUPTI's: its records share them, also with those of the activity interface, so they are never freed here.
    """

    def __init__(self, release: Release, pcs: int, reasons: int) -> None:
        self._records = np.zeros(pcs, record(release))
        self._counts = np.zeros((pcs, max(reasons, 1)), COUNT)
        self.data = Data()
        self.clear()

    @property
    def address(self) -> int:
        """Where `data` lies."""
        return ctypes.addressof(self.data)

    def clear(self) -> None:
        """Make the room empty, as CUPTI wants it before each call."""
        self._records[:] = np.zeros((), self._records.dtype)
        self._counts[:] = np.zeros((), COUNT)
        self._records["size"] = self._records.dtype.itemsize
        self._records["reason"] = self._counts.ctypes.data + np.arange(len(self._records), dtype=np.uint64) * self._counts.strides[0]
        self.data = _refilled(self.data, self._records)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return what was written, a row for every program counter and reason that has samples.

        Columns: range, cubin (CRC), function (address of its name), function_index, pc (bytes from the function's start),
        correlation (0 where CUPTI tells none), reason (index), samples. Counts beyond the room are taken as the room.
        """
        filled = self._records[: min(self.data.count, len(self._records))]
        counts = self._counts[: len(filled)]
        told = np.arange(counts.shape[1]) < filled["reasons"][:, None]
        row, column = np.nonzero(told & (counts["samples"] > 0))
        chosen = filled[row]
        known = "correlation" in filled.dtype.names if filled.dtype.names else False
        return {
            "range": np.full(len(row), self.data.range, np.uint64),
            "cubin": chosen["cubin"],
            "function": chosen["function"],
            "function_index": chosen["function_index"],
            "pc": chosen["pc"],
            "correlation": chosen["correlation"] if known else np.zeros(len(row), np.uint32),
            "reason": counts["reason"][row, column],
            "samples": counts["samples"][row, column].astype(np.uint64),
        }


def _refilled(data: Data, records: npt.NDArray[np.void]) -> Data:
    """Return the same structure as it goes to CUPTI: CUPTI may know its address, so it is written over and not made anew."""
    fresh = sized(Data, room=len(records), records=records.ctypes.data)
    ctypes.memmove(ctypes.addressof(data), ctypes.addressof(fresh), ctypes.sizeof(Data))
    return data


def words(addresses: npt.NDArray[np.uint64]) -> dict[int, str]:
    """Return the text at each address of a C string; "" at address 0."""
    return {int(one): _word(int(one)) for one in np.unique(addresses)}


def _word(address: int) -> str:
    return "" if address == 0 else (ctypes.c_char_p(address).value or b"")[:LONGEST].decode("utf-8", "replace")
