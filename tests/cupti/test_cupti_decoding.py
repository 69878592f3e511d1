"""Activity buffers decoded in bulk, against buffers written field by field and against a plain walk in Python."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.cupti import walking
from ullage.cupti.decoding import decode
from ullage.cupti.kinds import ActivityKind
from ullage.cupti.layouts import Layouts, layouts
from ullage.cupti.releases import RELEASES, release

NEW = layouts(release(130101))
KERNEL, CALL, COPY = ActivityKind.CONCURRENT_KERNEL, ActivityKind.RUNTIME, ActivityKind.MEMCPY


def record(of: Layouts, kind: int, **fields: int) -> bytes:
    """Write one record by Python's struct, at the offsets of the layout."""
    layout = of.of(kind)
    data = bytearray(layout.size)
    for name, value in {"kind": kind, **fields}.items():
        of_field, offset = layout.dtype.fields[name][:2]
        struct.pack_into({"u1": "<B", "u4": "<I", "i4": "<i", "u8": "<Q", "i8": "<q"}[of_field.str[1:]], data, offset, value)
    return bytes(data)


def plainly(buffer: bytes, sizes) -> list[tuple[int, int]]:
    """Where records begin, link by link: what the chain means."""
    found, at = [], 0
    while at + 4 <= len(buffer):
        kind = int.from_bytes(buffer[at : at + 4], "little")
        if kind not in sizes or at + sizes[kind] > len(buffer):
            break
        found.append((at, kind))
        at += sizes[kind]
    return found


def walked(buffer: bytes, of: Layouts = NEW) -> list[tuple[int, int]]:
    found = decode(buffer, of)
    return list(zip(found.offsets.tolist(), found.kinds.tolist(), strict=True))


def test_records_come_apart_by_kind_with_their_fields():
    buffer = (
        record(NEW, CALL, cbid=211, start=100, end=140, correlationId=7)
        + record(NEW, KERNEL, start=150, end=190, correlationId=7, streamId=13, gridX=4, name=0xDEADBEEF)
        + record(NEW, CALL, cbid=31, start=200, end=230, correlationId=8)
        + record(NEW, COPY, start=240, end=260, bytes=4096, correlationId=8)
    )
    found = decode(buffer, NEW)
    assert found.stopped == ""
    assert not found.unknown
    assert {kind: len(records) for kind, records in found.records.items()} == {CALL: 2, KERNEL: 1, COPY: 1}
    assert found.column(CALL, "cbid").tolist() == [211, 31]
    assert found.column(CALL, "end").tolist() == [140, 230]
    kernel = found.records[KERNEL][0]
    assert [kernel[name].item() for name in ("start", "end", "streamId", "gridX", "name")] == [150, 190, 13, 4, 0xDEADBEEF]
    assert found.column(COPY, "bytes").tolist() == [4096]
    # 40 of the first call, 224 of a kernel of 13.1, 40 of the second call
    assert found.offsets.tolist() == [0, 40, 264, 304]


def test_the_same_bytes_are_other_records_in_another_release():
    old = layouts(release(28))
    buffer = record(old, KERNEL, start=1) + record(old, CALL, cbid=5)  # 208 and 40 bytes
    assert walked(buffer, old) == [(0, KERNEL), (208, CALL)]
    # a kernel of 13.1 has 224: the chain then goes on 16 bytes into the call, at its end time
    assert decode(buffer, NEW).offsets.tolist() == [0]


def test_a_column_that_no_record_has_is_empty():
    assert decode(record(NEW, CALL), NEW).column(KERNEL, "start").tolist() == []


