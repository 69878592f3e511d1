"""Print the tables of docs/benches.md anew, from what was recorded: `python docs/bench_tables.py`.

What was recorded lies in results/<gpu>/benches/*.json, as `make gpu` writes it. Without it the tables hold the papers' figures alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from ullage.benches.bench import BENCHES
from ullage.benches.result import BenchResult, restored
from ullage.render.bench import headline, section
from ullage.render.bench_words import made_on
from ullage.render.svg.roofline import roofline as picture
from ullage.reports.bench.bench import BenchReport, bench_report
from ullage.reports.bench.roofline import roofline
from ullage.views.text import section_text

FOLDER = Path(__file__).parent
RESULTS = FOLDER.parent / "results"
PAGE = FOLDER / "benches.md"
BEGIN, END = "<!-- tables: printed by docs/bench_tables.py -->", "<!-- end of tables -->"
WIDTH = 118


def recorded(results: Path) -> dict[str, list[BenchResult]]:
    """Return what was measured, by the folder of its GPU; of no GPU nothing."""
    folders = {path.parent.name: sorted(path.glob("*.json")) for path in sorted(results.glob("*/benches"))}
    found = {name: [restored(json.loads(file.read_text(encoding="utf-8")), str(file)) for file in files] for name, files in folders.items()}
    return {name: suite for name, suite in found.items() if suite}


def tables(results: Path = RESULTS) -> str:
    """Return the tables as Markdown: a section for each GPU that was measured, then the figures of benches that none was measured on."""
    suites = recorded(results)
    reports = {name: bench_report(suite) for name, suite in suites.items()}
    measured = {table.member.name for report in reports.values() for table in report.tables if table.measured}
    parts = [part for name, report in reports.items() for part in _gpu(name, report)]
    return "\n\n".join([*parts, *_published([name for name in sorted(BENCHES) if name not in measured])])


def pictures(results: Path = RESULTS) -> dict[str, str]:
    """Return the rooflines of what was measured, by their paths in docs/."""
    drawn = {}
    for name, suite in recorded(results).items():
        report = bench_report(suite)
        roofs = roofline(report.results, report.chip)
        if roofs is not None:
            drawn[f"images/roofline-{name}.svg"] = str(picture(roofs))
    return drawn


def page(results: Path = RESULTS) -> str:
    """Return docs/benches.md with its tables printed anew."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n\n{tables(results)}\n\n{END}{rest.partition(END)[2]}"


def _gpu(name: str, report: BenchReport) -> Iterator[str]:
    yield f"## {report.gpu}"
    yield f"{headline(report)}.\n{made_on(report.results)}."
    if roofline(report.results, report.chip) is not None:
        yield f"![Roofline of {report.gpu}](images/roofline-{name}.svg)"
    yield from (_block(section_text(section(table), width=WIDTH)) for table in report.tables if table.lines)
    if report.notes:
        yield "\n".join(f"- {note}" for note in report.notes)


def _published(names: list[str]) -> Iterator[str]:
    """Yield the figures of papers for benches that were measured on no GPU, and which of these have none."""
    if not names:
        return
    yield "## Not measured yet"
    report = bench_report([], names)
    known = [table for table in report.tables if table.lines]
    if known:
        yield "What papers and makers tell of their GPUs:"
        yield from (_block(section_text(section(table), width=WIDTH)) for table in known)
    without = [f"`{table.member.name}` ({table.member.title})" for table in report.tables if not table.lines]
    if without:
        yield f"Not measured yet, and no paper gives figures in numbers: {', '.join(without)}."


def _block(text: str) -> str:
    return f"```text\n{text}\n```"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    for path, drawn in pictures().items():
        (FOLDER / path).write_text(drawn, encoding="utf-8")
