"""The program that lets NVIDIA's own library walk the buffers of a recording, one record after the other, and compares."""

from __future__ import annotations

from pathlib import Path

from gpu.apart import tell
from ullage.cupti.chunks import ChunkType, chunks
from ullage.cupti.decoding import decode
from ullage.cupti.layouts import layouts
from ullage.cupti.library import find
from ullage.cupti.walker import walk

MOST = 64  # buffers
WHERE = 16  # bytes before a buffer's records


def main(library: str, recording: str) -> None:
    """Tell how many buffers and records NVIDIA's library found, and in how many buffers Ullage's decoder found others."""
    found = find(library)
    known = layouts(found.release)
    buffers = records = disagreed = 0
    with Path(recording).open("rb") as file:
        for chunk in chunks(file, "the recording"):
            if chunk.type == ChunkType.BUFFER and buffers < MOST:
                buffer = chunk.payload[WHERE:]
                theirs, _ = walk(found.handle, buffer)
                ours = decode(buffer, known)
                buffers, records = buffers + 1, records + len(theirs)
                disagreed += theirs != list(zip(ours.offsets.tolist(), ours.kinds.tolist(), strict=True))
    tell(buffers=buffers, records=records, disagreed=disagreed)