@pytest.mark.parametrize("made", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_any_bytes_will_do(made):
    assert walked(made(record(NEW, CALL, start=1) * 3)) == [(0, CALL), (40, CALL), (80, CALL)]


def test_bytes_that_are_not_aligned_will_do():
    data = b"\x01" + record(NEW, CALL, start=1) * 3
    assert walked(memoryview(data)[1:]) == [(0, CALL), (40, CALL), (80, CALL)]


def test_what_was_decoded_does_not_change_with_the_buffer():
    buffer = bytearray(record(NEW, CALL, cbid=211))
    found = decode(buffer, NEW)
    buffer[:] = bytes(len(buffer))
    assert found.column(CALL, "cbid").tolist() == [211]


def test_an_unknown_kind_ends_it_and_is_named():
    found = decode(record(NEW, CALL) + struct.pack("<II", 77, 1) + record(NEW, CALL), NEW)
    assert found.offsets.tolist() == [0]
    assert found.stopped == "at byte 40 of 88, at a record of kind 77, whose size is not known"
    assert found.unknown == {77: 1}


def test_a_kind_with_its_highest_bit_set_is_not_taken_for_another():
    found = decode(record(NEW, CALL) + struct.pack("<II", 0x80000005, 0) + bytes(32), NEW)
    assert found.offsets.tolist() == [0]
    assert found.unknown == {0x80000005: 1}


@pytest.mark.parametrize("left", [39, 36, 8, 4])
def test_a_cut_record_is_left_out_and_told(left):
    found = decode(record(NEW, CALL) + record(NEW, CALL, start=1, end=1)[:left], NEW)
    assert found.offsets.tolist() == [0]
    assert found.stopped == f"at byte 40 of {40 + left}, inside a record of kind 5 (40 bytes, of which {left} are there)"


def test_a_cut_kind_is_told():
    assert decode(record(NEW, CALL) + b"\x05\x00", NEW).stopped == "at byte 40 of 42, inside a record's kind"


def test_zeros_to_the_end_are_room_that_was_not_used():
    found = decode(record(NEW, CALL) + bytes(4000), NEW)
    assert (found.offsets.tolist(), found.stopped) == ([0], "")


def test_zeros_before_more_bytes_are_no_record():
    found = decode(record(NEW, CALL) + bytes(8) + record(NEW, CALL), NEW)
    assert found.stopped == "at byte 40 of 88, at a record of kind 0, whose size is not known"


def test_an_empty_buffer_holds_nothing():
    assert decode(b"", NEW).records == {}
    assert decode(b"", NEW).stopped == ""


@pytest.mark.parametrize("known", RELEASES, ids=lambda known: str(known.version))
def test_a_buffer_of_all_kinds_comes_apart_in_every_release(known):
    of = layouts(known)
    buffer = b"".join(record(of, kind) for kind in of.sizes)
    assert walked(buffer, of) == plainly(buffer, of.sizes)
    assert decode(buffer, of).records.keys() == set(of.sizes)


kinds = st.sampled_from(sorted(NEW.sizes))
# numbers that look like kinds stand everywhere: the walk must not take a field for a record
words = st.lists(st.integers(0, 60), min_size=4, max_size=4)


@given(st.lists(st.tuples(kinds, words), max_size=40), st.integers(0, 300), st.integers(1, 12).map(lambda half: 2 * half))
def test_the_walk_is_that_of_single_links(records, cut, lane):
    buffer = b"".join(struct.pack("<I", kind) + (struct.pack("<4I", *fill) * 16)[: NEW.sizes[kind] - 4] for kind, fill in records)
    buffer = buffer[: max(len(buffer) - cut, 0)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walking, "LANE", lane)  # many lanes in a small buffer
        assert walked(buffer) == plainly(buffer, NEW.sizes)


@given(st.binary(max_size=400).map(lambda data: bytes(byte % 64 if at % 4 == 0 else 0 for at, byte in enumerate(data))))
def test_any_bytes_at_all_are_walked_as_by_single_links(buffer):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walking, "LANE", 4)
        assert walked(buffer) == plainly(buffer, NEW.sizes)


@pytest.mark.parametrize("process", [4711, 1, 4, 5, 20, 48])
def test_a_large_buffer_is_walked_even_if_every_guess_is_wrong(process):
    # calls of process 5: at the process's number a chain of calls begins that never meets the true one, so that all lanes are guessed wrong
    buffer = record(NEW, CALL, start=1 << 60, end=1 << 60, processId=process, threadId=7, correlationId=1 << 20) * 3000
    found = decode(buffer, NEW)
    assert found.offsets.tolist() == list(range(0, 120_000, 40))
    assert found.stopped == ""


def test_a_large_mixed_buffer_is_walked_to_its_end():
    random = np.random.default_rng(7)
    order = random.choice([CALL, ActivityKind.DRIVER, KERNEL, COPY, ActivityKind.MEMSET, ActivityKind.SYNCHRONIZATION], 6000).tolist()
    parts = {kind: record(NEW, kind, correlationId=5) for kind in set(order)}
    buffer = b"".join(parts[kind] for kind in order) + struct.pack("<I", 99)
    found = decode(buffer, NEW)
    assert found.kinds.tolist() == order
    assert found.unknown == {99: 1}
    assert all((records["kind"] == kind).all() for kind, records in found.records.items())
