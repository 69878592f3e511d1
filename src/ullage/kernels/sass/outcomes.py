"""What every architecture makes of every probe: compiled, disassembled, and set side by side. No GPU is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ullage.errors import UllageError, harmless
from ullage.kernels.compiling import ARCHITECTURES, compile_cubin
from ullage.kernels.sass.disassembler import disassemble
from ullage.kernels.sass.finding import KernelFinding
from ullage.kernels.sass.instruction import Function
from ullage.kernels.sass.lint import lint
from ullage.kernels.sass.probe import PROBES, Probe


@dataclass(frozen=True)
class Outcome:
    """What one architecture makes of a probe: the opcodes that carry it out, with their number; whether another type's instruction stands
    in; or the compiler's words where it refuses."""

    probe: Probe
    architecture: str
    opcodes: tuple[tuple[str, int], ...] = ()
    emulation: KernelFinding | None = None
    refusal: str = ""

    def __str__(self) -> str:
        """The outcome in a table's cell: "2 × HMMA.16816.F32, emulated"; "–" where the compiler refuses."""
        if self.refusal:
            return "–"
        shown = " + ".join(opcode if count == 1 else f"{count} × {opcode}" for opcode, count in self.opcodes) or "other instructions"
        return f"{shown}, emulated" if self.emulation else shown


def outcomes(architecture: str, probes: Iterable[Probe] | None = None) -> list[Outcome]:
    """Return what an architecture makes of each probe, in the order of the probes (all of them by default).

    Each is compiled alone, as a refused one would spoil the others; those that compile are disassembled together. Raises UllageError
    for an architecture that the compiler does not know.
    """
    compile_cubin('extern "C" __global__ void nothing() {}', architecture)  # an architecture that does not exist is no outcome
    chosen = list(PROBES.values() if probes is None else probes)
    refused = {one.name: _refusal(one, architecture) for one in chosen}
    accepted = [one for one in chosen if not refused[one.name]]
    functions = _functions(accepted, architecture)
    return [
        Outcome(one, architecture, refusal=refused[one.name]) if refused[one.name] else _outcome(one, architecture, functions[one.name])
        for one in chosen
    ]


def table(
    architectures: Sequence[str] = ARCHITECTURES, probes: Iterable[Probe] | None = None, progress: Callable[[str], None] = lambda _: None
) -> list[tuple[Probe, list[Outcome]]]:
    """Return each probe with its outcome on each architecture; some half a minute for all of them, `progress` is told of each."""
    chosen = list(PROBES.values() if probes is None else probes)
    columns = []
    for architecture in architectures:
        progress(f"compiling {len(chosen)} instructions for {harmless(architecture, 40)}")
        columns.append(outcomes(architecture, chosen))
    return [(one, [column[n] for column in columns]) for n, one in enumerate(chosen)]


def _refusal(probe: Probe, architecture: str) -> str:
    """Return the compiler's words, "" where it accepts; the line on the probe's own instruction goes before those on its frame."""
    try:
        compile_cubin(probe.kernel("probe"), architecture)
    except UllageError as error:
        lines = [line.rpartition("error   : ")[2] for line in (error.hint or error.problem).splitlines() if "error" in line]
        own = [line for line in lines if ".".join(probe.name.split(".")[:2]) in line]
        return (own or lines or [error.problem])[0].strip()
    return ""


def _functions(probes: Sequence[Probe], architecture: str) -> dict[str, Function]:
    if not probes:
        return {}
    entries = {f"probe_{n}": one for n, one in enumerate(probes)}
    source = "\n".join(one.kernel(entry) for entry, one in entries.items())
    return {entries[found.name].name: found for found in disassemble(compile_cubin(source, architecture)) if found.name in entries}


def _outcome(probe: Probe, architecture: str, function: Function) -> Outcome:
    found = Counter(one.opcode for one in function.instructions if one.root in probe.shows)
    findings = lint(function, [probe.asked] if probe.asked else []).findings
    emulation = next((finding for finding in findings if finding.sort == "emulated"), None)
    return Outcome(probe, architecture, tuple(found.items()), emulation)
