"""The view of a FLOP ledger, and of the tiles to expect of its products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import UNSET, UnsetType, field

from ullage.render.gemm import pair
from ullage.render.svg.terms import terms as terms_picture
from ullage.reports.flops import FlopsReport
from ullage.reports.gemms.ledger import TiledGemm, TilesReport, efficiency
from ullage.views.declared import At, Document, Flops, Made, Rate, Ratio, filled, plain_data
from ullage.views.files import FORMS as VIEW_FORMS
from ullage.views.files import Form
from ullage.views.notation import COUNT, FIGURES, FLOPS, PERCENT_1, TERAFLOPS
from ullage.views.numbers import flops, percent
from ullage.views.view import Column, Fact, Headline, Paragraph, Part, Picture, Section, Table, Value, View

ROWS = 60  # that a terminal shows: most models have fewer terms


def view(report: FlopsReport) -> View:
    """Return the answer as data: MFU where it is known, FLOPs by group of work or by its name, the tiles to expect."""
    by, tiles = report.by, report.tiles
    first, *others = _answers(report)
    picture = Picture(lambda width: terms_picture(report, width=width, standalone=False))
    return View(
        kind="flops",
        subject=f"FLOPs of a step, {report.ledger.architecture}",
        headline=first,
        basis=[str(answer) for answer in others],
        facts=[*_facts(report)],
        sections=[
            Section("groups", f"By {by}", [picture, _by(report, by)], _GROUPS),
            *([] if tiles is None else [Section("tiles", "Tiles to expect", _tiles(tiles), _TILES)]),
            Section("terms", "Every term", [_terms(report)], _TERMS, detail=True, long=True),
        ],
        notes=[*_notes(report), *([] if tiles is None else [*tiles.notes, _LEFT_OUT])],
    )


def _answers(report: FlopsReport) -> Iterator[Headline]:
    """Yield what is known, the utilization first, then the rate, the FLOPs, and what of them is executed."""
    ledger = report.ledger
    if report.mfu is not None:
        peak = f"{report.gpus:,} × {TERAFLOPS.words(report.peak)} TFLOP/s"
        rest = f", HFU {percent(report.hfu, 1)} of {peak}; OFU to expect {percent(report.expected_ofu, 1)}"
        yield Headline(f"MFU {percent(report.mfu, 1)}", rest, aside=report.peak_source or "")
    if report.tflops_per_gpu is not None:
        rest = f": {flops(ledger.training)} in {report.step_time:g} s on {report.gpus:,}"
        yield Headline(f"{report.tflops_per_gpu:,.1f} TFLOP/s per GPU", rest)
    how = f"{ledger.convention} attention" if ledger.convention in ("causal", "full") else f"counted as {ledger.convention} does"
    described = f"{ledger.architecture}, {how}, {ledger.status}{_per_token(report)}{_runs(report)}"
    forward = f"{flops(ledger.forward)} forward"
    if ledger.backward:
        yield Headline(f"{flops(ledger.training)} a step", f": {forward}, {flops(ledger.backward)} backward", aside=described)
    else:
        yield Headline(forward, aside=described)
    if ledger.executed != ledger.training:
        yield Headline(f"{flops(ledger.executed)} executed", f", {percent(report.model_efficiency, 1)} of them for the model")


def _per_token(report: FlopsReport) -> str:
    return f"; {flops(_flops_per_token(report))} a token of {report.step.tokens:,}" if report.step.tokens else ""


def _flops_per_token(report: FlopsReport) -> int | None:
    return report.ledger.training // report.step.tokens if report.step.tokens else None


def _runs(report: FlopsReport) -> str:
    runs = report.step.repeats
    return f"; the network runs {runs:,} times" if runs > 1 else ""


def _facts(report: FlopsReport) -> Iterator[Fact]:
    ledger = report.ledger
    if report.mfu is not None:
        yield Fact("MFU", report.mfu, PERCENT_1, "of the peak, for the model")
        yield Fact("HFU", report.hfu, PERCENT_1, "of the peak, executed")
        yield Fact("OFU to expect", report.expected_ofu, PERCENT_1, "what counters should show")
    yield Fact("Forward", ledger.forward, FLOPS)
    if ledger.backward:
        yield Fact("Backward", ledger.backward, FLOPS)
    yield Fact("Executed", ledger.executed, FLOPS, f"{percent(report.model_efficiency, 1)} of them for the model")
    if report.step.tokens:
        yield Fact("A token", _flops_per_token(report), FLOPS, f"of {report.step.tokens:,}")


_COLUMNS = {"forward": ("forward",), "backward": ("dgrad", "wgrad"), "recompute": ("recompute",)}


def _groups(report: FlopsReport, by: str) -> list[tuple[str, dict[str, int], float]]:
    """Return the FLOPs of each group (or name) of work by pass, and its share of all that is executed."""
    ledger = report.ledger
    sums = ledger.by(by, "pass_")
    columns = {c: passes for c, passes in _COLUMNS.items() if any(p in passes for _, p in sums)}
    found = []
    for key in dict.fromkeys(getattr(term, by) for term in ledger.terms):
        parts = {column: sum(sums.get((key, p), 0) for p in passes) for column, passes in columns.items()}
        found.append((key, parts, sum(parts.values()) / (ledger.executed or 1)))
    return found


def _by(report: FlopsReport, by: str) -> Table:
    groups = _groups(report, by)
    passes = groups[0][1] if groups else {}
    columns = [Column(by), *(Column(name, FLOPS) for name in passes), Column("share", PERCENT_1)]
    rows: list[list[Value]] = [[key, *parts.values(), share] for key, parts, share in groups]
    return Table("groups", columns, rows, brief=ROWS, elsewhere="--json has them all")


def _terms(report: FlopsReport) -> Table:
    columns = [Column("term"), Column("group"), Column("pass"), Column("precision"), Column("for the model"), Column("FLOPs", FLOPS)]
    rows: list[list[Value]] = [
        [term.name, term.group, term.pass_, term.precision, "yes" if term.model else "no", term.flops] for term in report.ledger.terms
    ]
    return Table("terms", columns, rows)


def _notes(report: FlopsReport) -> list[str]:
    ledger = report.ledger
    notes = [*report.notes, *ledger.notes]
    if ledger.uncertainty:
        share = percent(ledger.uncertainty, 1)
        notes.append(f"scans are counted as the chunked algorithm does them; as a recurrence the model needs {share} less")
    if ledger.counted.get("backward") == "exact":
        notes.append("backward is counted exactly: no gradient flows into data or what is frozen")
    return notes


def _tiles(tiles: TilesReport) -> list[Part]:
    """Return the tile efficiency to expect, and a row a term and pass, its largest product standing for it."""
    by = "; ".join(tiles.sources) or "nobody"
    answer = (
        f"tile efficiency {percent(tiles.efficiency, 1)} to expect, over {percent(tiles.share, 1)} of the step's FLOPs, "
        f"predicted for {tiles.gpu} by {by}"
    )
    sizes = [Column(name, COUNT) for name in ("M", "N", "K", "products")]
    tile = [Column("tile", FIGURES), Column("cluster", FIGURES), Column("efficiency", PERCENT_1)]
    rows = [_tiled(name, pass_, members) for (name, pass_), members in tiles.terms.items()]
    columns = [Column("term"), Column("pass"), *sizes, *tile]
    return [Paragraph(answer), Table("tiles", columns, rows, brief=ROWS, elsewhere="--json has them all")]


def _tiled(name: str, pass_: str, members: list[TiledGemm]) -> list[Value]:
    largest = max(members, key=lambda row: row.gemm.flops)
    product, tiling = largest.cover.product, largest.cover.tiling
    count = sum(row.gemm.count for row in members)
    return [name, pass_, product.m, product.n, product.k, count, tiling.words, pair(tiling.cluster), efficiency(members)]


FORMS = (*VIEW_FORMS, ".svg")


def more_forms(report: FlopsReport, made: View) -> dict[str, Form]:  # noqa: ARG001 - a question's `more_forms`
    """Return what makes the forms of files that other reports do not have: the terms as a picture."""
    return {".svg": lambda: str(terms_picture(report))}


class TiledProductDocument(Document, kw_only=True):
    """A product of a step, and the tiles that its library is predicted to take."""

    name: Annotated[str, At("gemm.name")]
    pass_: Annotated[str, At("gemm.pass_")] = field(name="pass")
    precision: Annotated[str, At("gemm.precision")]
    m: Annotated[int, At("gemm.m")]
    n: Annotated[int, At("gemm.n")]
    k: Annotated[int, At("gemm.k")]
    count: Annotated[int, At("gemm.count")]
    theoretical_flops: Annotated[Flops, At("gemm.flops")]
    executed_flops: Annotated[Flops, At("executed")]
    tile: Annotated[list[int], At("cover.tiling.tile")]
    k_tile: Annotated[int | None, At("cover.tiling.k_tile")]
    cluster: Annotated[list[int], At("cover.tiling.cluster")]
    tile_efficiency: Annotated[Ratio, At("cover.efficiency")]


class StepTilesDocument(Document):
    """The tiles to expect of a step's products."""

    tile_efficiency: Annotated[Ratio | None, At("efficiency")]
    share: Ratio
    gpu: str
    source: str
    source_detail: Annotated[list[str], At("sources")]
    products: Annotated[list[TiledProductDocument], At("rows")]
    notes: list[str]


