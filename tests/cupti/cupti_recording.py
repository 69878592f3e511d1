"""A recording as tests look at it: chunk by chunk, its records by kind."""

import struct
from pathlib import Path

import numpy as np

from ullage.cupti.chunks import ChunkType, EarlyEnd, chunks
from ullage.cupti.decoding import decode
from ullage.cupti.kinds import ActivityKind
from ullage.cupti.layouts import layouts
from ullage.cupti.releases import release


class Recording:
    """What a recording says, all of its chunks together; `buffers` are the records, `cut` says that its end is missing."""

    def __init__(self, path):
        self.info, self.end, self.buffers, self.names, self.dropped, self.clocks, self.cut = {}, None, [], {}, 0, [], False
        try:
            with Path(path).open("rb") as file:
                for chunk in chunks(file, "here"):
                    self.add(chunk)
        except EarlyEnd:
            self.cut = True

    def add(self, chunk):
        match chunk.type:
            case ChunkType.INFO:
                self.info |= chunk.json()
            case ChunkType.NAMES:
                self.names |= chunk.names()
            case ChunkType.BUFFER:
                self.buffers.append(chunk.payload[16:])
            case ChunkType.DROPPED:
                self.dropped += struct.unpack("<Q", chunk.payload)[0]
            case ChunkType.CLOCKS:
                self.clocks.append(struct.unpack("<QQQ", chunk.payload))
            case ChunkType.END:
                self.end = chunk.json()

    def of(self, kind):
        """All records of a kind, as one structured array."""
        known = layouts(release(self.info["cupti"]))
        found = [decode(buffer, known).records.get(kind) for buffer in self.buffers]
        return np.concatenate([records for records in found if records is not None] or [np.zeros(0, known.of(kind).dtype)])

    def rows(self, kind, *fields):
        """These fields of each record of a kind, as tuples."""
        found = self.of(kind)
        return list(zip(*(found[field].tolist() for field in fields), strict=True))

    def kernels(self):
        """(name, start, end) of each kernel."""
        return [(self.names[name], start, end) for name, start, end in self.rows(ActivityKind.CONCURRENT_KERNEL, "name", "start", "end")]
