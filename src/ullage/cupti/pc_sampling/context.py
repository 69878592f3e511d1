"""Sampling in one CUDA context: switched on, configured, read, switched off; every call of CUPTI's PC sampling API is here."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ullage.cupti.pc_sampling.buffer import Buffer, words
from ullage.cupti.pc_sampling.configuration import Configuration, ConfigurationType, attributes
from ullage.cupti.pc_sampling.samples import SAMPLES
from ullage.cupti.pc_sampling.structures import Attribute, ConfigurationParams, ContextParams, PointerParams, ReasonsParams, sized
from ullage.cupti.results import SUCCESS, CuptiError
from ullage.errors import UllageError

if TYPE_CHECKING:
    from ullage.cupti.library import Library

OUT_OF_MEMORY = 8  # of GetData: the hardware's buffer overflowed
LONGEST_NAME = 128  # CUPTI_STALL_REASON_STRING_SIZE
MOST_REASONS = 4096
ROOM = 8192  # program counters of one reading
ROUNDS = 1024  # readings before a flush gives up on a library that always says there is more

PROGRAM = "sampling program counters"


class SampledContext:
    """One context while it is sampled. `number` is what samples call it; see `PcSampling` for the rest.

    Raises CuptiError where CUPTI refuses, and leaves sampling off then.
    """

    def __init__(self, library: Library, context: int, number: int, configuration: Configuration) -> None:
        self._library, self.context, self.number = library, context, number
        self.total = self.dropped = self.other = self.full = 0
        self.cycles = configuration.cycles
        self._call("cuptiPCSamplingEnable")
        try:
            self.reasons = self._known()
            self._buffer = Buffer(library.release, ROOM, len(self.reasons))
            self._last = Buffer(library.release, ROOM, len(self.reasons))  # what Disable leaves behind
            self._configure(configuration)
            self.cycles = self._told() or self.cycles
        except BaseException:
            self._library.ask("cuptiPCSamplingDisable", ctypes.byref(sized(ContextParams, context=context)))
            raise

    def start(self) -> None:
        """Begin a range."""
        self._call("cuptiPCSamplingStart")

    def stop(self) -> None:
        """End a range; what it sampled must be read before the next one begins."""
        self._call("cuptiPCSamplingStop")

    def read(self) -> list[pa.Table]:
        """Return all that CUPTI has ready, as tables of `SAMPLES`; an overflow of the hardware's buffer is counted, not raised."""
        tables = []
        for _ in range(ROUNDS):
            self._buffer.clear()
            params = sized(PointerParams, context=self.context, pointer=self._buffer.address)
            code = self._library.ask("cuptiPCSamplingGetData", ctypes.byref(params))
            if code not in (SUCCESS, OUT_OF_MEMORY):
                raise CuptiError("reading sampled program counters", code)
            overflowed = code == OUT_OF_MEMORY or bool(self._buffer.data.full)
            self.full += overflowed
            self._count(self._buffer)
            tables.append(self._table(self._buffer))
            if overflowed or not self._buffer.data.remaining or not self._buffer.data.count:
                break
        return tables

    def close(self) -> list[pa.Table]:
        """Switch sampling off and return what was left; to be called once."""
        self._call("cuptiPCSamplingDisable")
        self._count(self._last)
        return [self._table(self._last)]

    def _call(self, name: str) -> None:
        self._library.call(name, ctypes.byref(sized(ContextParams, context=self.context)), doing=PROGRAM)

    def _known(self) -> dict[int, str]:
        """Return the chip's stall reasons by index."""
        count = ctypes.c_size_t()
        params = sized(PointerParams, context=self.context, pointer=ctypes.addressof(count))
        self._library.call("cuptiPCSamplingGetNumStallReasons", ctypes.byref(params), doing=PROGRAM)
        if not 0 < count.value <= MOST_REASONS:
            raise UllageError(f"CUPTI says that this chip has {count.value:,} stall reasons", "another release of CUPTI may do better")
        indices = (ctypes.c_uint32 * count.value)()
        rooms = [ctypes.create_string_buffer(LONGEST_NAME) for _ in range(count.value)]
        names = (ctypes.c_void_p * count.value)(*(ctypes.addressof(room) for room in rooms))
        asked = sized(
            ReasonsParams,
            context=self.context, count=count.value, indices=ctypes.addressof(indices), names=ctypes.addressof(names),
        )  # fmt: skip
        self._library.call("cuptiPCSamplingGetStallReasons", ctypes.byref(asked), doing=PROGRAM)
        return {indices[n]: rooms[n].value.decode("utf-8", "replace") for n in range(count.value)}

    def _configure(self, configuration: Configuration) -> None:
        chosen = configuration.chosen(self.reasons)
        indices = (ctypes.c_uint32 * len(chosen))(*chosen) if chosen else None
        made = attributes(configuration, indices, self._last.address)
        listed = (Attribute * len(made))(*made)
        params = sized(ConfigurationParams, context=self.context, count=len(made), attributes=listed)
        try:
            self._library.call("cuptiPCSamplingSetConfigurationAttribute", ctypes.byref(params), doing="configuring PC sampling")
        except CuptiError as error:
            refused = [ConfigurationType(one.type).name.lower() for one in listed if one.status]
            if refused:
                raise CuptiError(f"configuring PC sampling ({', '.join(refused)})", error.code) from error
            raise

    def _told(self) -> int | None:
        """Return the cycles of a period as CUPTI has set them, None where it doesn't say."""
        asked = (Attribute * 1)(Attribute(type=ConfigurationType.PERIOD))
        params = sized(ConfigurationParams, context=self.context, count=1, attributes=asked)
        code = self._library.ask("cuptiPCSamplingGetConfigurationAttribute", ctypes.byref(params))
        power = asked[0].value.word
        return 1 << power if code == 0 and 0 < power < 32 else None

    def _count(self, buffer: Buffer) -> None:
        self.total += buffer.data.total
        self.dropped += buffer.data.dropped
        self.other += buffer.data.other

    def _table(self, buffer: Buffer) -> pa.Table:
        found = buffer.columns()
        texts = words(found["function"])
        named = np.array([texts[int(one)] for one in found["function"]], object)
        reasons = np.array([self.reasons.get(int(one), f"reason {one}") for one in found["reason"]], object)
        columns = found | {
            "context": np.full(len(named), self.number, np.uint32),
            "function": pa.array(named, pa.string()).dictionary_encode(),
            "reason_index": found["reason"],
            "reason": pa.array(reasons, pa.string()).dictionary_encode(),
        }
        return pa.table([pa.array(columns[name]) for name in SAMPLES.names], SAMPLES.names).cast(SAMPLES)