class FlopsGroupDocument(Document, kw_only=True):
    """FLOPs of a group of work by pass, of those passes that the step has, and their share of all that is executed."""

    group: str
    forward: Flops | UnsetType = UNSET
    backward: Flops | UnsetType = UNSET
    recompute: Flops | UnsetType = UNSET
    share: Ratio


class FlopsTermDocument(Document):
    """FLOPs of one kind of work in one pass; `model` is whether the model's mathematics needs them."""

    name: str
    group: str
    pass_: str = field(name="pass")
    flops: Flops
    precision: str
    model: bool


class FlopsDocument(Document):
    """The answer of `ullage flops`: the FLOPs of a step; with a step time how fast it went, with a GPU its peak."""

    architecture: Annotated[str, At("ledger.architecture")]
    family: Annotated[str, At("ledger.family")]
    forward: Annotated[Flops, At("ledger.forward")]
    backward: Annotated[Flops, At("ledger.backward")]
    training: Annotated[Flops, At("ledger.training")]
    executed: Annotated[Flops, At("ledger.executed")]
    convention: Annotated[str, At("ledger.convention")]
    status: Annotated[str, At("ledger.status")]
    counted: Annotated[dict[str, str | list[str]], At("ledger.counted"), Made(dict)]
    uncertainty: Annotated[float, At("ledger.uncertainty")]
    model_efficiency: Ratio | None
    tokens: Annotated[int, At("step.tokens")]
    per_token: float | None
    groups: list[FlopsGroupDocument]
    terms: Annotated[list[FlopsTermDocument], At("ledger.terms")]
    notes: list[str]
    step_time: float | UnsetType = UNSET
    gpus: int | UnsetType = UNSET
    tflops_per_gpu: float | UnsetType | None = UNSET
    mfu: Ratio | UnsetType | None = UNSET
    hfu: Ratio | UnsetType | None = UNSET
    expected_ofu: Ratio | UnsetType | None = UNSET
    peak: Rate | UnsetType = UNSET
    peak_source: str | UnsetType | None = UNSET
    tiles: StepTilesDocument | UnsetType = UNSET


