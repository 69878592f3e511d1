"""What a cubin says of a kernel without running it: its parameters, registers and shared memory, read from the ELF file."""

from __future__ import annotations

import struct
from dataclasses import dataclass

REGISTERS, PARAMETER = 0x2F, 0x17  # attributes of `.nv.info`, as `cuobjdump -elf` names them: EIATTR_REGCOUNT, EIATTR_KPARAM_INFO
RESERVED = 1024  # bytes of shared memory that the system keeps in each block, sm_90 and later; counted apart from what may be asked for


@dataclass(frozen=True)
class Needs:
    """`parameters` are sizes in bytes, in order; `registers` of a thread, `shared` bytes of a block that the source declares."""

    parameters: tuple[int, ...]
    registers: int
    shared: int


def needs(cubin, entry):
    """Return what a kernel of a cubin needs."""
    parameters, shared = {}, 0
    found = dict(_sections(cubin))
    for attribute, value in _attributes(found[f".nv.info.{entry}"][1]):
        if attribute == PARAMETER:
            _, place, _, packed = struct.unpack("<IHHI", value)
            parameters[place] = packed >> 18
    counts = dict(struct.unpack("<II", value) for attribute, value in _attributes(found[".nv.info"][1]) if attribute == REGISTERS)
    registers = counts[_symbols(found)[entry]]
    if f".nv.shared.{entry}" in found:
        kept = RESERVED if ".nv.shared.reserved.0" in found else 0
        shared = max(0, found[f".nv.shared.{entry}"][0] - kept)
    return Needs(tuple(parameters[place] for place in sorted(parameters)), registers, shared)


def _sections(cubin):
    """Yield (name, (size, bytes)) of each section."""
    (table,), (count, names) = struct.unpack_from("<Q", cubin, 0x28), struct.unpack_from("<HH", cubin, 0x3C)
    heads = [struct.unpack_from("<IIQQQQ", cubin, table + 64 * n) for n in range(count)]
    for name, _, _, _, begin, size in heads:
        start = heads[names][4] + name
        yield cubin[start : cubin.index(b"\0", start)].decode(), (size, cubin[begin : begin + size])


def _symbols(sections):
    """Return the numbers of symbols by their names."""
    table, names = sections[".symtab"][1], sections[".strtab"][1]
    starts = [struct.unpack_from("<I", table, place)[0] for place in range(0, len(table), 24)]
    return {names[start : names.index(b"\0", start)].decode(): number for number, start in enumerate(starts)}


def _attributes(info):
    """Yield (attribute, value) of an `.nv.info` section: form 4 carries its length, the others two bytes."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, length = struct.unpack_from("<BBH", info, at)
        size = length if form == 4 else 0
        yield attribute, info[at + 4 : at + 4 + size]
        at += 4 + size
