"""A stall report as text, as plain data for JSON, as folded stacks for other viewers, and as a page."""

from __future__ import annotations

from typing import Any

from ullage.cupti.stalls import GROUPS
from ullage.errors import harmless
from ullage.kernels.sass.lines import Place
from ullage.render.html_tables import Cell, listed
from ullage.render.html_tables import table as html_table
from ullage.render.svg.flame import flame
from ullage.reports.stall_frames import frames, paths
from ullage.reports.stall_shares import KernelStalls, Share, Spot, StallReport
from ullage.views.markup import Markup, element
from ullage.views.numbers import percent
from ullage.views.page import document, figure, section
from ullage.views.table import table

_NAME, _SASS = 60, 44  # characters of a kernel's name and of an instruction
_REASONS = 5  # of a kernel
_PAGE = 200  # kernels on a page
_HEAD = ["kernel", "samples", "share", "issued", "ready", "waits", "mostly for"]
_HOW = "a stall is counted at the instruction that waits, not at the one it waits for"


def headline(report: StallReport) -> str:
    """Return the answer: what most samples waited for, of how many samples and kernels."""
    count = len(report.kernels)
    about = f"{report.samples:,} samples of {count:,} kernel{'' if count == 1 else 's'}"
    if report.worst is None:
        return f"nothing was waited for in {about}"
    return f"{_part(report.worst.samples, report.samples)} of {about} waited for {_for(report.worst)}"


def text(report: StallReport, top: int = 10) -> str:
    """Return the report as text: the answer, the kernels, then of each of the `top` kernels its reasons, hottest instructions, advice."""
    rows = [_row(one, report.samples) for one in report.kernels[: max(top, 1)]]
    more = len(report.kernels) - len(rows)
    parts = [headline(report), table(_HEAD, rows) + (f"\n… and {more:,} more kernels; --top shows them" if more > 0 else "")]
    parts += [_kernel(one, top) for one in report.kernels[: min(top, 5)]]
    parts += ["\n".join(f"note: {harmless(note, 400)}" for note in _notes(report))]
    return "\n\n".join(part for part in parts if part) + "\n"


def folded(report: StallReport) -> str:
    """Return folded stacks, `kernel;line;reason samples` a line, which flame graph viewers read."""
    return "".join(f"{';'.join(_folded(name) for name in names)} {count}\n" for names, count in paths(frames(report)))


def page(report: StallReport) -> str:
    """Return the report as one self-contained HTML document."""
    rows = [[Cell(words) for words in _row(one, report.samples, shown=400)] for one in report.kernels[:_PAGE]]
    return str(
        document(
            "stalls",
            element("h1", headline(report)),
            element("p", _measured(report), class_="how") if _measured(report) else None,
            figure(lambda width: flame(report, width=width, standalone=False)),
            section("kernels", "Kernels", "Most samples first.", html_table("kernels", _HEAD, rows)),
            [_section(number, one) for number, one in enumerate(report.kernels[:5])],
            section("notes", "Notes", "", listed(_notes(report))),
        )
    )


def record(report: StallReport) -> dict[str, Any]:
    """Return the report as plain data; what is not known is None."""
    facts = report.facts
    return {
        "samples": report.samples,
        "chip": facts.chip,
        "cupti": facts.release,
        "mode": facts.mode,
        "cycles_per_sample": facts.cycles,
        "sm_clock": facts.clock,
        "counted": facts.total,
        "dropped": facts.dropped,
        "hardware_buffer_overflows": facts.full,
        "reasons": [_share(one, report.samples) for one in report.shares],
        "kernels": [_kernel_record(one, report.samples) for one in report.kernels],
        "notes": list(report.notes),
    }


def _kernel_record(kernel: KernelStalls, samples: int) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "mangled": kernel.mangled,
        "cubin": f"{kernel.cubin:016x}",
        "matched_by": kernel.matched or None,
        "samples": kernel.samples,
        "share": kernel.samples / samples,
        "states": {group: kernel.count(group) for group in GROUPS},
        "reasons": [_share(one, kernel.samples) for one in kernel.shares],
        "lines": [
            {"file": place.file, "line": place.line, "reasons": {one.reason.name: one.samples for one in shares}}
            for place, shares in kernel.lines
        ],
        "instructions": [_spot(one) for one in kernel.spots],
        "advice": [{"reason": one.reason.name, "advice": one.reason.advice} for one in kernel.advised],
    }


