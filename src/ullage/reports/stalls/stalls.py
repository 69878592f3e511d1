"""Where the warps of each kernel were and why they waited, from sampled program counters, joined with machine code and source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import pyarrow as pa
from pyarrow import compute

from ullage.cupti.pc_sampling.samples import Facts, PcSamples
from ullage.cupti.stalls import reason, short
from ullage.errors import UllageError
from ullage.kernels.mangled import readable
from ullage.kernels.sass.lines import Lined, disassemble_lined
from ullage.reports.stalls.code import KernelCode
from ullage.reports.stalls.shares import KernelStalls, Spot, StallReport, StallShare, added, ordered

DISASSEMBLED = 50  # kernels, those with most samples
INDICES = 1000  # functions of a cubin that are asked for by their numbers, each of which stands on a command line


def stall_report(
    samples: PcSamples,
    *,
    kernel: str = "",
    cubins: Sequence[bytes] = (),
    crc: Callable[[bytes], int] | None = None,
    disassembled: Callable[[bytes, Sequence[int]], list[Lined]] = disassemble_lined,
) -> StallReport:
    """Return what sampled program counters say of the kernels whose name holds `kernel`.

    Machine code is taken from the recording, then from `cubins`, told by `crc` (None: by the kernel's name alone). Latency samples are
    those among a reason's samples in which the scheduler issued nothing (cupti_activity.h says so of the older interface, whose counts
    these are), so they are not added. Raises UllageError where there is no sample, and where no kernel has such a name.
    """
    table = samples.table.filter(compute.greater(samples.table["samples"], 0))
    if not table.num_rows:
        raise UllageError("nothing was sampled", "was a kernel running between start and stop? a shorter period samples more often")
    counted, notes = _counted(table)
    names = readable(sorted({function for function, _ in counted}))
    chosen = {key: spots for key, spots in counted.items() if kernel in key[0] or kernel in names[key[0]]}
    if not chosen:
        raise UllageError(f"no sampled kernel has '{kernel[:80]}' in its name", "without --kernel all of them are shown")
    kernels = [_kernel(names[function], function, cubin, spots) for (function, cubin), spots in chosen.items()]
    kernels.sort(key=lambda one: (-one.samples, one.name, one.cubin))
    shown = [one.mangled for one in kernels[:DISASSEMBLED]]
    code = KernelCode(samples.cubins, cubins, crc, disassembled, _indices(table, shown))
    joined = tuple(code.joined(one) if number < DISASSEMBLED else one for number, one in enumerate(kernels))
    return StallReport(joined, added(one.shares for one in joined), samples.facts, (*notes, *code.notes, *_told(samples.facts)))


_Spots = dict[int, dict[str, list[int]]]  # by program counter and short reason: samples, latency samples


def _counted(table: pa.Table) -> tuple[dict[tuple[str, int], _Spots], list[str]]:
    """Return the samples of each (function, cubin), and what is odd about them."""
    summed = _plain(table).group_by(["function", "cubin", "pc", "reason"]).aggregate([("samples", "sum")])
    found: dict[tuple[str, int], _Spots] = defaultdict(lambda: defaultdict(dict))
    for row in zip(*(summed[name].to_pylist() for name in ("function", "cubin", "pc", "reason", "samples_sum")), strict=True):
        function, cubin, pc, name, count = row
        plain, latency = short(name)
        found[function, cubin][pc].setdefault(plain, [0, 0])[latency] += count
    places = [counts for spots in found.values() for reasons in spots.values() for counts in reasons.items()]
    alone = {name for name, _ in places} - {name for name, (count, _) in places if count}
    for name, counts in places:
        if name in alone:  # the others weren't asked for: these are all the samples there are of it
            counts[0] = counts[1]
    notes = [f"of {', '.join(sorted(alone))} only latency samples were taken"] if alone else []
    if any(latency > count for _, (count, latency) in places):
        notes.append("some latency samples outnumber the samples that should contain them: shares count the latter alone")
    return found, notes


def _plain(table: pa.Table) -> pa.Table:
    """Return the columns that matter, words written out: group_by doesn't take dictionaries of several chunks."""
    kept = table.select(["function", "cubin", "pc", "reason", "samples"])
    return kept.cast(pa.schema([(one.name, pa.string() if pa.types.is_dictionary(one.type) else one.type) for one in kept.schema]))


def _kernel(name: str, mangled: str, cubin: int, counted: _Spots) -> KernelStalls:
    spots = [
        Spot(pc, ordered(StallShare(reason(one), count, latency) for one, (count, latency) in reasons.items() if count))
        for pc, reasons in counted.items()
    ]
    spots.sort(key=lambda one: (-one.samples, one.pc))
    return KernelStalls(name, mangled, cubin, tuple(spots), added(one.shares for one in spots))


def _indices(table: pa.Table, functions: Sequence[str]) -> dict[int, list[int]]:
    """Return the symbol indices of some functions, by cubin."""
    mine = table.filter(compute.is_in(table["function"].cast(pa.string()), pa.array(functions, pa.string())))
    pairs = mine.group_by(["cubin", "function_index"]).aggregate([])
    found: dict[int, list[int]] = defaultdict(list)
    for cubin, index in zip(pairs["cubin"].to_pylist(), pairs["function_index"].to_pylist(), strict=True):
        found[cubin].append(index)
    return {cubin: sorted(indices)[:INDICES] for cubin, indices in found.items()}


def _told(facts: Facts) -> list[str]:
    """Return what the recording says about itself that bears on its figures."""
    notes = []
    if facts.total and facts.dropped:
        share = 100 * facts.dropped / facts.total
        notes.append(f"the hardware dropped {facts.dropped:,} of {facts.total:,} samples ({share:.0f} %): a longer period loses fewer")
    if facts.full:
        notes.append(f"the hardware's buffer overflowed {facts.full:,} times: give a larger one, a longer period, or read more often")
    if facts.other:
        notes.append(f"{facts.other:,} samples fell on kernels of the driver's own")
    if facts.unread:
        notes.append(f"{facts.unread:,} modules went before their samples were read: addresses of two modules may be mixed")
    if facts.mode == "serialized":
        notes.append("kernels ran one at a time while this was sampled: together they may wait for other things")
    return [*notes, *facts.problems]
