"""The view of what binaries issue, and of what is wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

from ullage.errors import harmless
from ullage.kernels.sass.finding import KernelFinding
from ullage.kernels.sass.instruction import Instruction
from ullage.reports.sass import BinaryKernel, SassReport
from ullage.views.declared import At, Document, Made, Ratio, Words, plain_data
from ullage.views.notation import COUNT
from ullage.views.numbers import counted
from ullage.views.view import Column, Headline, Item, ItemList, Section, Table, Value, View

ROWS = 60  # of a table on a terminal, and kernels whose findings are listed; JSON has them all


def view(report: SassReport) -> View:
    """Return the lint as data: the answer, what each kernel issues, each finding with its evidence, what PTX asked for."""
    return View(
        kind="sass",
        subject="Tensor instructions of a binary",
        headline=_headline(report),
        sections=[
            Section("issued", "What is issued", [_issued(report)]),
            *(_findings(number, one) for number, one in enumerate(report.kernels[:ROWS]) if one.linted.findings),
            Section("asked", "What PTX asks for", [_asked(report)]),
        ],
        notes=_notes(report),
    )


def _headline(report: SassReport) -> Headline:
    files = ", ".join(harmless(name, 60) for name in report.files)
    total = counted(len(report.kernels) + report.others, "kernel")
    if report.asked and not report.kernels:
        return Headline("not compiled", f", so what {files} issues is not known")
    if not report.bad:
        using = sum(bool(one.linted.issued) for one in report.kernels)
        return Headline("nothing emulated or legacy", f" in {total}, {using:,} of them with tensor instructions: {files}")
    sorts = Counter(sort for one in report.bad for sort in {finding.sort for finding in one.bad})
    said = ", ".join(f"{count:,} {sort}" for sort, count in sorted(sorts.items()))
    falls = "falls" if len(report.bad) == 1 else "fall"
    return Headline(f"{len(report.bad):,} of {total}", f" {falls} short of the tensor cores ({said}): {files}")


def _issued(report: SassReport) -> Table:
    rows: list[list[Value]] = [
        [one.name, one.architecture, issued.opcode, issued.count, issued.looped, _mark(one, issued.opcode)]
        for one in report.kernels
        for issued in one.linted.issued
    ]
    columns = [Column("kernel"), Column("arch"), Column("instruction"), Column("count", COUNT), Column("in loops", COUNT)]
    return Table("issued", [*columns, Column("", key="finding")], rows, brief=ROWS, elsewhere="--json has all")


def _asked(report: SassReport) -> Table:
    counts = Counter(one.text for one in report.asked)
    rows: list[list[Value]] = [[text, count] for text, count in counts.most_common()]
    return Table("asked", [Column("asked for", room=110), Column("count", COUNT)], rows, brief=ROWS)


def _mark(kernel: BinaryKernel, opcode: str) -> str:
    """Say of an opcode whether it stands in for another type or is of an older generation."""
    sorts = {one.sort for one in kernel.bad if opcode in (one.stand_in, one.evidence.opcode)}
    return ", ".join(sorted(sorts))


def _findings(number: int, kernel: BinaryKernel) -> Section:
    title = f"{harmless(kernel.name, 120)} ({harmless(kernel.image, 60)}, {kernel.architecture})"
    items = [Item(f"{one.sort}{'' if one.certain else ', likely'}: {one.what}", remarks=[*_remarks(one)]) for one in kernel.linted.findings]
    return Section(f"findings-{number}", title, [ItemList(items)], headed=True)


def _remarks(one: KernelFinding) -> Iterator[str]:
    yield f"at 0x{one.evidence.address:04x}  {harmless(str(one.evidence), 110)}  ({one.count:,} such, {one.looped:,} in loops)"
    if one.asked and one.asked.line:
        yield f"asked for at line {one.asked.line:,}: {harmless(one.asked.text, 100)}"
    if one.ceiling:
        yield f"ceiling: {one.ceiling}{f' ({one.ceiling.source})' if one.ceiling.source else ''}"
    if one.remedy:
        yield f"remedy: {one.remedy}"


def _notes(report: SassReport) -> list[str]:
    guessed = any(not one.certain for kernel in report.kernels for one in kernel.linted.findings)
    return [*report.notes, *(["give the .ptx beside the binary to make the likely findings certain"] if guessed else [])]


class IssuedDocument(Document):
    """A tensor instruction that a kernel issues."""

    opcode: str
    count: int
    in_loops: Annotated[int, At("looped")]


class EvidenceDocument(Document):
    """Where a finding is seen."""

    address: int
    text: str


def _evidence(found: Instruction) -> EvidenceDocument:
    return EvidenceDocument(address=found.address, text=str(found))


class AskedInstructionDocument(Document):
    """What the PTX asked for."""

    text: str
    line: int


class AskedInFunctionDocument(AskedInstructionDocument):
    """What the PTX of a function asked for."""

    function: str


class InstructionCeilingDocument(Document):
    """What is left of a peak; `fraction` is null where it is not known."""

    fraction: Ratio | None
    of: Words
    source: Words


class SassFindingDocument(Document):
    """What is emulated, legacy or otherwise slow in a kernel, and what to do about it."""

    sort: str
    what: str
    certain: bool
    count: int
    in_loops: Annotated[int, At("looped")]
    stand_in: Words
    evidence: Annotated[EvidenceDocument, Made(_evidence)]
    asked: AskedInstructionDocument | None
    ceiling: InstructionCeilingDocument | None
    remedy: str


class SassKernelDocument(Document):
    """A kernel with tensor instructions."""

    name: str
    image: str
    architecture: str
    ptx: Annotated[bool, At("told")]
    tensor: Annotated[list[IssuedDocument], At("linted.issued")]
    findings: Annotated[list[SassFindingDocument], At("linted.findings")]


class SassDocument(Document):
    """The answer of `ullage sass`."""

    files: list[str]
    bad: Annotated[int, Made(len)]
    kernels: list[SassKernelDocument]
    kernels_without_tensor_instructions: Annotated[int, At("others")]
    asked: list[AskedInFunctionDocument]
    notes: list[str]


def record(report: SassReport) -> dict[str, Any]:
    """Return the lint as plain data."""
    return plain_data(SassDocument, report)