def _share(share: Share, samples: int) -> dict[str, Any]:
    return {
        "reason": share.reason.name,
        "group": share.reason.group,
        "samples": share.samples,
        "latency_samples": share.latency,
        "share": share.samples / samples,
        "meaning": share.reason.meaning,
    }


def _spot(spot: Spot) -> dict[str, Any]:
    return {
        "pc": spot.pc,
        "samples": spot.samples,
        "instruction": None if spot.instruction is None else str(spot.instruction),
        "file": None if spot.place is None else spot.place.file,
        "line": None if spot.place is None else spot.place.line,
        "reasons": {one.reason.name: one.samples for one in spot.shares},
    }


def _row(kernel: KernelStalls, samples: int, shown: int = _NAME) -> list[str]:
    worst = next((one for one in kernel.shares if one.waits), None)
    told = [f"{kernel.samples:,}", _part(kernel.samples, samples)]
    told += [_part(count, kernel.samples) for count in (kernel.count("issued"), kernel.count("ready"), kernel.waiting)]
    return [harmless(kernel.name, shown), *told, "–" if worst is None else harmless(worst.reason.name, 30)]


def _kernel(kernel: KernelStalls, top: int) -> str:
    rows = [
        [harmless(one.reason.name, 30), one.reason.meaning, f"{one.samples:,}", _part(one.samples, kernel.samples)]
        for one in kernel.shares[:_REASONS]
    ]
    reasons = table(["reason", "meaning", "samples", "share"], rows, left=2)
    lines = table(_LINES, [_line_row(*one, kernel) for one in kernel.lines[:top]], left=2) if kernel.lines else ""
    spots = table(_SPOTS, [_spot_row(one, kernel) for one in kernel.spots[:top]], left=4)
    advice = "\n".join(f"{one.reason.name}: {one.reason.advice}" for one in kernel.advised)
    return "\n\n".join([harmless(kernel.name, 120), *(_indented(block) for block in (reasons, lines, spots, advice) if block)])


_SPOTS = ["at", "instruction", "line", "mostly", "samples", "share"]


_LINES = ["line", "mostly", "samples", "share"]


def _line_row(place: Place, shares: tuple[Share, ...], kernel: KernelStalls) -> list[str]:
    count = sum(one.samples for one in shares)
    return [harmless(place.short, 60), harmless(shares[0].reason.name, 30), f"{count:,}", _part(count, kernel.samples)]


def _spot_row(spot: Spot, kernel: KernelStalls) -> list[str]:
    return [
        f"0x{spot.pc:04x}",
        "–" if spot.instruction is None else harmless(str(spot.instruction), _SASS),
        "–" if spot.place is None else harmless(spot.place.short, 40),
        harmless(spot.shares[0].reason.name, 30) if spot.shares else "–",
        f"{spot.samples:,}",
        _part(spot.samples, kernel.samples),
    ]


def _section(number: int, kernel: KernelStalls) -> Markup:
    rows = [[Cell(words) for words in _spot_row(one, kernel)] for one in kernel.spots[:50]]
    said = [f"{one.reason.name} ({one.reason.meaning}): {one.reason.advice}" for one in kernel.advised]
    lines = [[Cell(words) for words in _line_row(*one, kernel)] for one in kernel.lines[:50]]
    body = [
        html_table("lines of source", _LINES, lines, words=2) if lines else None,
        html_table("instructions", _SPOTS, rows, words=4),
        listed(said) if said else None,
    ]
    return section(f"kernel-{number}", kernel.name, "Where its samples are; " + _HOW + ".", body)


def _notes(report: StallReport) -> list[str]:
    measured = _measured(report)
    return [*report.notes, *([measured] if measured else []), _HOW]


def _measured(report: StallReport) -> str:
    facts = report.facts
    every = f"one sample every {facts.cycles:,} cycles" if facts.cycles else ""
    clock = f"at {facts.clock / 1e6:,.0f} MHz" if facts.clock else ""
    told = [facts.chip or "", every, clock, facts.mode or "", f"CUPTI {facts.release}" if facts.release else ""]
    return ", ".join(harmless(one, 60) for one in told if one)


def _for(share: Share) -> str:
    return f"{share.reason.waits} ({share.reason.name})" if share.reason.waits != share.reason.name else harmless(share.reason.name, 60)


def _part(count: int, whole: int) -> str:
    return percent(count / whole) if whole else "–"


def _folded(name: str) -> str:
    return harmless(name, 400).replace(";", ",")


def _indented(block: str) -> str:
    return "\n".join(f"  {line}" for line in block.splitlines())
