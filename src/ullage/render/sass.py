"""What binaries issue and what is wrong with it, as text and as plain data for JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ullage.errors import harmless
from ullage.kernels.sass.ceilings import Ceiling
from ullage.kernels.sass.finding import Finding
from ullage.reports.sass import Kernel, SassReport
from ullage.views.table import table

_ROWS = 60  # of a table on a terminal; JSON has them all
_NAME = 48  # characters of a kernel's name


def text(report: SassReport) -> str:
    """Return the lint as text: the answer, what each kernel issues, each finding with its evidence, the notes."""
    parts = [_verdict(report), _issued(report), *(_findings(one) for one in report.kernels[:_ROWS] if one.linted.findings)]
    parts += [_asked(report), "\n".join(f"note: {harmless(note, 400)}" for note in _notes(report))]
    return "\n\n".join(part for part in parts if part) + "\n"


def record(report: SassReport) -> dict[str, Any]:
    """Return the lint as plain data; a ceiling's `fraction` is None where it is not known."""
    return {
        "files": list(report.files),
        "bad": len(report.bad),
        "kernels": [
            {
                "name": one.name,
                "image": one.image,
                "architecture": one.architecture,
                "ptx": one.told,
                "tensor": [{"opcode": i.opcode, "count": i.count, "in_loops": i.looped} for i in one.linted.issued],
                "findings": [_finding(finding) for finding in one.linted.findings],
            }
            for one in report.kernels
        ],
        "kernels_without_tensor_instructions": report.others,
        "asked": [{"text": one.text, "line": one.line, "function": one.function} for one in report.asked],
        "notes": list(report.notes),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    asked = finding.asked
    return {
        "sort": finding.sort,
        "what": finding.what,
        "certain": finding.certain,
        "count": finding.count,
        "in_loops": finding.looped,
        "stand_in": finding.stand_in or None,
        "evidence": {"address": finding.evidence.address, "text": str(finding.evidence)},
        "asked": {"text": asked.text, "line": asked.line} if asked else None,
        "ceiling": _ceiling(finding.ceiling),
        "remedy": finding.remedy,
    }


def _ceiling(ceiling: Ceiling | None) -> dict[str, Any] | None:
    return None if ceiling is None else {"fraction": ceiling.fraction, "of": ceiling.of or None, "source": ceiling.source or None}


def _verdict(report: SassReport) -> str:
    files = ", ".join(harmless(name, 60) for name in report.files)
    total = len(report.kernels) + report.others
    if report.asked and not report.kernels:
        return f"not compiled, so what {files} issues is not known"
    if not report.bad:
        using = sum(bool(one.linted.issued) for one in report.kernels)
        return f"nothing emulated or legacy in {_kernels(total)}, {using:,} of them with tensor instructions: {files}"
    sorts = Counter(sort for one in report.bad for sort in {finding.sort for finding in one.bad})
    said = ", ".join(f"{count:,} {sort}" for sort, count in sorted(sorts.items()))
    falls = "falls" if len(report.bad) == 1 else "fall"
    return f"{len(report.bad):,} of {_kernels(total)} {falls} short of the tensor cores ({said}): {files}"


def _kernels(count: int) -> str:
    return f"{count:,} kernel{'' if count == 1 else 's'}"


def _issued(report: SassReport) -> str:
    rows = [
        [harmless(one.name, _NAME), one.architecture, i.opcode, f"{i.count:,}", f"{i.looped:,}", _mark(one, i.opcode)]
        for one in report.kernels
        for i in one.linted.issued
    ]
    if not rows:
        return ""
    head = ["kernel", "arch", "instruction", "count", "in loops", ""]
    more = f"\n… and {len(rows) - _ROWS:,} more; --json has all" if len(rows) > _ROWS else ""
    return table(head, rows[:_ROWS], left=3) + more


def _mark(kernel: Kernel, opcode: str) -> str:
    """Say of an opcode whether it stands in for another type or is of an older generation."""
    sorts = {one.sort for one in kernel.bad if opcode in (one.stand_in, one.evidence.opcode)}
    return ", ".join(sorted(sorts))


def _findings(kernel: Kernel) -> str:
    lines = [f"{harmless(kernel.name, 120)} ({harmless(kernel.image, 60)}, {kernel.architecture})"]
    for one in kernel.linted.findings:
        lines.append(f"  {one.sort}{'' if one.certain else ', likely'}: {one.what}")
        lines.append(
            f"    at 0x{one.evidence.address:04x}  {harmless(str(one.evidence), 110)}  ({one.count:,} such, {one.looped:,} in loops)"
        )
        lines += [f"    asked for at line {one.asked.line:,}: {harmless(one.asked.text, 100)}"] if one.asked and one.asked.line else []
        if one.ceiling:
            source = f" ({one.ceiling.source})" if one.ceiling.source else ""
            lines.append(f"    ceiling: {one.ceiling}{source}")
        lines += [f"    remedy: {one.remedy}"] if one.remedy else []
    return "\n".join(lines)


def _asked(report: SassReport) -> str:
    counts = Counter(harmless(one.text, 110) for one in report.asked)
    return table(["asked for", "count"], [[name, f"{count:,}"] for name, count in counts.most_common(_ROWS)]) if counts else ""


def _notes(report: SassReport) -> list[str]:
    guessed = any(not one.certain for kernel in report.kernels for one in kernel.linted.findings)
    return [*report.notes, *(["give the .ptx beside the binary to make the likely findings certain"] if guessed else [])]