_TIMED = ("step_time", "gpus", "tflops_per_gpu", "mfu", "hfu", "expected_ofu")
_PEAK = ("peak", "peak_source")


def record(report: FlopsReport) -> dict[str, Any]:
    """Return the ledger as plain data: FLOPs as integers, ratios in [0, 1], FLOP/s; what is not known is null."""
    unset = (*(_TIMED if report.step_time is None else ()), *(_PEAK if report.peak is None else ()))
    return plain_data(
        FlopsDocument,
        report,
        per_token=_flops_per_token(report),
        groups=[FlopsGroupDocument(group=group, **parts, share=share) for group, parts, share in _groups(report, "group")],
        notes=list(_notes(report)),
        tiles=UNSET if report.tiles is None else filled(StepTilesDocument, report.tiles, source="predicted"),
        **dict.fromkeys(unset, UNSET),
    )


def tiles_record(tiles: TilesReport) -> dict[str, Any]:
    """Return the tiles to expect as plain data: a product a row, ratios in [0, 1]; null where there is no product."""
    return plain_data(StepTilesDocument, tiles, source="predicted")


_GROUPS = "FLOPs of the step by pass. The share is of all that is executed."
_TILES = "The largest product of a term stands for it. Tiles and clusters are those that its library is predicted to take."
_TERMS = "Every term of the ledger. What is not for the model is only executed: recomputation, padding."
_LEFT_OUT = "M and N as cuBLAS counts them; attention, scans and convolutions run in kernels of their own and are left out"
