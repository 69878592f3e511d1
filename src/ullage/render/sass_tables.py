"""What architectures make of instructions, as Markdown, text and plain data; and Table VI of the Hopper paper, printed anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from ullage.errors import harmless
from ullage.kernels.sass.asked import MatrixInstruction
from ullage.kernels.sass.outcomes import Outcome
from ullage.kernels.sass.probe import Probe
from ullage.views.declared import At, Document, Made, Words, filled, plain
from ullage.views.files import FORMS as VIEW_FORMS
from ullage.views.files import Form
from ullage.views.numbers import counted
from ullage.views.view import Column, Headline, Paragraph, Section, Table, View

Outcomes = Sequence[tuple[Probe, Sequence[Outcome]]]

_NAMES = {"f16": "FP16", "f32": "FP32", "bf16": "BF16", "tf32": "TF32", "f64": "FP64", "s32": "INT32"}
_NAMES |= {"e4m3": "FP8 E4M3", "e5m2": "FP8 E5M2", "s8": "INT8", "s4": "INT4", "b1": "binary"}


def paper(outcomes: Sequence[Outcome]) -> str:
    """Return Table VI of "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture" in Markdown, from one architecture's outcomes.

    A row is a type of A and B with a type of the result, for the largest dense shape; "–" is what the compiler refuses or PTX lacks.
    """
    rows: dict[tuple[str, str], dict[str, Outcome]] = {}
    for one in outcomes:
        if one.probe.asked and _of_table(one.probe.asked):
            rows.setdefault(_types(one.probe.asked), {})[one.probe.family] = one
    lines = ["| A/B | C/D | mma | wgmma |", "|---|---|---|---|"]
    lines += [f"| {a} | {result} | {_in(found, 'mma')} | {_in(found, 'wgmma')} |" for (a, result), found in rows.items()]
    return "\n".join(lines) + "\n"


def _of_table(asked: MatrixInstruction) -> bool:
    plain = not asked.sparse and "::" not in asked.text and asked.kind != "b1.xor"
    return asked.family in ("mma", "wgmma") and plain and _types(asked)[0] != "" and asked.kind not in ("u8", "u4")


def _types(asked: MatrixInstruction) -> tuple[str, str]:
    return _NAMES.get(asked.types[1], ""), _NAMES.get(asked.types[0], "")


def _in(found: Mapping[str, Outcome], family: str) -> str:
    return _cell(found[family]) if family in found else "–"


def refreshed(page: str, blocks: Mapping[str, str]) -> str:
    """Return a page with each block between `<!-- NAME -->` and `<!-- /NAME -->` printed anew; a page without a mark stays as it is.

    >>> refreshed("<!-- x -->old<!-- /x -->", {"x": "new"})
    '<!-- x -->\\nnew\\n<!-- /x -->'
    """
    for name, block in blocks.items():
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        head, opened, rest = page.partition(start)
        _, closed, tail = rest.partition(end)
        if opened and closed:
            page = f"{head}{start}\n{block}\n{end}{tail}"
    return page


def markdown(rows: Outcomes) -> str:
    """Return the table of instructions over architectures in Markdown, with the compiler's refusals below it."""
    head = ["instruction", *(outcome.architecture for outcome in rows[0][1])]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    lines += ["| " + " | ".join([f"`{probe.name}`", *(_cell(one) for one in outcomes)]) + " |" for probe, outcomes in rows]
    return "\n".join(lines) + "\n"


def _cell(outcome: Outcome) -> str:
    if outcome.refusal:
        return "–"
    whole, comma, emulated = str(outcome).partition(", emulated")
    return f"`{whole}`" + (f", **{emulated or 'emulated'}**" if comma else "")


def view(rows: Outcomes) -> View:
    """Return the table as data: a terminal shows an instruction, and below it what each architecture makes of it."""
    architectures = [outcome.architecture for outcome in rows[0][1]]
    cells = [[probe.name, *map(_words, outcomes)] for probe, outcomes in rows]
    table = Table("instructions", [Column("instruction"), *map(Column, architectures)], cells, detail=True)
    listed = "\n".join(line for probe, outcomes in rows for line in _lines(probe, outcomes))
    about = f", and what {counted(len(architectures), 'architecture')} make of them"
    return View(
        kind="sass-table",
        subject="Tensor instructions",
        headline=Headline(counted(len(rows), "instruction"), about),
        sections=[Section("instructions", "Instructions", [Paragraph(listed, kept=True, drawn=True), table])],
    )


def _lines(probe: Probe, outcomes: Sequence[Outcome]) -> list[str]:
    width = max(len(one.architecture) for one in outcomes)
    return [probe.name, *(f"  {one.architecture.ljust(width)}  {_words(one)}" for one in outcomes)]


def _words(outcome: Outcome) -> str:
    return f"refused: {harmless(outcome.refusal, 110)}" if outcome.refusal else str(outcome)


FORMS = VIEW_FORMS


def more_forms(rows: Outcomes, made: View) -> dict[str, Form]:  # noqa: ARG001 - a question's `more_forms`
    """Return what makes Markdown of the table: as the pages of docs/ have it."""
    return {".md": lambda: markdown(rows)}


class OutcomeDocument(Document):
    """What the compiler makes of an instruction on one architecture."""

    opcodes: Annotated[dict[str, int], Made(dict)]
    emulated: Annotated[str | None, At("emulation.what")]
    refused: Annotated[Words, At("refusal")]


class ProbeDocument(Document):
    """An instruction over architectures."""

    instruction: str
    family: str
    architectures: dict[str, OutcomeDocument]


class SassTableDocument(Document):
    """The answer of `ullage sass --table`."""

    instructions: list[ProbeDocument]


def record(rows: Outcomes) -> dict[str, Any]:
    """Return the table as plain data: per instruction and architecture its opcodes with counts, and what is emulated or refused."""
    return plain(SassTableDocument(instructions=[_probe(probe, outcomes) for probe, outcomes in rows]))


def _probe(probe: Probe, outcomes: Sequence[Outcome]) -> ProbeDocument:
    found = {one.architecture: filled(OutcomeDocument, one) for one in outcomes}
    return ProbeDocument(instruction=probe.name, family=probe.family, architectures=found)
