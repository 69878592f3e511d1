"""Our walk of activity buffers against NVIDIA's own, cuptiActivityGetNextRecord of installed libraries, record by record."""

import ctypes
import random
import struct

from tests.cupti.cupti_libraries import each_library
from ullage.cupti.decoding import decode
from ullage.cupti.layouts import layouts
from ullage.cupti.releases import release
from ullage.cupti.walker import END, walk, walk_apart

# of the codes with which the library ends: all was used, or the next record is cut (12); no record is there (21, before 12.4 999)
STOPS = (21, 999)


def compared(version, library, buffers):
    """Assert that both find the same records in every buffer, and end for the same reason; return how often each reason was met."""
    of, met = layouts(release(version)), {}
    for buffer, theirs in zip(buffers, walk_apart(library, buffers), strict=True):
        assert theirs is not None, f"the library crashed on {buffer[:400].hex()}"
        ours = decode(buffer, of)
        records, code = theirs
        assert list(zip(ours.offsets.tolist(), ours.kinds.tolist(), strict=True)) == records
        if code == END:
            assert not ours.unknown  # at the end, or inside a record: of that the library says nothing, and `stopped` does
        else:
            assert code in STOPS
            assert ours.unknown or ours.stopped == "" or "inside a record's kind" in ours.stopped
        reason = "unknown" if ours.unknown else "cut" if ours.stopped else "whole"
        met[reason] = met.get(reason, 0) + 1
    return met


def filled(kind, size, chance):
    """A record whose fields are random, many of them as small as kinds are."""
    words = [chance.choice((chance.randrange(64), chance.getrandbits(32))) for _ in range(size // 4 - 1)]
    return struct.pack(f"<{size // 4}I", kind, *words)


def buffers(version, count, seed):
    """Return buffers of random records of all kinds that a release knows, up to 60 records each."""
    chance, sizes = random.Random(seed), layouts(release(version)).sizes
    several = ([chance.choice(list(sizes)) for _ in range(chance.randrange(60))] for _ in range(count))
    return [b"".join(filled(kind, sizes[kind], chance) for kind in kinds) for kinds in several]


@each_library
def test_every_kind_follows_every_kind(version, library):
    chance, sizes = random.Random(1), layouts(release(version)).sizes
    pairs = [filled(first, sizes[first], chance) + filled(second, sizes[second], chance) for first in sizes for second in sizes]
    assert compared(version, library, pairs) == {"whole": len(sizes) ** 2}


@each_library
def test_whole_buffers_are_walked_alike(version, library):
    assert compared(version, library, buffers(version, 300, seed=2)) == {"whole": 300}


@each_library
def test_a_large_buffer_is_walked_alike(version, library):
    # some 4 MB: long runs and strict alternation, so that the walk in lanes is what is compared
    chance, sizes = random.Random(3), layouts(release(version)).sizes
    order = [5, 10, 5, 1] * 4000 + [5] * 8000 + [10] * 4000 + [chance.choice(list(sizes)) for _ in range(8000)]
    several = {kind: [filled(kind, sizes[kind], chance) for _ in range(8)] for kind in sizes}
    assert compared(version, library, [b"".join(chance.choice(several[kind]) for kind in order)]) == {"whole": 1}


@each_library
def test_buffers_cut_anywhere_are_walked_alike(version, library):
    chance = random.Random(4)
    cut = [buffer[: chance.randrange(len(buffer) + 1)] for buffer in buffers(version, 400, seed=5)]
    met = compared(version, library, cut)
    assert met["cut"] > 200


@each_library
def test_buffers_with_changed_kinds_are_walked_alike(version, library):
    # any word of a buffer is made another: a kind becomes another one, longer or shorter, or none at all
    chance, changed = random.Random(6), []
    for buffer in buffers(version, 400, seed=7):
        words = bytearray(buffer)
        for _ in range(min(3, len(words) // 8)):
            at = chance.randrange(len(words) // 8) * 8
            words[at : at + 4] = struct.pack("<I", chance.choice((0, 3, 10, 17, chance.randrange(100), 0x80000005, 0xFFFFFFFF)))
        changed.append(bytes(words))
    met = compared(version, library, changed)
    assert met["unknown"] > 50
    assert met["whole"] > 50


@each_library
def test_buffers_whose_records_are_shuffled_bytes_are_walked_alike(version, library):
    chance, shuffled = random.Random(8), []
    for buffer in buffers(version, 200, seed=9):
        pieces = [buffer[at : at + 8] for at in range(0, len(buffer), 8)]
        chance.shuffle(pieces)
        shuffled.append(b"".join(pieces))
    compared(version, library, shuffled)


@each_library
def test_random_bytes_are_walked_alike(version, library):
    chance = random.Random(10)
    random_bytes = [chance.randbytes(chance.randrange(300)) for _ in range(200)]
    small = [struct.pack("<60I", *(chance.randrange(64) for _ in range(60))) for _ in range(400)]
    assert compared(version, library, random_bytes + small)["unknown"] > 100


@each_library
def test_a_kind_of_zero_ends_both(version, library):
    sizes, chance = layouts(release(version)).sizes, random.Random(11)
    call = filled(5, sizes[5], chance)
    assert compared(version, library, [call + bytes(80), call + bytes(8) + call, bytes(40)]) == {"whole": 2, "unknown": 1}


@each_library
def test_a_library_may_be_given_loaded(version, library):
    assert walk(ctypes.CDLL(str(library)), filled(5, 40, random.Random(12)) * 2) == ([(0, 5), (40, 5)], END)


def test_a_buffer_that_the_library_does_not_survive_is_none(tmp_path):
    # no library at all: the other process ends before it answers
    assert walk_apart(tmp_path / "libcupti.so.13", [b"", b"abc"]) == [None, None]
